/*
 * A host for callers who have no loop of their own: poll(2) over what was
 * asked to be watched. One thread uses it at a time.
 */
#ifndef IDEM_LOOP_POLL_H
#define IDEM_LOOP_POLL_H

#include <poll.h>

#include "idem.h"

struct idem_poll {
    /* Who is told; set before the first turn. */
    void (*ready)(void *sink, int fd, int events);
    void (*timeout)(void *sink);
    void *sink;

    struct pollfd *fds; /* room for `size`, `n` in use */
    size_t n, size;
    int64_t deadline; /* on idem_loop_now(); INT64_MAX: none */
    int clock_fd;     /* a timer that goes on while the machine is suspended; -1: none */
};

void idem_poll_init(struct idem_poll *poll);
void idem_poll_release(struct idem_poll *poll);

/* The call-backs to give to idem_open_on() or idem_loop_init(). */
struct idem_host idem_poll_host(struct idem_poll *poll);

/*
 * Waits for at most max_ms (negative: no limit) for what is watched, for the
 * timer, or for the caller's own `extra` descriptors, then tells the sink.
 * Returns how many of `extra` are ready (their revents are set), or -1 with
 * errno; EINTR is returned as 0.
 */
int idem_poll_turn(struct idem_poll *poll, struct pollfd *extra, size_t extra_n, int64_t max_ms);

/* The parts of a turn, for who sleeps without holding what guards the poll: what
   to wait for (at most IDEM_POLL_MAX; the number of it) and how long; the sleep,
   which needs room for one more in the set, and is one thread's at a time; and
   the telling afterwards. The sleep is poll(2)'s, but a suspended machine counts:
   where it is over by idem_loop_now(), it ends when the machine resumes. */
#define IDEM_POLL_MAX 64
size_t idem_poll_collect(const struct idem_poll *poll, struct pollfd *set, int64_t max_ms,
                         int *ret_ms);
int idem_poll_sleep(const struct idem_poll *poll, struct pollfd *set, size_t n, int ms);
void idem_poll_tell(struct idem_poll *poll, const struct pollfd *got, size_t n);

#endif
