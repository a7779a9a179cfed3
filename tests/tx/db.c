/*
 * A database for the tests of guards and recipes.
 */
#include "db.h"

#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "store/sql/client.h"
#include "store/sql/farm.h"
#include "temp.h"
#include "tx/tx_dialect.h"
#include "wait.h"

enum idem_sql_kind db_kind;
static struct farm farm;
static char sqlite_path[400];

static void need(bool there, const char *what) {
    if (there)
        return;
    fprintf(stderr, "# a test needs %s\n", what);
    exit(1);
}

/* Checks for deadlocks sooner than by default. */
static const char *const postgres_settings[] = {"deadlock_timeout=100ms", NULL};

static const struct {
    const char *name;
    enum idem_sql_kind kind;
} names[] = {
    {"postgres", IDEM_SQL_POSTGRES}, {"mysql", IDEM_SQL_MYSQL}, {"sqlite", IDEM_SQL_SQLITE}};

struct flavour flavour_next(const struct flavour *before) {
    static const enum idem_isolation levels[] = {
        IDEM_ISOLATION_READ_COMMITTED, IDEM_ISOLATION_REPEATABLE_READ, IDEM_ISOLATION_SERIALIZABLE};
    int n = before == NULL ? 0 : before->n + 1;

    if (n >= (db_kind == IDEM_SQL_SQLITE ? 1 : 6))
        return (struct flavour){.n = -1};
    return (struct flavour){.n = n, .isolation = levels[n % 3], .odd = n >= 3};
}

/* Connections. */

static struct idem_sql postgres_open(const char *socket, const struct flavour *flavour) {
    char text[600];
    PGconn *conn;

    snprintf(text, sizeof(text), "host=%s port=%d user=%s dbname=%s", socket, SERVER_POSTGRES_PORT,
             CLIENT_OWNER, SERVER_DB);
    conn = PQconnectdb(text);
    if (PQstatus(conn) != CONNECTION_OK)
        fprintf(stderr, "# %s\n", PQerrorMessage(conn));
    need(PQstatus(conn) == CONNECTION_OK, "a connection");
    if (flavour != NULL && flavour->odd)
        db_do(idem_sql_pg(conn), "SET bytea_output = escape");
    return idem_sql_pg(conn);
}

static struct idem_sql mysql_start(const char *socket, const struct flavour *flavour) {
    bool odd = flavour != NULL && flavour->odd;
    MYSQL *conn = mysql_init(NULL);

    need(conn != NULL, "memory");
    mysql_options(conn, MYSQL_SET_CHARSET_NAME, odd ? "latin1" : "utf8mb4");
    if (mysql_real_connect(conn, NULL, CLIENT_OWNER, NULL, SERVER_DB, 0, socket,
                           odd ? CLIENT_FOUND_ROWS : 0) == NULL) {
        fprintf(stderr, "# %s\n", mysql_error(conn));
        exit(1);
    }
    if (odd)
        db_do(idem_sql_mysql(conn), "SET SESSION sql_mode = "
                                    "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'");
    return idem_sql_mysql(conn);
}

static struct idem_sql sqlite_open(void) {
    sqlite3 *conn;

    need(sqlite3_open(sqlite_path, &conn) == SQLITE_OK, sqlite_path);
    sqlite3_busy_timeout(conn, 120000);
    sqlite3_exec(conn, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    return idem_sql_sqlite(conn);
}

struct idem_sql db_open(const struct flavour *flavour) {
    return db_kind == IDEM_SQL_POSTGRES ? postgres_open(farm.server.socket, flavour)
           : db_kind == IDEM_SQL_MYSQL  ? mysql_start(farm.server.socket, flavour)
                                        : sqlite_open();
}

struct idem_sql db_open_by(const char *socket) {
    return db_kind == IDEM_SQL_POSTGRES ? postgres_open(socket, NULL) : mysql_start(socket, NULL);
}

const char *db_socket(void) {
    return farm.server.socket;
}

void db_close(struct idem_sql conn) {
    if (conn.kind == IDEM_SQL_POSTGRES)
        PQfinish(conn.at.pg);
    else if (conn.kind == IDEM_SQL_MYSQL)
        mysql_close(conn.at.mysql);
    else
        need(sqlite3_close(conn.at.sqlite) == SQLITE_OK,
             "statements that are ended"); /* nothing of the test's is left on it */
}

/* Statements. */

static void must(int rc, const struct idem_error *err, const char *sql) {
    if (rc != 0)
        fprintf(stderr, "# %s\n# in: %s\n", err->text, sql);
    if (rc != 0)
        exit(1);
}

/* A CALL returns one more result after its rows. */
static void results_drop(MYSQL *conn) {
    while (mysql_next_result(conn) == 0)
        mysql_free_result(mysql_store_result(conn));
}

static int query(struct idem_sql conn, const char *sql, struct idem_reply *ret,
                 struct idem_error *err) {
    struct idem_query q;
    int rc;

    idem_query_begin(&q, conn, idem_dialect_find(conn.kind));
    idem_query_add(&q, sql);
    rc = idem_query_run(&q, ret, err);
    idem_query_end(&q);
    if (rc == 0 && conn.kind == IDEM_SQL_MYSQL)
        results_drop(conn.at.mysql);
    return rc;
}

int db_try_row(struct idem_sql conn, const char *sql, char *out, size_t size,
               struct idem_error *err) {
    struct idem_reply reply;
    size_t at = 0;
    int rc = query(conn, sql, &reply, err);

    out[0] = '\0';
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < reply.columns && at < size; i++) {
        const struct idem_sql_value *cell = &reply.cells[i];
        const char *blank = i == 0 ? "" : " ";

        if (cell->type == IDEM_SQL_TEXT)
            at += (size_t)snprintf(out + at, size - at, "%s%s", blank, (const char *)cell->at);
        else
            at += (size_t)snprintf(out + at, size - at, "%s%lld", blank,
                                   cell->type == IDEM_SQL_NULL    ? -1LL
                                   : cell->type == IDEM_SQL_BYTES ? (long long)cell->len
                                                                  : (long long)cell->number);
    }
    idem_reply_release(&reply);
    return 0;
}

const char *db_row(struct idem_sql conn, const char *sql, char *out, size_t size) {
    struct idem_error err;

    must(db_try_row(conn, sql, out, size, &err), &err, sql);
    return out;
}

int db_try(struct idem_sql conn, const char *sql, struct idem_error *err) {
    struct idem_reply reply;
    int rc = query(conn, sql, &reply, err);

    idem_reply_release(&reply);
    return rc;
}

void db_do(struct idem_sql conn, const char *sql) {
    struct idem_error err;

    must(db_try(conn, sql, &err), &err, sql);
}

int64_t db_ask(struct idem_sql conn, const char *sql) {
    struct idem_reply reply;
    struct idem_error err;
    int64_t n;

    must(query(conn, sql, &reply, &err), &err, sql);
    n = reply.rows == 0 ? -1 : idem_cell_number(&reply.cells[0]);
    idem_reply_release(&reply);
    return n;
}

void db_dof(struct idem_sql conn, const char *format, ...) {
    char sql[1000];
    va_list args;

    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    db_do(conn, sql);
}

int64_t db_askf(struct idem_sql conn, const char *format, ...) {
    char sql[1000];
    va_list args;

    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    return db_ask(conn, sql);
}

void db_begin(struct idem_sql conn, const struct flavour *flavour) {
    struct idem_error err;

    must(idem_dialect_find(conn.kind)->begin(conn, flavour == NULL ? 0 : flavour->isolation, &err),
         &err, "BEGIN");
}

void db_commit(struct idem_sql conn) {
    db_do(conn, "COMMIT");
}

void db_rollback(struct idem_sql conn) {
    struct idem_error err;

    must(idem_dialect_find(conn.kind)->rollback(conn, &err), &err, "ROLLBACK");
}

void db_hurry(struct idem_sql conn) {
    if (conn.kind == IDEM_SQL_POSTGRES)
        db_do(conn, "SET lock_timeout = '100ms'");
    else if (conn.kind == IDEM_SQL_MYSQL)
        db_do(conn, "SET SESSION innodb_lock_wait_timeout = 1");
    else
        sqlite3_busy_timeout(conn.at.sqlite, 50);
}

struct idem_guard *db_guard(const char *prefix) {
    const struct idem_policy policy = {.prefix = prefix, .scope = IDEM_SCOPE_NONE};
    struct idem_guard *guard;
    struct idem_error err;

    must(idem_guard_new(NULL, &policy, &guard, &err), &err, prefix);
    return guard;
}

struct idem_args db_key(const char *key) {
    return (struct idem_args){.key = key, .key_len = strlen(key)};
}

long db_session(struct idem_sql conn) {
    return conn.kind == IDEM_SQL_POSTGRES ? PQbackendPID(conn.at.pg)
                                          : (long)mysql_thread_id(conn.at.mysql);
}

int db_session_end(struct idem_sql conn, long session, struct idem_error *err) {
    char sql[64];

    snprintf(sql, sizeof(sql),
             conn.kind == IDEM_SQL_POSTGRES ? "SELECT pg_terminate_backend(%ld)" : "KILL %ld",
             session);
    return db_try(conn, sql, err);
}

void db_crowd(int n, void (*fn)(int i)) {
    int status, bad = 0;

    fflush(NULL);
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();

        need(pid >= 0, "a process");
        if (pid == 0) {
            alarm(WAIT_LIMIT_S);
            fn(i);
            exit(0);
        }
    }
    for (int i = 0; i < n; i++) {
        need(wait(&status) > 0, "its end");
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    need(bad == 0, "that all of a crowd end well");
}

/* The whole. */

static void tables_make(void) {
    struct idem_sql conn = db_open(NULL);
    struct idem_error err;

    must(idem_sql_migrate(conn, &err), &err, "migrate");
    db_do(conn, "CREATE TABLE work (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)");
    db_close(conn);
}

static void server_begin(const char *const *settings, bool durable) {
    farm_start_with(&farm, db_kind == IDEM_SQL_POSTGRES ? FARM_PG_SOCKET : FARM_MY_SOCKET,
                    temp_folder(), -1, settings, durable);
}

void db_server_own(const char *const *settings) {
    server_begin(settings, true); /* in a directory of this process's own */
    tables_make();
}

void db_server_kill(void) {
    farm_kill(&farm);
}

void db_server_restart(void) {
    farm_restart(&farm);
}

void db_server_end(void) {
    farm_stop(&farm);
}

void db_url(char *url, size_t size) {
    if (db_kind == IDEM_SQL_SQLITE)
        snprintf(url, size, "sqlite:%s", sqlite_path);
    else
        farm_url_as(&farm, FARM_OWNER, FARM_PATIENT, url, size);
}

static void engine_choose(void) {
    const char *wanted = getenv("IDEM_TEST_SQL");

    db_kind = IDEM_SQL_SQLITE;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (wanted != NULL && strcmp(wanted, names[i].name) == 0)
            db_kind = names[i].kind;
    }
}

void db_start(void) {
    engine_choose();
    if (db_kind == IDEM_SQL_SQLITE)
        snprintf(sqlite_path, sizeof(sqlite_path), "%s/test.db", temp_folder());
    else
        server_begin(db_kind == IDEM_SQL_POSTGRES ? postgres_settings : NULL, false);
    tables_make();
}

void db_stop(void) {
    if (db_kind != IDEM_SQL_SQLITE)
        farm_stop(&farm);
}
