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

struct idem_epoll_set_batch {
    struct epoll_event events[BATCH];
    int n;
    bool dispatching, closed; /* a set that is closed during dispatch is freed afterwards */
};

static void epoll_set_ready(struct idem_fd *self, int events) {
    struct idem_epoll_set *epoll_set = idem_container_of(self, struct idem_epoll_set, fd);
    struct idem_epoll_set_batch *batch = epoll_set->batch;

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

int idem_epoll_set_open(struct idem_epoll_set *epoll_set, struct idem_loop *loop,
                        struct idem_error *err) {
    struct idem_epoll_set_batch *batch = calloc(1, sizeof(*batch));
    int fd;

    if (batch == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a set of descriptors");
    fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) {
        free(batch);
        return idem_error_set(err, IDEM_E_REFUSED, "no set of descriptors can be made: %s",
                              strerror(errno));
    }
    *epoll_set = (struct idem_epoll_set){
        .loop = loop, .fd = {.fd = fd, .ready = epoll_set_ready}, .batch = batch};
    if (idem_loop_watch(loop, &epoll_set->fd, IDEM_READ) == 0)
        return 0;
    idem_epoll_set_close(epoll_set);
    return idem_error_set(err, IDEM_E_REFUSED, "the loop has no room for one more descriptor");
}

void idem_epoll_set_close(struct idem_epoll_set *epoll_set) {
    if (epoll_set->batch == NULL)
        return;
    idem_loop_unwatch(epoll_set->loop, &epoll_set->fd);
    close(epoll_set->fd.fd);
    epoll_set->batch->closed = true;
    if (!epoll_set->batch->dispatching)
        free(epoll_set->batch);
    *epoll_set = (struct idem_epoll_set){0};
}

int idem_epoll_set_watch(struct idem_epoll_set *epoll_set, struct idem_fd *fd, int events) {
    struct epoll_event event = {
        .events = (events & IDEM_READ ? EPOLLIN : 0u) | (events & IDEM_WRITE ? EPOLLOUT : 0u),
        .data.ptr = fd,
    };

    if (epoll_ctl(epoll_set->fd.fd, EPOLL_CTL_MOD, fd->fd, &event) == 0 ||
        (errno == ENOENT && epoll_ctl(epoll_set->fd.fd, EPOLL_CTL_ADD, fd->fd, &event) == 0))
        return 0;
    return IDEM_E_REFUSED;
}

void idem_epoll_set_unwatch(struct idem_epoll_set *epoll_set, struct idem_fd *fd) {
    struct idem_epoll_set_batch *batch = epoll_set->batch;

    (void)epoll_ctl(epoll_set->fd.fd, EPOLL_CTL_DEL, fd->fd, NULL);
    for (int i = 0; i < batch->n; i++)
        if (batch->events[i].data.ptr == fd)
            batch->events[i].data.ptr = NULL;
}
