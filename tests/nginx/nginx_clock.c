/*
 * Preloaded into nginx (LD_PRELOAD), so that a test controls its clocks. The
 * file that IDEM_NGINX_CLOCK names holds how far they are ahead, and the time
 * at which each of them stops. The test changes the file while nginx runs; a
 * worker sees a change at its next turn. Other threads wait by CLOCK_MONOTONIC,
 * which stays real for them.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "clock_file.h"

struct nginx_clock {
    int64_t ahead_ms;
    int64_t wall_ms;               /* the time of day; 0: it runs */
    int64_t monotonic_ms, boot_ms; /* the clocks of timers; 0: they run */
};

static const volatile struct nginx_clock *clock_at;

__attribute__((constructor)) static void clock_map(void) {
    clock_at = clock_file_map("IDEM_NGINX_CLOCK", sizeof(*clock_at));
}

static struct timespec clock_moved(struct timespec now, int64_t ms) {
    int64_t ns = now.tv_nsec + ms % 1000 * 1000000;

    return (struct timespec){.tv_sec = now.tv_sec + ms / 1000 + ns / 1000000000,
                             .tv_nsec = ns % 1000000000};
}

static bool clock_is_ours(clockid_t id) {
    return id == CLOCK_REALTIME || id == CLOCK_BOOTTIME ||
           (id == CLOCK_MONOTONIC && syscall(SYS_gettid) == getpid());
}

int clock_gettime(clockid_t id, struct timespec *ret) {
    int rc = (int)syscall(SYS_clock_gettime, id, ret);
    int64_t still;

    if (rc != 0 || clock_at == NULL || !clock_is_ours(id))
        return rc;
    still = id == CLOCK_REALTIME   ? clock_at->wall_ms
            : id == CLOCK_BOOTTIME ? clock_at->boot_ms
                                   : clock_at->monotonic_ms;
    if (still != 0)
        *ret = (struct timespec){0};
    *ret = clock_moved(*ret, still + clock_at->ahead_ms);
    return 0;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone) {
    struct timespec now;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *ret = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}
