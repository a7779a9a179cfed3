/*
 * Something between a store and its server that a test can turn into any kind of
 * trouble: it listens on a socket in a thread of its own, passes everything on,
 * and cuts, swallows or replaces what it is told to.
 */
#ifndef IDEM_TEST_STORE_PROXY_H
#define IDEM_TEST_STORE_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PROXY_PAIRS 16

struct proxy {
    char path[108];   /* where it listens */
    char target[108]; /* the server's socket; "": there is none */

    _Atomic long cut_after;            /* so many bytes of answers, then the end: once. -1: never */
    _Atomic bool swallow;              /* answers never come */
    _Atomic unsigned swallowed;        /* reads of them */
    _Atomic(const char *) deaf_at;     /* who asks this is not heard any more: once */
    _Atomic(const char *) say;         /* this instead of the next answer: once */
    const char *from, *_Atomic to;     /* in answers, words of the same length */
    _Atomic unsigned met, cuts, asked; /* connections made, cut, and reads from clients */

    /* Keeps what a client asks, and its server's side even when the client has gone. */
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

/* Listens on a socket of that name. `target` may be NULL: then only `say` answers, each time. */
void proxy_start(struct proxy *proxy, const char *folder, const char *name, const char *target);
void proxy_stop(struct proxy *proxy);

/* Asks what was held, late; true if the server still answers there. */
bool proxy_let_go(struct proxy *proxy);

#endif
