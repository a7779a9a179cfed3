/*
 * PostgreSQL, by libpq, with blocking calls on the caller's connection. Values are bound in one
 * round trip with the unnamed statement: nothing stays on the server, which suits proxies that pool
 * transactions. Numbers, and bytes that are not secret, are literals: the server reads those
 * faster, most of all when nothing is left to bind. Errors omit the server's text where it quotes
 * values (classes 22 and 23, and errors raised by users).
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/sql/postgres/postgres.h"
#include "tx/tx_dialect.h"

#define LITERAL_MAX 128 /* bytes */

/* Classes of SQLSTATE whose messages quote no value. */
static const char *const plain_classes[] = {"08", "25", "28", "3D", "3F", "40", "42",
                                            "53", "54", "55", "57", "58", "XX", NULL};

static bool postgres_message_is_safe(const char *state) {
    for (size_t i = 0; plain_classes[i] != NULL; i++)
        if (idem_text_begins(state, plain_classes[i]))
            return true;
    return false;
}

/* Reports a failed statement; the result may be NULL. */
static int postgres_failure_report(const PGresult *result, const char *state,
                                   enum idem_sql_why *ret_why, struct idem_error *err) {
    const struct sql_failure *f = postgres_failure_find(state);
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *of = PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);

    *ret_why = f->why;
    if (words == NULL || !postgres_message_is_safe(state))
        words = "its words may quote a value, and are left out";
    return idem_error_set(err, f->code, "PostgreSQL refused a statement (SQLSTATE %s%s%s): %s%s%s",
                          state, of == NULL ? "" : ", constraint ", of == NULL ? "" : of, words,
                          f->help == NULL ? "" : "; ", f->help == NULL ? "" : f->help);
}

/* Inside a transaction the outcome is known: without a connection nothing can commit it. */
static int postgres_connection_lost(bool inside, enum idem_sql_why *ret_why,
                                    struct idem_error *err) {
    *ret_why = IDEM_WHY_CONNECTION;
    if (inside)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "the connection to PostgreSQL was lost, and the transaction with it");
    return idem_error_set(err, IDEM_E_UNKNOWN,
                          "the connection to PostgreSQL was lost before it answered");
}

static int postgres_ready(struct idem_sql conn, struct idem_error *err) {
    if (PQpipelineStatus(conn.at.pg) != PQ_PIPELINE_OFF)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the connection is in pipeline mode: leave it with "
                              "PQexitPipelineMode() first");
    if (PQstatus(conn.at.pg) != CONNECTION_OK)
        return idem_error_set(err, IDEM_E_REFUSED, "the connection to PostgreSQL is not open");
    if (PQtransactionStatus(conn.at.pg) == PQTRANS_ACTIVE)
        return idem_error_set(err, IDEM_E_INVALID,
                              "a statement is under way on the connection: read its results with "
                              "PQgetResult() until NULL first");
    return 0;
}

static int postgres_inside(struct idem_sql conn, struct idem_error *err) {
    int rc = postgres_ready(conn, err);

    if (rc != 0)
        return rc;
    switch (PQtransactionStatus(conn.at.pg)) {
    case PQTRANS_INTRANS:
        return 0;
    case PQTRANS_INERROR:
        return idem_error_set(err, IDEM_E_INVALID,
                              "a statement of the transaction has failed before: roll it back");
    default:
        return idem_error_set(err, IDEM_E_INVALID, "no transaction is open: BEGIN one first");
    }
}

static int postgres_outside(struct idem_sql conn, struct idem_error *err) {
    int rc = postgres_ready(conn, err);

    return rc == 0 && PQtransactionStatus(conn.at.pg) != PQTRANS_IDLE ? idem_outside_failed(err)
                                                                      : rc;
}

/* Numbers are untyped literals. The E'' form of a bytea has the same meaning whatever
   standard_conforming_strings is; in a column of text it would be a different text. */
static void postgres_value(struct idem_query *q, const struct idem_sql_value *value) {
    char name[32];

    if (value->type == IDEM_SQL_INT || value->type == IDEM_SQL_NULL) {
        snprintf(name, sizeof(name), "'%lld'", (long long)value->number);
        idem_query_add(q, value->type == IDEM_SQL_NULL ? "NULL" : name);
        return;
    }
    if (value->type == IDEM_SQL_BYTES && q->shown && value->len <= LITERAL_MAX) {
        idem_query_add(q, "E'\\\\x");
        idem_query_hex(q, value);
        idem_query_add(q, "'");
        return;
    }
    if (value->type == IDEM_SQL_TEXT && value->len > 0 && memchr(value->at, '\0', value->len))
        idem_query_fail(
            q, IDEM_E_INVALID,
            "a text holds a NUL byte, which PostgreSQL has not: give it as bytes, for a "
            "bytea column");
    idem_query_bind(q, value);
    snprintf(name, sizeof(name), "$%zu", q->values_n);
    idem_query_add(q, name);
}

/* The values as libpq takes them. The types are omitted, because the server knows the columns'
   types. */
struct params {
    const char **values;
    int *lengths, *formats;
};

static const char *postgres_param_text(struct idem_query *q, const struct idem_sql_value *value) {
    char *text = idem_arena_alloc(&q->arena, value->len + 1);

    if (text == NULL)
        return NULL;
    if (value->len > 0)
        memcpy(text, value->at, value->len);
    text[value->len] = '\0';
    return text;
}

static bool postgres_params_make(struct idem_query *q, struct params *ret) {
    size_t n = q->values_n + 1;

    ret->values = idem_arena_alloc(&q->arena, n * sizeof(*ret->values));
    ret->lengths = idem_arena_alloc(&q->arena, n * sizeof(*ret->lengths));
    ret->formats = idem_arena_alloc(&q->arena, n * sizeof(*ret->formats));
    if (ret->values == NULL || ret->lengths == NULL || ret->formats == NULL)
        return false;
    for (size_t i = 0; i < q->values_n; i++) {
        const struct idem_sql_value *v = &idem_query_values(q)[i];

        ret->lengths[i] = (int)v->len;
        ret->formats[i] = v->type == IDEM_SQL_BYTES;
        if (v->type == IDEM_SQL_BYTES)
            ret->values[i] = v->len == 0 ? "" : v->at;
        else if ((ret->values[i] = postgres_param_text(q, v)) == NULL)
            return false;
    }
    return true;
}

/* Decodes a bytea in place: the decoded form is never longer than the text. */
static bool postgres_cell_unescape(char *at, size_t *len) {
    size_t n;
    unsigned char *bytes = PQunescapeBytea((const unsigned char *)at, &n);

    if (bytes == NULL)
        return false;
    memcpy(at, bytes, n);
    *len = n;
    PQfreemem(bytes);
    return true;
}

static bool postgres_cell_read(const PGresult *result, int column, struct idem_sql_value *ret) {
    char *at = PQgetvalue(result, 0, column);
    size_t len = (size_t)PQgetlength(result, 0, column);

    *ret = (struct idem_sql_value){.type = IDEM_SQL_NULL};
    if (PQgetisnull(result, 0, column))
        return true;
    switch (PQftype(result, column)) {
    case PG_INT2:
    case PG_INT4:
    case PG_INT8:
        *ret = idem_sql_int(strtoll(at, NULL, 10));
        return true;
    case PG_BYTEA:
        if (!postgres_cell_unescape(at, &len))
            return false;
        *ret = idem_sql_bytes(at, len);
        return true;
    default:
        *ret = (struct idem_sql_value){.type = IDEM_SQL_TEXT, .at = at, .len = len};
        return true;
    }
}

static int postgres_reply_read(const PGresult *result, struct idem_reply *ret,
                               struct idem_error *err) {
    struct idem_sql_value cells[IDEM_SQL_COLUMNS_MAX];
    int n = PQnfields(result);

    ret->changed = strtoll(PQcmdTuples((PGresult *)result), NULL, 10);
    ret->rows = (size_t)PQntuples(result);
    if (ret->rows == 0)
        return 0;
    if (n > IDEM_SQL_COLUMNS_MAX)
        n = IDEM_SQL_COLUMNS_MAX;
    for (int i = 0; i < n; i++) {
        if (!postgres_cell_read(result, i, &cells[i]))
            return idem_error_set(err, IDEM_E_NOMEM, "no memory for a row");
    }
    return idem_reply_row(ret, cells, (size_t)n, err);
}

/* Frees `result`. */
static int postgres_result_take(PGconn *conn, PGresult *result, bool inside, struct idem_reply *ret,
                                struct idem_error *err) {
    ExecStatusType status = PQresultStatus(result);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    int rc;

    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY)
        rc = postgres_reply_read(result, ret, err);
    else if (PQstatus(conn) != CONNECTION_OK)
        rc = postgres_connection_lost(inside, &ret->why, err);
    else if (state == NULL)
        rc = idem_error_set(err, IDEM_E_REFUSED,
                            "libpq could not send a statement, or its response is no such");
    else
        rc = postgres_failure_report(result, state, &ret->why, err);
    PQclear(result);
    return rc;
}

static int postgres_run(struct idem_query *q, struct idem_reply *ret, struct idem_error *err) {
    PGconn *conn = q->conn.at.pg;
    bool inside = q->begins || PQtransactionStatus(conn) != PQTRANS_IDLE;
    struct params params;

    if (q->values_n == 0)
        return postgres_result_take(conn, PQexec(conn, q->text.at), inside, ret, err);
    if (!postgres_params_make(q, &params))
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a statement");
    return postgres_result_take(conn,
                                PQexecParams(conn, q->text.at, (int)q->values_n, NULL,
                                             params.values, params.lengths, params.formats, 0),
                                inside, ret, err);
}

static int postgres_failure(struct idem_sql conn, const char *sqlstate, struct idem_error *err) {
    enum idem_sql_why why;

    /* The lost statement may have been a COMMIT. */
    if (PQstatus(conn.at.pg) != CONNECTION_OK)
        return postgres_connection_lost(false, &why, err);
    if (sqlstate == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "idem_sql_failure() needs the SQLSTATE: "
                              "PQresultErrorField(result, PG_DIAG_SQLSTATE)");
    return postgres_failure_report(NULL, sqlstate, &why, err);
}

#define BEGIN_AT(level) "BEGIN ISOLATION LEVEL " level ";"
#define MARKED IDEM_TX_MARK ";"

static const char *const begins[] = {
    "BEGIN;" MARKED,
    BEGIN_AT("READ COMMITTED") MARKED,
    BEGIN_AT("REPEATABLE READ") MARKED,
    BEGIN_AT("SERIALIZABLE") MARKED,
};

static int postgres_begin(struct idem_sql conn, enum idem_isolation isolation,
                          struct idem_error *err) {
    static const char *const texts[] = {
        "BEGIN",
        BEGIN_AT("READ COMMITTED"),
        BEGIN_AT("REPEATABLE READ"),
        BEGIN_AT("SERIALIZABLE"),
    };

    return idem_query_do(conn, &idem_dialect_postgres, texts[isolation], err);
}

#define NO_SAVEPOINT "3B001"

/* A failure without a SQLSTATE (libpq had no memory, for example) is no response from the server,
   even if the connection still works. */
static int postgres_commit(struct idem_sql conn, struct idem_error *err) {
    struct idem_reply reply = {0};
    PGresult *result = PQexec(conn.at.pg, IDEM_TX_UNMARK ";COMMIT");
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool answered = state != NULL, gone = answered && strcmp(state, NO_SAVEPOINT) == 0;
    int rc = postgres_result_take(conn.at.pg, result, false, &reply, err);

    if (gone)
        return idem_mark_gone(err);
    if (rc != 0 && (!answered || reply.why == IDEM_WHY_CONNECTION))
        return idem_error_set(err, IDEM_E_UNKNOWN,
                              "COMMIT was not answered: connect anew, and ask idem_tx_outcome()");
    return rc;
}

static int postgres_rollback(struct idem_sql conn, struct idem_error *err) {
    if (PQstatus(conn.at.pg) == CONNECTION_OK && PQtransactionStatus(conn.at.pg) != PQTRANS_IDLE)
        PQclear(PQexec(conn.at.pg, "ROLLBACK"));
    if (PQstatus(conn.at.pg) != CONNECTION_OK || PQtransactionStatus(conn.at.pg) == PQTRANS_IDLE)
        return 0;
    return idem_rollback_failed(err);
}

/* Uses a savepoint, because a lock timeout would otherwise fail the whole transaction. */
static int postgres_wait_begin(struct idem_sql conn, struct idem_wait *wait,
                               struct idem_error *err) {
    const struct idem_dialect *dialect = &idem_dialect_postgres;
    struct idem_reply reply;
    char text[128];
    int rc = idem_query_do(conn, dialect, "SAVEPOINT idem_wait", err);

    if (rc != 0)
        return rc;
    snprintf(text, sizeof(text),
             "SELECT current_setting('lock_timeout'), set_config('lock_timeout', '%lldms', true)",
             (long long)wait->ms);
    rc = idem_query_run_text(conn, dialect, text, NULL, &reply, err);
    if (rc == 0 && reply.columns == 2)
        snprintf(wait->before, sizeof(wait->before), "%s", (const char *)reply.cells[0].at);
    wait->set = rc == 0;
    idem_reply_release(&reply);
    return rc;
}

static int postgres_wait_end(struct idem_sql conn, struct idem_wait *wait, enum idem_wait_end how,
                             struct idem_error *err) {
    const struct idem_dialect *dialect = &idem_dialect_postgres;
    const struct idem_sql_value before = idem_sql_text(wait->before);
    struct idem_reply reply;
    int rc;

    if (how == IDEM_WAIT_ROLLED_BACK)
        return 0;
    rc = idem_query_run_text(conn, dialect,
                             how == IDEM_WAIT_LOCKED ? "ROLLBACK TO SAVEPOINT idem_wait"
                                                     : "SELECT set_config('lock_timeout', ?, true)",
                             &before, &reply, err);
    idem_reply_release(&reply);
    return rc != 0 ? rc : idem_query_do(conn, dialect, "RELEASE SAVEPOINT idem_wait", err);
}

/* Migration: one transaction, with an advisory lock that ends with it. The number of the lock is
   arbitrary but must never change. */

static const char schema[] =
#include "postgres.sql.h"
    ;

static int postgres_migration_begin(struct idem_sql conn, struct idem_error *err) {
    int rc =
        idem_query_do(conn, &idem_dialect_postgres, "BEGIN ISOLATION LEVEL READ COMMITTED", err);

    if (rc == 0)
        rc = idem_query_do(conn, &idem_dialect_postgres,
                           "SELECT pg_advisory_xact_lock(6722813154047099210)", err);
    if (rc != 0)
        (void)postgres_rollback(conn, NULL);
    return rc;
}

static int postgres_migration_end(struct idem_sql conn, int rc, struct idem_error *err) {
    if (rc == 0)
        rc = idem_query_do(conn, &idem_dialect_postgres, "COMMIT", err);
    (void)postgres_rollback(conn, NULL);
    return rc;
}

static int postgres_migration_script(struct idem_sql conn, const char *text,
                                     struct idem_error *err) {
    struct idem_reply reply = {0};
    int rc = postgres_result_take(conn.at.pg, PQexec(conn.at.pg, text), true, &reply, err);

    idem_reply_release(&reply);
    return rc;
}

const struct idem_dialect idem_dialect_postgres = {
    .name = "PostgreSQL",
    .quote = '"',
    .tx = IDEM_TX_TEXTS("clock_timestamp()", "clock_timestamp() + CAST(? AS interval)",
                        " ON CONFLICT DO NOTHING", ""),
    .on_conflict = " ON CONFLICT (",
    .present = "",
    .lock = " FOR UPDATE",
    .lock_free = " FOR UPDATE SKIP LOCKED",
    .now = "clock_timestamp()",
    .bytes_open = "",
    .bytes_close = "",
    .text_open = "CAST(",
    .text_close = " AS text)",
    .seeing = IDEM_ISOLATION_READ_COMMITTED,
    .ready = postgres_ready,
    .inside = postgres_inside,
    .outside = postgres_outside,
    .value = postgres_value,
    .run = postgres_run,
    .failure = postgres_failure,
    .begin = postgres_begin,
    .begins = begins,
    .commit = postgres_commit,
    .rollback = postgres_rollback,
    .wait_begin = postgres_wait_begin,
    .wait_end = postgres_wait_end,
    .migration =
        {
            .schema = schema,
            .exists = "SELECT CASE WHEN to_regclass('idem_meta') IS NULL THEN 0 ELSE 1 END",
            .begin = postgres_migration_begin,
            .end = postgres_migration_end,
            .script = postgres_migration_script,
        },
};
