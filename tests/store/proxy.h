/*
 * A proxy between a store and its server, with which a test makes any kind of
 * trouble: it listens on a socket in a thread of its own, passes everything on,
 * and cuts, swallows or replaces bytes on request.
 */
#ifndef IDEM_TEST_STORE_PROXY_H
#define IDEM_TEST_STORE_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PROXY_PAIRS 16

struct proxy {
    char path[108];   /* the listening socket */
    char target[108]; /* the server's socket; "": none */

    _Atomic long
        cut_after; /* cuts the connection once after this many bytes of responses; -1: never */
    _Atomic bool swallow;          /* responses never arrive */
    _Atomic unsigned swallowed;    /* the swallowed reads */
    _Atomic(const char *) deaf_at; /* a client that sends this is ignored from then on: once */
    _Atomic(const char *) say;     /* sent instead of the next response: once */
    const char *from,
        *_Atomic to; /* replaces the first by the second in responses; both have the same length */
    _Atomic unsigned met, cuts, asked; /* connections made, cut, and reads from clients */

    /* Keeps a client's request, and the server's side even when the client has disconnected. */
    _Atomic bool hold;
    char held[4096];
    size_t held_len;
    int held_server; /* -1: none */

    int listener, wake[2];
    struct {
        int client, server; /* -1: none */
        bool deaf;
    } pairs[PROXY_PAIRS];
    pthread_t thread;
};

/* Listens on a socket of that name. `target` may be NULL: then each response is `say`. */
void proxy_start(struct proxy *proxy, const char *folder, const char *name, const char *target);
void proxy_stop(struct proxy *proxy);

/* Sends the held request late; true if the server still responds to it. */
bool proxy_let_go(struct proxy *proxy);

#endif
