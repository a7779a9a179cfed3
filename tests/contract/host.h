/*
 * Two hosts for the tests: poll(2), which reports unread data at each turn, and
 * epoll(7) with EPOLLET, which reports them once. A driver must serve both
 * alike.
 */
#ifndef IDEM_CONTRACT_HOST_H
#define IDEM_CONTRACT_HOST_H

#include "loop/loop.h"
#include "loop/poll.h"

enum host_kind { HOST_POLL, HOST_EDGE };

struct host {
    enum host_kind kind;
    struct idem_poll poll;
    int epoll;
    int64_t deadline; /* edge only; on idem_loop_now(), INT64_MAX: none */
    void (*ready)(void *sink, int fd, int events);
    void (*timeout)(void *sink);
    void *sink;
};

/* Returns 0, or -1 with errno. */
int host_init(struct host *host, enum host_kind kind);
void host_release(struct host *host);

/* Sets the callbacks; to be called before the first turn. */
void host_sink(struct host *host, void (*ready)(void *, int, int), void (*timeout)(void *),
               void *sink);

/* The usual sink: an idem_loop. */
void host_sink_loop(struct host *host, struct idem_loop *loop);

struct idem_host host_calls(struct host *host);

/* Waits for events for at most max_ms and reports them. Returns 0, or -1 with errno. */
int host_turn(struct host *host, int64_t max_ms);

#endif
