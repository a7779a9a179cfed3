/*
 * A PostgreSQL or a MariaDB for a test: started in a directory of its own, on a
 * socket there and, on request, on a free port of the loopback, and ended by
 * its pid. It ends with the test in any case.
 *
 * Its data are a copy of a template that is made once per build. The template
 * has a database `idem` and the users of client.h.
 */
#ifndef IDEM_TEST_STORE_SQL_SERVER_H
#define IDEM_TEST_STORE_SQL_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "process.h"

#define SERVER_DB "idem"
#define SERVER_POSTGRES_PORT 5432 /* in the socket's name, if the server has no port */

enum server_engine { SERVER_POSTGRES, SERVER_MARIADB };

struct server_options {
    bool port;       /* listens on 127.0.0.1, too */
    const char *tls; /* a directory with certificates (certificates.h): TCP with TLS only; NULL:
                        without TLS */
    bool durable;    /* commits survive a power cut, not only SIGKILL; this is slower */
    int clock_fd;    /* SQL reads the test's time (clock_preload.c); -1: the real time */
    const char *const *settings; /* further "name=value", NULL at the end; NULL: none */
};

struct server {
    enum server_engine engine;
    struct server_options options;
    pid_t pid;
    struct process_pause pause;
    int port; /* 0: none */
    char folder[256];
    char socket[300]; /* the socket's directory for PostgreSQL, its path for MariaDB */
};

/* Starts the server and waits until it responds. `options` and its pointers must stay valid. */
void server_start(struct server *server, enum server_engine engine, const char *folder,
                  const struct server_options *options);
void server_restart(
    struct server *server); /* starts a stopped or killed server, with the same options */
void server_stop(struct server *server);  /* an orderly stop; accepts a server that does not run */
void server_kill(struct server *server);  /* SIGKILL for all its processes, and waits */
void server_pause(struct server *server); /* SIGSTOP for all its processes */
void server_go_on(struct server *server);

#endif
