/*
 * SQLite, in this process. A transaction that writes has the database to itself, so row locks are
 * not needed, nor a limit on waiting for them. It must begin as a writer (BEGIN IMMEDIATE): a
 * transaction that reads first may fail to become a writer. On some failures (a full disk, no
 * memory) SQLite itself rolls the transaction back, so the code checks for that after each failure.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "tx/tx_dialect.h"

#define MIGRATE "run `idem migrate --store sqlite:PATH`, or idem_sql_migrate()"

#define SNAPSHOT                                                                                   \
    "what the connection reads is older than the file: end the SELECT that is open on it "         \
    "(sqlite3_reset()), or begin with BEGIN IMMEDIATE"

#define FAILURE(number, code, why, text)                                                           \
    { NULL, number, SQL_REFUSED, IDEM_E_##code, IDEM_WHY_##why, text, NULL }

/* Matched by the extended code or by its lowest byte. */
/* clang-format off */
static const struct sql_failure failures[] = {
    FAILURE(SQLITE_CONSTRAINT_UNIQUE, REFUSED, CONFLICT, NULL),
    FAILURE(SQLITE_CONSTRAINT_PRIMARYKEY, REFUSED, CONFLICT, NULL),
    FAILURE(SQLITE_CONSTRAINT_ROWID, REFUSED, CONFLICT, NULL),
    FAILURE(SQLITE_CONSTRAINT_TRIGGER, REFUSED, NONE, "a trigger refused it"),
    FAILURE(SQLITE_BUSY_SNAPSHOT, RETRY_TX, LOCKED, SNAPSHOT),
    FAILURE(SQLITE_BUSY, RETRY_TX, LOCKED, NULL),
    FAILURE(SQLITE_LOCKED, RETRY_TX, LOCKED, NULL),
    FAILURE(SQLITE_FULL, FULL, NONE, NULL),
    FAILURE(SQLITE_NOMEM, NOMEM, NONE, NULL),
    FAILURE(SQLITE_CORRUPT, CORRUPT, NONE, NULL),
    FAILURE(SQLITE_NOTADB, CORRUPT, NONE, NULL),
    FAILURE(SQLITE_TOOBIG, INVALID, NONE, NULL),
    FAILURE(SQLITE_MISUSE, INVALID, NONE, NULL),
    FAILURE(0, REFUSED, NONE, NULL),
};
/* clang-format on */

static const struct sql_failure *sqlite_failure_find(int number) {
    const struct sql_failure *f = failures;

    while (f->number != 0 && f->number != number && f->number != (number & 0xff))
        f++;
    return f;
}

static int sqlite_failure_report(sqlite3 *db, bool inside, enum idem_sql_why *ret_why,
                                 struct idem_error *err) {
    int number = sqlite3_extended_errcode(db);
    const struct sql_failure *f = sqlite_failure_find(number);
    const char *what = f->text != NULL ? f->text : sqlite3_errmsg(db);
    bool missing = idem_text_begins(what, "no such table");

    *ret_why = f->why;
    if (inside && sqlite3_get_autocommit(db) != 0) {
        *ret_why = IDEM_WHY_NONE;
        return idem_error_set(err, f->code == IDEM_E_RETRY_TX ? IDEM_E_TX_LOST : f->code,
                              "SQLite has rolled the transaction back (%d): %s", number, what);
    }
    return idem_error_set(err, f->code, "SQLite refused a statement (%d): %s%s", number, what,
                          missing ? "; " MIGRATE : "");
}

static int sqlite_inside(struct idem_sql conn, struct idem_error *err) {
    if (sqlite3_txn_state(conn.at.sqlite, NULL) == SQLITE_TXN_WRITE)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID,
                          "%s: begin it with BEGIN IMMEDIATE, so that it can write from its "
                          "beginning",
                          sqlite3_get_autocommit(conn.at.sqlite) != 0
                              ? "no transaction is open"
                              : "the transaction that is open does not write yet");
}

static int sqlite_outside(struct idem_sql conn, struct idem_error *err) {
    return sqlite3_get_autocommit(conn.at.sqlite) != 0 ? 0 : idem_outside_failed(err);
}

static void sqlite_value(struct idem_query *q, const struct idem_sql_value *value) {
    idem_query_bind(q, value);
    idem_query_add(q, "?");
}

static int sqlite_value_bind(sqlite3_stmt *stmt, int at, const struct idem_sql_value *value) {
    switch (value->type) {
    case IDEM_SQL_INT:
        return sqlite3_bind_int64(stmt, at, value->number);
    case IDEM_SQL_TEXT:
        return sqlite3_bind_text64(stmt, at, value->len == 0 ? "" : value->at, value->len,
                                   SQLITE_STATIC, SQLITE_UTF8);
    case IDEM_SQL_BYTES:
        return sqlite3_bind_blob64(stmt, at, value->len == 0 ? "" : value->at, value->len,
                                   SQLITE_STATIC);
    default:
        return sqlite3_bind_null(stmt, at);
    }
}

static struct idem_sql_value sqlite_cell_read(sqlite3_stmt *stmt, int column) {
    switch (sqlite3_column_type(stmt, column)) {
    case SQLITE_NULL:
        return idem_sql_null();
    case SQLITE_INTEGER:
        return idem_sql_int(sqlite3_column_int64(stmt, column));
    case SQLITE_BLOB: {
        const void *at = sqlite3_column_blob(stmt, column);

        return idem_sql_bytes(at, (size_t)sqlite3_column_bytes(stmt, column));
    }
    default: {
        const void *at = sqlite3_column_text(stmt, column);

        return (struct idem_sql_value){
            .type = IDEM_SQL_TEXT, .at = at, .len = (size_t)sqlite3_column_bytes(stmt, column)};
    }
    }
}

static int sqlite_row_read(sqlite3_stmt *stmt, struct idem_reply *ret, struct idem_error *err) {
    struct idem_sql_value cells[IDEM_SQL_COLUMNS_MAX];
    int n = sqlite3_column_count(stmt);

    if (n > IDEM_SQL_COLUMNS_MAX)
        n = IDEM_SQL_COLUMNS_MAX;
    for (int i = 0; i < n; i++)
        cells[i] = sqlite_cell_read(stmt, i);
    return idem_reply_row(ret, cells, (size_t)n, err);
}

/* Returns SQLITE_DONE, or the code that stopped it. */
static int sqlite_rows_step(sqlite3_stmt *stmt, struct idem_reply *ret, int *rc,
                            struct idem_error *err) {
    int step;

    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (ret->rows++ == 0)
            *rc = sqlite_row_read(stmt, ret, err);
    }
    return step;
}

static int sqlite_run(struct idem_query *q, struct idem_reply *ret, struct idem_error *err) {
    sqlite3 *db = q->conn.at.sqlite;
    bool inside = sqlite3_get_autocommit(db) == 0;
    int before = sqlite3_total_changes(db), step = SQLITE_OK, rc = 0;
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(db, q->text.at, (int)q->text.len, &stmt, NULL) != SQLITE_OK)
        return sqlite_failure_report(db, inside, &ret->why, err);
    for (size_t i = 0; i < q->values_n && step == SQLITE_OK; i++)
        step = sqlite_value_bind(stmt, (int)i + 1, &idem_query_values(q)[i]);
    if (step == SQLITE_OK)
        step = sqlite_rows_step(stmt, ret, &rc, err);
    if (step != SQLITE_DONE)
        rc = sqlite_failure_report(db, inside, &ret->why, err);
    else if (sqlite3_total_changes(db) != before)
        ret->changed =
            sqlite3_changes(db); /* without a change, this is the count of an older statement */
    sqlite3_finalize(stmt);
    return rc;
}

static bool sqlite_write_failed(sqlite3 *db) {
    return (sqlite3_errcode(db) & 0xff) == SQLITE_IOERR;
}

static int sqlite_failure(struct idem_sql conn, const char *sqlstate, struct idem_error *err) {
    enum idem_sql_why why;

    (void)sqlstate;
    if (sqlite_write_failed(conn.at.sqlite)) /* the statement may have been a COMMIT */
        return idem_error_set(err, IDEM_E_UNKNOWN, "SQLite met an error of the disk (%d): %s",
                              sqlite3_extended_errcode(conn.at.sqlite),
                              sqlite3_errmsg(conn.at.sqlite));
    return sqlite_failure_report(conn.at.sqlite, true, &why, err);
}

static int sqlite_begin(struct idem_sql conn, enum idem_isolation isolation,
                        struct idem_error *err) {
    (void)isolation; /* SQLite has only serializable */
    return idem_query_do(conn, &idem_dialect_sqlite, "BEGIN IMMEDIATE", err);
}

/* A busy COMMIT leaves the transaction open. After an I/O error it is unknown whether the file
   contains the transaction. */
static int sqlite_commit_run(struct idem_sql conn, struct idem_error *err) {
    struct idem_error why;
    int rc = idem_query_do(conn, &idem_dialect_sqlite, "COMMIT", &why);

    if (rc != 0 && sqlite_write_failed(conn.at.sqlite))
        return idem_error_set(err, IDEM_E_UNKNOWN,
                              "COMMIT met an error of the disk (%s): open the file anew, and ask "
                              "idem_tx_outcome()",
                              why.text);
    return rc == 0 ? 0 : idem_error_copy(err, &why);
}

static int sqlite_commit(struct idem_sql conn, struct idem_error *err) {
    int rc = idem_query_do(conn, &idem_dialect_sqlite, IDEM_TX_UNMARK, err);

    if (rc != 0)
        return sqlite3_errcode(conn.at.sqlite) == SQLITE_ERROR ? idem_mark_gone(err) : rc;
    return sqlite_commit_run(conn, err);
}

static int sqlite_rollback(struct idem_sql conn, struct idem_error *err) {
    if (sqlite3_get_autocommit(conn.at.sqlite) == 0)
        (void)sqlite3_exec(conn.at.sqlite, "ROLLBACK", NULL, NULL, NULL);
    return sqlite3_get_autocommit(conn.at.sqlite) != 0 ? 0 : idem_rollback_failed(err);
}

/* Migration: one transaction, which has the file to itself. */

static const char schema[] =
#include "sqlite.sql.h"
    ;

static int sqlite_migration_begin(struct idem_sql conn, struct idem_error *err) {
    return sqlite_begin(conn, 0, err);
}

static int sqlite_migration_end(struct idem_sql conn, int rc, struct idem_error *err) {
    if (rc == 0)
        rc = sqlite_commit_run(conn, err);
    (void)sqlite_rollback(conn, NULL);
    return rc;
}

static int sqlite_migration_script(struct idem_sql conn, const char *text, struct idem_error *err) {
    enum idem_sql_why why;

    if (sqlite3_exec(conn.at.sqlite, text, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return sqlite_failure_report(conn.at.sqlite, true, &why, err);
}

/* Milliseconds since 1970. */
#define NOW "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

const struct idem_dialect idem_dialect_sqlite = {
    .name = "SQLite",
    .quote = '`', /* in double quotes, an unknown column would become a string */
    .tx = IDEM_TX_TEXTS(NOW, NOW " + ? * 1000", " ON CONFLICT DO NOTHING", ""),
    .on_conflict = " ON CONFLICT (",
    .present = "",
    .lock = "",
    .lock_free = "",
    .now = "CURRENT_TIMESTAMP",
    .bytes_open = "",
    .bytes_close = "",
    .text_open = "CAST(",
    .text_close = " AS TEXT)",
    .inside = sqlite_inside,
    .outside = sqlite_outside,
    .value = sqlite_value,
    .run = sqlite_run,
    .failure = sqlite_failure,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .migration =
        {
            .schema = schema,
            .exists = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND "
                      "name = 'idem_meta'",
            .begin = sqlite_migration_begin,
            .end = sqlite_migration_end,
            .script = sqlite_migration_script,
        },
};
