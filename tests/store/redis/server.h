/*
 * A redis-server for a test: started in a folder of its own, on a socket there
 * or on a free port of the loopback, ended by its pid, and gone with the test
 * whatever happens to it.
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
    char folder[256]; /* its own */
    char socket[300];
    bool sentinel; /* its settings are in sentinel.conf, which it writes to */
};

/* `args` are further arguments, NULL at the end; `clock_fd` (-1: none) makes its time of day the
   test's. Waits until it answers. The port is kept over a stop and a start. */
void server_start(struct server *server, const char *folder, const char *program, bool port,
                  const char *const *args, int clock_fd);
void server_stop(struct server *server);        /* SIGKILL, and waits */
void server_pause(const struct server *server); /* SIGSTOP, and waits */
void server_go_on(const struct server *server);

/* One command by a connection of its own, as words; what came back, cut at size. */
void server_ask(const struct server *server, char *out, size_t size, const char *first, ...)
    __attribute__((sentinel));

#endif
