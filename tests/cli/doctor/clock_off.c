/*
 * A preload for idem (LD_PRELOAD): shifts the time of day by IDEM_CLOCK_OFF
 * seconds.
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
