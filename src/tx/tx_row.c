/*
 * The row of a guarded operation in the table idem_tx.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/hex.h"
#include "tx/tx.h"

/*
 * A fingerprint as text, for a column of a table of the caller: the number of its definition, a
 * colon, and the hash in hexadecimal digits. The parser trusts nothing: any program can write to
 * that column.
 */

const char *idem_fingerprint_write(const struct idem_fingerprint *fingerprint,
                                   char text[IDEM_FINGERPRINT_TEXT]) {
    int n;

    if (fingerprint->definition == 0)
        return NULL;
    n = snprintf(text, IDEM_FINGERPRINT_TEXT, "%lu:", (unsigned long)fingerprint->definition);
    idem_hex_encode(fingerprint->hash, IDEM_HASH_LEN, text + n);
    return text;
}

bool idem_fingerprint_read(struct idem_bytes bytes, struct idem_fingerprint *ret) {
    struct idem_fingerprint fingerprint;
    char text[IDEM_FINGERPRINT_TEXT];
    unsigned long definition;
    char *end;

    if (bytes.len == 0 || bytes.len >= sizeof(text) || memchr(bytes.at, '\0', bytes.len) != NULL)
        return false;
    memcpy(text, bytes.at, bytes.len);
    text[bytes.len] = '\0';
    if (text[0] < '1' || text[0] > '9')
        return false;
    definition = strtoul(text, &end, 10);
    if (definition > UINT32_MAX || *end != ':' ||
        !idem_hex_parse(end + 1, strlen(end + 1), fingerprint.hash))
        return false;
    fingerprint.definition = (uint32_t)definition;
    *ret = fingerprint;
    return true;
}

static struct idem_sql_value operation_prefix(const struct idem_tx_operation *op) {
    return idem_sql_bytes(op->key.at, op->key.prefix_len);
}

static struct idem_sql_value operation_hash(const struct idem_tx_operation *op) {
    return idem_sql_bytes(op->key.at + op->key.prefix_len, IDEM_HASH_LEN);
}

static struct idem_sql_value operation_fingerprint(const struct idem_tx_operation *op) {
    const struct idem_fingerprint *fingerprint = &op->identity.fingerprint;

    return fingerprint->definition == 0 ? idem_sql_null()
                                        : idem_sql_bytes(fingerprint->hash, IDEM_HASH_LEN);
}

/* `shown`: none of its values is a secret, so that they may appear as literals. */
struct row_statement {
    const char *begin; /* sent in front of the statement; NULL: nothing */
    const char *text;
    bool shown;
};

static int row_run(const struct idem_tx_operation *op, const struct row_statement *statement,
                   const struct idem_sql_value *values, struct idem_reply *ret,
                   struct idem_error *err) {
    struct idem_query q;
    int rc;

    idem_query_begin(&q, op->conn, op->dialect);
    q.shown = statement->shown;
    q.begins = statement->begin != NULL;
    if (q.begins)
        idem_query_add(&q, statement->begin);
    idem_query_fill(&q, statement->text, values);
    rc = idem_query_run(&q, ret, err);
    idem_query_end(&q);
    return rc;
}

int idem_row_insert(const struct idem_tx_operation *op, const char *begin, bool *ret_done,
                    struct idem_error *err) {
    const struct row_statement insert = {begin, op->dialect->tx.insert, true};
    const struct idem_sql_value values[] = {
        operation_prefix(op),
        operation_hash(op),
        idem_sql_int(op->identity.fingerprint.definition),
        operation_fingerprint(op),
        idem_sql_int(op->policy.ttl_s),
    };
    struct idem_reply reply;
    int rc;

    if (op->conn.table != NULL)
        return idem_table_insert(op, ret_done, err);
    rc = row_run(op, &insert, values, &reply, err);
    *ret_done = rc == 0 && reply.changed == 1;
    idem_reply_release(&reply);
    return rc != 0 && reply.why == IDEM_WHY_CONFLICT ? 0 : rc;
}

int idem_row_renew(const struct idem_tx_operation *op, bool *ret_done, struct idem_error *err) {
    const struct idem_sql_value values[] = {
        idem_sql_int(op->identity.fingerprint.definition),
        operation_fingerprint(op),
        idem_sql_int(op->policy.ttl_s),
        operation_prefix(op),
        operation_hash(op),
    };
    const struct row_statement renew = {NULL, op->dialect->tx.renew, true};
    struct idem_reply reply;
    int rc = row_run(op, &renew, values, &reply, err);

    *ret_done = rc == 0 && reply.changed == 1;
    idem_reply_release(&reply);
    return rc;
}

enum { CELL_DEFINITION, CELL_FINGERPRINT, CELL_STATUS, CELL_RESULT, CELL_EXPIRED, CELLS };

static bool row_read_fingerprint(const struct idem_sql_value *cells, struct idem_fingerprint *ret) {
    const struct idem_sql_value *hash = &cells[CELL_FINGERPRINT];

    ret->definition = (uint32_t)idem_cell_number(&cells[CELL_DEFINITION]);
    if (ret->definition == 0)
        return true;
    if (hash->type != IDEM_SQL_BYTES || hash->len != IDEM_HASH_LEN)
        return false;
    memcpy(ret->hash, hash->at, IDEM_HASH_LEN);
    return true;
}

int idem_row_read(const struct idem_tx_operation *op, struct idem_tx_row *ret,
                  struct idem_error *err) {
    const struct row_statement read = {NULL, op->dialect->tx.read, true};
    const struct idem_sql_value values[] = {operation_prefix(op), operation_hash(op)};
    const struct idem_sql_value *cells;
    int rc;

    if (op->conn.table != NULL)
        return idem_table_read(op, ret, err);
    *ret = (struct idem_tx_row){0};
    rc = row_run(op, &read, values, &ret->reply, err);
    ret->found = rc == 0 && ret->reply.columns == CELLS;
    if (!ret->found)
        return rc;
    cells = ret->reply.cells;
    if (!row_read_fingerprint(cells, &ret->fingerprint)) {
        idem_reply_release(&ret->reply);
        return idem_error_set(err, IDEM_E_CORRUPT,
                              "a row of idem_tx has no fingerprint beside its "
                              "definition");
    }
    ret->status = (int32_t)idem_cell_number(&cells[CELL_STATUS]);
    ret->has_result = cells[CELL_RESULT].type == IDEM_SQL_BYTES;
    ret->result = (struct idem_bytes){cells[CELL_RESULT].at, cells[CELL_RESULT].len};
    ret->expired = idem_cell_number(&cells[CELL_EXPIRED]) != 0;
    return 0;
}

int idem_row_result(const struct idem_tx_operation *op, int32_t status, struct idem_bytes result,
                    struct idem_error *err) {
    const struct row_statement statement = {NULL, op->dialect->tx.result, false};
    const struct idem_sql_value values[] = {
        idem_sql_int(status),
        result.at == NULL ? idem_sql_null() : idem_sql_bytes(result.at, result.len),
        operation_prefix(op),
        operation_hash(op),
    };
    struct idem_reply reply;
    int rc;

    if (op->conn.table != NULL)
        return idem_table_result(op, status, result, err);
    rc = row_run(op, &statement, values, &reply, err);
    idem_reply_release(&reply);
    if (rc == 0 && reply.changed != 1)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "there is no row of this key that waits for its result: set it once, "
                            "after idem_tx_once() answered IDEM_TX_FIRST in the same transaction");
    return rc;
}
