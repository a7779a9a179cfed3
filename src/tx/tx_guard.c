/*
 * The guard inside the caller's transaction: it inserts a row, or finds the row that exists. Fails
 * on the same arguments as every other guard, on a connection without a transaction, and on errors
 * of the engine. After a failure the caller must roll the transaction back.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/claim.h"
#include "protocol/protocol.h"
#include "protocol/record_key.h"
#include "tx/tx.h"

/* Attempts for a row that appears and disappears between two statements. */
#define TRIES 3

static int policy_check(const struct idem_policy *policy, struct idem_error *err) {
    if (policy->mode == IDEM_MODE_LOCK)
        return idem_error_set(err, IDEM_E_INVALID,
                              "mode=lock makes no sense in a transaction of your own: use reject "
                              "or replay, or lock a row (idem_sql_lock)");
    if (policy->key_kind == IDEM_KEY_TOKEN)
        return idem_error_set(err, IDEM_E_INVALID,
                              "key = token makes no sense in a transaction of your own: tokens are "
                              "issued, and spent, in a store");
    return 0;
}

int idem_tx_name_make(struct idem_sql conn, const struct idem_guard *guard,
                      const struct idem_args *args, struct idem_tx_name *ret,
                      struct idem_error *err) {
    struct idem_bytes key;
    int rc;

    ret->conn = conn;
    ret->identity.key_len = 0;
    ret->dialect = idem_dialect_of(conn, err);
    if (ret->dialect == NULL)
        return IDEM_E_INVALID;
    if ((rc = idem_guard_with(guard, args->with, &ret->policy, err)) != 0 ||
        (rc = policy_check(&ret->policy, err)) != 0 ||
        (rc = idem_identity_make(guard, &ret->policy, args, &ret->identity, err)) != 0) {
        OPENSSL_cleanse(&ret->identity, sizeof(ret->identity));
        return rc;
    }
    key = (struct idem_bytes){ret->identity.key, ret->identity.key_len};
    rc = idem_fill_name(&ret->policy, args, key, &ret->key, err);
    if (rc == 0 && conn.table != NULL)
        rc = idem_table_name(conn.table, args, ret, err);
    if (rc != 0)
        idem_tx_name_release(ret);
    return rc;
}

void idem_tx_name_release(struct idem_tx_name *name) {
    OPENSSL_cleanse(name->identity.key, name->identity.key_len);
}

void idem_tx_answer_release(struct idem_tx_answer *answer) {
    if (answer == NULL)
        return;
    free(answer->result);
    answer->result = NULL;
    answer->result_len = 0;
    answer->has_result = false;
}

/* With another fingerprint, the caller learns only that: nothing about the record. */
static int guard_judge_row(const struct idem_tx_name *name, const struct idem_tx_row *row,
                           struct idem_tx_answer *ret, struct idem_error *err) {
    if (idem_fingerprint_differs(&row->fingerprint, &name->identity.fingerprint)) {
        ret->verdict = IDEM_TX_MISMATCH;
        return 0;
    }
    ret->verdict = IDEM_TX_DUPLICATE;
    ret->status = row->status;
    if (!row->has_result || name->policy.mode != IDEM_MODE_REPLAY)
        return 0;
    ret->result = malloc(row->result.len + 1);
    if (ret->result == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a result of %zu bytes",
                              row->result.len);
    if (row->result.len > 0)
        memcpy(ret->result, row->result.at, row->result.len);
    ret->result_len = row->result.len;
    ret->has_result = true;
    return 0;
}

/* Reads the row that blocked the insert. Sets *ret_over if there is a verdict or an error. */
static int guard_examine_row(const struct idem_tx_name *name, struct idem_tx_answer *ret,
                             bool *ret_over, struct idem_error *err) {
    struct idem_tx_row row;
    bool renewed = false;
    int rc = idem_row_read(name, &row, err);

    *ret_over = rc != 0;
    if (rc == 0 && row.found && row.expired) {
        rc = idem_row_renew(name, &renewed, err);
        *ret_over = rc != 0 || renewed;
        if (renewed)
            ret->verdict = IDEM_TX_FIRST;
    } else if (rc == 0 && row.found) {
        rc = guard_judge_row(name, &row, ret, err);
        *ret_over = true;
    }
    idem_reply_release(&row.reply);
    return rc;
}

/* The row could be neither inserted nor found, TRIES times. In a table of the caller this is no
   coincidence, and a retry would never end. */
static int guard_report_missed(const struct idem_tx_name *name, struct idem_error *err) {
    if (name->conn.table == NULL)
        return idem_error_set(err, IDEM_E_RETRY_TX,
                              "the row of this key comes and goes: roll back, and begin anew");
    return idem_error_set(err, IDEM_E_INVALID,
                          "the row of this key is neither put into the table nor seen there: its "
                          "unique index has another collation than its column, or a policy (row "
                          "level security) or a trigger is between; roll back");
}

static int guard_run(const struct idem_tx_name *name, const char *begin, struct idem_tx_answer *ret,
                     struct idem_error *err) {
    struct idem_tx_answer answer = {0};
    bool done = false, over = false;
    int rc = 0;

    /* Another transaction may remove the row between two statements. */
    for (int i = 0; i < TRIES && rc == 0 && !over; i++) {
        rc = idem_row_insert(name, i == 0 ? begin : NULL, &done, err);
        if (rc == 0 && done) {
            answer.verdict = IDEM_TX_FIRST;
            over = true;
        } else if (rc == 0) {
            rc = guard_examine_row(name, &answer, &over, err);
        }
    }
    if (rc == 0 && !over)
        rc = guard_report_missed(name, err);
    if (rc != 0)
        return rc;
    idem_record_key_hex(&name->key, answer.key_hash);
    *ret = answer;
    return 0;
}

int idem_tx_guard(const struct idem_tx_name *name, struct idem_tx_answer *ret,
                  struct idem_error *err) {
    int rc = name->dialect->inside(name->conn, err);

    return rc != 0 ? rc : guard_run(name, NULL, ret, err);
}

/* After a BEGIN nothing important is unknown: no work was done in the transaction yet. */
static int guard_begin_failed(int rc, struct idem_error *err) {
    struct idem_error why;

    if (rc != IDEM_E_UNKNOWN || err == NULL)
        return rc == IDEM_E_UNKNOWN ? IDEM_E_REFUSED : rc;
    why = *err;
    return idem_error_set(err, IDEM_E_REFUSED, "%s", why.text);
}

int idem_tx_guard_begin(const struct idem_tx_name *name, enum idem_isolation isolation,
                        struct idem_tx_answer *ret, struct idem_error *err) {
    const struct idem_dialect *dialect = name->dialect;
    int rc;

    if (dialect->begins != NULL && name->conn.table == NULL)
        return guard_run(name, dialect->begins[isolation], ret, err);
    rc = dialect->begin(name->conn, isolation, err);
    if (rc == 0)
        rc = idem_query_do(name->conn, dialect, IDEM_TX_MARK, err);
    return rc != 0 ? guard_begin_failed(rc, err) : idem_tx_guard(name, ret, err);
}

int idem_tx_store(const struct idem_tx_name *name, int32_t status, const void *result, size_t len,
                  struct idem_error *err) {
    bool kept = result != NULL && name->policy.mode == IDEM_MODE_REPLAY &&
                len <= (size_t)name->policy.result_max;
    int rc = name->dialect->inside(name->conn, err);

    return rc != 0
               ? rc
               : idem_row_result(name, status,
                                 (struct idem_bytes){kept ? result : NULL, kept ? len : 0}, err);
}

int idem_tx_once(struct idem_sql conn, const struct idem_guard *guard, const struct idem_args *args,
                 struct idem_tx_answer *ret, struct idem_error *err) {
    struct idem_tx_name name;
    int rc = idem_need(guard, err) ?: idem_need(args, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = idem_tx_name_make(conn, guard, args, &name, err)) != 0)
        return rc;
    rc = idem_tx_guard(&name, ret, err);
    idem_tx_name_release(&name);
    return rc;
}

int idem_tx_result(struct idem_sql conn, const struct idem_guard *guard,
                   const struct idem_args *args, int32_t status, const void *result, size_t len,
                   struct idem_error *err) {
    struct idem_tx_name name;
    int rc = idem_need(guard, err) ?: idem_need(args, err);

    if (rc == 0 && result == NULL && len != 0)
        rc = idem_error_set(err, IDEM_E_INVALID, "the result is NULL, and its length is not 0");
    if (rc != 0 || (rc = idem_tx_name_make(conn, guard, args, &name, err)) != 0)
        return rc;
    rc = idem_tx_store(&name, status, result, len, err);
    idem_tx_name_release(&name);
    return rc;
}
