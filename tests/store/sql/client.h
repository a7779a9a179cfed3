/*
 * SQL for tests, through the engines' own client libraries: each call makes a
 * connection of its own.
 */
#ifndef IDEM_TEST_STORE_SQL_CLIENT_H
#define IDEM_TEST_STORE_SQL_CLIENT_H

#include "server.h"

#define CLIENT_POSTGRES_ROOT "postgres"
#define CLIENT_MARIADB_ROOT "root"

/* On the socket these users need no password, over TCP each needs its own. */
#define CLIENT_OWNER "idem_owner" /* may do everything in the database */
#define CLIENT_OWNER_PASSWORD "owner-secret"
#define CLIENT_APP "idem_app" /* SELECT, INSERT, UPDATE, DELETE on the owner's tables */
#define CLIENT_APP_PASSWORD "app-secret"
#define CLIENT_ODD "idem_odd" /* the same, with a password that a URL has to escape */
#define CLIENT_ODD_PASSWORD "p@ss:/?%"

struct client {
    enum server_engine engine;
    const char *socket; /* NULL: over TCP */
    int port;
    const char *tls; /* the directory of certificates; NULL: without TLS */
    bool nameless;   /* over TLS, but without a client certificate */
    const char *user, *password, *db;
};

/* The superuser, on the socket. */
struct client client_root(const struct server *server);

/* Runs statements, separated by semicolons. `out` receives the first column of the first row of
 * the last statement that returned rows ("" if none did). Returns NULL, or the error, which is
 * valid until the next call. */
const char *client_try(const struct client *client, const char *sql, char *out, size_t size);

#endif
