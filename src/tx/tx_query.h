/*
 * Builds a statement from text, quoted identifiers, and values; a value never becomes part of the
 * text unescaped. The first failure while building is kept, and idem_query_run() reports it.
 */
#ifndef IDEM_TX_TX_QUERY_H
#define IDEM_TX_TX_QUERY_H

#include "base/arena.h"
#include "idem.h"

#define IDEM_QUERY_ROOM 1024
#define IDEM_QUERY_FEW 16

/* The maximum number of columns read from a row. */
#define IDEM_SQL_COLUMNS_MAX 64

struct idem_dialect;
struct idem_reply;

struct idem_query {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    char *text; /* in `room`, or allocated */
    size_t len, size;
    struct idem_sql_value *values; /* values that the engine binds; in `few`, or allocated */
    size_t values_n, values_size;
    bool begins; /* the text starts with the BEGIN of the statement's transaction */
    bool
        shown; /* bytes may appear as literals: they are not secret, and their columns are binary */
    int failed; /* the code of the first failure; 0: none */
    struct idem_error why;
    struct idem_arena arena; /* for values that an engine needs in another form */
    char room[IDEM_QUERY_ROOM];
    struct idem_sql_value few[IDEM_QUERY_FEW];
};

/* Each begin needs an end. */
void idem_query_begin(struct idem_query *q, struct idem_sql conn,
                      const struct idem_dialect *dialect);
void idem_query_end(struct idem_query *q);

void idem_query_put(struct idem_query *q, const void *bytes, size_t len);
void idem_query_add(struct idem_query *q, const char *text);
/* Appends a quoted name; dots separate its parts. */
void idem_query_name(struct idem_query *q, const char *name);
/* Appends a quoted name that may contain dots. */
void idem_query_column(struct idem_query *q, const char *name);
/* Appends a value, which is borrowed until the end. */
void idem_query_value(struct idem_query *q, struct idem_sql_value value);
/* Appends a condition that the column has exactly this value. */
void idem_query_equal(struct idem_query *q, const char *column, struct idem_sql_value value);
/* Appends text in which each ? is replaced with the next value. */
void idem_query_fill(struct idem_query *q, const char *text, const struct idem_sql_value *values);
/* For engines: append bytes in hexadecimal digits, and add a value to be bound at run time. */
void idem_query_hex(struct idem_query *q, const struct idem_sql_value *value);
void idem_query_bind(struct idem_query *q, const struct idem_sql_value *value);
void idem_query_fail(struct idem_query *q, int code, const char *text);

/* Runs the statement. Returns 0 and a reply, which the caller releases; or a code, with
   reply->why. */
int idem_query_run(struct idem_query *q, struct idem_reply *ret, struct idem_error *err);

/* Runs a complete statement and discards the reply. */
int idem_query_do(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                  struct idem_error *err);

#endif
