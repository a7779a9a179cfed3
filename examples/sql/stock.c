/*
 * Takes pieces from the stock for an order, once however often the command is repeated, and never
 * more than there are.
 *
 *     stock [-d URL] init                    item 1, with 100 pieces
 *     stock [-d URL] take KEY ITEM PIECES
 *     stock [-d URL] left ITEM
 *
 * The transaction is written by hand here, as in a program that has its own way to begin and
 * commit: idem_tx_once() is its first statement, idem_tx_result() its last. The program has to do
 * the rest of idem_tx_call() itself: begin anew if transactions conflict, and ask for the outcome
 * of a COMMIT whose response was lost.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db.h"

#define TRIES 10

static const char *url;
static struct idem_sql conn;
static struct idem_guard *guard;

/* The work inside the transaction. Returns 0 or a code; the verdict may be IDEM_TX_REFUSED. */
static int work(const struct idem_args *args, int64_t item, int64_t pieces,
                struct idem_tx_answer *answer, struct idem_error *error) {
    struct db_answer done;
    char receipt[100];
    int rc;

    /* The condition is part of the statement that writes, so concurrent changes are seen. */
    rc = DB_SAY(conn, &done, "UPDATE stock SET pieces = pieces - ? WHERE item = ? AND pieces >= ?",
                idem_sql_int(pieces), idem_sql_int(item), idem_sql_int(pieces));
    if (rc != 0)
        return rc;
    if (done.changed != 1) {
        answer->verdict = IDEM_TX_REFUSED; /* rolled back, so the key counts as unused */
        return 0;
    }
    snprintf(receipt, sizeof(receipt), "%lld of item %lld", (long long)pieces, (long long)item);
    answer->result = strdup(receipt);
    answer->result_len = strlen(receipt);
    return idem_tx_result(conn, guard, args, 0, receipt, strlen(receipt), error);
}

/* One transaction. IDEM_E_UNKNOWN: it may have happened. */
static int take_once(const struct idem_args *args, int64_t item, int64_t pieces,
                     struct idem_tx_answer *answer, struct idem_error *error) {
    /* With SQLite, a transaction that will write declares that at its beginning. */
    const char *begin = conn.kind == IDEM_SQL_SQLITE ? "BEGIN IMMEDIATE" : "BEGIN";
    int rc = db_say(conn, NULL, begin, NULL, 0);

    if (rc == 0)
        rc = idem_tx_once(conn, guard, args, answer, error);
    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        rc = work(args, item, pieces, answer, error);
    if (rc == 0 && answer->verdict == IDEM_TX_FIRST)
        return db_say(conn, NULL, "COMMIT", NULL, 0) == 0 ? 0 : IDEM_E_UNKNOWN;
    (void)db_say(conn, NULL, "ROLLBACK", NULL, 0);
    return rc;
}

static int take(char **words) {
    int64_t item = strtoll(words[1], NULL, 10), pieces = strtoll(words[2], NULL, 10);
    struct idem_tx_answer answer = {0};
    struct idem_error error = {0};
    struct idem_args args;
    char what[100];
    int rc = IDEM_E_RETRY_TX, status;

    if (pieces <= 0)
        errx(64, "PIECES is above 0");
    snprintf(what, sizeof(what), "%lld %lld", (long long)item, (long long)pieces);
    args = db_args(words[0], what);
    for (int i = 0; i < TRIES && (rc == IDEM_E_RETRY_TX || rc == IDEM_E_TX_LOST); i++) {
        usleep((unsigned)(i * i * 1000));
        idem_tx_answer_release(&answer);
        rc = take_once(&args, item, pieces, &answer, &error);
    }
    if (rc == IDEM_E_UNKNOWN) {
        idem_tx_answer_release(&answer);
        idem_sql_close(conn); /* a new connection is free of the old one's failure */
        conn = db_open(url);
        rc = idem_tx_outcome(conn, guard, &args, 0, &answer, &error);
        if (rc == 0 && answer.verdict == IDEM_TX_NEVER)
            errx(1, "it did not happen: ask again");
    }
    if (rc < 0)
        errx(1, "%s: %s", idem_code_name(rc), error.text);
    status = db_tell(&answer, "there are not so many");
    idem_tx_answer_release(&answer);
    return status;
}

static int init(void) {
    struct idem_error error;

    if (idem_sql_migrate(conn, &error) < 0)
        errx(1, "%s", error.text);
    db_do(conn, "CREATE TABLE stock (item INTEGER PRIMARY KEY, pieces BIGINT NOT NULL)");
    db_do(conn, "INSERT INTO stock VALUES (1, 100)");
    return 0;
}

int main(int argc, char **argv) {
    int status = 0;

    url = db_url(&argc, argv);
    conn = db_open(url);
    guard = db_guard("stock:");
    if (argc == 2 && strcmp(argv[1], "init") == 0)
        status = init();
    else if (argc == 3 && strcmp(argv[1], "left") == 0)
        db_print(conn, "SELECT pieces FROM stock WHERE item = ?",
                 idem_sql_int(strtoll(argv[2], NULL, 10)));
    else if (argc == 5 && strcmp(argv[1], "take") == 0)
        status = take(argv + 2);
    else
        errx(64, "[-d URL] init | take KEY ITEM PIECES | left ITEM");
    idem_guard_free(guard);
    idem_sql_close(conn);
    return status;
}
