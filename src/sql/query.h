/*
 * A statement that is put together: text, identifiers that are quoted, and values that never become
 * part of the text as they are. What fails on the way is remembered, and told when it is run.
 */
#ifndef IDEM_SQL_QUERY_H
#define IDEM_SQL_QUERY_H

#include "core/arena.h"
#include "idem.h"

#define IDEM_QUERY_ROOM 1024
#define IDEM_QUERY_FEW 16

/* The most columns that a row is read with. */
#define IDEM_SQL_COLUMNS_MAX 64

struct idem_dialect;
struct idem_reply;

struct idem_query {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    char *text; /* in room, or allocated */
    size_t len, size;
    struct idem_sql_value *values; /* in few, or allocated; those that the engine binds */
    size_t values_n, values_size;
    bool begins; /* its first word begins the transaction that the rest is said in */
    bool shown;  /* bytes are for columns of bytes, and no secret */
    int failed;  /* the code of what failed first; 0 */
    struct idem_error why;
    struct idem_arena arena; /* what an engine needs of the values in another form */
    char room[IDEM_QUERY_ROOM];
    struct idem_sql_value few[IDEM_QUERY_FEW];
};

/* Every begin needs its end. */
void idem_query_begin(struct idem_query *q, struct idem_sql conn,
                      const struct idem_dialect *dialect);
void idem_query_end(struct idem_query *q);

void idem_query_put(struct idem_query *q, const void *bytes, size_t len);
void idem_query_say(struct idem_query *q, const char *text);
/* A name, quoted; its parts are parted by dots. */
void idem_query_name(struct idem_query *q, const char *name);
/* The same for a name that may hold dots. */
void idem_query_column(struct idem_query *q, const char *name);
/* A value; borrowed until the end. */
void idem_query_value(struct idem_query *q, struct idem_sql_value value);
/* That a column has a value, and no other that is only like it. */
void idem_query_equal(struct idem_query *q, const char *column, struct idem_sql_value value);
/* Text in which each ? is the next of the values. */
void idem_query_fill(struct idem_query *q, const char *text, const struct idem_sql_value *values);
/* For engines: bytes in hexadecimal digits; a value that they bind when it is run. */
void idem_query_hex(struct idem_query *q, const struct idem_sql_value *value);
void idem_query_bind(struct idem_query *q, const struct idem_sql_value *value);
void idem_query_fail(struct idem_query *q, int code, const char *text);

/* Says it. 0 with the reply, to be released; or a code, with reply->why. */
int idem_query_run(struct idem_query *q, struct idem_reply *ret, struct idem_error *err);

/* A whole statement whose reply is of no interest. */
int idem_query_do(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                  struct idem_error *err);

#endif
