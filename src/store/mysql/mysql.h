/*
 * MySQL and MariaDB, by MariaDB's Connector/C: the engine's own parts.
 *
 *     driver.c   the driver's table
 *     connect.c  connects, with TLS or without
 *     dial.c     looks at whom it reached, and sets the session up
 *     link.c     statements, one at a time, without blocking
 *     quiet.c    what the library would do to the host's thread
 *     answer.c   what came back
 *     value.c    values as the library takes and gives them
 *     text.c     the statements
 */
#ifndef IDEM_STORE_MYSQL_MYSQL_H
#define IDEM_STORE_MYSQL_MYSQL_H

#include <mysql.h>
#include <signal.h>

#include "store/sql/sql.h"

extern const char *const maria_texts[SQL_STATEMENT__COUNT];

/* connect.c: blocks. NULL, with why in *ret. */
MYSQL *maria_connect(const struct sql_config *config, struct sql_dialled *ret);
void maria_fail(struct sql_dialled *ret, int code, bool for_good, const char *text);

/* dial.c: blocks. */
void maria_dial(const struct sql_config *config, const struct sql_session *past,
                struct sql_dialled *ret);

/* link.c: the connection becomes the link's; NULL without memory. A statement is shorter than
   `packet_max` bytes. */
struct sql_link *maria_link_new(MYSQL *conn, uint64_t packet_max);
void maria_hang_up(struct sql_link *link);
int maria_fd(const struct sql_link *link);
bool maria_send(struct sql_link *link, enum sql_statement statement, const struct sql_value *values,
                size_t n);
int maria_pump(struct sql_link *link, int events, const char **ret_why);
struct sql_answer *maria_next(struct sql_link *link);

/* quiet.c: around each call of the library's that may write to a socket, on the host's thread. */
struct maria_quiet {
    sigset_t before;
    bool pending, tls;
};
void maria_quiet_begin(struct maria_quiet *quiet, bool tls);
void maria_quiet_end(const struct maria_quiet *quiet);
/* Makes the library ready, without changing what SIGPIPE does. */
void maria_library_init(void);

/* answer.c: NULL without memory. What the statement said, all of which has arrived; or why it
   failed. */
struct sql_answer *maria_answer(MYSQL_STMT *stmt, enum sql_statement statement);
struct sql_answer *maria_refusal(enum sql_trouble trouble, unsigned code, const char *text);
struct sql_answer *maria_failure(MYSQL_STMT *stmt);
void maria_answer_free(struct sql_answer *answer);
/* How the server's refusal is to be taken. */
enum sql_trouble maria_trouble(unsigned code);

/* value.c */

/* A value on its way; it stays where it is while it is bound. */
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
/* To the server: `letter` is its type in sql_shapes. The value's bytes are borrowed. */
void maria_bind_in(MYSQL_BIND *bind, struct maria_cell *cell, char letter,
                   const struct sql_value *value);
/* From the server: numbers and times arrive in the cell, of bytes the length only. */
void maria_bind_out(MYSQL_BIND *bind, struct maria_cell *cell, char letter);
struct sql_value maria_value(const struct maria_cell *cell, char letter);

#endif
