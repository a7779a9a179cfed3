/*
 * SQL for tests, by the engines' own client libraries: each call on a connection
 * of its own.
 */
#ifndef IDEM_TEST_STORE_SQL_CLIENT_H
#define IDEM_TEST_STORE_SQL_CLIENT_H

#include "server.h"

#define CLIENT_POSTGRES_ROOT "postgres"
#define CLIENT_MARIADB_ROOT "root"

/* They need no password by the socket, and theirs by TCP. */
#define CLIENT_OWNER "idem_owner" /* may do everything in the database */
#define CLIENT_OWNER_PASSWORD "owner-secret"
#define CLIENT_APP "idem_app" /* SELECT, INSERT, UPDATE, DELETE on what the owner made */
#define CLIENT_APP_PASSWORD "app-secret"
#define CLIENT_ODD "idem_odd" /* the same, with a password that a URL has to escape */
#define CLIENT_ODD_PASSWORD "p@ss:/?%"

struct client {
    enum server_engine engine;
    const char *socket; /* NULL: by TCP */
    int port;
    const char *tls; /* the folder of certificates; NULL: plain */
    bool nameless;   /* by TLS, but with no certificate of its own */
    const char *user, *password, *db;
};

/* Its superuser, by the socket. */
struct client client_root(const struct server *server);

/* Runs statements, separated by semicolons. What the last one that gave rows said in its first
   column and row goes to `out` ("" if nothing did). NULL, or what was wrong, until the next call.
 */
const char *client_try(const struct client *client, const char *sql, char *out, size_t size);

#endif
