/*
 * Transactions that meet: duplicates at the same moment, waits that end,
 * deadlocks, clients that are killed between any two of their statements.
 */
#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>

#include "db.h"
#include "store/sql/process.h"
#include "test.h"

static struct idem_error err;
static struct idem_guard *guard;
static struct flavour flavour;

static int once(struct idem_sql conn, const struct idem_args *args, enum idem_tx_verdict *ret) {
    struct idem_tx_answer answer = {0};
    int rc = idem_tx_once(conn, guard, args, &answer, &err);

    idem_tx_answer_release(&answer);
    *ret = answer.verdict;
    return rc;
}

static bool is_again(int rc) {
    return rc == IDEM_E_RETRY_TX || rc == IDEM_E_TX_LOST;
}

/* Duplicates at the same moment. */

#define ROUNDS 12
#define CROWD 6

static const char *crowd_key(int round) {
    static char key[64];

    snprintf(key, sizeof(key), "crowd-%d-%d", flavour.n, round);
    return key;
}

/* By hand, as a caller does it. Some of the first roll back, so that another must do the work. A
 * duplicate sees the work, because it was committed with the guard's row. */
static void crowd_one(struct idem_sql conn, int i, int round) {
    struct idem_args args = db_key(crowd_key(round));
    int row = flavour.n * 1000 + round;
    enum idem_tx_verdict verdict = 0;
    int rc, tries = 0;

    do {
        CHECK(tries++ < 200);
        db_begin(conn, &flavour);
        rc = once(conn, &args, &verdict);
        if (rc == 0 && verdict == IDEM_TX_FIRST) {
            rc = db_try(conn, "SELECT 1", &err);
            if (rc == 0 && (i + round + tries) % 4 == 0)
                rc = IDEM_E_RETRY_TX;
        }
        if (rc == 0 && verdict == IDEM_TX_FIRST) {
            char sql[100];

            snprintf(sql, sizeof(sql), "UPDATE work SET n = n + 1 WHERE id = %d", row);
            rc = db_try(conn, sql, &err);
        }
        if (rc == 0)
            rc = db_try(conn, "COMMIT", &err);
        if (rc != 0 && !is_again(rc))
            fprintf(stderr, "# %s\n", err.text);
        CHECK(rc == 0 || is_again(rc));
        if (rc != 0)
            db_rollback(conn);
    } while (rc != 0);
    CHECK_INT(db_askf(conn, "SELECT n FROM work WHERE id = %d", row), 1);
}

static void crowd(int i) {
    struct idem_sql conn = db_open(&flavour);

    for (int round = 0; round < ROUNDS; round++)
        crowd_one(conn, i, round);
    db_close(conn);
}

TEST(of_duplicates_at_the_same_moment_one_does_it) {
    struct idem_sql conn = db_open(NULL);

    guard = db_guard("crowd:");
    EACH_FLAVOUR(f) {
        flavour = f;
        for (int round = 0; round < ROUNDS; round++)
            db_dof(conn, "INSERT INTO work VALUES (%d, 0)", f.n * 1000 + round);
        db_crowd(CROWD, crowd);
        CHECK_INT(db_askf(conn, "SELECT sum(n) FROM work WHERE id >= %d AND id < %d", f.n * 1000,
                          f.n * 1000 + 1000),
                  ROUNDS);
    }
    db_close(conn);
    idem_guard_free(guard);
}

static void renew(int i) {
    struct idem_sql conn = db_open(&flavour);
    struct idem_args args = db_key("renewed");
    enum idem_tx_verdict verdict = 0;
    int rc, tries = 0;

    (void)i;
    do {
        CHECK(tries++ < 200);
        db_begin(conn, &flavour);
        rc = once(conn, &args, &verdict);
        if (rc == 0 && verdict == IDEM_TX_FIRST)
            rc = db_try(conn, "UPDATE work SET n = n + 1 WHERE id = 90000", &err);
        if (rc == 0)
            rc = db_try(conn, "COMMIT", &err);
        CHECK(rc == 0 || is_again(rc));
        if (rc != 0)
            db_rollback(conn);
    } while (rc != 0);
    db_close(conn);
}

TEST(of_those_that_meet_an_expired_row_one_does_it) {
    struct idem_sql conn = db_open(NULL);
    struct idem_args args = db_key("renewed");
    enum idem_tx_verdict verdict;

    guard = db_guard("renew:");
    db_do(conn, "INSERT INTO work VALUES (90000, 0)");
    db_begin(conn, NULL);
    CHECK_INT(once(conn, &args, &verdict), 0);
    db_commit(conn);
    EACH_FLAVOUR(f) {
        flavour = f;
        db_do(conn, db_kind == IDEM_SQL_SQLITE
                        ? "UPDATE idem_tx SET expires = 1"
                        : "UPDATE idem_tx SET expires = '2001-01-01 00:00:00'");
        db_do(conn, "UPDATE work SET n = 0 WHERE id = 90000");
        db_crowd(CROWD, renew);
        CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 90000"), 1);
    }
    db_close(conn);
    idem_guard_free(guard);
}

/* A row that was committed after the transaction took its snapshot: with MySQL the guard looks
 * past the snapshot, with PostgreSQL the transaction cannot continue. SQLite has no such
 * transaction. */
TEST(a_row_that_is_newer_than_the_snapshot_is_met_all_the_same) {
    guard = db_guard("newer:");
    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f), other;
        struct idem_args args = db_key("k");
        struct idem_tx_answer answer;
        bool fails = db_kind == IDEM_SQL_POSTGRES && f.isolation != IDEM_ISOLATION_READ_COMMITTED;

        db_do(conn, "DELETE FROM idem_tx");
        other = db_open(&f);
        if (db_kind != IDEM_SQL_SQLITE)
            db_begin(conn, &f);
        CHECK(db_ask(conn, "SELECT count(*) FROM idem_meta") == 1);
        db_begin(other, &f);
        CHECK_INT(idem_tx_once(other, guard, &args, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_FIRST);
        CHECK_INT(idem_tx_result(other, guard, &args, 5, "r", 1, &err), 0);
        db_commit(other);
        if (db_kind == IDEM_SQL_SQLITE)
            db_begin(conn, &f);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), fails ? IDEM_E_RETRY_TX : 0);
        if (!fails) {
            CHECK_INT(answer.verdict, IDEM_TX_DUPLICATE);
            CHECK_INT(answer.status, 5);
            idem_tx_answer_release(&answer);
        }
        db_rollback(conn);
        db_close(other);
        db_close(conn);
    }
    idem_guard_free(guard);
}

/* Waiting. */

TEST(who_waits_too_long_is_told_to_begin_anew) {
    guard = db_guard("wait:");
    EACH_FLAVOUR(f) {
        struct idem_sql first, second;
        struct idem_args args = db_key(f.odd ? "odd" : "plain"), mine = db_key("mine");
        enum idem_tx_verdict verdict;

        if (f.isolation != IDEM_ISOLATION_READ_COMMITTED && db_kind == IDEM_SQL_MYSQL)
            continue; /* one flavour of a second each is enough */
        first = db_open(&f);
        second = db_open(&f);
        db_hurry(second);
        db_begin(first, &f);
        CHECK_INT(once(first, &args, &verdict), 0);
        CHECK_INT(verdict, IDEM_TX_FIRST);
        if (db_kind == IDEM_SQL_SQLITE) {
            CHECK_INT(db_try(second, "BEGIN IMMEDIATE", &err), IDEM_E_RETRY_TX);
        } else {
            db_begin(second, &f);
            if (db_kind == IDEM_SQL_MYSQL)
                CHECK_INT(once(second, &mine, &verdict), 0);
            CHECK_INT(once(second, &args, &verdict), IDEM_E_RETRY_TX);
            /* MySQL has undone only the statement, and the transaction continues. */
            if (db_kind == IDEM_SQL_MYSQL) {
                CHECK_INT(once(second, &mine, &verdict), 0);
                CHECK_INT(verdict, IDEM_TX_DUPLICATE);
            } else {
                CHECK_INT(once(second, &args, &verdict), IDEM_E_INVALID);
                CHECK_HAS(err.text, "roll it back");
            }
            db_rollback(second);
        }
        db_rollback(first);
        db_begin(second, &f);
        CHECK_INT(once(second, &args, &verdict), 0);
        CHECK_INT(verdict, IDEM_TX_FIRST);
        db_rollback(second);
        db_close(first);
        db_close(second);
    }
    idem_guard_free(guard);
}

/* Two processes lock two rows in turn; in the children, the guard's row is one of the two. */

static int gates[2][2]; /* pipes: 0 signals 1, 1 signals 0 */

static void gate_tell(int who) {
    CHECK(write(gates[who][1], "x", 1) == 1);
}

static void gate_wait(int who) {
    char c;

    CHECK(read(gates[who][0], &c, 1) == 1);
}

/* Each process has inserted its own key, then wants the other's. One of them is the victim, gets
 * the code for that, and begins anew; the other continues. */
static void entangle(int i) {
    struct idem_sql conn = db_open(&flavour);
    struct idem_args mine = db_key(i == 0 ? "a" : "b"), theirs = db_key(i == 0 ? "b" : "a");
    enum idem_tx_verdict verdict;
    int rc;

    db_begin(conn, &flavour);
    CHECK_INT(once(conn, &mine, &verdict), 0);
    CHECK_INT(verdict, IDEM_TX_FIRST);
    gate_tell(i);
    gate_wait(1 - i);
    rc = once(conn, &theirs, &verdict);
    if (rc == 0) {
        db_rollback(conn);
        db_close(conn);
        return;
    }
    CHECK_INT(rc, db_kind == IDEM_SQL_MYSQL ? IDEM_E_TX_LOST : IDEM_E_RETRY_TX);
    if (db_kind == IDEM_SQL_MYSQL) {
        /* The victim must not continue as if nothing had happened. */
        CHECK_INT(once(conn, &mine, &verdict), IDEM_E_INVALID);
        CHECK_HAS(err.text, "it was lost");
    }
    db_rollback(conn);
    db_do(conn, "UPDATE work SET n = n + 1 WHERE id = 91000");
    db_close(conn);
}

TEST(of_two_in_a_deadlock_one_is_told_to_begin_anew) {
    struct idem_sql conn = db_open(NULL);

    guard = db_guard("dead:");
    db_do(conn, "INSERT INTO work VALUES (91000, 0)");
    EACH_FLAVOUR(f) {
        if (db_kind == IDEM_SQL_SQLITE)
            break; /* a writer is alone */
        flavour = f;
        CHECK(pipe(gates[0]) == 0 && pipe(gates[1]) == 0);
        db_do(conn, "UPDATE work SET n = 0 WHERE id = 91000");
        db_crowd(2, entangle);
        CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 91000"), 1);
        for (int i = 0; i < 4; i++)
            close(gates[i / 2][i % 2]);
    }
    CHECK(db_ask(conn, "SELECT count(*) FROM work WHERE id = 91000") == 1);
    db_close(conn);
    idem_guard_free(guard);
}

/* A client that is killed after each of its statements. */

static int killed_after;

static void step(int *n) {
    if ((*n)++ == killed_after)
        raise(SIGKILL);
}

static void victim(int i) {
    struct idem_sql conn = db_open(&flavour);
    struct idem_args args = db_key("victim");
    enum idem_tx_verdict verdict;
    int n = 0;

    (void)i;
    step(&n);
    db_begin(conn, &flavour);
    step(&n);
    CHECK_INT(once(conn, &args, &verdict), 0);
    CHECK_INT(verdict, IDEM_TX_FIRST);
    step(&n);
    db_do(conn, "UPDATE work SET n = n + 1 WHERE id = 92000");
    step(&n);
    CHECK_INT(idem_tx_result(conn, guard, &args, 200, "r", 1, &err), 0);
    step(&n);
    db_commit(conn);
    step(&n);
    exit(2);
}

static void victim_run(void) {
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        victim(0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(a_client_that_is_killed_leaves_all_or_nothing) {
    struct idem_sql conn = db_open(NULL);
    struct idem_args args = db_key("victim");
    struct idem_tx_answer answer;

    guard = db_guard("victim:");
    db_do(conn, "INSERT INTO work VALUES (92000, 0)");
    EACH_FLAVOUR(f) {
        flavour = f;
        for (killed_after = 0; killed_after <= 5; killed_after++) {
            bool done = killed_after == 5;

            db_do(conn, "DELETE FROM idem_tx");
            db_do(conn, "UPDATE work SET n = 0 WHERE id = 92000");
            victim_run();
            CHECK_INT(idem_tx_outcome(conn, guard, &args, 120000, &answer, &err), 0);
            CHECK_INT(answer.verdict, done ? IDEM_TX_HAPPENED : IDEM_TX_NEVER);
            CHECK_INT(answer.status, done ? 200 : 0);
            idem_tx_answer_release(&answer);
            CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 92000"), done ? 1 : 0);
            CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), done ? 1 : 0);
        }
    }
    db_close(conn);
    idem_guard_free(guard);
}

DB_MAIN
