/* One connection, some statements, one result. */
#include "client.h"

#include <libpq-fe.h>
#include <mysql.h>
#include <stdio.h>

static char wrong[1000];

struct client client_root(const struct server *server) {
    bool postgres = server->engine == SERVER_POSTGRES;

    return (struct client){.engine = server->engine,
                           .socket = server->socket,
                           .port = server->port,
                           .user = postgres ? CLIENT_POSTGRES_ROOT : CLIENT_MARIADB_ROOT,
                           .db = SERVER_DB};
}

static void say(const char *text, char *out, size_t size) {
    if (out != NULL && size > 0)
        snprintf(out, size, "%s", text == NULL ? "" : text);
}

static PGconn *postgres_open(const struct client *client) {
    const char *names[12] = {"user", "password", "dbname", "connect_timeout", "host", "port"};
    char port[16], paths[3][400];
    const char *values[12] = {client->user, client->password, client->db,
                              "120",        client->socket,   port};
    static const char *const files[][2] = {
        {"sslrootcert", "ca.crt"}, {"sslcert", "client.crt"}, {"sslkey", "client.key"}};
    int n = 6;

    snprintf(port, sizeof(port), "%d", client->port != 0 ? client->port : SERVER_POSTGRES_PORT);
    if (client->socket == NULL)
        values[4] = "localhost";
    names[n] = "sslmode";
    values[n++] = client->tls != NULL ? "verify-full" : "disable";
    for (int i = 0; client->tls != NULL && i < (client->nameless ? 1 : 3); i++) {
        snprintf(paths[i], sizeof(paths[i]), "%.300s/%s", client->tls, files[i][1]);
        names[n] = files[i][0];
        values[n++] = paths[i];
    }
    return PQconnectdbParams(names, values, 0);
}

static const char *postgres_try(const struct client *client, const char *sql, char *out,
                                size_t size) {
    PGconn *conn = postgres_open(client);
    bool failed = PQstatus(conn) != CONNECTION_OK;

    if (failed) {
        snprintf(wrong, sizeof(wrong), "%s", PQerrorMessage(conn));
    } else {
        PGresult *result = PQexec(conn, sql);
        ExecStatusType status = PQresultStatus(result);

        failed = status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
        if (failed)
            snprintf(wrong, sizeof(wrong), "%s", PQresultErrorMessage(result));
        else if (PQntuples(result) > 0)
            say(PQgetvalue(result, 0, 0), out, size);
        PQclear(result);
    }
    PQfinish(conn);
    return failed ? wrong : NULL;
}

static bool mariadb_open(MYSQL *conn, const struct client *client) {
    unsigned seconds = 120,
             protocol = client->socket != NULL ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    char ca[400], cert[400], key[400];
    my_bool yes = 1;

    mysql_options(conn, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_options(conn, MYSQL_OPT_PROTOCOL, &protocol);
    if (client->tls != NULL) {
        snprintf(ca, sizeof(ca), "%.300s/ca.crt", client->tls);
        snprintf(cert, sizeof(cert), "%.300s/client.crt", client->tls);
        snprintf(key, sizeof(key), "%.300s/client.key", client->tls);
        mysql_ssl_set(conn, client->nameless ? NULL : key, client->nameless ? NULL : cert, ca, NULL,
                      NULL);
        mysql_options(conn, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
    }
    return mysql_real_connect(conn, "localhost", client->user, client->password, client->db,
                              (unsigned)client->port, client->socket,
                              CLIENT_MULTI_STATEMENTS) != NULL;
}

/* Returns false if a statement failed. */
static bool mariadb_answers(MYSQL *conn, char *out, size_t size) {
    int next = 0;

    while (next == 0) {
        MYSQL_RES *result = mysql_store_result(conn);
        MYSQL_ROW row = result == NULL ? NULL : mysql_fetch_row(result);

        if (row != NULL)
            say(row[0], out, size);
        mysql_free_result(result);
        next = mysql_next_result(conn);
    }
    return next < 0;
}

static const char *mariadb_try(const struct client *client, const char *sql, char *out,
                               size_t size) {
    MYSQL *conn = mysql_init(NULL);
    bool ok = mariadb_open(conn, client) && mysql_query(conn, sql) == 0 &&
              mariadb_answers(conn, out, size);

    if (!ok)
        snprintf(wrong, sizeof(wrong), "%s", mysql_error(conn));
    mysql_close(conn);
    return ok ? NULL : wrong;
}

const char *client_try(const struct client *client, const char *sql, char *out, size_t size) {
    say("", out, size);
    return client->engine == SERVER_POSTGRES ? postgres_try(client, sql, out, size)
                                             : mariadb_try(client, sql, out, size);
}
