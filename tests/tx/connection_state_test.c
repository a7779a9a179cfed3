/*
 * Connections in a state in which a guard cannot work; each engine has its own
 * such states.
 */
#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>

#include "db.h"
#include "test.h"

static struct idem_error err;

static int once(struct idem_sql conn) {
    struct idem_guard *guard = db_guard("odd:");
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;
    int rc = idem_tx_once(conn, guard, &args, &answer, &err);

    idem_guard_free(guard);
    return rc;
}

static void postgres_odd(struct idem_sql conn) {
    PGconn *pg = conn.at.pg;
    PGresult *result;

    /* A statement is under way: its results are the caller's. */
    db_begin(conn, NULL);
    CHECK_INT(PQsendQuery(pg, "SELECT 42"), 1);
    CHECK_INT(once(conn), IDEM_E_INVALID);
    CHECK_HAS(err.text, "PQgetResult()");
    result = PQgetResult(pg);
    CHECK_STR(PQgetvalue(result, 0, 0), "42");
    PQclear(result);
    CHECK(PQgetResult(pg) == NULL);
    /* A pipeline. */
    CHECK_INT(PQenterPipelineMode(pg), 1);
    CHECK_INT(once(conn), IDEM_E_INVALID);
    CHECK_HAS(err.text, "pipeline");
    CHECK_INT(PQexitPipelineMode(pg), 1);
    /* A non-blocking connection is fine, and so is one with short errors. */
    PQsetnonblocking(pg, 1);
    PQsetErrorVerbosity(pg, PQERRORS_TERSE);
    CHECK_INT(once(conn), 0);
    PQsetnonblocking(pg, 0);
    /* A transaction that has failed. */
    CHECK_INT(db_try(conn, "SELECT 1 / 0", &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "22012");
    CHECK_INT(once(conn), IDEM_E_INVALID);
    CHECK_HAS(err.text, "roll it back");
    db_rollback(conn);
    /* The codes for failures of a user's own statement. */
    CHECK_INT(idem_sql_failure(conn, "40001", &err), IDEM_E_RETRY_TX);
    CHECK_INT(idem_sql_failure(conn, "40P01", &err), IDEM_E_RETRY_TX);
    CHECK_INT(idem_sql_failure(conn, "55P03", &err), IDEM_E_RETRY_TX);
    CHECK_INT(idem_sql_failure(conn, "53100", &err), IDEM_E_FULL);
    CHECK_INT(idem_sql_failure(conn, "23505", &err), IDEM_E_REFUSED);
    CHECK_INT(idem_sql_failure(conn, NULL, &err), IDEM_E_INVALID);
    /* The transaction ends with its connection. */
    db_begin(conn, NULL);
    CHECK_INT(db_try(conn, "SELECT pg_terminate_backend(pg_backend_pid())", &err), IDEM_E_REFUSED);
    CHECK_INT(once(conn), IDEM_E_REFUSED);
    CHECK_INT(idem_sql_failure(conn, "57P01", &err), IDEM_E_UNKNOWN);
}

static void mysql_odd(struct idem_sql conn) {
    MYSQL *my = conn.at.mysql;
    MYSQL_RES *result;

    /* Results that are still to be read. */
    db_begin(conn, NULL);
    CHECK_INT(mysql_query(my, "SELECT 1 UNION SELECT 2"), 0);
    result = mysql_use_result(my);
    CHECK_INT(once(conn), IDEM_E_INVALID);
    CHECK_HAS(err.text, "results");
    while (mysql_fetch_row(result) != NULL)
        ;
    mysql_free_result(result);
    CHECK_INT(once(conn), 0);
    db_rollback(conn);
    /* Without autocommit, the guard's own statement begins the transaction. */
    db_do(conn, "SET autocommit = 0");
    CHECK_INT(once(conn), 0);
    db_rollback(conn);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 0);
    db_rollback(conn);
    db_do(conn, "SET autocommit = 1");
    /* The code for a failure of a user's own statement: the SQLSTATE of a deadlock alone does not
     * mean that the transaction is lost. */
    db_begin(conn, NULL);
    CHECK(mysql_query(my, "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213") != 0);
    CHECK_INT(idem_sql_failure(conn, NULL, &err), IDEM_E_RETRY_TX);
    db_rollback(conn);
    CHECK(mysql_query(my, "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213") != 0);
    CHECK_INT(idem_sql_failure(conn, NULL, &err), IDEM_E_TX_LOST);
    db_begin(conn, NULL);
    CHECK(mysql_query(my, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1020") != 0);
    CHECK_INT(idem_sql_failure(conn, NULL, &err), IDEM_E_RETRY_TX);
    CHECK(mysql_query(my, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205") != 0);
    CHECK_INT(idem_sql_failure(conn, NULL, &err), IDEM_E_RETRY_TX);
    db_rollback(conn);
    /* The transaction ends with its connection. */
    db_begin(conn, NULL);
    CHECK_INT(db_try(conn, "KILL CONNECTION_ID()", &err), IDEM_E_REFUSED);
    CHECK_INT(once(conn), IDEM_E_REFUSED);
    CHECK(mysql_query(my, "SELECT 1") != 0);
    CHECK_INT(idem_sql_failure(conn, NULL, &err), IDEM_E_UNKNOWN);
}

static void sqlite_odd(struct idem_sql conn) {
    struct idem_sql other = db_open(NULL);

    db_do(conn, "PRAGMA journal_mode = WAL");
    sqlite3_busy_timeout(conn.at.sqlite, 50);
    /* A transaction that has only read, and one that has not even read. */
    db_do(conn, "BEGIN");
    CHECK_INT(once(conn), IDEM_E_INVALID);
    CHECK_HAS(err.text, "BEGIN IMMEDIATE");
    db_ask(conn, "SELECT count(*) FROM work");
    CHECK_INT(once(conn), IDEM_E_INVALID);
    CHECK_HAS(err.text, "does not write yet");
    /* The reason: such a transaction can no longer become a writer, however long it waits. */
    db_do(other, "INSERT INTO work VALUES (77, 0)");
    CHECK_INT(db_try(conn, "INSERT INTO work VALUES (78, 0)", &err), IDEM_E_RETRY_TX);
    CHECK_HAS(err.text, "517"); /* SQLITE_BUSY_SNAPSHOT */
    CHECK_INT(idem_sql_failure(conn, NULL, &err), IDEM_E_RETRY_TX);
    db_rollback(conn);
    /* A transaction that has written is fine. */
    db_do(conn, "BEGIN");
    db_do(conn, "INSERT INTO work VALUES (78, 0)");
    CHECK_INT(once(conn), 0);
    db_rollback(conn);
    db_close(other);
    /* A statement that rolls the transaction back. */
    db_begin(conn, NULL);
    CHECK_INT(db_try(conn, "INSERT OR ROLLBACK INTO work VALUES (77, 0)", &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "rolled the transaction back");
    CHECK_INT(once(conn), IDEM_E_INVALID);
    CHECK_HAS(err.text, "no transaction");
}

TEST(a_connection_that_is_no_good_is_refused_with_its_reason) {
    struct idem_sql conn = db_open(NULL);

    if (db_kind == IDEM_SQL_POSTGRES)
        postgres_odd(conn);
    else if (db_kind == IDEM_SQL_MYSQL)
        mysql_odd(conn);
    else
        sqlite_odd(conn);
    db_close(conn);
}

static int leaves_pipeline(struct idem_tx *tx, void *data) {
    (void)data;
    return PQenterPipelineMode(idem_tx_conn(tx).at.pg) == 1 ? 0 : 1;
}

static int leaves_results(struct idem_tx *tx, void *data) {
    MYSQL *my = idem_tx_conn(tx).at.mysql;

    (void)data;
    CHECK_INT(mysql_set_server_option(my, MYSQL_OPTION_MULTI_STATEMENTS_ON), 0);
    return mysql_query(my, "UPDATE work SET n = n + 1; UPDATE work SET n = n + 1");
}

static int leaves_select(struct idem_tx *tx, void *data) {
    (void)tx;
    (void)data;
    return 0;
}

/* The error states that the transaction is open, and names the key. The outcome is never
 * unknown, because no COMMIT was sent. */
TEST(a_function_that_leaves_its_connection_unusable_is_told) {
    static idem_tx_fn *const fns[] = {[IDEM_SQL_POSTGRES] = leaves_pipeline,
                                      [IDEM_SQL_MYSQL] = leaves_results,
                                      [IDEM_SQL_SQLITE] = leaves_select};
    const struct idem_tx_options once_only = {.attempts = 1};
    struct idem_sql conn = db_open(NULL), other = db_open(NULL);
    struct idem_guard *guard = db_guard("leaves:");
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;
    sqlite3_stmt *stmt = NULL;

    if (db_kind == IDEM_SQL_SQLITE) { /* a SELECT of an older state of the file */
        db_do(conn, "PRAGMA journal_mode = WAL");
        db_do(conn, "INSERT INTO work VALUES (90, 0), (91, 0)");
        CHECK_INT(sqlite3_prepare_v2(conn.at.sqlite, "SELECT id FROM work", -1, &stmt, NULL), 0);
        CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
        db_do(other, "INSERT INTO work VALUES (92, 0)");
    }
    CHECK_INT(idem_tx_call(conn, guard, &args, &once_only, fns[db_kind], NULL, &answer, &err),
              stmt != NULL ? IDEM_E_RETRY_TX : IDEM_E_INVALID);
    CHECK_HAS(err.text, stmt != NULL ? "sqlite3_reset()" : "still open");
    sqlite3_finalize(stmt);
    db_close(conn);
    CHECK_INT(idem_tx_outcome(other, guard, &args, 120000, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_NEVER);
    db_close(other);
    idem_guard_free(guard);
}

/* A disk that fails at COMMIT. */

static sqlite3_io_methods broken;
static bool breaks;
static const sqlite3_io_methods *sound;

static int write_breaks(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at) {
    return breaks ? SQLITE_IOERR_WRITE : sound->xWrite(file, bytes, n, at);
}

static int breaks_now(struct idem_tx *tx, void *data) {
    (void)data;
    db_do(idem_tx_conn(tx), "INSERT INTO work VALUES (60, 0)");
    breaks = true; /* the file itself is written only at COMMIT */
    return 0;
}

TEST(a_commit_that_the_disk_fails_is_unknown) {
    struct idem_sql conn = db_open(NULL);
    struct idem_guard *guard = db_guard("disk:");
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;
    sqlite3_file *file = NULL;

    if (db_kind == IDEM_SQL_SQLITE) {
        db_do(conn, "PRAGMA journal_mode = DELETE");
        CHECK_INT(sqlite3_file_control(conn.at.sqlite, "main", SQLITE_FCNTL_FILE_POINTER, &file),
                  SQLITE_OK);
        sound = file->pMethods;
        broken = *sound;
        broken.xWrite = write_breaks;
        file->pMethods = &broken;
        CHECK_INT(idem_tx_call(conn, guard, &args, NULL, breaks_now, NULL, &answer, &err),
                  IDEM_E_UNKNOWN);
        CHECK_HAS(err.text, "idem_tx_outcome()");
        breaks = false;
        file->pMethods = sound;
        CHECK_INT(idem_tx_outcome(conn, guard, &args, 0, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_NEVER);
        CHECK_INT(db_ask(conn, "SELECT count(*) FROM work WHERE id = 60"), 0);
    }
    db_close(conn);
    idem_guard_free(guard);
}

/* The error leaves out texts that quote a value. */
TEST(an_error_of_the_server_does_not_show_a_value) {
    static const char *const texts[][2] = {
        [IDEM_SQL_POSTGRES] = {"SELECT CAST('hush' AS int)",
                               "DO $$ BEGIN RAISE EXCEPTION 'hush'; END $$"},
        [IDEM_SQL_MYSQL] = {"SELECT EXTRACTVALUE('hush', 'hush(')",
                            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'hush'"},
        [IDEM_SQL_SQLITE] = {"SELECT json('hush')", "SELECT json_set('{}', 'hush')"},
    };
    struct idem_sql conn = db_open(NULL);

    for (int i = 0; i < 2; i++) {
        CHECK_INT(db_try(conn, texts[db_kind][i], &err), IDEM_E_REFUSED);
        CHECK(strstr(err.text, "hush") == NULL);
    }
    db_close(conn);
}

DB_MAIN
