/* The whole pattern in one call, and its outcome. */
#include "db.h"
#include "store/sql/process.h"
#include "test.h"

static struct idem_error err;
static struct idem_guard *guard;
static const struct idem_tx_options quick = {
    .attempts = 4, .backoff_min_ms = 1, .backoff_max_ms = 2};

struct plan {
    int runs;           /* how often the function was called */
    int again;          /* how often it returns `code` first */
    int code;           /* the code for these calls, or for all of them */
    const char *break_; /* SQL that fails; the function returns its code */
};

static int work(struct idem_tx *tx, void *data) {
    struct plan *plan = data;
    struct idem_sql conn = idem_tx_conn(tx);

    CHECK_INT(idem_tx_attempt(tx), ++plan->runs);
    CHECK(idem_tx_data(tx) == plan);
    db_do(conn, "UPDATE work SET n = n + 1 WHERE id = 1");
    if (plan->runs <= plan->again)
        return plan->code;
    CHECK_INT(idem_tx_keep(tx, 1, "first", 5), 0);
    CHECK_INT(idem_tx_keep(tx, 201, "r\0", 2), 0);
    return 0;
}

static int call(struct idem_sql conn, const char *key, struct plan *plan,
                struct idem_tx_answer *ret) {
    struct idem_args args = db_key(key);

    args.data = plan;
    return idem_tx_call(conn, guard, &args, &quick, work, plan, ret, &err);
}

static struct idem_sql begin(void) {
    struct idem_sql conn = db_open(NULL);

    guard = db_guard("call:");
    db_do(conn, "DELETE FROM idem_tx");
    db_do(conn, "DELETE FROM work");
    db_do(conn, "INSERT INTO work VALUES (1, 0)");
    return conn;
}

static void end(struct idem_sql conn) {
    db_close(conn);
    idem_guard_free(guard);
}

TEST(a_call_is_done_once_and_gives_the_result_both_times) {
    struct idem_sql conn = begin();

    for (int i = 0; i < 2; i++) {
        struct plan plan = {0};
        struct idem_tx_answer answer;

        CHECK_INT(call(conn, "k", &plan, &answer), 0);
        CHECK_INT(answer.verdict, i == 0 ? IDEM_TX_FIRST : IDEM_TX_DUPLICATE);
        CHECK_INT(plan.runs, i == 0 ? 1 : 0);
        CHECK(answer.has_result && answer.result_len == 2 && answer.status == 201);
        CHECK(memcmp(answer.result, "r\0", 2) == 0);
        CHECK_INT(strlen(answer.key_hash), 64);
        idem_tx_answer_release(&answer);
    }
    CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), 1);
    end(conn);
}

TEST(transactions_that_meet_are_begun_anew_and_not_for_ever) {
    struct idem_sql conn = begin();
    struct plan again = {.again = 3, .code = IDEM_E_RETRY_TX},
                lost = {.again = 2, .code = IDEM_E_TX_LOST},
                ever = {.again = 100, .code = IDEM_E_RETRY_TX};
    struct idem_tx_answer answer = {.status = 77};

    CHECK_INT(call(conn, "again", &again, &answer), 0);
    CHECK_INT(answer.verdict, IDEM_TX_FIRST);
    CHECK_INT(again.runs, 4);
    idem_tx_answer_release(&answer);
    CHECK_INT(call(conn, "lost", &lost, &answer), 0);
    CHECK_INT(lost.runs, 3);
    idem_tx_answer_release(&answer);
    CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), 2);
    answer.status = 77;
    CHECK_INT(call(conn, "ever", &ever, &answer), IDEM_E_RETRY_TX);
    CHECK_INT(ever.runs, 4);
    CHECK_INT(answer.status, 77);
    CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), 2);
    end(conn);
}

/* Stores a result the first time, and asks for a new transaction; then stores a status, or
 * nothing. */
static int keeps_first(struct idem_tx *tx, void *data) {
    if (idem_tx_attempt(tx) == 1)
        return idem_tx_keep(tx, 500, "old", 3) == 0 ? IDEM_E_RETRY_TX : 1;
    return data == NULL ? 0 : idem_tx_keep(tx, *(const int *)data, NULL, 0);
}

TEST(what_is_kept_is_of_the_attempt_that_was_committed) {
    struct idem_sql conn = begin();

    for (int i = 0; i < 4; i++) {
        struct idem_args args = db_key(i < 2 ? "nothing" : "status");
        struct idem_tx_answer answer;
        int status = 201;

        CHECK_INT(idem_tx_call(conn, guard, &args, &quick, keeps_first, i < 2 ? NULL : &status,
                               &answer, &err),
                  0);
        CHECK_INT(answer.verdict, i % 2 == 0 ? IDEM_TX_FIRST : IDEM_TX_DUPLICATE);
        CHECK(answer.status == (i < 2 ? 0 : status) && !answer.has_result);
    }
    end(conn);
}

static int orphan(struct idem_tx *tx, void *data) {
    (void)data;
    return db_try(idem_tx_conn(tx), "INSERT INTO child VALUES (99)", &err);
}

/* MySQL has no constraint that is checked so late. */
TEST(what_a_constraint_refuses_at_commit_was_never_there) {
    struct idem_sql conn = begin();
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;

    for (int i = 0; i < 2 && db_kind != IDEM_SQL_MYSQL; i++) {
        if (db_kind == IDEM_SQL_SQLITE)
            db_do(conn, "PRAGMA foreign_keys = ON");
        db_do(conn, "CREATE TABLE IF NOT EXISTS child "
                    "(id INTEGER REFERENCES work (id) DEFERRABLE INITIALLY DEFERRED)");
        CHECK_INT(idem_tx_call(conn, guard, &args, NULL, orphan, NULL, &answer, &err),
                  IDEM_E_REFUSED);
        CHECK_INT(db_ask(conn, "SELECT count(*) FROM child"), 0);
        CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 0);
    }
    end(conn);
}

TEST(what_the_function_refuses_was_never_there) {
    struct idem_sql conn = begin();
    struct plan no = {.again = 100, .code = 42}, fail = {.again = 100, .code = IDEM_E_FULL};
    struct idem_tx_answer answer;

    for (int i = 0; i < 2; i++) {
        no.runs = fail.runs = 0;
        CHECK_INT(call(conn, "k", &no, &answer), 0);
        CHECK_INT(answer.verdict, IDEM_TX_REFUSED);
        CHECK_INT(answer.said, 42);
        CHECK_INT(no.runs, 1);
        CHECK_INT(call(conn, "k", &fail, &answer), IDEM_E_FULL);
        CHECK_INT(fail.runs, 1);
    }
    CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), 0);
    end(conn);
}

static int careless(struct idem_tx *tx, void *data) {
    (void)db_try(idem_tx_conn(tx), data, &err);
    return 0;
}

/* A function that ends its transaction, or continues after a statement that failed. */
TEST(a_function_that_loses_its_transaction_is_not_believed) {
    struct idem_sql conn = begin();
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;

    CHECK_INT(idem_tx_call(conn, guard, &args, NULL, careless, "ROLLBACK", &answer, &err),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "no transaction is open");
    if (db_kind == IDEM_SQL_POSTGRES) {
        CHECK_INT(idem_tx_call(conn, guard, &args, NULL, careless, "SELECT 1 / 0", &answer, &err),
                  IDEM_E_INVALID);
        CHECK_HAS(err.text, "failed before");
    }
    CHECK_INT(idem_tx_call(conn, guard, &args, NULL, careless, "SELECT 1", &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_FIRST);
    CHECK(!answer.has_result);
    end(conn);
}

static int says_each(struct idem_tx *tx, void *data) {
    for (const char *const *sql = data; *sql != NULL; sql++)
        db_do(idem_tx_conn(tx), *sql);
    return 0;
}

/* Otherwise its work would be committed without the row that guards it. */
TEST(a_function_that_begins_another_transaction_is_not_believed) {
    static const char *const begins[] = {[IDEM_SQL_POSTGRES] = "BEGIN",
                                         [IDEM_SQL_MYSQL] = "START TRANSACTION",
                                         [IDEM_SQL_SQLITE] = "BEGIN IMMEDIATE"};
    static const char more[] = "UPDATE work SET n = n + 1 WHERE id = 1";
    const char *const anew[] = {"ROLLBACK", begins[db_kind], more, NULL},
                      *const chained[] = {"ROLLBACK AND CHAIN", more, NULL},
                      *const off[] = {"ROLLBACK", more, NULL},
                      *const nested[] = {"START TRANSACTION", more, NULL};
    const char *const *const ways[][5] = {[IDEM_SQL_POSTGRES] = {anew, chained, NULL},
                                          [IDEM_SQL_MYSQL] = {anew, chained, nested, off, NULL},
                                          [IDEM_SQL_SQLITE] = {anew, NULL}};
    struct idem_sql conn = begin();
    struct idem_tx_answer answer;

    for (size_t i = 0; ways[db_kind][i] != NULL; i++) {
        const char *const *sql = ways[db_kind][i];
        struct idem_args args = db_key(sql[0]);

        if (sql == off)
            db_do(conn, "SET autocommit = 0"); /* the next statement begins a transaction */
        CHECK_INT(idem_tx_call(conn, guard, &args, NULL, says_each, (void *)sql, &answer, &err),
                  IDEM_E_INVALID);
        CHECK_HAS(err.text, "another transaction");
        CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), 0);
        db_rollback(conn);
    }
    end(conn);
}

static int one_more(struct idem_tx *tx, void *data) {
    (void)data;
    return db_try(idem_tx_conn(tx), "UPDATE work SET n = n + 1 WHERE id = 1", &err);
}

/* Loses its transaction and continues, while another connection does the same work. */
static int loses(struct idem_tx *tx, void *data) {
    struct idem_sql conn = idem_tx_conn(tx), other = db_open(NULL);
    struct idem_tx_answer answer;

    other.table = conn.table;
    db_do(conn, "ROLLBACK"); /* as a deadlock does */
    CHECK_INT(idem_tx_call(other, guard, data, NULL, one_more, NULL, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_FIRST);
    db_close(other);
    return one_more(tx, NULL);
}

TEST(a_row_that_is_somebody_elses_is_not_taken_for_ones_own) {
    const struct idem_tx_columns columns = {.table = "theirs", .key = "k"};
    struct idem_sql conn = begin();
    struct idem_args args = db_key("k");
    struct idem_tx_table *table = NULL;

    if (db_kind == IDEM_SQL_MYSQL) { /* the other engines notice that no transaction is open */
        db_do(conn, "CREATE TABLE theirs (k VARCHAR(20) NOT NULL PRIMARY KEY)");
        CHECK_INT(idem_tx_table_new(conn, &columns, &table, &err), 0);
        db_do(conn, "SET autocommit = 0");
    }
    for (int own = 0; table != NULL && own < 2; own++) {
        struct idem_tx_answer answer;

        conn.table = own ? table : NULL;
        CHECK_INT(idem_tx_call(conn, guard, &args, NULL, loses, &args, &answer, &err),
                  IDEM_E_INVALID);
        CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), own + 1);
        db_rollback(conn);
    }
    idem_tx_table_free(table);
    end(conn);
}

static int says_result(struct idem_tx *tx, void *data) {
    return idem_tx_result(idem_tx_conn(tx), guard, data, 7, "r", 1, &err);
}

TEST(a_function_may_say_its_result_itself) {
    for (int off = 0; off < (db_kind == IDEM_SQL_MYSQL ? 2 : 1); off++) {
        struct idem_sql conn = begin();
        struct idem_args args = db_key("k");
        struct idem_tx_answer answer;

        if (off)
            db_do(conn, "SET autocommit = 0");
        for (int i = 0; i < 2; i++) {
            CHECK_INT(idem_tx_call(conn, guard, &args, NULL, says_result, &args, &answer, &err), 0);
            CHECK_INT(answer.verdict, i == 0 ? IDEM_TX_FIRST : IDEM_TX_DUPLICATE);
        }
        CHECK(answer.status == 7 && answer.result_len == 1);
        idem_tx_answer_release(&answer);
        end(conn);
    }
}

static int statement(struct idem_tx *tx, void *data) {
    struct plan *plan = data;
    int rc;

    plan->runs++;
    rc = db_try(idem_tx_conn(tx), plan->break_, &err);
    return plan->runs > plan->again ? 0 : rc;
}

/* Failures of the function's own statements. */
TEST(a_serialization_failure_of_the_work_is_tried_again) {
    static const char *const raise[] = {
        [IDEM_SQL_POSTGRES] = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$",
        [IDEM_SQL_MYSQL] = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213",
        [IDEM_SQL_SQLITE] = NULL,
    };
    struct idem_sql conn = begin();
    struct plan plan = {.again = 2, .break_ = raise[db_kind]};
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;

    if (plan.break_ != NULL) {
        /* In the last call the function ignores the failure. */
        CHECK_INT(idem_tx_call(conn, guard, &args, &quick, statement, &plan, &answer, &err),
                  db_kind == IDEM_SQL_POSTGRES ? IDEM_E_INVALID : 0);
        CHECK_INT(plan.runs, 3);
    }
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM work"), 1);
    end(conn);
}

/* Records whether a transaction sees another's commit, or prevents it. */
static int look_twice(struct idem_tx *tx, void *data) {
    struct idem_sql conn = idem_tx_conn(tx), other = db_open(NULL);
    int64_t before = db_ask(conn, "SELECT count(*) FROM work");
    int *ret = data;

    db_hurry(other);
    ret[0] = db_try(other, "INSERT INTO work VALUES (2, 0)", &err);
    ret[1] = (int)(db_ask(conn, "SELECT count(*) FROM work") - before);
    db_close(other);
    return 1;
}

TEST(each_isolation_level_is_the_one_that_was_asked_for) {
    struct idem_sql conn = begin();
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;

    EACH_FLAVOUR(f) {
        const struct idem_tx_options options = {.isolation = f.isolation};
        bool locks = db_kind == IDEM_SQL_SQLITE ||
                     (db_kind == IDEM_SQL_MYSQL && f.isolation == IDEM_ISOLATION_SERIALIZABLE);
        int saw[2];

        if (f.odd)
            break;
        CHECK_INT(idem_tx_call(conn, guard, &args, &options, look_twice, saw, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_REFUSED);
        CHECK_INT(saw[0], locks ? IDEM_E_RETRY_TX : 0);
        CHECK_INT(saw[1], !locks && f.isolation == IDEM_ISOLATION_READ_COMMITTED);
        db_do(conn, "DELETE FROM work WHERE id = 2");
    }
    end(conn);
}

TEST(a_call_needs_a_connection_without_a_transaction) {
    struct idem_sql conn = begin();
    struct idem_args args = db_key("k");
    const struct idem_tx_options bad[] = {
        {.isolation = 4}, {.backoff_min_ms = -1}, {.backoff_max_ms = -1}};
    struct idem_tx_answer answer;

    for (int i = 0; i < 3; i++)
        CHECK_INT(idem_tx_call(conn, guard, &args, &bad[i], careless, "SELECT 1", &answer, &err),
                  IDEM_E_INVALID);
    db_begin(conn, NULL);
    CHECK_INT(idem_tx_call(conn, guard, &args, NULL, careless, "SELECT 1", &answer, &err),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "none may be");
    CHECK_INT(idem_tx_outcome(conn, guard, &args, 0, &answer, &err), IDEM_E_INVALID);
    db_rollback(conn);
    end(conn);
}

/* The function's own return code does not count here. */
TEST(a_connection_that_is_gone_is_told) {
    struct idem_sql conn = begin(), other = db_open(NULL);
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;

    if (db_kind != IDEM_SQL_SQLITE) {
        struct idem_sql stale = db_open(NULL); /* as from a pool: its end is not noticed yet */

        CHECK_INT(db_session_end(other, db_session(stale), &err), 0);
        CHECK_INT(idem_tx_call(stale, guard, &args, NULL, careless, "SELECT 1", &answer, &err),
                  IDEM_E_REFUSED);
        db_close(stale);
        db_begin(conn, NULL);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK_INT(db_session_end(other, db_session(conn), &err), 0);
        CHECK_INT(db_try(conn, "UPDATE work SET n = 7", &err), IDEM_E_REFUSED);
        db_rollback(conn);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_REFUSED);
        CHECK_HAS(err.text, "is not open");
        CHECK_INT(idem_tx_call(conn, guard, &args, NULL, careless, "SELECT 1", &answer, &err),
                  IDEM_E_REFUSED);
        CHECK_INT(idem_tx_outcome(conn, guard, &args, 0, &answer, &err), IDEM_E_REFUSED);
    }
    CHECK_INT(idem_tx_outcome(other, guard, &args, 0, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_NEVER);
    CHECK_INT(db_ask(other, "SELECT n FROM work WHERE id = 1"), 0);
    db_close(other);
    end(conn);
}

/* Outcome. */

TEST(an_outcome_is_told_and_leaves_nothing) {
    struct idem_sql conn = begin();
    struct idem_args args = db_key("k"), other = db_key("k");
    struct plan plan = {0};
    struct idem_tx_answer answer;

    CHECK_INT(idem_tx_outcome(conn, guard, &args, 0, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_NEVER);
    CHECK_INT(idem_tx_outcome(conn, guard, &args, 500, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_NEVER);
    CHECK_INT(idem_tx_outcome(conn, guard, &args, -1, &answer, &err), IDEM_E_INVALID);
    args.data = &plan;
    args.fingerprint = "a";
    args.fingerprint_len = 1;
    CHECK_INT(idem_tx_call(conn, guard, &args, NULL, work, &plan, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_FIRST);
    idem_tx_answer_release(&answer);
    CHECK_INT(idem_tx_outcome(conn, guard, &args, 500, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_HAPPENED);
    CHECK(answer.status == 201 && answer.result_len == 2);
    idem_tx_answer_release(&answer);
    other.fingerprint = "b";
    other.fingerprint_len = 1;
    CHECK_INT(idem_tx_outcome(conn, guard, &other, 500, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_MISMATCH);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 1);
    end(conn);
}

/* The server still works on the first one: so the outcome is neither `happened` nor `never`. */
TEST(an_outcome_waits_for_who_may_still_commit) {
    struct idem_sql conn = begin(), rival = db_open(NULL);
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer = {.status = 77};

    db_hurry(conn);
    db_begin(rival, NULL);
    CHECK_INT(idem_tx_once(rival, guard, &args, &answer, &err), 0);
    answer.status = 77;
    CHECK_INT(
        idem_tx_outcome(conn, guard, &args, db_kind == IDEM_SQL_SQLITE ? 0 : 50, &answer, &err),
        IDEM_E_UNKNOWN);
    CHECK_INT(answer.status, 77);
    db_commit(rival);
    CHECK_INT(idem_tx_outcome(conn, guard, &args, 120000, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_HAPPENED);
    /* The lock timeout applied to that call only. */
    if (db_kind == IDEM_SQL_MYSQL)
        CHECK_INT(db_ask(conn, "SELECT @@innodb_lock_wait_timeout"), 1);
    if (db_kind == IDEM_SQL_POSTGRES)
        CHECK_INT(db_ask(conn, "SELECT current_setting('lock_timeout')"), 100);
    db_close(rival);
    end(conn);
}

static int begun[2]; /* a pipe */

/* One process commits a moment later; the other has an older snapshot, if its level has one. */
static void outcome_meet(int i) {
    static const char *const levels[] = {
        [IDEM_SQL_POSTGRES] = "SET default_transaction_isolation = 'repeatable read'",
        [IDEM_SQL_MYSQL] = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        [IDEM_SQL_SQLITE] = "SELECT 1"};
    struct idem_sql conn = db_open(NULL);
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;
    char c = 'b';

    if (i == 0) {
        db_begin(conn, NULL);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK(write(begun[1], &c, 1) == 1);
        /* sleep: the other process begins to wait, which nothing shows; later is right, too */
        usleep(100000);
        db_commit(conn);
    } else {
        db_do(conn, levels[db_kind]);
        CHECK(read(begun[0], &c, 1) == 1);
        CHECK_INT(idem_tx_outcome(conn, guard, &args, 120000, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_HAPPENED);
    }
    db_close(conn);
}

TEST(an_outcome_sees_what_was_committed_while_it_waited) {
    struct idem_sql conn = begin();

    CHECK(pipe(begun) == 0);
    db_crowd(2, outcome_meet);
    end(conn);
}

DB_MAIN
