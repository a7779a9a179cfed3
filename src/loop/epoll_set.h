/*
 * An epoll(7) set: any number of descriptors behind one descriptor of the loop. A poll(2) host has
 * room for few (IDEM_POLL_MAX) and scans each of them at every turn; a caller with descriptors for
 * each process or connection keeps them in a set.
 *
 * For level-triggered hosts, such as the poll loop.
 */
#ifndef IDEM_LOOP_EPOLL_SET_H
#define IDEM_LOOP_EPOLL_SET_H

#include "loop/loop.h"

struct idem_epoll_set_batch;

struct idem_epoll_set {
    struct idem_loop *loop;
    struct idem_fd fd;                  /* of the set */
    struct idem_epoll_set_batch *batch; /* the events of one dispatch; NULL: the set is closed */
};

/* 0, or a code: no descriptor left, or the host cannot watch one more. */
int idem_epoll_set_open(struct idem_epoll_set *epoll_set, struct idem_loop *loop,
                        struct idem_error *err);
/* May run inside a callback. Forgets the descriptors that are still in the set. A set that is
   all zeros counts as closed. */
void idem_epoll_set_close(struct idem_epoll_set *epoll_set);

/* Watch and unwatch as idem_loop_watch() and idem_loop_unwatch() do, with the same struct.
   Unwatch before the descriptor is closed. */
int idem_epoll_set_watch(struct idem_epoll_set *epoll_set, struct idem_fd *fd, int events);
void idem_epoll_set_unwatch(struct idem_epoll_set *epoll_set, struct idem_fd *fd);

#endif
