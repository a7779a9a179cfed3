/*
 * A redis-server for a test: started in a directory of its own, on a socket
 * there or on a free port of the loopback, and ended by its pid. It ends with
 * the test in any case.
 */
#ifndef IDEM_TEST_STORE_REDIS_SERVER_H
#define IDEM_TEST_STORE_REDIS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "port.h"

struct server {
    pid_t pid;
    int port;         /* 0: only the socket */
    char folder[256]; /* its own directory */
    char socket[300];
    bool sentinel; /* the server writes to its settings, in sentinel.conf */
};

/* Starts the server and waits until it responds. `args` are further arguments, NULL at the end;
 * `clock_fd` (-1: none) makes its time of day the test's. The port stays the same after a stop
 * and a start. */
void server_start(struct server *server, const char *folder, const char *program, bool port,
                  const char *const *args, int clock_fd);
void server_stop(struct server *server); /* SIGKILL, and waits for the end */
void server_pause(
    const struct server *server); /* SIGSTOP, and waits until the server stands still */
void server_go_on(const struct server *server);

/* Sends one command, as words, over a connection of its own. Writes the reply to out, cut at
 * size. */
void server_ask(const struct server *server, char *out, size_t size, const char *first, ...)
    __attribute__((sentinel));

#endif
