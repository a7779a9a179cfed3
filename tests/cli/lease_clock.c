/*
 * Preloaded into idem (LD_PRELOAD), so that a test controls the clock of leases and timers
 * (CLOCK_BOOTTIME). The file that IDEM_LEASE_CLOCK names holds how far the clock is ahead, and
 * the time at which it stops. The test changes the file while idem runs.
 */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../clock_file.h"
#include "lease_clock.h"

static const volatile struct lease_clock *clock_at;

__attribute__((constructor)) static void clock_map(void) {
    clock_at = clock_file_map("IDEM_LEASE_CLOCK", sizeof(*clock_at));
}

int clock_gettime(clockid_t id, struct timespec *ret) {
    int rc = (int)syscall(SYS_clock_gettime, id, ret);

    if (rc != 0 || id != CLOCK_BOOTTIME || clock_at == NULL)
        return rc;
    if (clock_at->stopped_s != 0)
        *ret = (struct timespec){.tv_sec = clock_at->stopped_s};
    ret->tv_sec += clock_at->ahead_s;
    return 0;
}
