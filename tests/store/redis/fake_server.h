/*
 * Servers that are none: each listens on a port, takes commands apart and has
 * them answered by the test, in a thread of its own for all of them.
 */
#ifndef IDEM_TEST_STORE_REDIS_FAKE_SERVER_H
#define IDEM_TEST_STORE_REDIS_FAKE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "contract/conn.h"

#define FAKES_MAX 4
#define FAKE_CLIENTS 64
#define FAKE_WORDS 16

/* One command; the words end with NULs. */
struct fake_command {
    size_t fake; /* whose */
    int client;  /* the descriptor it came by */
    bool asking; /* behind ASKING */
    size_t n;
    const char *word[FAKE_WORDS]; /* "" beyond n */
};

struct fakes {
    /* Writes the whole answer to what is not of the greeting; false: the connection is closed
       behind it. In the thread. */
    bool (*say)(const struct fake_command *command, char *out, size_t size);
    const char *versions[FAKES_MAX]; /* as INFO tells them; NULL: 7.0.15 */
    _Atomic(const char *) run_id;    /* the same; NULL: "fake" and the number */
    _Atomic(const char *) at_once;   /* said to who connects, and that was it; NULL: nothing is */
    size_t n;
    int port[FAKES_MAX];
    _Atomic unsigned met[FAKES_MAX];   /* connections */
    _Atomic unsigned asked[FAKES_MAX]; /* commands behind the greeting */

    _Atomic bool busy; /* the thread is at work */
    int listener[FAKES_MAX], wake[2];
    struct {
        int fd; /* 0: none */
        size_t fake, len;
        bool asking;
        char bytes[1 << 15];
    } clients[FAKE_CLIENTS];
    pthread_t thread;
};

extern struct fakes fakes;

void fakes_start(size_t n, bool (*say)(const struct fake_command *, char *, size_t));
void fakes_stop(void);

/* What every connection asks first, as a server answers it; false: it is none of that. */
bool fake_greets(const struct fake_command *command, char *out, size_t size);
bool fake_is(const struct fake_command *command, const char *first, const char *second);

/* True if all that has come to them is answered. */
bool fakes_are_idle(void);

/* While the loop's clock stands still, for a connection with HOST_EDGE: turns until all that was
   asked is answered, and nothing is left to be done. */
void fakes_settle(struct conn *c);
/* The same every 50 ms, while so much time goes by. */
void fakes_pass(struct conn *c, int64_t ms);

/* To a client that has asked nothing. */
void fake_push(int client, const char *bytes);

#endif
