/*
 * Guards in SQL, in three parts: inside the caller's transaction (idem_tx_once, idem_tx_result);
 * after a COMMIT without a response (idem_tx_outcome); and the whole transaction in one call
 * (idem_tx_call).
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "core/claim.h"
#include "protocol/protocol.h"
#include "protocol/record_key.h"
#include "tx/tx.h"

/*
 * The guard inside the caller's transaction: it inserts a row, or finds the row that exists. Fails
 * on the same arguments as every other guard, on a connection without a transaction, and on errors
 * of the engine. After a failure the caller must roll the transaction back.
 */

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

/* Wipes the key from memory. */
static void tx_operation_release(struct idem_tx_operation *op) {
    OPENSSL_cleanse(op->identity.key, op->identity.key_len);
}

/* The identity of one operation. Also checks the connection, and refuses a policy that cannot work
   inside a transaction. */
static int tx_operation_make(struct idem_sql conn, const struct idem_guard *guard,
                             const struct idem_args *args, struct idem_tx_operation *ret,
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
    rc = idem_claim_prepare_name(&ret->policy, args, key, &ret->key, err);
    if (rc == 0 && conn.table != NULL)
        rc = idem_table_name(conn.table, args, ret, err);
    if (rc != 0)
        tx_operation_release(ret);
    return rc;
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
static int guard_judge_row(const struct idem_tx_operation *op, const struct idem_tx_row *row,
                           struct idem_tx_answer *ret, struct idem_error *err) {
    if (idem_fingerprint_differs(&row->fingerprint, &op->identity.fingerprint)) {
        ret->verdict = IDEM_TX_MISMATCH;
        return 0;
    }
    ret->verdict = IDEM_TX_DUPLICATE;
    ret->status = row->status;
    if (!row->has_result || op->policy.mode != IDEM_MODE_REPLAY)
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
static int guard_examine_row(const struct idem_tx_operation *op, struct idem_tx_answer *ret,
                             bool *ret_over, struct idem_error *err) {
    struct idem_tx_row row;
    bool renewed = false;
    int rc = idem_row_read(op, &row, err);

    *ret_over = rc != 0;
    if (rc == 0 && row.found && row.expired) {
        rc = idem_row_renew(op, &renewed, err);
        *ret_over = rc != 0 || renewed;
        if (renewed)
            ret->verdict = IDEM_TX_FIRST;
    } else if (rc == 0 && row.found) {
        rc = guard_judge_row(op, &row, ret, err);
        *ret_over = true;
    }
    idem_reply_release(&row.reply);
    return rc;
}

/* The row could be neither inserted nor found, TRIES times. In a table of the caller this is no
   coincidence, and a retry would never end. */
static int guard_report_missed(const struct idem_tx_operation *op, struct idem_error *err) {
    if (op->conn.table == NULL)
        return idem_error_set(err, IDEM_E_RETRY_TX,
                              "the row of this key comes and goes: roll back, and begin anew");
    return idem_error_set(err, IDEM_E_INVALID,
                          "the row of this key is neither put into the table nor seen there: its "
                          "unique index has another collation than its column, or a policy (row "
                          "level security) or a trigger is between; roll back");
}

static int guard_run(const struct idem_tx_operation *op, const char *begin,
                     struct idem_tx_answer *ret, struct idem_error *err) {
    struct idem_tx_answer answer = {0};
    bool done = false, over = false;
    int rc = 0;

    /* Another transaction may remove the row between two statements. */
    for (int i = 0; i < TRIES && rc == 0 && !over; i++) {
        rc = idem_row_insert(op, i == 0 ? begin : NULL, &done, err);
        if (rc == 0 && done) {
            answer.verdict = IDEM_TX_FIRST;
            over = true;
        } else if (rc == 0) {
            rc = guard_examine_row(op, &answer, &over, err);
        }
    }
    if (rc == 0 && !over)
        rc = guard_report_missed(op, err);
    if (rc != 0)
        return rc;
    idem_record_key_hex(&op->key, answer.key_hash);
    *ret = answer;
    return 0;
}

/* Checks that a transaction is open, and runs the guard in it. */
static int tx_guard_inside(const struct idem_tx_operation *op, struct idem_tx_answer *ret,
                           struct idem_error *err) {
    int rc = op->dialect->inside(op->conn, err);

    return rc != 0 ? rc : guard_run(op, NULL, ret, err);
}

/* After a BEGIN nothing important is unknown: no work was done in the transaction yet. */
static int guard_begin_failed(int rc, struct idem_error *err) {
    struct idem_error why;

    if (rc != IDEM_E_UNKNOWN || err == NULL)
        return rc == IDEM_E_UNKNOWN ? IDEM_E_REFUSED : rc;
    why = *err;
    return idem_error_set(err, IDEM_E_REFUSED, "%s", why.text);
}

/* Begins the transaction, marks it (IDEM_TX_MARK), and runs the guard. */
static int tx_guard_begin(const struct idem_tx_operation *op, enum idem_isolation isolation,
                          struct idem_tx_answer *ret, struct idem_error *err) {
    const struct idem_dialect *dialect = op->dialect;
    int rc;

    if (dialect->begins != NULL && op->conn.table == NULL)
        return guard_run(op, dialect->begins[isolation], ret, err);
    rc = dialect->begin(op->conn, isolation, err);
    if (rc == 0)
        rc = idem_query_do(op->conn, dialect, IDEM_TX_MARK, err);
    return rc != 0 ? guard_begin_failed(rc, err) : tx_guard_inside(op, ret, err);
}

/* Stores the result in the row. Under another mode than replay, or above result_max, only the
   status is kept. */
static int tx_store(const struct idem_tx_operation *op, int32_t status, const void *result,
                    size_t len, struct idem_error *err) {
    bool kept = result != NULL && op->policy.mode == IDEM_MODE_REPLAY &&
                len <= (size_t)op->policy.result_max;
    int rc = op->dialect->inside(op->conn, err);

    return rc != 0
               ? rc
               : idem_row_result(op, status,
                                 (struct idem_bytes){kept ? result : NULL, kept ? len : 0}, err);
}

int idem_tx_once(struct idem_sql conn, const struct idem_guard *guard, const struct idem_args *args,
                 struct idem_tx_answer *ret, struct idem_error *err) {
    struct idem_tx_operation op;
    int rc = idem_need(guard, err) ?: idem_need(args, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = tx_operation_make(conn, guard, args, &op, err)) != 0)
        return rc;
    rc = tx_guard_inside(&op, ret, err);
    tx_operation_release(&op);
    return rc;
}

int idem_tx_result(struct idem_sql conn, const struct idem_guard *guard,
                   const struct idem_args *args, int32_t status, const void *result, size_t len,
                   struct idem_error *err) {
    struct idem_tx_operation op;
    int rc = idem_need(guard, err) ?: idem_need(args, err);

    if (rc == 0 && result == NULL && len != 0)
        rc = idem_error_set(err, IDEM_E_INVALID, "the result is NULL, and its length is not 0");
    if (rc != 0 || (rc = tx_operation_make(conn, guard, args, &op, err)) != 0)
        return rc;
    rc = tx_store(&op, status, result, len, err);
    tx_operation_release(&op);
    return rc;
}

/*
 * Finds out whether a transaction committed when its COMMIT got no response. The server may still
 * be working on it although the connection is closed. So the row is not looked for, but inserted,
 * in a transaction that is rolled back. The insert waits for an open transaction that holds the
 * row. If the insert succeeds, the transaction in question was rolled back, because its own insert
 * had completed before its COMMIT was sent.
 */

static int outcome_from_guard(int rc, struct idem_tx_answer *answer, struct idem_error *err) {
    if (rc == IDEM_E_RETRY_TX || rc == IDEM_E_TX_LOST)
        return idem_error_set(
            err, IDEM_E_UNKNOWN,
            "its outcome is not known yet: its transaction is still open; ask again");
    if (rc != 0)
        return rc;
    if (answer->verdict == IDEM_TX_FIRST)
        answer->verdict = IDEM_TX_NEVER;
    else if (answer->verdict == IDEM_TX_DUPLICATE)
        answer->verdict = IDEM_TX_HAPPENED;
    return 0;
}

/* Runs the guard under a limit on waiting, then rolls back. */
static int outcome_probe(const struct idem_tx_operation *op, int64_t wait_ms,
                         struct idem_tx_answer *ret, struct idem_error *err) {
    const struct idem_dialect *dialect = op->dialect;
    struct idem_wait wait = {0};
    struct idem_error later;
    int undone, rc = wait_ms > 0 ? idem_wait_begin(op->conn, dialect, wait_ms, &wait, err) : 0;

    if (rc == 0)
        rc = tx_guard_inside(op, ret, err);
    undone = dialect->rollback(op->conn, &later);
    if (rc == 0 && undone != 0) {
        idem_tx_answer_release(ret);
        rc = idem_error_copy(err, &later);
    }
    if (wait.set)
        (void)dialect->wait_end(op->conn, &wait, IDEM_WAIT_ROLLED_BACK, &later);
    return rc;
}

int idem_tx_outcome(struct idem_sql conn, const struct idem_guard *guard,
                    const struct idem_args *args, int64_t wait_ms, struct idem_tx_answer *ret,
                    struct idem_error *err) {
    struct idem_tx_answer answer = {0};
    struct idem_tx_operation op;
    int rc = idem_need(guard, err) ?: idem_need(args, err) ?: idem_need(ret, err);

    if (rc == 0 && wait_ms < 0)
        rc = idem_error_set(err, IDEM_E_INVALID, "wait_ms is negative");
    if (rc != 0 || (rc = tx_operation_make(conn, guard, args, &op, err)) != 0)
        return rc;
    rc = op.dialect->outside(conn, err);
    if (rc == 0)
        rc = op.dialect->begin(conn, op.dialect->seeing, err);
    if (rc == 0)
        rc = outcome_probe(&op, wait_ms, &answer, err);
    /* The error codes for this probing transaction mean nothing to the caller, who has no
       transaction. */
    rc = outcome_from_guard(rc, &answer, err);
    tx_operation_release(&op);
    if (rc == 0)
        *ret = answer;
    return rc;
}

/*
 * The whole pattern in one call: begin, guard, the caller's function, result, commit; and all of it
 * again after a conflict between transactions. A COMMIT without a response is never retried: the
 * caller must find the outcome over another connection.
 */

#define ATTEMPTS 10
#define BACKOFF_MIN_MS 5
#define BACKOFF_MAX_MS 500

struct idem_tx {
    const struct idem_tx_operation *op;
    void *data;
    unsigned attempt;
    int32_t status;
    void *result;
    size_t result_len;
};

struct idem_sql idem_tx_conn(const struct idem_tx *tx) {
    return tx->op->conn;
}

unsigned idem_tx_attempt(const struct idem_tx *tx) {
    return tx->attempt;
}

void *idem_tx_data(const struct idem_tx *tx) {
    return tx->data;
}

int idem_tx_keep(struct idem_tx *tx, int32_t status, const void *result, size_t len) {
    void *copy = NULL;

    if (tx == NULL || (result == NULL && len != 0))
        return IDEM_E_INVALID;
    if (result != NULL) {
        copy = malloc(len + 1);
        if (copy == NULL)
            return IDEM_E_NOMEM;
        memcpy(copy, result, len);
    }
    free(tx->result);
    tx->result = copy;
    tx->result_len = len;
    tx->status = status;
    return 0;
}

static void tx_clear_result(struct idem_tx *tx) {
    free(tx->result);
    tx->result = NULL;
    tx->result_len = 0;
    tx->status = 0;
}

/* If the function returned 0 and its transaction is over, it did work outside of the transaction. A
   retry would do that work twice. */
static int call_report_outside(struct idem_error *err) {
    struct idem_error why = *err;

    return idem_error_set(err, IDEM_E_INVALID,
                          "the function returned 0, and its transaction is gone or has failed "
                          "(%s): return what idem_sql_failure() gives for a statement that fails, "
                          "and leave the end of the transaction to idem_tx_call()",
                          why.text);
}

/* False if the row needs no update: a new row means status 0 without a result. */
static bool tx_has_result(const struct idem_tx *tx) {
    return tx->status != 0 || tx->result != NULL;
}

static int tx_run_function(struct idem_tx *tx, idem_tx_fn *fn, void *data,
                           struct idem_tx_answer *answer, struct idem_error *err) {
    const struct idem_tx_operation *op = tx->op;
    int rc = fn(tx, data);

    if (rc > 0) {
        answer->verdict = IDEM_TX_REFUSED;
        answer->said = rc;
        return 0;
    }
    if (rc < 0)
        return idem_error_set(err, rc, "the function returned %s", idem_code_name(rc));
    rc = op->dialect->inside(op->conn, err);
    if (rc != 0)
        return call_report_outside(err);
    return tx_has_result(tx) ? tx_store(op, tx->status, tx->result, tx->result_len, err) : 0;
}

static bool call_is_retryable(int rc) {
    return rc == IDEM_E_RETRY_TX || rc == IDEM_E_TX_LOST;
}

/* The rollback has failed: the transaction may be open and hold the key, so nothing is retried. */
static int call_report_open(int rc, struct idem_tx_answer *answer, const struct idem_error *later,
                            struct idem_error *err) {
    struct idem_error why = *err;

    idem_tx_answer_release(answer);
    if (rc == 0 || call_is_retryable(rc))
        return idem_error_copy(err, later);
    return idem_error_set(err, rc, "%s; %s", later->text, why.text);
}

/* One attempt. */
static int tx_try(struct idem_tx *tx, enum idem_isolation isolation, idem_tx_fn *fn, void *data,
                  struct idem_tx_answer *answer, struct idem_error *err) {
    const struct idem_tx_operation *op = tx->op;
    const struct idem_dialect *dialect = op->dialect;
    struct idem_error later;
    int undone, rc = tx_guard_begin(op, isolation, answer, err);

    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        rc = tx_run_function(tx, fn, data, answer, err);
    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        rc = dialect->commit(op->conn, err);
    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        return 0;
    undone = dialect->rollback(op->conn, &later);
    return undone == 0 ? rc : call_report_open(rc, answer, &later, err);
}

static void call_sleep_ms(int64_t ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* Fills in the defaults. */
static int options_fill(const struct idem_tx_options *options, struct idem_tx_options *ret,
                        struct idem_error *err) {
    *ret = options == NULL ? (struct idem_tx_options){0} : *options;
    if ((unsigned)ret->isolation > IDEM_ISOLATION_SERIALIZABLE || ret->backoff_min_ms < 0 ||
        ret->backoff_max_ms < 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "idem_tx_options has an unknown isolation, or a negative back-off");
    if (ret->attempts == 0)
        ret->attempts = ATTEMPTS;
    if (ret->backoff_min_ms == 0)
        ret->backoff_min_ms = BACKOFF_MIN_MS;
    if (ret->backoff_max_ms == 0)
        ret->backoff_max_ms = BACKOFF_MAX_MS;
    if (ret->backoff_max_ms < ret->backoff_min_ms)
        ret->backoff_max_ms = ret->backoff_min_ms;
    return 0;
}

static int call_repeat(const struct idem_tx_operation *op, const struct idem_tx_options *options,
                       void *own, idem_tx_fn *fn, void *data, struct idem_tx_answer *answer,
                       struct idem_error *err) {
    struct idem_tx tx = {.op = op, .data = own};
    int rc = op->dialect->outside(op->conn, err);

    while (rc == 0 || call_is_retryable(rc)) {
        tx.attempt++;
        tx_clear_result(&tx);
        rc = tx_try(&tx, options->isolation, fn, data, answer, err);
        if (rc == 0 || tx.attempt >= options->attempts)
            break;
        if (call_is_retryable(rc))
            call_sleep_ms(
                idem_backoff(options->backoff_min_ms, options->backoff_max_ms, tx.attempt));
    }
    if (rc == 0 && answer->verdict == IDEM_TX_FIRST) {
        answer->status = tx.status;
        answer->has_result = tx.result != NULL;
        answer->result = tx.result;
        answer->result_len = tx.result_len;
        return 0;
    }
    tx_clear_result(&tx);
    return rc;
}

int idem_tx_call(struct idem_sql conn, const struct idem_guard *guard, const struct idem_args *args,
                 const struct idem_tx_options *options, idem_tx_fn *fn, void *data,
                 struct idem_tx_answer *ret, struct idem_error *err) {
    struct idem_tx_answer answer = {0};
    struct idem_tx_options how;
    struct idem_tx_operation op;
    struct idem_error own;
    int rc = idem_need(guard, err) ?: idem_need(args, err) ?: idem_need(fn, err);

    if (rc == 0)
        rc = idem_need(ret, err) ?: options_fill(options, &how, err);
    if (rc != 0 || (rc = tx_operation_make(conn, guard, args, &op, err)) != 0)
        return rc;
    rc = call_repeat(&op, &how, args->data, fn, data, &answer, &own);
    tx_operation_release(&op);
    if (rc != 0)
        return idem_error_copy(err, &own);
    *ret = answer;
    return 0;
}
