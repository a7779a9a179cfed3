/*
 * Builds and runs statements. Fails without memory, on empty names, and on errors of the engine.
 */
#include "tx/tx_query.h"

#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "tx/tx_dialect.h"

/* For values in another form; as large as the largest result. */
#define ARENA_MAX ((size_t)1 << 30)

void idem_query_begin(struct idem_query *q, struct idem_sql conn,
                      const struct idem_dialect *dialect) {
    *q = (struct idem_query){.conn = conn, .dialect = dialect};
    idem_arena_init(&q->arena, ARENA_MAX);
}

void idem_query_end(struct idem_query *q) {
    idem_buffer_release(&q->text);
    idem_buffer_release(&q->values);
    idem_arena_free(&q->arena);
}

void idem_query_fail(struct idem_query *q, int code, const char *text) {
    if (q->failed == 0)
        q->failed = idem_error_set(&q->why, code, "%s", text);
}

void idem_query_put(struct idem_query *q, const void *bytes, size_t len) {
    idem_buffer_put(&q->text, bytes, len);
}

void idem_query_add(struct idem_query *q, const char *text) {
    idem_buffer_put_text(&q->text, text);
}

static void query_append_name_part(struct idem_query *q, const char *name, size_t len) {
    char quote = q->dialect->quote;
    const char *end = name + len;

    if (len == 0)
        idem_query_fail(q, IDEM_E_INVALID,
                        "the name of a table or column is empty, or a part of it");
    idem_query_put(q, &quote, 1);
    for (const char *at = name; at < end; at++) {
        idem_query_put(q, at, 1);
        if (*at == quote)
            idem_query_put(q, at, 1);
    }
    idem_query_put(q, &quote, 1);
}

void idem_query_name(struct idem_query *q, const char *name) {
    const char *dot;

    for (; (dot = strchr(name, '.')) != NULL; name = dot + 1) {
        query_append_name_part(q, name, (size_t)(dot - name));
        idem_query_add(q, ".");
    }
    query_append_name_part(q, name, strlen(name));
}

void idem_query_column(struct idem_query *q, const char *name) {
    query_append_name_part(q, name, strlen(name));
}

void idem_query_hex(struct idem_query *q, const struct idem_sql_value *value) {
    const unsigned char *at = value->at;
    char part[512];

    for (size_t done = 0, n; done < value->len; done += n) {
        n = value->len - done < sizeof(part) / 2 ? value->len - done : sizeof(part) / 2;
        idem_query_put(q, part, (size_t)(idem_hex_write(at + done, n, part) - part));
    }
}

void idem_query_bind(struct idem_query *q, const struct idem_sql_value *value) {
    idem_buffer_put(&q->values, value, sizeof(*value));
    q->values_n++;
}

void idem_query_value(struct idem_query *q, struct idem_sql_value value) {
    if (value.type != IDEM_SQL_INT && value.type != IDEM_SQL_NULL && value.at == NULL &&
        value.len != 0)
        idem_query_fail(q, IDEM_E_INVALID, "a value is NULL, and its length is not 0");
    else
        q->dialect->value(q, &value);
}

void idem_query_assign(struct idem_query *q, const char *column, struct idem_sql_value value) {
    idem_query_column(q, column);
    idem_query_add(q, " = ");
    idem_query_value(q, value);
}

void idem_query_equal(struct idem_query *q, const char *column, struct idem_sql_value value) {
    idem_query_assign(q, column, value);
    if (q->dialect->same != NULL)
        q->dialect->same(q, column, &value);
}

void idem_query_fill(struct idem_query *q, const char *text, const struct idem_sql_value *values) {
    const char *mark;

    for (; (mark = strchr(text, '?')) != NULL; text = mark + 1) {
        idem_query_put(q, text, (size_t)(mark - text));
        idem_query_value(q, *values++);
    }
    idem_query_add(q, text);
}

int idem_query_run(struct idem_query *q, struct idem_reply *ret, struct idem_error *err) {
    int rc = 0;

    *ret = (struct idem_reply){0};
    idem_buffer_put(&q->text, "", 1);
    if (q->text.failed || q->values.failed)
        idem_query_fail(q, IDEM_E_NOMEM, "no memory for a statement");
    if (q->failed != 0)
        return idem_error_copy(err, &q->why);
    q->text.len--;
    if (q->dialect->ready != NULL)
        rc = q->dialect->ready(q->conn, err);
    if (rc == 0)
        rc = q->dialect->run(q, ret, err);
    if (rc != 0)
        idem_reply_release(ret);
    return rc;
}

int idem_query_run_text(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                        const struct idem_sql_value *values, struct idem_reply *ret,
                        struct idem_error *err) {
    struct idem_query q;
    int rc;

    idem_query_begin(&q, conn, dialect);
    idem_query_fill(&q, text, values);
    rc = idem_query_run(&q, ret, err);
    idem_query_end(&q);
    return rc;
}

int idem_query_number(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                      const struct idem_sql_value *values, int64_t *ret, struct idem_error *err) {
    struct idem_reply reply;
    int rc = idem_query_run_text(conn, dialect, text, values, &reply, err);

    *ret = rc == 0 && reply.columns == 1 ? idem_cell_number(&reply.cells[0]) : 0;
    idem_reply_release(&reply);
    return rc;
}

int idem_query_do(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                  struct idem_error *err) {
    struct idem_reply reply;
    int rc = idem_query_run_text(conn, dialect, text, NULL, &reply, err);

    idem_reply_release(&reply);
    return rc;
}
