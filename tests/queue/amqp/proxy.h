/*
 * Something between a broker and its server that cuts the connection where a test
 * says, in the middle of whatever is said.
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
    _Atomic long cut_after; /* so many bytes from the server, then both ends: once. -1: never */
    /* When a client says these bytes, it is cut behind so many more: once. */
    const unsigned char *_Atomic cut_at;
    size_t cut_at_len, cut_behind;
    const char *from, *_Atomic to;         /* in what clients say, words of the same length */
    const void *lie_from, *_Atomic lie_to; /* in what the server says, */
    size_t lie_len;                        /* of the same length */
    _Atomic bool deaf;                     /* nothing is passed on to clients */
    _Atomic bool closed;                   /* who comes is sent away */
    _Atomic unsigned met, cuts;
    _Atomic unsigned acks; /* that clients have sent */

    int listener, wake[2];
    struct {
        int client, server; /* -1: none */
    } pairs[PROXY_PAIRS];
    pthread_t thread;
};

void proxy_start(struct proxy *proxy, int target);
void proxy_stop(struct proxy *proxy);

#endif
