/*
 * The poll(2) host. Fails only if there is no memory for a new descriptor; the watch then returns
 * an error. Turns allocate nothing.
 *
 * poll(2) measures its timeout on a clock that stops while the machine is suspended; leases do not
 * stop. So the set includes a timerfd on the clock of idem_loop_now(). Without a timerfd, poll's
 * own timeout bounds the sleep.
 */
#include "loop/poll.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop.h"

void idem_poll_init(struct idem_poll *poll) {
    *poll = (struct idem_poll){.deadline = INT64_MAX};
    poll->clock_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
}

void idem_poll_release(struct idem_poll *poll) {
    if (poll->clock_fd >= 0)
        close(poll->clock_fd);
    free(poll->fds);
    *poll = (struct idem_poll){.deadline = INT64_MAX, .clock_fd = -1};
}

static struct pollfd *poll_find(struct idem_poll *poll, int fd) {
    for (size_t i = 0; i < poll->n; i++)
        if (poll->fds[i].fd == fd)
            return &poll->fds[i];
    return NULL;
}

static int poll_watch(void *data, int fd, int events) {
    struct idem_poll *poll = data;
    struct pollfd *it = poll_find(poll, fd);

    if (events == 0) {
        if (it != NULL)
            *it = poll->fds[--poll->n];
        return 0;
    }
    if (it == NULL) {
        if (poll->n == IDEM_POLL_MAX)
            return -1;
        if (poll->n == poll->size) {
            size_t size = poll->size == 0 ? 8 : 2 * poll->size;
            struct pollfd *fds = reallocarray(poll->fds, size, sizeof(*fds));

            if (fds == NULL)
                return -1;
            poll->fds = fds;
            poll->size = size;
        }
        it = &poll->fds[poll->n++];
    }
    it->fd = fd;
    it->revents = 0;
    it->events = (short)((events & IDEM_READ ? POLLIN : 0) | (events & IDEM_WRITE ? POLLOUT : 0));
    return 0;
}

static void poll_timer(void *data, int64_t ms) {
    struct idem_poll *poll = data;

    poll->deadline = ms < 0 ? INT64_MAX : ms == 0 ? INT64_MIN : idem_loop_now() + ms;
}

struct idem_host idem_poll_host(struct idem_poll *poll) {
    return (struct idem_host){.data = poll, .watch = poll_watch, .timer = poll_timer};
}

static int poll_pause(const struct idem_poll *poll, int64_t max_ms) {
    int64_t ms = max_ms < 0 ? INT_MAX : max_ms;

    if (poll->deadline == INT64_MIN) {
        ms = 0;
    } else if (poll->deadline != INT64_MAX) {
        int64_t left = poll->deadline - idem_loop_now();

        if (left < ms)
            ms = left > 0 ? left : 0;
    }
    if (ms > INT_MAX)
        ms = INT_MAX;
    return max_ms < 0 && ms == INT_MAX ? -1 : (int)ms;
}

size_t idem_poll_collect(const struct idem_poll *poll, struct pollfd *set, int64_t max_ms,
                         int *ret_ms) {
    size_t n = poll->n < IDEM_POLL_MAX ? poll->n : IDEM_POLL_MAX;

    if (n != 0)
        memcpy(set, poll->fds, n * sizeof(*set));
    *ret_ms = poll_pause(poll, max_ms);
    return n;
}

static int poll_wait(struct pollfd *set, size_t n, int ms) {
    return poll(set, (nfds_t)n, ms);
}

/* Setting the timer again clears its expiry, so nothing is ever read from it. */
int idem_poll_sleep(const struct idem_poll *poll, struct pollfd *set, size_t n, int ms) {
    struct itimerspec in = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}};

    if (ms > 0 && poll->clock_fd >= 0 && timerfd_settime(poll->clock_fd, 0, &in, NULL) == 0)
        set[n++] = (struct pollfd){.fd = poll->clock_fd, .events = POLLIN};
    return poll_wait(set, n, ms);
}

/* The sink may watch and unwatch during dispatch, so each descriptor is looked up again. */
void idem_poll_dispatch(struct idem_poll *poll, const struct pollfd *got, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int events = (got[i].revents & (POLLIN | POLLHUP | POLLERR) ? IDEM_READ : 0) |
                     (got[i].revents & (POLLOUT | POLLHUP | POLLERR) ? IDEM_WRITE : 0);

        if (events != 0 && poll_find(poll, got[i].fd) != NULL)
            poll->ready(poll->sink, got[i].fd, events);
    }
    if (poll->deadline == INT64_MIN || poll->deadline <= idem_loop_now()) {
        poll->deadline = INT64_MAX;
        poll->timeout(poll->sink);
    }
}

int idem_poll_turn(struct idem_poll *poll, struct pollfd *extra, size_t extra_n, int64_t max_ms) {
    struct pollfd set[2 * IDEM_POLL_MAX + 1];
    size_t n;
    int ms, ready = 0;

    if (extra_n > IDEM_POLL_MAX) {
        errno = EINVAL;
        return -1;
    }
    n = idem_poll_collect(poll, set, max_ms, &ms);
    if (extra_n != 0)
        memcpy(set + n, extra, extra_n * sizeof(*set));
    if (idem_poll_sleep(poll, set, n + extra_n, ms) < 0) {
        if (errno != EINTR)
            return -1;
        for (size_t i = 0; i < n + extra_n; i++)
            set[i].revents = 0;
    }
    for (size_t i = 0; i < extra_n; i++) {
        extra[i].revents = set[n + i].revents;
        ready += extra[i].revents != 0;
    }
    idem_poll_dispatch(poll, set, n);
    return ready;
}
