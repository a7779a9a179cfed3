/*
 * The tables, as `idem migrate` makes them, by the socket.
 */
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>

#include "client.h"
#include "sql/dial.h"

void tables_make(struct farm *farm) {
    struct idem_error err = {0};
    struct idem_sql conn;
    char url[600];
    int rc;

    snprintf(url, sizeof(url), "%s:%s?user=" CLIENT_OWNER "&db=" SERVER_DB,
             farm->server.engine == SERVER_POSTGRES ? "postgres" : "mysql", farm->server.socket);
    rc = idem_sql_dial(url, &conn, &err);
    if (rc == 0) {
        rc = idem_sql_migrate(conn, &err);
        idem_sql_hangup(conn);
    }
    if (rc != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}
