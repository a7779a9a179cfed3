/*
 * Making the tables; and the guard in SQL, for other languages, together with
 * the guard in C.
 */
#include "db.h"
#include "test.h"
#include "tx/tx_migrate.h"

static struct idem_error err;

static void tables_drop(struct idem_sql conn) {
    static const char *const all[] = {"idem_meta", "idem_record", "idem_counter", "idem_event",
                                      "idem_tx"};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        db_dof(conn, "DROP TABLE IF EXISTS %s", all[i]);
    if (db_kind == IDEM_SQL_POSTGRES) {
        db_do(conn, "DROP FUNCTION IF EXISTS idem_once");
        db_do(conn, "DROP FUNCTION IF EXISTS idem_result");
        db_do(conn, "DROP FUNCTION IF EXISTS idem_name");
    }
}

static void one_of_many(int i) {
    struct idem_sql conn = db_open(NULL);
    int rc = idem_sql_migrate(conn, &err);

    (void)i;
    if (rc != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(rc, 0);
    CHECK_INT(db_ask(conn, "SELECT version FROM idem_meta"), IDEM_SCHEMA_VERSION);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 0);
    db_close(conn);
}

TEST(tables_are_made_once_however_many_make_them) {
    struct idem_sql conn = db_open(NULL);

    tables_drop(conn);
    db_crowd(6, one_of_many);
    CHECK_INT(idem_sql_migrate(conn, &err), 0);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_meta"), 1);
    db_close(conn);
}

TEST(a_newer_version_is_refused_and_left_alone) {
    struct idem_sql conn = db_open(NULL);

    db_dof(conn, "UPDATE idem_meta SET version = %d", IDEM_SCHEMA_VERSION + 1);
    CHECK_INT(idem_sql_migrate(conn, &err), IDEM_E_VERSION);
    CHECK_HAS(err.text, "newer");
    CHECK_INT(db_ask(conn, "SELECT version FROM idem_meta"), IDEM_SCHEMA_VERSION + 1);
    db_dof(conn, "UPDATE idem_meta SET version = %d", IDEM_SCHEMA_VERSION);
    /* No lock was left. */
    CHECK_INT(idem_sql_migrate(conn, &err), 0);
    db_begin(conn, NULL);
    CHECK_INT(idem_sql_migrate(conn, &err), IDEM_E_INVALID);
    db_rollback(conn);
    CHECK_INT(idem_sql_migrate((struct idem_sql){0}, &err), IDEM_E_INVALID);
    db_close(conn);
}

/* Runs the command; returns its exit status and its output. */
static int command(const char *options, char *said, size_t size) {
    char url[1000], line[1400];
    size_t n;
    FILE *out;

    db_url(url, sizeof(url));
    snprintf(line, sizeof(line), "'%s' migrate --store '%s' %s 2>&1", getenv("IDEM_EXE"), url,
             options);
    out = popen(line, "r");
    CHECK(out != NULL);
    n = fread(said, 1, size - 1, out);
    said[n] = '\0';
    return WEXITSTATUS(pclose(out));
}

TEST(the_command_makes_tables_and_prints_how) {
    struct idem_sql conn = db_open(NULL);
    static char said[40000];

    tables_drop(conn);
    CHECK_INT(command("--print", said, sizeof(said)), 0);
    CHECK_STR(said, idem_sql_schema(db_kind));
    /* MySQL takes two dashes for a comment only before a blank. */
    for (const char *at = said; (at = strstr(at, "--")) != NULL; at += 2)
        CHECK(at[2] == ' ');
    CHECK(db_try(conn, "SELECT version FROM idem_meta", &err) != 0);
    for (int i = 0; i < 2; i++) {
        int status = command("", said, sizeof(said));

        CHECK_STR(said, "the tables are of version 1\n");
        CHECK_INT(status, 0);
        CHECK_INT(db_ask(conn, "SELECT version FROM idem_meta"), IDEM_SCHEMA_VERSION);
    }
    db_do(conn, "UPDATE idem_meta SET version = 2");
    CHECK_INT(command("", said, sizeof(said)), 69);
    CHECK_HAS(said, "use a newer one");
    db_do(conn, "UPDATE idem_meta SET version = 1");
    CHECK_INT(command("operand", said, sizeof(said)), 64);
    db_close(conn);
}

/* MySQL keeps the tables that were made before a failure; the others roll them back. */
TEST(what_was_begun_is_brought_to_its_end) {
    struct idem_sql conn = db_open(NULL);

    tables_drop(conn);
    if (db_kind == IDEM_SQL_MYSQL) {
        CHECK_INT(idem_sql_migrate(conn, &err), 0);
        db_do(conn, "DELETE FROM idem_meta");
        db_do(conn, "DROP TABLE idem_tx");
        db_do(conn, "DROP PROCEDURE idem_result");
        db_do(conn, "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'");
    } else {
        db_do(conn, "CREATE TABLE idem_tx (a int)");
        CHECK_INT(idem_sql_migrate(conn, &err), IDEM_E_REFUSED);
        db_do(conn, "DROP TABLE idem_tx");
        CHECK_INT(db_try(conn, "SELECT version FROM idem_meta", &err), IDEM_E_REFUSED);
    }
    CHECK_INT(idem_sql_migrate(conn, &err), 0);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 0);
    if (db_kind == IDEM_SQL_MYSQL)
        CHECK_INT(db_ask(conn, "SELECT @@SESSION.sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"),
                  1);
    db_close(conn);
}

/* The guard in SQL. */

/* Checks the result of idem_once(): outcome, status, and length of the result; -1: NULL. */
static void sql_once(struct idem_sql conn, const char *arguments, const char *outcome, int status,
                     int len) {
    const char *call = db_kind == IDEM_SQL_POSTGRES ? "SELECT * FROM" : "CALL";
    char sql[300], row[100], want[100];

    snprintf(sql, sizeof(sql), "%s idem_once(%s)", call, arguments);
    snprintf(want, sizeof(want), "%s %d %d", outcome, status, len);
    CHECK_STR(db_row(conn, sql, row, sizeof(row)), want);
}

static void c_once(struct idem_sql conn, const struct idem_guard *guard, const char *scope,
                   const char *key, const char *fingerprint, enum idem_tx_verdict want) {
    struct idem_args args = db_key(key);
    struct idem_tx_answer answer;

    args.scope = scope;
    args.scope_len = scope == NULL ? 0 : strlen(scope);
    args.fingerprint = fingerprint;
    args.fingerprint_len = fingerprint == NULL ? 0 : strlen(fingerprint);
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
    CHECK_INT(answer.verdict, want);
    if (want == IDEM_TX_FIRST)
        CHECK_INT(idem_tx_result(conn, guard, &args, 201, "res", 3, &err), 0);
    idem_tx_answer_release(&answer);
}

TEST(sql_and_c_have_one_guard) {
    struct idem_guard *guard = db_guard("both:");

    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f);

        if (db_kind == IDEM_SQL_SQLITE) { /* it has no stored functions */
            CHECK(strstr(idem_sql_schema(IDEM_SQL_SQLITE), "idem_once") == NULL);
            db_close(conn);
            break;
        }
        db_begin(conn, &f);
        db_do(conn, "DELETE FROM idem_tx");
        c_once(conn, guard, NULL, "c", NULL, IDEM_TX_FIRST);
        c_once(conn, guard, "user 7", "c", "amount=5", IDEM_TX_FIRST);
        sql_once(conn, "'both:', NULL, 'c', NULL", "duplicate", 201, 3);
        sql_once(conn, "'both:', 'user 7', 'c', 'amount=5'", "duplicate", 201, 3);
        sql_once(conn, "'both:', 'user 7', 'c', NULL", "duplicate", 201, 3);
        sql_once(conn, "'both:', 'user 7', 'c', 'amount=6'", "mismatch", -1, -1);
        sql_once(conn, "'both:', NULL, 's', NULL", "first", -1, -1);
        sql_once(conn, "'both:', NULL, 's', NULL", "duplicate", 0, -1);
        sql_once(conn, "'both:', 'u', 's', 'x'", "first", -1, -1);
        c_once(conn, guard, NULL, "s", NULL, IDEM_TX_DUPLICATE);
        c_once(conn, guard, "u", "s", "x", IDEM_TX_DUPLICATE);
        c_once(conn, guard, "u", "s", "y", IDEM_TX_MISMATCH);
        db_do(conn, db_kind == IDEM_SQL_POSTGRES
                        ? "SELECT idem_result('both:', NULL, 's', 7, 'four'::bytea)"
                        : "CALL idem_result('both:', NULL, 's', 7, 'four')");
        sql_once(conn, "'both:', NULL, 's', NULL", "duplicate", 7, 4);
        /* An expired row. */
        db_do(conn, "UPDATE idem_tx SET expires = '2001-01-01 00:00:00'");
        sql_once(conn, "'both:', NULL, 's', NULL", "first", -1, -1);
        sql_once(conn, "'both:', NULL, 's', NULL", "duplicate", 0, -1);
        db_rollback(conn);
        db_close(conn);
    }
    idem_guard_free(guard);
}

/* At the same moment. */

static struct flavour flavour;
static int begun[2]; /* a pipe */

static const char *once_text(void) {
    return db_kind == IDEM_SQL_POSTGRES ? "SELECT outcome FROM idem_once('meet:', NULL, 'k', NULL)"
                                        : "CALL idem_once('meet:', NULL, 'k', NULL)";
}

/* One connection calls first, or holds a lock on the expired row, while the others begin to
 * call. */
static void sql_hold(struct idem_sql conn) {
    char outcome[40];

    db_begin(conn, &flavour);
    if (db_ask(conn, "SELECT count(*) FROM idem_tx") == 0) {
        CHECK_HAS(db_row(conn, once_text(), outcome, sizeof(outcome)), "first");
        db_do(conn, "UPDATE work SET n = n + 1 WHERE id = 1");
    } else {
        db_do(conn, "SELECT 1 FROM idem_tx FOR UPDATE");
    }
    CHECK(write(begun[1], "bbb", 3) == 3);
    usleep(50000); /* sleep: the others begin to wait, which nothing shows; later is right, too */
    db_commit(conn);
}

static void sql_meet(int i) {
    struct idem_sql conn = db_open(&flavour);
    char outcome[40], c;
    int rc, tries = 0;

    if (i == 0)
        sql_hold(conn);
    else
        CHECK(read(begun[0], &c, 1) == 1);
    do {
        CHECK(tries++ < 100);
        db_begin(conn, &flavour);
        rc = db_try_row(conn, once_text(), outcome, sizeof(outcome), &err);
        if (rc == 0 && strncmp(outcome, "first", 5) == 0)
            rc = db_try(conn, "UPDATE work SET n = n + 1 WHERE id = 1", &err);
        if (rc == 0)
            rc = db_try(conn, "COMMIT", &err);
        CHECK(rc == 0 || rc == IDEM_E_RETRY_TX || rc == IDEM_E_TX_LOST);
        if (rc != 0)
            db_rollback(conn);
    } while (rc != 0);
    db_close(conn);
}

TEST(of_those_who_ask_by_sql_at_the_same_moment_one_does_it) {
    struct idem_sql conn = db_open(NULL);

    CHECK(pipe(begun) == 0);
    db_do(conn, "INSERT INTO work VALUES (1, 0)");
    EACH_FLAVOUR(f) {
        flavour = f;
        for (int expired = 0; expired < 2 && db_kind != IDEM_SQL_SQLITE; expired++) {
            db_do(conn, "UPDATE work SET n = 0 WHERE id = 1");
            db_crowd(4, sql_meet);
            CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), 1);
            db_do(conn, expired ? "DELETE FROM idem_tx"
                                : "UPDATE idem_tx SET expires = '2001-01-01 00:00:00'");
        }
    }
    db_close(conn);
}

TEST(sql_meets_a_row_that_is_newer_than_its_snapshot) {
    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f), other = db_open(&f);
        char outcome[40];
        int rc;

        if (db_kind != IDEM_SQL_SQLITE) {
            db_begin(conn, &f);
            (void)db_ask(conn, "SELECT count(*) FROM work");
            db_do(other, once_text());
            rc = db_try_row(conn, once_text(), outcome, sizeof(outcome), &err);
            if (db_kind == IDEM_SQL_MYSQL || f.isolation == IDEM_ISOLATION_READ_COMMITTED)
                CHECK(rc == 0 && strncmp(outcome, "duplicate", 9) == 0);
            else
                CHECK_INT(rc, IDEM_E_RETRY_TX);
            db_rollback(conn);
            db_do(other, "DELETE FROM idem_tx");
        }
        db_close(conn);
        db_close(other);
    }
}

static void sql_refused(struct idem_sql conn, const char *call) {
    char sql[200];
    int rc;

    snprintf(sql, sizeof(sql), "%s %s", db_kind == IDEM_SQL_POSTGRES ? "SELECT" : "CALL", call);
    rc = db_try(conn, sql, &err);
    if (rc != IDEM_E_REFUSED)
        fprintf(stderr, "# %s\n", sql);
    CHECK_INT(rc, IDEM_E_REFUSED);
}

TEST(sql_refuses_what_c_refuses) {
    static const char *const bad[] = {
        "idem_once('', NULL, 'k', NULL)",
        "idem_once('p:', NULL, '', NULL)",
        "idem_once('p:', '', 'k', NULL)",
        "idem_once('p:', NULL, NULL, NULL)",
        "idem_once(NULL, NULL, 'k', NULL)",
        "idem_once('p:', NULL, repeat('k', 4097), NULL)",
        "idem_once('p:', repeat('s', 4097), 'k', NULL)",
        "idem_once(repeat('p', 129), NULL, 'k', NULL)",
        "idem_result('p:', NULL, concat('done', repeat('k', 4097)), 1, NULL)",
        "idem_result('p:', NULL, 'none', 1, NULL)",
        "idem_result('p:', NULL, 'done', 1, NULL)",
    };
    static const char *const lives[] = {
        [IDEM_SQL_POSTGRES] = "idem_once('p:', NULL, 'k', NULL, interval '-1 s')",
        [IDEM_SQL_MYSQL] = "idem_once_for('p:', NULL, 'k', NULL, 0)",
    };
    struct idem_sql conn = db_open(NULL);

    if (db_kind == IDEM_SQL_SQLITE) {
        CHECK_INT(db_try(conn, "SELECT idem_once()", &err), IDEM_E_REFUSED);
        db_close(conn);
        return;
    }
    db_do(conn, "DELETE FROM idem_tx");
    for (int i = 0; i < 2; i++) {
        const char *text = i == 0 ? "idem_once('p:', NULL, 'done', NULL)"
                                  : "idem_result('p:', NULL, 'done', 1, NULL)";

        db_dof(conn, "%s %s", db_kind == IDEM_SQL_POSTGRES ? "SELECT" : "CALL", text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        sql_refused(conn, bad[i]);
    sql_refused(conn, lives[db_kind]);
    /* A lax mode would cut a text that is too long, and take it for another. */
    if (db_kind == IDEM_SQL_MYSQL)
        db_do(conn, "SET SESSION sql_mode = ''");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        sql_refused(conn, bad[i]);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 1);
    db_close(conn);
}

DB_MAIN
