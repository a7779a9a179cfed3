/*
 * A host for callers without an event loop: poll(2) over the watched descriptors. One thread uses
 * it at a time.
 */
#ifndef IDEM_LOOP_POLL_H
#define IDEM_LOOP_POLL_H

#include <poll.h>

#include "idem.h"

struct idem_poll {
    /* The receiver of events; set before the first turn. */
    void (*ready)(void *sink, int fd, int events);
    void (*timeout)(void *sink);
    void *sink;

    struct pollfd *fds; /* room for `size`, `n` in use */
    size_t n, size;
    int64_t deadline; /* on idem_loop_now(); INT64_MAX: none */
    int clock_fd;     /* a timer that runs while the machine is suspended; -1: none */
};

void idem_poll_init(struct idem_poll *poll);
void idem_poll_release(struct idem_poll *poll);

/* The callbacks for idem_open_on() or idem_loop_init(). */
struct idem_host idem_poll_host(struct idem_poll *poll);

/*
 * Waits for at most max_ms (negative: no limit) for a watched descriptor, the timer, or one of the
 * caller's `extra` descriptors, then calls the sink. Returns the number of `extra` descriptors
 * that are ready (their revents are set), or -1 with errno; EINTR is returned as 0.
 */
int idem_poll_turn(struct idem_poll *poll, struct pollfd *extra, size_t extra_n, int64_t max_ms);

/* The parts of a turn, for a caller that sleeps without its lock on the poll.
   idem_poll_collect() returns the descriptors to wait for (at most IDEM_POLL_MAX) and the
   timeout. idem_poll_sleep() needs room for one more in the set; one thread sleeps at a time.
   Afterwards idem_poll_dispatch() calls the sink. The sleep is poll(2)'s, but a suspended machine
   counts: if its time on idem_loop_now() is over, it ends when the machine resumes. */
#define IDEM_POLL_MAX 64
size_t idem_poll_collect(const struct idem_poll *poll, struct pollfd *set, int64_t max_ms,
                         int *ret_ms);
int idem_poll_sleep(const struct idem_poll *poll, struct pollfd *set, size_t n, int ms);
void idem_poll_dispatch(struct idem_poll *poll, const struct pollfd *got, size_t n);

#endif
