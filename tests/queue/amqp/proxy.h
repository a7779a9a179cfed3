/*
 * A proxy between a broker and its server, which cuts the connection where a
 * test wants it, in the middle of anything.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_PROXY_H
#define IDEM_TEST_QUEUE_AMQP_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PROXY_PAIRS 16

struct proxy {
    int port, target;
    _Atomic long
        cut_after; /* cuts both ends once after this many bytes from the server; -1: never */
    /* When a client sends these bytes, the connection is cut `cut_behind` bytes later: once. */
    const unsigned char *_Atomic cut_at;
    size_t cut_at_len, cut_behind;
    const char *from,
        *_Atomic
            to; /* replaces the first by the second in clients' bytes; both have the same length */
    const void *lie_from, *_Atomic lie_to; /* the same in the server's bytes, */
    size_t lie_len;                        /* whose length this is */
    _Atomic bool deaf;                     /* nothing is passed on to clients */
    _Atomic bool closed;                   /* new connections are closed */
    _Atomic unsigned met, cuts;
    _Atomic unsigned acks; /* the number that clients have sent */

    int listener, wake[2];
    struct {
        int client, server; /* -1: none */
    } pairs[PROXY_PAIRS];
    pthread_t thread;
};

void proxy_start(struct proxy *proxy, int target);
void proxy_stop(struct proxy *proxy);

#endif
