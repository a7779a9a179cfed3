/*
 * Any number of descriptors that are one to the loop: an epoll(7) set. A host
 * that polls has room for few (IDEM_POLL_MAX) and looks at each of them at every
 * turn; who has some for every process or connection keeps them in here.
 *
 * For hosts that are level-triggered, as the poll loop is.
 */
#ifndef IDEM_LOOP_NEST_H
#define IDEM_LOOP_NEST_H

#include "loop/loop.h"

struct idem_nest_batch;

struct idem_nest {
    struct idem_loop *loop;
    struct idem_fd fd;             /* the set's */
    struct idem_nest_batch *batch; /* what is told; NULL: it is closed */
};

/* 0, or a code: without descriptors, or where the host has no room for one more. */
int idem_nest_open(struct idem_nest *nest, struct idem_loop *loop, struct idem_error *err);
/* From inside a call-back as well. What is still in it is forgotten. One that is zeros is closed.
 */
void idem_nest_close(struct idem_nest *nest);

/* As idem_loop_watch() and idem_loop_unwatch(), by the same struct; before its descriptor is
   closed. */
int idem_nest_watch(struct idem_nest *nest, struct idem_fd *fd, int events);
void idem_nest_unwatch(struct idem_nest *nest, struct idem_fd *fd);

#endif
