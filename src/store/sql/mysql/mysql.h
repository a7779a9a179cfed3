/*
 * MySQL and MariaDB, with MariaDB's Connector/C: the engine's own parts.
 *
 *     mysql_connection.c  the driver's table; checks the server and sets the session up;
 *                         statements, one at a time, without blocking
 *     mysql_connect.c     connects, with TLS or without; shields the host's thread from the
 *                         library's side effects; the meaning of errors, for src/tx as well
 *     mysql_statement.c   responses; values in the library's form; the statements
 */
#ifndef IDEM_STORE_SQL_MYSQL_MYSQL_H
#define IDEM_STORE_SQL_MYSQL_MYSQL_H

#include <mysql.h>
#include <signal.h>

#include "store/sql/sql_engine.h"

extern const char *const maria_texts[SQL_STATEMENT__COUNT];

/* mysql_connect.c: blocks. NULL: failed, with the reason in *ret. */
MYSQL *maria_connect(const struct sql_config *config, struct sql_dialled *ret);

/* mysql_connection.c: blocks. */
void maria_dial(const struct sql_config *config, const struct sql_session *past,
                struct sql_dialled *ret);

void maria_hang_up(struct sql_engine_connection *connection);
int maria_fd(const struct sql_engine_connection *connection);
bool maria_send(struct sql_engine_connection *connection, enum sql_statement statement,
                const struct sql_value *values, size_t n);
int maria_pump(struct sql_engine_connection *connection, int events, const char **ret_why);
struct sql_answer *maria_next(struct sql_engine_connection *connection);

/* mysql_connect.c: surround each call of the library that may write to a socket, on the host's
   thread. */
struct maria_sigpipe {
    sigset_t before;
    bool pending, tls;
};
void maria_sigpipe_block(struct maria_sigpipe *sigpipe, bool tls);
void maria_sigpipe_restore(const struct maria_sigpipe *sigpipe);
/* Initializes the library without a change of SIGPIPE's disposition. */
void maria_library_init(void);

/* mysql_statement.c: NULL without memory. The response to a statement, all of which has arrived,
   or its error. */
struct sql_answer *maria_answer(MYSQL_STMT *stmt, enum sql_statement statement);
struct sql_answer *maria_refusal(enum sql_trouble trouble, unsigned code, const char *text);
struct sql_answer *maria_failure(MYSQL_STMT *stmt);
void maria_answer_free(struct sql_answer *answer);

/* mysql_statement.c */

/* A bound value; it must not move while it is bound. */
struct maria_cell {
    union {
        int64_t n;
        MYSQL_TIME time;
    } at;
    unsigned long len;
    my_bool null;
};
void maria_time_set(MYSQL_TIME *ret, int64_t ms);
int64_t maria_time_get(const MYSQL_TIME *time);
/* To the server: `letter` is the type in sql_shapes. The value's bytes are borrowed. */
void maria_bind_in(MYSQL_BIND *bind, struct maria_cell *cell, char letter,
                   const struct sql_value *value);

#endif
