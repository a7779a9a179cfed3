/*
 * A transfer between two accounts, done once however often the command is repeated.
 *
 *     transfer [-d URL] init                    accounts 1 to 10, with 1000 each
 *     transfer [-d URL] KEY FROM TO AMOUNT
 *     transfer [-d URL] balance ACCOUNT
 *
 * The caller chooses KEY, and uses it again if the outcome is not known. idem_tx_call() is the
 * whole pattern: it begins a transaction, checks whether KEY was used before, runs the function
 * that does the work, keeps its result, and commits. The row that marks the work as done commits
 * with the two balances or not at all.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"

#define NOT_ENOUGH 1 /* the results of work() if it changes nothing */
#define NO_ACCOUNT 2

struct transfer {
    int64_t from, to, amount;
};

/* The work. It may run more than once, each time in a new transaction, if transactions conflict;
 * the changes of the earlier one are rolled back. */
static int work(struct idem_tx *tx, void *data) {
    const struct transfer *t = data;
    struct idem_sql conn = idem_tx_conn(tx);
    struct db_answer answer;
    char receipt[300];
    int rc;

    /* Not "read the balance, then write it": another transaction may write in between. */
    rc = DB_SAY(conn, &answer,
                "UPDATE account SET balance = balance - ? WHERE id = ? AND balance >= ?",
                idem_sql_int(t->amount), idem_sql_int(t->from), idem_sql_int(t->amount));
    if (rc == 0 && answer.changed != 1)
        return NOT_ENOUGH;
    if (rc == 0)
        rc = DB_SAY(conn, &answer, "UPDATE account SET balance = balance + ? WHERE id = ?",
                    idem_sql_int(t->amount), idem_sql_int(t->to));
    if (rc == 0 && answer.changed != 1)
        return NO_ACCOUNT;
    if (rc == 0)
        rc = DB_SAY(conn, &answer, "SELECT balance FROM account WHERE id = ?",
                    idem_sql_int(t->from));
    if (rc != 0)
        return rc; /* the code of the failure: idem_tx_call() knows the ones that need a new
                      transaction */
    snprintf(receipt, sizeof(receipt), "%lld from %lld to %lld, %s left", (long long)t->amount,
             (long long)t->from, (long long)t->to, answer.text);
    return idem_tx_keep(tx, 0, receipt, strlen(receipt));
}

static int transfer(struct idem_sql conn, char **words) {
    struct transfer t = {strtoll(words[1], NULL, 10), strtoll(words[2], NULL, 10),
                         strtoll(words[3], NULL, 10)};
    struct idem_guard *guard = db_guard("transfer:");
    struct idem_tx_answer answer;
    struct idem_error error;
    struct idem_args args;
    char what[100];
    int rc;

    if (t.amount <= 0)
        errx(64, "AMOUNT is above 0");
    snprintf(what, sizeof(what), "%lld %lld %lld", (long long)t.from, (long long)t.to,
             (long long)t.amount);
    args = db_args(words[0], what);
    rc = idem_tx_call(conn, guard, &args, NULL, work, &t, &answer, &error);
    idem_guard_free(guard);
    if (rc < 0) /* IDEM_E_UNKNOWN, too: retry with the same key to learn the outcome */
        errx(1, "%s", error.text);
    rc = db_tell(&answer, answer.said == NOT_ENOUGH ? "there is not enough on the account"
                                                    : "there is no such account");
    idem_tx_answer_release(&answer);
    return rc;
}

static int init(struct idem_sql conn) {
    struct idem_error error;

    if (idem_sql_migrate(conn, &error) < 0) /* makes Idem's own tables, like `idem migrate` */
        errx(1, "%s", error.text);
    db_do(conn, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)");
    for (int i = 1; i <= 10; i++)
        if (DB_SAY(conn, NULL, "INSERT INTO account VALUES (?, 1000)", idem_sql_int(i)) < 0)
            errx(1, "account %d", i);
    return 0;
}

int main(int argc, char **argv) {
    struct idem_sql conn = db_open(db_url(&argc, argv));
    int status = 0;

    if (argc == 2 && strcmp(argv[1], "init") == 0)
        status = init(conn);
    else if (argc == 3 && strcmp(argv[1], "balance") == 0)
        db_print(conn, "SELECT balance FROM account WHERE id = ?",
                 idem_sql_int(strtoll(argv[2], NULL, 10)));
    else if (argc == 5)
        status = transfer(conn, argv + 1);
    else
        errx(64, "[-d URL] init | KEY FROM TO AMOUNT | balance ACCOUNT");
    idem_sql_close(conn);
    return status;
}
