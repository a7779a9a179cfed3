/*
 * PostgreSQL: the engine's own parts.
 *
 *     postgres_driver.c      the driver's table
 *     postgres_connect.c     connects and checks the server
 *     postgres_connection.c  statements and responses, pipelined
 *     postgres_statement.c   the statements
 *     postgres_failure.c     the meaning of errors, for src/tx as well
 */
#ifndef IDEM_STORE_SQL_POSTGRES_POSTGRES_H
#define IDEM_STORE_SQL_POSTGRES_POSTGRES_H

#include <libpq-fe.h>

#include "store/sql/sql_engine.h"

extern const char *const pg_texts[SQL_STATEMENT__COUNT];

/* postgres_connect.c: blocks. NULL: failed, with the reason in *ret. */
PGconn *pg_connect(const struct sql_config *config, struct sql_dialled *ret);
void pg_dial(const struct sql_config *config, const struct sql_session *past,
             struct sql_dialled *ret);

/* postgres_connection.c: the connection becomes the link's; NULL without memory. */
struct sql_link *pg_link_new(PGconn *conn, bool pooled);
void pg_hang_up(struct sql_link *link);
int pg_fd(const struct sql_link *link);
bool pg_send(struct sql_link *link, enum sql_statement statement, const struct sql_value *values,
             size_t n);
int pg_pump(struct sql_link *link, int events, const char **ret_why);
struct sql_answer *pg_next(struct sql_link *link);
void pg_answer_free(struct sql_answer *answer);
const char *pg_notified(struct sql_link *link);

#endif
