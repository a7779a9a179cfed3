/*
 * The loop that drivers and claims use: descriptors, timers and tasks, all embedded in their
 * owners. The host has only two callbacks (idem.h): one timer and a set of descriptors; the loop
 * keeps the rest.
 *
 * Callbacks run only inside idem_loop_ready() and idem_loop_timeout(). A callback may remove any
 * object, and may close the loop's owner.
 */
#ifndef IDEM_LOOP_LOOP_H
#define IDEM_LOOP_LOOP_H

#include "idem.h"

/* The struct that contains a callback's argument. A pointer of another type does not compile. */
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
    int64_t armed; /* the time of the host's timer; INT64_MAX: off */
    unsigned depth;
    bool stopped;
};

void idem_loop_init(struct idem_loop *loop, const struct idem_host *host);

/* After this no callback runs, and the host is not called. All descriptors must be unwatched
   before. */
void idem_loop_stop(struct idem_loop *loop);

/* Milliseconds on the loop's clock, which includes the time in which the machine is suspended. */
int64_t idem_loop_now(void);
/* The same clock in microseconds, for measurements. */
int64_t idem_loop_now_us(void);

/* 0, or IDEM_E_REFUSED if the host cannot watch the descriptor. */
int idem_loop_watch(struct idem_loop *loop, struct idem_fd *fd, int events);
void idem_loop_unwatch(struct idem_loop *loop, struct idem_fd *fd);

/* Arms or rearms a one-shot timer. */
void idem_timer_set(struct idem_loop *loop, struct idem_timer *timer, int64_t ms);
void idem_timer_clear(struct idem_loop *loop, struct idem_timer *timer);

/* Runs the task once, soon. To post it again before it runs has no effect. */
void idem_task_post(struct idem_loop *loop, struct idem_task *task);
void idem_task_drop(struct idem_loop *loop, struct idem_task *task);

/* The host calls these two. */
void idem_loop_ready(struct idem_loop *loop, int fd, int events);
void idem_loop_timeout(struct idem_loop *loop);

#endif
