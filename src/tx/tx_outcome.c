/*
 * Finds out whether a transaction committed when its COMMIT got no response. The server may still
 * be working on it although the connection is closed. So this file does not look for the row: it
 * inserts the row, in a transaction that it rolls back. The insert waits for an open transaction
 * that holds the row. If the insert succeeds, the transaction in question was rolled back, because
 * its own insert had completed before its COMMIT was sent.
 */
#include "base/error.h"
#include "tx/tx.h"

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
static int outcome_probe(const struct idem_tx_name *name, int64_t wait_ms,
                         struct idem_tx_answer *ret, struct idem_error *err) {
    const struct idem_dialect *dialect = name->dialect;
    struct idem_wait wait = idem_wait_of(wait_ms);
    struct idem_error later;
    int undone, rc = wait_ms > 0 ? dialect->wait_begin(name->conn, &wait, err) : 0;

    if (rc == 0)
        rc = idem_tx_guard(name, ret, err);
    undone = dialect->rollback(name->conn, &later);
    if (rc == 0 && undone != 0) {
        idem_tx_answer_release(ret);
        rc = idem_error_copy(err, &later);
    }
    if (wait.set)
        (void)dialect->wait_end(name->conn, &wait, IDEM_WAIT_ROLLED_BACK, &later);
    return rc;
}

int idem_tx_outcome(struct idem_sql conn, const struct idem_guard *guard,
                    const struct idem_args *args, int64_t wait_ms, struct idem_tx_answer *ret,
                    struct idem_error *err) {
    struct idem_tx_answer answer = {0};
    struct idem_tx_name name;
    int rc = idem_need(guard, err) ?: idem_need(args, err) ?: idem_need(ret, err);

    if (rc == 0 && wait_ms < 0)
        rc = idem_error_set(err, IDEM_E_INVALID, "wait_ms is negative");
    if (rc != 0 || (rc = idem_tx_name_make(conn, guard, args, &name, err)) != 0)
        return rc;
    rc = name.dialect->outside(conn, err);
    if (rc == 0)
        rc = name.dialect->begin(conn, name.dialect->seeing, err);
    if (rc == 0)
        rc = outcome_probe(&name, wait_ms, &answer, err);
    /* The error codes for this probing transaction mean nothing to the caller, who has no
       transaction. */
    rc = outcome_from_guard(rc, &answer, err);
    idem_tx_name_release(&name);
    if (rc == 0)
        *ret = answer;
    return rc;
}
