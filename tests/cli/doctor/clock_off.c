/*
 * Put before idem (LD_PRELOAD): the time of day is IDEM_CLOCK_OFF seconds off.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *ret) {
    static int (*real)(clockid_t clock, struct timespec * ret);
    const char *off = getenv("IDEM_CLOCK_OFF");
    int rc;

    if (real == NULL)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    rc = real(clock, ret);
    if (clock == CLOCK_REALTIME && off != NULL)
        ret->tv_sec += strtol(off, NULL, 10);
    return rc;
}
