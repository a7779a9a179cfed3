/* The clock, in place of the C library's. Only CLOCK_BOOTTIME is the test's. */
#include "loop_clock.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ll

static _Atomic int64_t ahead;   /* ns */
static _Atomic int64_t stopped; /* stopped at this time, in ns; 0: running */

static int64_t real_now(void) {
    struct timespec ts;

    (void)syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &ts);
    return ts.tv_sec * SECOND + ts.tv_nsec;
}

int clock_gettime(clockid_t id, struct timespec *ret) {
    int64_t now;

    if (id != CLOCK_BOOTTIME)
        return (int)syscall(SYS_clock_gettime, id, ret);
    now = stopped != 0 ? stopped : real_now() + ahead;
    *ret = (struct timespec){.tv_sec = now / SECOND, .tv_nsec = now % SECOND};
    return 0;
}

void loop_clock_stop(void) {
    if (stopped == 0)
        stopped = real_now() + ahead;
}

void loop_clock_go_on(void) {
    if (stopped == 0)
        return;
    ahead = stopped - real_now();
    stopped = 0;
}

void loop_clock_forward(int64_t ms) {
    if (stopped != 0)
        stopped += ms * 1000000;
    else
        ahead += ms * 1000000;
}
