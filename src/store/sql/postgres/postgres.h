/*
 * PostgreSQL: the engine's own parts.
 *
 *     postgres_connection.c  the driver's table; statements and responses, pipelined
 *     postgres_connect.c     connects and checks the server; the meaning of errors, for src/tx as
 *                            well
 *     postgres_statement.c   the statements
 */
#ifndef IDEM_STORE_SQL_POSTGRES_POSTGRES_H
#define IDEM_STORE_SQL_POSTGRES_POSTGRES_H

#include <libpq-fe.h>

#include "store/sql/sql_engine.h"

/* The server's numbers of types. */
enum {
    PG_BYTEA = 17,
    PG_INT8 = 20,
    PG_INT2 = 21,
    PG_INT4 = 23,
    PG_TIMESTAMPTZ = 1184,
    PG_INTERVAL = 1186,
};

extern const char *const pg_texts[SQL_STATEMENT__COUNT];

/* postgres_connect.c: blocks. NULL: failed, with the reason in *ret. */
PGconn *pg_connect(const struct sql_config *config, struct sql_dialled *ret);
void pg_dial(const struct sql_config *config, const struct sql_session *past,
             struct sql_dialled *ret);

/* postgres_connection.c: takes over `conn`; NULL without memory. */
struct sql_engine_connection *pg_connection_new(PGconn *conn, bool pooled);

#endif
