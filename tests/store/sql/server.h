/*
 * A PostgreSQL or a MariaDB for a test: started in a folder of its own, on a
 * socket there and, if asked, on a free port of the loopback; ended by its pid,
 * and gone with the test whatever happens to it.
 *
 * Its data are a copy of a template that is made once per build. There are a
 * database `idem` and the users of client.h.
 */
#ifndef IDEM_TEST_STORE_SQL_SERVER_H
#define IDEM_TEST_STORE_SQL_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "process.h"

#define SERVER_DB "idem"
#define SERVER_POSTGRES_PORT 5432 /* in its socket's name, where it has no other */

enum server_engine { SERVER_POSTGRES, SERVER_MARIADB };

struct server_options {
    bool port;       /* it listens on 127.0.0.1, too */
    const char *tls; /* a folder with certificates (certificates.h): TCP by TLS only; NULL: plain */
    bool durable;    /* what was committed outlives a power cut, not only SIGKILL; it is slower */
    int clock_fd;    /* its SQL's time is the test's (clock_preload.c); -1: its own */
    const char *const *settings; /* further "name=value", NULL at the end; NULL: none */
};

struct server {
    enum server_engine engine;
    struct server_options options;
    pid_t pid;
    struct process_pause pause;
    int port; /* 0: none */
    char folder[256];
    char socket[300]; /* the socket's folder for PostgreSQL, its path for MariaDB */
};

/* `options` and what it points to stay. Waits until it answers. */
void server_start(struct server *server, enum server_engine engine, const char *folder,
                  const struct server_options *options);
void server_restart(struct server *server); /* one that was stopped or killed, as it was */
void server_stop(struct server *server);    /* as if told to; takes one that does not run */
void server_kill(struct server *server);    /* SIGKILL for all its processes, and waits */
void server_pause(struct server *server);   /* SIGSTOP for all its processes */
void server_go_on(struct server *server);

#endif
