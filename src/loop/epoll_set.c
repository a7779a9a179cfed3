/*
 * The epoll set. Opening fails without memory or a descriptor, watching without kernel memory;
 * dispatch never fails. A descriptor that a callback removes from the set gets no event any more,
 * even if the kernel reported it in the same batch.
 */
#include "loop/epoll_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"

#define BATCH 64

struct idem_nest_batch {
    struct epoll_event events[BATCH];
    int n;
    bool dispatching, closed; /* a set that is closed during dispatch is freed afterwards */
};

static void epoll_set_ready(struct idem_fd *self, int events) {
    struct idem_nest *nest = idem_container_of(self, struct idem_nest, fd);
    struct idem_nest_batch *batch = nest->batch;

    (void)events;
    if (batch->dispatching) /* the host's loop runs inside a callback: the outer dispatch continues
                             */
        return;
    batch->dispatching = true;
    batch->n = epoll_wait(self->fd, batch->events, BATCH, 0);
    for (int i = 0; i < batch->n && !batch->closed; i++) {
        struct idem_fd *fd = batch->events[i].data.ptr;
        uint32_t got = batch->events[i].events;

        if (fd != NULL)
            fd->ready(fd, (got & (EPOLLIN | EPOLLHUP | EPOLLERR) ? IDEM_READ : 0) |
                              (got & (EPOLLOUT | EPOLLHUP | EPOLLERR) ? IDEM_WRITE : 0));
    }
    batch->dispatching = false;
    batch->n = 0;
    if (batch->closed)
        free(batch);
}

int idem_nest_open(struct idem_nest *nest, struct idem_loop *loop, struct idem_error *err) {
    struct idem_nest_batch *batch = calloc(1, sizeof(*batch));
    int fd;

    if (batch == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a set of descriptors");
    fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) {
        free(batch);
        return idem_error_set(err, IDEM_E_REFUSED, "no set of descriptors can be made: %s",
                              strerror(errno));
    }
    *nest = (struct idem_nest){
        .loop = loop, .fd = {.fd = fd, .ready = epoll_set_ready}, .batch = batch};
    if (idem_loop_watch(loop, &nest->fd, IDEM_READ) == 0)
        return 0;
    idem_nest_close(nest);
    return idem_error_set(err, IDEM_E_REFUSED, "the loop has no room for one more descriptor");
}

void idem_nest_close(struct idem_nest *nest) {
    if (nest->batch == NULL)
        return;
    idem_loop_unwatch(nest->loop, &nest->fd);
    close(nest->fd.fd);
    nest->batch->closed = true;
    if (!nest->batch->dispatching)
        free(nest->batch);
    *nest = (struct idem_nest){0};
}

int idem_nest_watch(struct idem_nest *nest, struct idem_fd *fd, int events) {
    struct epoll_event event = {
        .events = (events & IDEM_READ ? EPOLLIN : 0u) | (events & IDEM_WRITE ? EPOLLOUT : 0u),
        .data.ptr = fd,
    };

    if (epoll_ctl(nest->fd.fd, EPOLL_CTL_MOD, fd->fd, &event) == 0 ||
        (errno == ENOENT && epoll_ctl(nest->fd.fd, EPOLL_CTL_ADD, fd->fd, &event) == 0))
        return 0;
    return IDEM_E_REFUSED;
}

void idem_nest_unwatch(struct idem_nest *nest, struct idem_fd *fd) {
    struct idem_nest_batch *batch = nest->batch;

    (void)epoll_ctl(nest->fd.fd, EPOLL_CTL_DEL, fd->fd, NULL);
    for (int i = 0; i < batch->n; i++)
        if (batch->events[i].data.ptr == fd)
            batch->events[i].data.ptr = NULL;
}
