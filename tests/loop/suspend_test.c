/*
 * A machine that is suspended: the clock of leases goes on, and that of poll(2) stands still. Here
 * it stands still for good, and what is due must be done all the same.
 */
#include <poll.h>

#include "core/calls.h"
#include "loop/loop.h"
#include "loop/poll.h"

/* In place of the C library's; the names are its own. */
int poll(struct pollfd *fds, nfds_t n, int ms) {
    return ppoll(fds, n, ms == 0 ? &(struct timespec){0} : NULL, NULL);
}

static int fired;

static void timer_fire(struct idem_timer *timer) {
    (void)timer;
    fired++;
}

static void sink_timeout(void *sink) {
    idem_loop_timeout(sink);
}

TEST(a_timer_of_the_poll_host_fires) {
    struct idem_timer timer = {.fire = timer_fire};
    struct idem_loop loop;
    struct idem_host hooks;
    struct idem_poll host;

    idem_poll_init(&host);
    host.timeout = sink_timeout;
    host.sink = &loop;
    hooks = idem_poll_host(&host);
    idem_loop_init(&loop, &hooks);
    for (int i = 1; i <= 2; i++) {
        idem_timer_set(&loop, &timer, 30);
        while (fired < i)
            CHECK_INT(idem_poll_turn(&host, NULL, 0, -1), 0);
    }
    idem_poll_release(&host);
}

TEST(a_turn_with_a_limit_ends) {
    int64_t begun = idem_loop_now();
    struct idem_poll host;

    idem_poll_init(&host);
    CHECK_INT(idem_poll_turn(&host, NULL, 0, 30), 0);
    CHECK(idem_loop_now() - begun >= 29);
    idem_poll_release(&host);
}

TEST(a_run_that_blocks_is_cancelled_in_time) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.run_max_ms = 100});
    struct work work = {.until_cancel = true};

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK(work.cancelled);
    idem_guard_free(guard);
    idem_close(h);
}

TEST_MAIN
