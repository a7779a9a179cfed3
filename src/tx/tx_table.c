/*
 * The row of a guarded operation in a table of the caller. Nothing is known about how the columns
 * store values. So each row found by a key is compared with that key byte for byte, and each
 * written value is read back. This detects and refuses a column that folds case, truncates or
 * rounds.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "core/claim.h"
#include "tx/tx.h"

enum {
    TEXT_TABLE,
    TEXT_KEY,
    TEXT_SOURCE,
    TEXT_FINGERPRINT,
    TEXT_STATUS,
    TEXT_RESULT,
    TEXT_CREATED,
    TEXTS
};

struct idem_tx_table {
    struct idem_tx_columns columns; /* its strings are in `text` */
    char text[];
};

static void columns_texts(struct idem_tx_columns *columns, const char **texts[TEXTS]) {
    texts[TEXT_TABLE] = &columns->table;
    texts[TEXT_KEY] = &columns->key;
    texts[TEXT_SOURCE] = &columns->source;
    texts[TEXT_FINGERPRINT] = &columns->fingerprint;
    texts[TEXT_STATUS] = &columns->status;
    texts[TEXT_RESULT] = &columns->result;
    texts[TEXT_CREATED] = &columns->created;
}

/* The values that identify the row. */

int idem_table_name(const struct idem_tx_table *table, const struct idem_args *args,
                    struct idem_tx_operation *op, struct idem_error *err) {
    bool serial = op->policy.key_kind == IDEM_KEY_SERIAL;
    struct idem_bytes scope = {0};
    int rc = idem_claim_prepare_scope(&op->policy, args, &scope, err);

    if (rc != 0)
        return rc;
    if (serial && scope.at != NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "with key = serial, the table's source is the credential, and there "
                              "is no column for a scope: use scope = none");
    op->serial = serial ? (struct idem_bytes){args->serial, args->serial_len}
                        : (struct idem_bytes){op->identity.key, op->identity.key_len};
    op->source = serial ? (struct idem_bytes){args->credential, args->credential_len} : scope;
    if ((op->source.at != NULL) == (table->columns.source != NULL))
        return 0;
    return idem_error_set(
        err, IDEM_E_INVALID,
        op->source.at != NULL
            ? "the call has a scope, and the table has no column for it (idem_tx_columns.source): "
              "two users' keys would meet"
            : "the table has a column for the scope, and the call has none: set idem_args.scope");
}

static struct idem_sql_value columns_value(const struct idem_tx_columns *columns,
                                           struct idem_bytes bytes) {
    return (struct idem_sql_value){
        .type = columns->bytes ? IDEM_SQL_BYTES : IDEM_SQL_TEXT, .at = bytes.at, .len = bytes.len};
}

static void table_append_where(const struct idem_tx_operation *op, struct idem_query *q) {
    const struct idem_tx_columns *columns = &op->conn.table->columns;

    idem_query_add(q, " WHERE ");
    idem_query_assign(q, columns->key, columns_value(columns, op->serial));
    if (columns->source == NULL)
        return;
    idem_query_add(q, " AND ");
    idem_query_assign(q, columns->source, columns_value(columns, op->source));
}

/* Reading. */

/* Appends a column so that the engine returns the value as it was given, whatever the column's
   type. */
static void query_append_exact(struct idem_query *q, const struct idem_tx_columns *columns,
                               const char *column) {
    const struct idem_dialect *dialect = q->dialect;

    idem_query_add(q, columns->bytes ? "" : dialect->text_open);
    idem_query_column(q, column);
    idem_query_add(q, columns->bytes ? "" : dialect->text_close);
}

static void query_append_optional(struct idem_query *q, const char *column) {
    idem_query_add(q, ", ");
    if (column == NULL)
        idem_query_add(q, "NULL");
    else
        idem_query_column(q, column);
}

static void query_append_result(struct idem_query *q, const char *column) {
    if (column == NULL) {
        idem_query_add(q, ", NULL");
        return;
    }
    idem_query_add(q, ", ");
    idem_query_add(q, q->dialect->bytes_open);
    idem_query_column(q, column);
    idem_query_add(q, q->dialect->bytes_close);
}

enum { CELL_KEY, CELL_SOURCE, CELL_FINGERPRINT, CELL_STATUS, CELL_RESULT, CELLS };

static int table_find_row(const struct idem_tx_operation *op, const char *clause,
                          struct idem_reply *ret, struct idem_error *err) {
    const struct idem_tx_columns *columns = &op->conn.table->columns;
    struct idem_query q;
    int rc;

    idem_query_begin(&q, op->conn, op->dialect);
    idem_query_add(&q, "SELECT ");
    query_append_exact(&q, columns, columns->key);
    idem_query_add(&q, ", ");
    if (columns->source == NULL)
        idem_query_add(&q, "NULL");
    else
        query_append_exact(&q, columns, columns->source);
    query_append_optional(&q, columns->fingerprint);
    query_append_optional(&q, columns->status);
    query_append_result(&q, columns->result);
    idem_query_add(&q, " FROM ");
    idem_query_name(&q, columns->table);
    table_append_where(op, &q);
    idem_query_add(&q, clause);
    rc = idem_query_run(&q, ret, err);
    idem_query_end(&q);
    return rc;
}

static bool value_equals(const struct idem_sql_value *cell, struct idem_bytes bytes) {
    if (bytes.at == NULL)
        return cell->type == IDEM_SQL_NULL;
    return (cell->type == IDEM_SQL_TEXT || cell->type == IDEM_SQL_BYTES) &&
           idem_same(cell->at, cell->len, bytes.at, bytes.len);
}

/* Checks that the row found is this operation's row, and the only one. */
static int table_check_row(const struct idem_tx_operation *op, const struct idem_reply *reply,
                           struct idem_error *err) {
    if (reply->rows == 1 && reply->columns == CELLS &&
        value_equals(&reply->cells[CELL_KEY], op->serial) &&
        value_equals(&reply->cells[CELL_SOURCE], op->source))
        return 0;
    return idem_error_set(err, IDEM_E_INVALID,
                          "the table's columns do not keep keys as they are given (collation, "
                          "blanks, length or type), or are not unique: another key would be taken "
                          "for this one; roll back");
}

static bool value_read_fingerprint(const struct idem_sql_value *cell,
                                   struct idem_fingerprint *ret) {
    if (cell->type == IDEM_SQL_NULL)
        return true;
    return (cell->type == IDEM_SQL_TEXT || cell->type == IDEM_SQL_BYTES) &&
           idem_fingerprint_read((struct idem_bytes){cell->at, cell->len}, ret);
}

int idem_table_read(const struct idem_tx_operation *op, struct idem_tx_row *ret,
                    struct idem_error *err) {
    const struct idem_sql_value *cells;
    int rc;

    *ret = (struct idem_tx_row){0};
    rc = table_find_row(op, op->dialect->present, &ret->reply, err);
    /* After the error of a conflict this transaction holds a lock on the row, so the row cannot
       have been deleted since. */
    if (rc == 0 && ret->reply.rows == 0 && op->dialect->on_conflict == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "another unique key of the table has such a row, or the key was cut "
                              "off by a lax sql_mode; roll back");
    if (rc != 0 || ret->reply.rows == 0)
        return rc;
    rc = table_check_row(op, &ret->reply, err);
    cells = ret->reply.cells;
    if (rc == 0 && !value_read_fingerprint(&cells[CELL_FINGERPRINT], &ret->fingerprint))
        rc = idem_error_set(err, IDEM_E_CORRUPT,
                            "the fingerprint of a row in the table cannot be read: its column must "
                            "hold 75 characters");
    if (rc != 0) {
        idem_reply_release(&ret->reply);
        return rc;
    }
    ret->found = true;
    ret->status = (int32_t)idem_cell_number(&cells[CELL_STATUS]);
    ret->has_result =
        cells[CELL_RESULT].type == IDEM_SQL_BYTES || cells[CELL_RESULT].type == IDEM_SQL_TEXT;
    ret->result = (struct idem_bytes){cells[CELL_RESULT].at, cells[CELL_RESULT].len};
    return 0;
}

/* Writing. */

static void query_append_key_columns(struct idem_query *q, const struct idem_tx_columns *columns) {
    idem_query_column(q, columns->key);
    if (columns->source != NULL) {
        idem_query_add(q, ", ");
        idem_query_column(q, columns->source);
    }
}

static void query_append_conflict(struct idem_query *q, const struct idem_tx_columns *columns) {
    if (q->dialect->on_conflict == NULL)
        return;
    idem_query_add(q, q->dialect->on_conflict);
    query_append_key_columns(q, columns);
    idem_query_add(q, ") DO NOTHING");
}

static void table_append_insert(const struct idem_tx_operation *op, struct idem_query *q,
                                const char *fingerprint) {
    const struct idem_tx_columns *columns = &op->conn.table->columns;

    idem_query_add(q, "INSERT INTO ");
    idem_query_name(q, columns->table);
    idem_query_add(q, " (");
    query_append_key_columns(q, columns);
    if (columns->fingerprint != NULL)
        query_append_optional(q, columns->fingerprint);
    if (columns->created != NULL)
        query_append_optional(q, columns->created);
    idem_query_add(q, ") VALUES (");
    idem_query_value(q, columns_value(columns, op->serial));
    if (columns->source != NULL) {
        idem_query_add(q, ", ");
        idem_query_value(q, columns_value(columns, op->source));
    }
    if (columns->fingerprint != NULL) {
        idem_query_add(q, ", ");
        idem_query_value(q, idem_sql_text(fingerprint));
    }
    if (columns->created != NULL) {
        idem_query_add(q, ", ");
        idem_query_add(q, op->dialect->now);
    }
    idem_query_add(q, ")");
    query_append_conflict(q, columns);
}

int idem_table_insert(const struct idem_tx_operation *op, bool *ret_done, struct idem_error *err) {
    struct idem_error why;
    struct idem_query q;
    struct idem_reply reply;
    char fingerprint[IDEM_FINGERPRINT_TEXT];
    int rc;

    *ret_done = false;
    idem_query_begin(&q, op->conn, op->dialect);
    table_append_insert(op, &q, idem_fingerprint_write(&op->identity.fingerprint, fingerprint));
    rc = idem_query_run(&q, &reply, &why);
    idem_query_end(&q);
    idem_reply_release(&reply);
    if (rc != 0)
        return reply.why == IDEM_WHY_CONFLICT && op->dialect->on_conflict == NULL
                   ? 0
                   : idem_error_copy(err, &why);
    if (reply.changed != 1)
        return 0;
    rc = table_find_row(op, "", &reply, err);
    if (rc == 0)
        rc = table_check_row(op, &reply, err);
    idem_reply_release(&reply);
    *ret_done = rc == 0;
    return rc;
}

/* The number of changed rows does not show whether the row exists, so it is ignored here. */
static int table_write_result(const struct idem_tx_operation *op, int32_t status,
                              struct idem_bytes result, struct idem_error *err) {
    const struct idem_tx_columns *columns = &op->conn.table->columns;
    struct idem_query q;
    struct idem_reply reply;
    int rc;

    idem_query_begin(&q, op->conn, op->dialect);
    idem_query_add(&q, "UPDATE ");
    idem_query_name(&q, columns->table);
    idem_query_add(&q, " SET ");
    if (columns->status != NULL)
        idem_query_assign(&q, columns->status, idem_sql_int(status));
    if (columns->result != NULL) {
        idem_query_add(&q, columns->status == NULL ? "" : ", ");
        idem_query_assign(&q, columns->result,
                          result.at == NULL ? idem_sql_null()
                                            : idem_sql_bytes(result.at, result.len));
    }
    table_append_where(op, &q);
    rc = idem_query_run(&q, &reply, err);
    idem_reply_release(&reply);
    idem_query_end(&q);
    return rc;
}

/* Checks that the row exists, and that status and result read back as they were written. */
static int table_check_result(const struct idem_tx_operation *op, int32_t status,
                              struct idem_bytes result, struct idem_error *err) {
    const struct idem_tx_columns *columns = &op->conn.table->columns;
    struct idem_reply reply;
    int rc = table_find_row(op, "", &reply, err);
    bool same;

    if (rc != 0)
        return rc;
    same = reply.columns == CELLS &&
           (columns->status == NULL || idem_cell_number(&reply.cells[CELL_STATUS]) == status) &&
           (columns->result == NULL || result.at == NULL ||
            value_equals(&reply.cells[CELL_RESULT], result));
    idem_reply_release(&reply);
    if (same)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID,
                          "the table's columns do not keep status or result as they are given "
                          "(length, blanks or type); roll back");
}

/* A row with a result does not wait for one: it belongs to a duplicate. */
static int table_check_waiting(const struct idem_tx_operation *op, struct idem_error *err) {
    struct idem_reply reply;
    int rc = table_find_row(op, "", &reply, err);

    if (rc == 0 && (reply.rows == 0 || reply.cells[CELL_RESULT].len > 0))
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "there is no row of this key that waits for its result: set it once, "
                            "after idem_tx_once() answered IDEM_TX_FIRST in the same transaction");
    idem_reply_release(&reply);
    return rc;
}

int idem_table_result(const struct idem_tx_operation *op, int32_t status, struct idem_bytes result,
                      struct idem_error *err) {
    const struct idem_tx_columns *columns = &op->conn.table->columns;
    int rc = table_check_waiting(op, err);

    if (rc != 0 || (columns->status == NULL && columns->result == NULL))
        return rc;
    rc = table_write_result(op, status, result, err);
    return rc != 0 ? rc : table_check_result(op, status, result, err);
}

/* The table. */

/* Names every column in a statement that inserts nothing, so that the engine checks them all. */
static int table_probe_columns(struct idem_sql conn, const struct idem_dialect *dialect,
                               struct idem_tx_columns *columns, struct idem_error *err) {
    const char **texts[TEXTS];
    struct idem_query q;
    struct idem_reply reply;
    int rc;

    columns_texts(columns, texts);
    idem_query_begin(&q, conn, dialect);
    for (int turn = 0; turn < 2; turn++) {
        idem_query_add(&q, turn == 0 ? "INSERT INTO " : ") SELECT ");
        if (turn == 0) {
            idem_query_name(&q, columns->table);
            idem_query_add(&q, " (");
        }
        idem_query_column(&q, columns->key);
        for (int i = TEXT_SOURCE; i < TEXTS; i++) {
            if (*texts[i] != NULL)
                query_append_optional(&q, *texts[i]);
        }
    }
    idem_query_add(&q, " FROM ");
    idem_query_name(&q, columns->table);
    idem_query_add(&q, " WHERE 1 = 0");
    query_append_conflict(&q, columns);
    rc = idem_query_run(&q, &reply, err);
    idem_reply_release(&reply);
    idem_query_end(&q);
    return rc;
}

/* Runs a counting statement, whose first values are schema and table. */
static int table_count(struct idem_sql conn, const struct idem_dialect *dialect, const char *text,
                       const struct idem_tx_columns *columns, int64_t *ret,
                       struct idem_error *err) {
    const char *dot = strrchr(columns->table, '.');
    struct idem_sql_value schema = {.type = dot == NULL ? IDEM_SQL_NULL : IDEM_SQL_TEXT,
                                    .at = columns->table,
                                    .len = dot == NULL ? 0 : (size_t)(dot - columns->table)};
    const struct idem_sql_value values[] = {
        schema,
        idem_sql_text(dot == NULL ? columns->table : dot + 1),
        idem_sql_text(columns->key),
        idem_sql_text(columns->source == NULL ? columns->key : columns->source),
        idem_sql_int(columns->source == NULL ? 1 : 2),
    };

    return idem_query_number(conn, dialect, text, values, ret, err);
}

/* Checks what the engine does not check when a row is inserted. */
static int table_check_properties(struct idem_sql conn, const struct idem_dialect *dialect,
                                  const struct idem_tx_columns *columns, struct idem_error *err) {
    int64_t n = 1;
    int rc = 0;

    if (dialect->unique != NULL)
        rc = table_count(conn, dialect, dialect->unique, columns, &n, err);
    if (rc == 0 && n == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the columns that are named as the key need a unique index of just "
                              "these, over their whole length");
    if (rc == 0 && dialect->transactional != NULL)
        rc = table_count(conn, dialect, dialect->transactional, columns, &n, err);
    if (rc == 0 && n == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the table is of an engine without transactions, where a row stays "
                              "when what it stands for is rolled back: make it ENGINE=InnoDB");
    return rc;
}

static struct idem_tx_table *table_copy(const struct idem_tx_columns *columns) {
    struct idem_tx_columns from = *columns;
    const char **texts[TEXTS], **copies[TEXTS];
    struct idem_tx_table *table;
    size_t size = 0;
    char *at;

    columns_texts(&from, texts);
    for (int i = 0; i < TEXTS; i++)
        size += *texts[i] == NULL ? 0 : strlen(*texts[i]) + 1;
    table = malloc(sizeof(*table) + size);
    if (table == NULL)
        return NULL;
    table->columns = *columns;
    columns_texts(&table->columns, copies);
    at = table->text;
    for (int i = 0; i < TEXTS; i++) {
        size_t len = *texts[i] == NULL ? 0 : strlen(*texts[i]) + 1;

        if (len > 0)
            *copies[i] = memcpy(at, *texts[i], len);
        at += len;
    }
    return table;
}

int idem_tx_table_new(struct idem_sql conn, const struct idem_tx_columns *columns,
                      struct idem_tx_table **ret, struct idem_error *err) {
    const struct idem_dialect *dialect;
    struct idem_tx_table *table;
    int rc = idem_need(columns, err) ?: idem_need(ret, err);

    if (rc == 0)
        rc = idem_need(columns->table, err) ?: idem_need(columns->key, err);
    if (rc != 0)
        return rc;
    dialect = idem_dialect_of(conn, err);
    if (dialect == NULL)
        return IDEM_E_INVALID;
    table = table_copy(columns);
    if (table == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a table's columns");
    rc = table_probe_columns(conn, dialect, &table->columns, err);
    if (rc == 0)
        rc = table_check_properties(conn, dialect, &table->columns, err);
    if (rc != 0) {
        idem_tx_table_free(table);
        return rc;
    }
    *ret = table;
    return 0;
}

void idem_tx_table_free(struct idem_tx_table *table) {
    free(table);
}
