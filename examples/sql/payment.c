/*
 * An order is paid once, however often the command is repeated, and only while it is unpaid.
 *
 *     payment [-d URL] init                 orders 1 to 3, unpaid
 *     payment [-d URL] pay KEY ORDER
 *     payment [-d URL] move ORDER FROM TO   paid shipped, shipped done, paid cancelled, ...
 *     payment [-d URL] state ORDER
 *
 * Two things are kept apart. KEY is one payment: a repetition gets the first outcome. The order's
 * state is a machine whose moves are declared once: another payment, with a key of its own, finds
 * the order paid and is refused.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"

#define PRICE 250

static struct idem_moves *moves;

static void moves_declare(void) {
    static const struct idem_step steps[] = {
        {"unpaid", "paid"},      {"paid", "shipped"},   {"shipped", "done"},
        {"unpaid", "cancelled"}, {"paid", "cancelled"},
    };
    struct idem_error error;

    /* An unreachable or misspelt state is found here, and not with an order. */
    if (idem_moves_new("unpaid paid shipped done cancelled", steps,
                       sizeof(steps) / sizeof(steps[0]), &moves, &error) < 0)
        errx(1, "%s", error.text);
}

/* Moves an order; returns 0 with the verdict, or a code. */
static int move(struct idem_sql conn, int64_t order, const char *from, const char *to,
                enum idem_sql_verdict *ret) {
    const struct idem_sql_column key = {"id", idem_sql_int(order)};
    const struct idem_sql_row row = {.table = "orders", .key = &key, .key_n = 1};
    struct idem_error error;
    int rc = idem_sql_move(conn, &row, "state", moves, from, to, NULL, ret, &error);

    if (rc < 0 && rc != IDEM_E_RETRY_TX && rc != IDEM_E_TX_LOST)
        warnx("%s", error.text);
    return rc;
}

/* The work of a payment; a refusal is the move's verdict. */
static int work(struct idem_tx *tx, void *data) {
    int64_t order = *(const int64_t *)data;
    struct idem_sql conn = idem_tx_conn(tx);
    enum idem_sql_verdict verdict;
    char receipt[100];
    int rc = move(conn, order, "unpaid", "paid", &verdict);

    if (rc != 0)
        return rc;
    if (verdict != IDEM_SQL_MOVED)
        return (int)verdict; /* ALREADY, FORBIDDEN or GONE */
    rc = DB_SAY(conn, NULL, "INSERT INTO ledger (order_id, amount) VALUES (?, ?)",
                idem_sql_int(order), idem_sql_int(PRICE));
    if (rc != 0)
        return rc;
    snprintf(receipt, sizeof(receipt), "order %lld, %d paid", (long long)order, PRICE);
    return idem_tx_keep(tx, 0, receipt, strlen(receipt));
}

static int pay(struct idem_sql conn, char **words) {
    struct idem_guard *guard = db_guard("payment:");
    struct idem_args args = db_args(words[0], words[1]);
    int64_t order = strtoll(words[1], NULL, 10);
    struct idem_tx_answer answer;
    struct idem_error error;
    int rc = idem_tx_call(conn, guard, &args, NULL, work, &order, &answer, &error);

    idem_guard_free(guard);
    if (rc < 0)
        errx(1, "%s", error.text);
    rc = db_tell(&answer, answer.said == IDEM_SQL_ALREADY ? "the order is paid already"
                          : answer.said == IDEM_SQL_GONE  ? "there is no such order"
                                                          : "the order waits for no payment");
    idem_tx_answer_release(&answer);
    return rc;
}

/* A recipe alone, without a key: repeating it does no harm. */
static int move_said(struct idem_sql conn, char **words) {
    enum idem_sql_verdict verdict;

    if (move(conn, strtoll(words[0], NULL, 10), words[1], words[2], &verdict) < 0)
        return 1;
    printf("%s\n", idem_sql_verdict_name(verdict));
    return verdict == IDEM_SQL_MOVED || verdict == IDEM_SQL_ALREADY ? 0 : 1;
}

static int init(struct idem_sql conn) {
    struct idem_error error;

    if (idem_sql_migrate(conn, &error) < 0)
        errx(1, "%s", error.text);
    db_do(conn, "CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(20) NOT NULL)");
    db_do(conn, "CREATE TABLE ledger (order_id INTEGER NOT NULL, amount BIGINT NOT NULL)");
    db_do(conn, "INSERT INTO orders VALUES (1, 'unpaid'), (2, 'unpaid'), (3, 'unpaid')");
    return 0;
}

int main(int argc, char **argv) {
    struct idem_sql conn = db_open(db_url(&argc, argv));
    int status = 0;

    moves_declare();
    if (argc == 2 && strcmp(argv[1], "init") == 0)
        status = init(conn);
    else if (argc == 4 && strcmp(argv[1], "pay") == 0)
        status = pay(conn, argv + 2);
    else if (argc == 5 && strcmp(argv[1], "move") == 0)
        status = move_said(conn, argv + 2);
    else if (argc == 3 && strcmp(argv[1], "state") == 0)
        db_print(conn, "SELECT state FROM orders WHERE id = ?",
                 idem_sql_int(strtoll(argv[2], NULL, 10)));
    else
        errx(64, "[-d URL] init | pay KEY ORDER | move ORDER FROM TO | state ORDER");
    idem_moves_free(moves);
    idem_sql_close(conn);
    return status;
}
