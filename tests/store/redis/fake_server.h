/*
 * Fake servers: each listens on a port and parses commands, and the test writes
 * the replies. One thread of its own serves all of them.
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
    size_t fake; /* the number of the fake */
    int client;  /* the descriptor of the connection */
    bool asking; /* follows ASKING */
    size_t n;
    const char *word[FAKE_WORDS]; /* "" beyond n */
};

struct fakes {
    /* Writes the whole reply to a command that is not of the greeting; false: the connection is
     * closed after it. Runs in the thread. */
    bool (*say)(const struct fake_command *command, char *out, size_t size);
    const char *versions[FAKES_MAX]; /* the versions in INFO; NULL: 7.0.15 */
    _Atomic(const char *) run_id;    /* the run id in INFO; NULL: "fake" and the number */
    _Atomic(const char *)
        at_once; /* sent to each new client, which is then disconnected; NULL: nothing is */
    size_t n;
    int port[FAKES_MAX];
    _Atomic unsigned met[FAKES_MAX];   /* connections */
    _Atomic unsigned asked[FAKES_MAX]; /* commands after the greeting */

    _Atomic bool busy; /* the thread is at work */
    int listener[FAKES_MAX], wake[2];
    struct {
        int fd; /* 0: unused */
        size_t fake, len;
        bool asking;
        char bytes[1 << 15];
    } clients[FAKE_CLIENTS];
    pthread_t thread;
};

extern struct fakes fakes;

void fakes_start(size_t n, bool (*say)(const struct fake_command *, char *, size_t));
void fakes_stop(void);

/* Writes a server's reply to a command of the greeting; false: the command is none of these. */
bool fake_greets(const struct fake_command *command, char *out, size_t size);
bool fake_is(const struct fake_command *command, const char *first, const char *second);

/* True if every request that has arrived is answered. */
bool fakes_are_idle(void);

/* While the loop's clock stands still, for a connection with HOST_EDGE: turns the loop until all
 * requests are answered and no event is left. */
void fakes_settle(struct conn *c);
/* The same every 50 ms, until `ms` have passed. */
void fakes_pass(struct conn *c, int64_t ms);

/* Sends bytes that the client has not asked for. */
void fake_push(int client, const char *bytes);

#endif
