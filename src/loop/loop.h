/*
 * What drivers and claims see of a loop: descriptors, timers and tasks, all
 * embedded in their owners. The host sees two call-backs only (idem.h): one
 * timer and a set of descriptors; everything else is kept here.
 *
 * Nothing runs except inside idem_loop_ready() and idem_loop_timeout(). Any
 * object may be taken out, and the loop's owner may close it, from inside a
 * call-back.
 */
#ifndef IDEM_LOOP_LOOP_H
#define IDEM_LOOP_LOOP_H

#include "idem.h"

/* The struct that holds what a call-back is given; whatever else is given does not compile. */
#define idem_container_of(ptr, type, member)                                                       \
    ({                                                                                             \
        __typeof__(((type *)0)->member) *member_ = (ptr);                                          \
        (type *)(void *)((char *)member_ - offsetof(type, member));                                \
    })

struct idem_fd {
    int fd;
    void (*ready)(struct idem_fd *self, int events);
    struct idem_fd *next;
};

struct idem_timer {
    void (*fire)(struct idem_timer *self);
    int64_t at;                              /* ms on idem_loop_now() */
    struct idem_timer *child, *next, **link; /* pairing heap; link NULL: not armed */
};

struct idem_task {
    void (*run)(struct idem_task *self);
    struct idem_task *next, **link; /* link NULL: not posted */
};

struct idem_loop {
    struct idem_host host;
    struct idem_fd *fds;
    struct idem_timer *timers;
    struct idem_task *tasks, **tasks_end;
    int64_t armed; /* what the host's timer is set to; INT64_MAX: off */
    unsigned depth;
    bool stopped;
};

void idem_loop_init(struct idem_loop *loop, const struct idem_host *host);

/* After this nothing runs, and the host is not called. Watches must be gone. */
void idem_loop_stop(struct idem_loop *loop);

/* Milliseconds of the owner's own clock; it goes on while the machine sleeps. */
int64_t idem_loop_now(void);
/* The same clock in microseconds, for what is measured. */
int64_t idem_loop_now_us(void);

/* 0 or IDEM_E_REFUSED when the host cannot watch it. */
int idem_loop_watch(struct idem_loop *loop, struct idem_fd *fd, int events);
void idem_loop_unwatch(struct idem_loop *loop, struct idem_fd *fd);

/* Arms, or arms anew. One shot. */
void idem_timer_set(struct idem_loop *loop, struct idem_timer *timer, int64_t ms);
void idem_timer_clear(struct idem_loop *loop, struct idem_timer *timer);

/* Runs soon, once, however often it is posted before it runs. */
void idem_task_post(struct idem_loop *loop, struct idem_task *task);
void idem_task_drop(struct idem_loop *loop, struct idem_task *task);

/* What the host calls. */
void idem_loop_ready(struct idem_loop *loop, int fd, int events);
void idem_loop_timeout(struct idem_loop *loop);

#endif
