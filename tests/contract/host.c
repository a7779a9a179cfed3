/*
 * The poll host is the library's own. The edge-triggered host is written here,
 * as strict as nginx: one notice per edge, and none that was missed is
 * repeated. A host fails only if the system has no descriptors left.
 */
#include "host.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <unistd.h>

int host_init(struct host *host, enum host_kind kind) {
    *host = (struct host){.kind = kind, .epoll = -1, .deadline = INT64_MAX};
    idem_poll_init(&host->poll);
    if (kind == HOST_EDGE)
        host->epoll = epoll_create1(EPOLL_CLOEXEC);
    return kind == HOST_EDGE && host->epoll < 0 ? -1 : 0;
}

void host_release(struct host *host) {
    idem_poll_release(&host->poll);
    if (host->epoll >= 0)
        close(host->epoll);
    host->epoll = -1;
}

void host_sink(struct host *host, void (*ready)(void *, int, int), void (*timeout)(void *),
               void *sink) {
    host->ready = host->poll.ready = ready;
    host->timeout = host->poll.timeout = timeout;
    host->sink = host->poll.sink = sink;
}

static void loop_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void loop_timeout(void *sink) {
    idem_loop_timeout(sink);
}

void host_sink_loop(struct host *host, struct idem_loop *loop) {
    host_sink(host, loop_ready, loop_timeout, loop);
}

static int edge_watch(void *data, int fd, int events) {
    struct host *host = data;
    struct epoll_event event = {
        .events = EPOLLET | (events & IDEM_READ ? (unsigned)EPOLLIN : 0u) |
                  (events & IDEM_WRITE ? (unsigned)EPOLLOUT : 0u),
        .data.fd = fd,
    };

    if (events == 0) {
        (void)epoll_ctl(host->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (epoll_ctl(host->epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return errno == ENOENT ? epoll_ctl(host->epoll, EPOLL_CTL_ADD, fd, &event) : -1;
}

static void edge_timer(void *data, int64_t ms) {
    struct host *host = data;

    host->deadline = ms < 0 ? INT64_MAX : ms == 0 ? INT64_MIN : idem_loop_now() + ms;
}

struct idem_host host_calls(struct host *host) {
    if (host->kind == HOST_POLL)
        return idem_poll_host(&host->poll);
    return (struct idem_host){.data = host, .watch = edge_watch, .timer = edge_timer};
}

static int edge_sleep(const struct host *host, int64_t max_ms) {
    int64_t left;

    if (host->deadline == INT64_MIN)
        return 0;
    if (host->deadline == INT64_MAX)
        return (int)max_ms;
    left = host->deadline - idem_loop_now();
    return (int)(left < 0 ? 0 : left < max_ms ? left : max_ms);
}

static int edge_turn(struct host *host, int64_t max_ms) {
    struct epoll_event got[16];
    int n = epoll_wait(host->epoll, got, 16, edge_sleep(host, max_ms));

    if (n < 0 && errno != EINTR)
        return -1;
    for (int i = 0; i < n; i++) {
        bool broken = (got[i].events & (EPOLLHUP | EPOLLERR)) != 0;

        host->ready(host->sink, got[i].data.fd,
                    (got[i].events & EPOLLIN || broken ? IDEM_READ : 0) |
                        (got[i].events & EPOLLOUT || broken ? IDEM_WRITE : 0));
    }
    if (host->deadline <= idem_loop_now()) {
        host->deadline = INT64_MAX;
        host->timeout(host->sink);
    }
    return 0;
}

int host_turn(struct host *host, int64_t max_ms) {
    if (max_ms > INT_MAX)
        max_ms = INT_MAX;
    if (host->kind == HOST_EDGE)
        return edge_turn(host, max_ms);
    return idem_poll_turn(&host->poll, NULL, 0, max_ms) < 0 ? -1 : 0;
}
