/*
 * The whole pattern in one call: begin, guard, the caller's function, result, commit; and all of it
 * again after a conflict between transactions. A COMMIT without a response is never retried: the
 * caller must find the outcome over another connection.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "core/claim.h"
#include "tx/tx.h"

#define ATTEMPTS 10
#define BACKOFF_MIN_MS 5
#define BACKOFF_MAX_MS 500

struct idem_tx {
    const struct idem_tx_name *name;
    void *data;
    unsigned attempt;
    int32_t status;
    void *result;
    size_t result_len;
};

struct idem_sql idem_tx_conn(const struct idem_tx *tx) {
    return tx->name->conn;
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

/* A new row already stands for status 0 without a result. */
static bool tx_has_result(const struct idem_tx *tx) {
    return tx->status != 0 || tx->result != NULL;
}

static int tx_run_function(struct idem_tx *tx, idem_tx_fn *fn, void *data,
                           struct idem_tx_answer *answer, struct idem_error *err) {
    const struct idem_tx_name *name = tx->name;
    int rc = fn(tx, data);

    if (rc > 0) {
        answer->verdict = IDEM_TX_REFUSED;
        answer->said = rc;
        return 0;
    }
    if (rc < 0)
        return idem_error_set(err, rc, "the function returned %s", idem_code_name(rc));
    rc = name->dialect->inside(name->conn, err);
    if (rc != 0)
        return call_report_outside(err);
    return tx_has_result(tx) ? idem_tx_store(name, tx->status, tx->result, tx->result_len, err) : 0;
}

static bool call_is_retryable(int rc) {
    return rc == IDEM_E_RETRY_TX || rc == IDEM_E_TX_LOST;
}

/* An open transaction still holds the key, so it cannot be retried. */
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
    const struct idem_tx_name *name = tx->name;
    const struct idem_dialect *dialect = name->dialect;
    struct idem_error later;
    int undone, rc = idem_tx_guard_begin(name, isolation, answer, err);

    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        rc = tx_run_function(tx, fn, data, answer, err);
    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        rc = dialect->commit(name->conn, err);
    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        return 0;
    undone = dialect->rollback(name->conn, &later);
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

static int call_repeat(const struct idem_tx_name *name, const struct idem_tx_options *options,
                       void *own, idem_tx_fn *fn, void *data, struct idem_tx_answer *answer,
                       struct idem_error *err) {
    struct idem_tx tx = {.name = name, .data = own};
    int rc = name->dialect->outside(name->conn, err);

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
    struct idem_tx_name name;
    struct idem_error own;
    int rc = idem_need(guard, err) ?: idem_need(args, err) ?: idem_need(fn, err);

    if (rc == 0)
        rc = idem_need(ret, err) ?: options_fill(options, &how, err);
    if (rc != 0 || (rc = idem_tx_name_make(conn, guard, args, &name, err)) != 0)
        return rc;
    rc = call_repeat(&name, &how, args->data, fn, data, &answer, &own);
    idem_tx_name_release(&name);
    if (rc != 0)
        return idem_error_copy(err, &own);
    *ret = answer;
    return 0;
}
