/*
 * A COMMIT without memory for its response: if the library reports `refused`,
 * it must not have happened. Only libpq; Connector/C needs no memory for the
 * response.
 */
#include "contract/alloc_fault.h"
#include "db.h"
#include "test.h"

static struct idem_error err;
static struct idem_guard *guard;

/* Fails the n-th allocation after the call. */
static int work(struct idem_tx *tx, void *data) {
    (void)tx;
    alloc_arm(*(const long *)data, ALLOC_FAIL_ONCE);
    return 0;
}

TEST(what_was_refused_for_want_of_memory_did_not_happen) {
    struct idem_sql conn = db_open(NULL), judge = db_open(NULL);
    bool failed = true;
    long n = 1;

    guard = db_guard("memory:");
    for (; failed && n < 100; n++) {
        struct idem_args args;
        struct idem_tx_answer answer;
        char key[32];
        int rc;

        snprintf(key, sizeof(key), "%ld", n);
        args = db_key(key);
        rc = idem_tx_call(conn, guard, &args, NULL, work, &n, &answer, &err);
        failed = alloc_disarm();
        if (rc != 0 && rc != IDEM_E_UNKNOWN) {
            CHECK_INT(idem_tx_outcome(judge, guard, &args, 0, &answer, &err), 0);
            CHECK_INT(answer.verdict, IDEM_TX_NEVER);
        }
        if (rc != 0) {
            db_close(conn);
            conn = db_open(NULL);
        }
    }
    CHECK(n > 2 && !failed);
    db_close(conn);
    db_close(judge);
    idem_guard_free(guard);
}

DB_MAIN
