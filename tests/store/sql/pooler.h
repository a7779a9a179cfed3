/*
 * A pgbouncer in front of a PostgreSQL, for tests: many client connections
 * share few of the server's, one transaction at a time.
 */
#ifndef IDEM_TEST_STORE_SQL_POOLER_H
#define IDEM_TEST_STORE_SQL_POOLER_H

#include "server.h"

#define POOLER_SIZE 8 /* connections to the server, for each user */

struct pooler {
    pid_t pid; /* 0: none */
    int port;  /* on 127.0.0.1; the passwords are the server's */
    char folder[256];
};

void pooler_start(struct pooler *pooler, const struct server *server, const char *folder);
void pooler_stop(struct pooler *pooler);

#endif
