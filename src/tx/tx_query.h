/*
 * Builds a statement from text, quoted identifiers, and values; a value never becomes part of the
 * text unescaped. The first failure while building is kept, and idem_query_run() reports it.
 */
#ifndef IDEM_TX_TX_QUERY_H
#define IDEM_TX_TX_QUERY_H

#include "base/arena.h"
#include "base/buffer.h"
#include "idem.h"

/* The maximum number of columns read from a row. */
#define IDEM_SQL_COLUMNS_MAX 64

struct idem_dialect;
struct idem_reply;

struct idem_query {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    struct idem_buffer text;   /* ends with a NUL, which `len` does not count, when it is run */
    struct idem_buffer values; /* struct idem_sql_value, which the engine binds */
    size_t values_n;
    bool begins; /* the text starts with the BEGIN of the statement's transaction */
    bool shown;  /* bytes may appear as literals: they are not secret, and their columns binary */
    int failed;  /* the code of the first failure; 0: none */
    struct idem_error why;
    struct idem_arena arena; /* for values that an engine needs in another form */
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
/* Appends "column = value". */
void idem_query_assign(struct idem_query *q, const char *column, struct idem_sql_value value);
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

static inline const struct idem_sql_value *idem_query_values(const struct idem_query *q) {
    return (const struct idem_sql_value *)q->values.at;
}

/* Runs a complete statement, in which each ? is replaced with the next value. */
int idem_query_run_text(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                        const struct idem_sql_value *values, struct idem_reply *ret,
                        struct idem_error *err);
/* The same; *ret is the only cell of the reply as a number, 0 if there is none. */
int idem_query_number(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                      const struct idem_sql_value *values, int64_t *ret, struct idem_error *err);
/* The same without values; discards the reply. */
int idem_query_do(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                  struct idem_error *err);

#endif
