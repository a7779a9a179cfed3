/*
 * Examines a SQL server by a table of queries, each with its acceptable results. A query that is
 * not permitted is reported, and is no failure.
 */
#include "engines.h"

#if IDEM_HAVE_POSTGRES || IDEM_HAVE_MYSQL

#include <stdlib.h>
#include <string.h>
#if IDEM_HAVE_POSTGRES
#include <libpq-fe.h>
#endif
#if IDEM_HAVE_MYSQL
#include <mysql.h>
#endif

#include "cli/doctor/doctor.h"
#include "store/sql/sql_engine.h"
#include "tx/tx_dialect.h"

#define ANSWER 256

/* A query with a result of one column. */
struct question {
    enum idem_sql_kind kind;
    enum doctor_grade grade; /* of an unacceptable result */
    const char *check, *sql;
    const char *good; /* acceptable results, separated by spaces; NULL: any, and it is reported; "":
                         an empty one */
    const char *found, *todo;
};

#define PG IDEM_SQL_POSTGRES
#define MY IDEM_SQL_MYSQL

static const char forgets[] = "a crash forgets the last moments: what was done then may run again",
                  commits_todo[] = "ALTER ROLE ... SET synchronous_commit = on";

static const struct question questions[] = {
    {PG, DOCTOR_OK, "version", "SELECT 'PostgreSQL ' || current_setting('server_version')", NULL,
     NULL, NULL},
    {PG, DOCTOR_UNSAFE, "durability", "SELECT current_setting('fsync')", "on",
     "fsync is off: a crash of the machine may take the whole database", "set fsync = on"},
    {PG, DOCTOR_UNSAFE, "durability", "SELECT current_setting('full_page_writes')", "on",
     "full_page_writes is off: a crash of the machine may damage the database",
     "set full_page_writes = on"},
    {PG, DOCTOR_UNSAFE, "commits", "SELECT current_setting('synchronous_commit')",
     "on local remote_write remote_apply", forgets, commits_todo},
    {PG, DOCTOR_UNSAFE, "logging",
     "SELECT coalesce(string_agg(relname, ', '), 'logged') FROM pg_class WHERE oid IN "
     "(to_regclass('idem_record'), to_regclass('idem_counter'), to_regclass('idem_event'), "
     "to_regclass('idem_tx'), to_regclass('idem_meta')) AND relpersistence <> 'p'",
     "logged", "unlogged tables: a crash empties them, and what was done runs again",
     "ALTER TABLE ... SET LOGGED"},
    {PG, DOCTOR_NOTE, "user", "SELECT rolsuper::text FROM pg_roles WHERE rolname = current_user",
     "false", "the user is a superuser, who may more than a store needs",
     "a user with SELECT, INSERT, UPDATE and DELETE on the tables"},
    {PG, DOCTOR_BROKEN, "grants",
     "SELECT coalesce(string_agg(p || ' on ' || t, ', '), '') FROM "
     "unnest(ARRAY['idem_record', 'idem_counter', 'idem_event', 'idem_tx', 'idem_meta']) t, "
     "unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p "
     "WHERE to_regclass(t) IS NOT NULL AND NOT has_table_privilege(t, p)",
     "", "missing", "GRANT them to the user"},
    {MY, DOCTOR_OK, "version", "SELECT VERSION()", NULL, NULL, NULL},
    {MY, DOCTOR_UNSAFE, "commits", "SELECT @@global.innodb_flush_log_at_trx_commit", "1", forgets,
     "SET GLOBAL innodb_flush_log_at_trx_commit = 1"},
    {MY, DOCTOR_NOTE, "binary log", "SELECT IF(@@global.log_bin, @@global.sync_binlog, 1)", "1",
     "sync_binlog: replicas may miss the last transactions before a crash",
     "SET GLOBAL sync_binlog = 1"},
    {MY, DOCTOR_BROKEN, "binary log", "SELECT IF(@@global.log_bin, @@global.binlog_format, 'ROW')",
     "ROW MIXED", "binlog_format refuses every write at READ COMMITTED",
     "SET GLOBAL binlog_format = MIXED"},
    {MY, DOCTOR_BROKEN, "read only", "SELECT CONCAT(@@global.read_only)", "0 OFF",
     "the server is read only: not the primary", "name the primary"},
    {MY, DOCTOR_UNSAFE, "engine",
     "SELECT COALESCE(GROUP_CONCAT(DISTINCT engine), 'InnoDB') FROM information_schema.tables "
     "WHERE table_schema = DATABASE() AND table_name LIKE 'idem\\_%'",
     "InnoDB", "an engine without transactions", "ALTER TABLE ... ENGINE = InnoDB"},
};

static const char *doctor_sql_cell_text(const struct idem_sql_value *cell, char *buf, size_t size) {
    buf[0] = '\0';
    if (cell->type == IDEM_SQL_INT)
        snprintf(buf, size, "%lld", (long long)cell->number);
    else if (cell->type != IDEM_SQL_NULL)
        snprintf(buf, size, "%.*s", (int)cell->len, (const char *)cell->at);
    return buf;
}

/* Copies the cells of the first row as text; returns their number, 0 after a failure. */
static size_t doctor_sql_ask(struct idem_sql conn, const char *sql, char (*ret)[ANSWER], size_t n,
                             struct idem_error *err) {
    const struct idem_dialect *dialect = idem_dialect_of(conn, err);
    struct idem_reply reply;
    struct idem_query q;
    size_t got = 0;

    if (dialect == NULL)
        return 0;
    idem_query_begin(&q, conn, dialect);
    idem_query_add(&q, sql);
    if (idem_query_run(&q, &reply, err) == 0 && reply.rows > 0)
        for (; got < reply.columns && got < n; got++)
            doctor_sql_cell_text(&reply.cells[got], ret[got], ANSWER);
    idem_reply_release(&reply);
    idem_query_end(&q);
    return got;
}

/* True if a word is in a list separated by spaces; an empty word is in an empty list. */
static bool doctor_sql_list_has(const char *words, const char *word) {
    size_t len = strlen(word);

    if (words[0] == '\0' || len == 0)
        return words[0] == word[0];
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += len)
        if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

static void doctor_sql_question_ask(struct doctor *d, const char *subject, struct idem_sql conn,
                                    const struct question *question) {
    char answer[1][ANSWER];
    struct idem_error err = {0};

    if (doctor_sql_ask(conn, question->sql, answer, 1, &err) == 0)
        doctor_find(d, DOCTOR_NOTE, subject, question->check, NULL, "could not be asked for: %s",
                    err.text[0] == '\0' ? "no response" : err.text);
    else if (question->good == NULL)
        doctor_find(d, DOCTOR_OK, subject, question->check, NULL, "%s", answer[0]);
    else if (doctor_sql_list_has(question->good, answer[0]))
        doctor_find(d, DOCTOR_OK, subject, question->check, NULL, "%s",
                    answer[0][0] == '\0' ? "nothing is missing" : answer[0]);
    else
        doctor_find(d, question->grade, subject, question->check, question->todo, "%s (%s)",
                    question->found, answer[0]);
}

/* Checks the version of the tables. */
static void doctor_sql_tables_examine(struct doctor *d, const char *subject, struct idem_sql conn) {
    static const char todo[] = "idem migrate --store URL, as a user who may make tables";
    char answer[2][ANSWER], text[200];
    struct idem_error err = {0};

    if (doctor_sql_ask(conn, "SELECT version, oldest FROM idem_meta", answer, 2, &err) < 2) {
        doctor_find(d, DOCTOR_BROKEN, subject, "tables", todo,
                    "they are not there, or may not be read: %s",
                    err.text[0] == '\0' ? "idem_meta has no row" : err.text);
        return;
    }
    if (sql_schema_fits(strtoll(answer[0], NULL, 10), strtoll(answer[1], NULL, 10), text,
                        sizeof(text)))
        doctor_find(d, DOCTOR_OK, subject, "tables", NULL, "of version %s; this program knows %d",
                    answer[0], SQL_SCHEMA);
    else
        doctor_find(d, DOCTOR_BROKEN, subject, "tables", todo, "%s", text);
}

/* The number of the session as the client library knows it; behind a pooler the server reports
   another one. */
static long doctor_sql_session(struct idem_sql conn) {
#if IDEM_HAVE_POSTGRES
    if (conn.kind == IDEM_SQL_POSTGRES)
        return PQbackendPID(conn.at.pg);
#endif
#if IDEM_HAVE_MYSQL
    if (conn.kind == IDEM_SQL_MYSQL)
        return (long)mysql_thread_id(conn.at.mysql);
#endif
    return 0;
}

static void doctor_sql_pooler_examine(struct doctor *d, const char *subject, struct idem_sql conn) {
    const char *sql =
        conn.kind == IDEM_SQL_POSTGRES ? "SELECT pg_backend_pid()" : "SELECT CONNECTION_ID()";
    char answer[1][ANSWER];

    if (doctor_sql_ask(conn, sql, answer, 1, NULL) == 1 &&
        strtol(answer[0], NULL, 10) != doctor_sql_session(conn))
        doctor_find(d, DOCTOR_NOTE, subject, "pooler", "connect to the server itself, if you can",
                    "a pooler stands between: waiters are not woken but look for themselves, and "
                    "the statements of a lost connection may still take effect (docs/stores.md)");
}

static void doctor_sql_network_examine(struct doctor *d, const char *subject,
                                       const struct idem_url *url,
                                       const struct sql_engine *engine) {
    struct sql_config config;
    bool loopback = true;

    if (engine == NULL || sql_config_read(engine, url, &config, NULL) != 0)
        return;
    for (size_t i = 0; i < config.hosts_n; i++)
        loopback &= config.hosts[i].port == 0 || doctor_is_loopback(config.hosts[i].name);
    doctor_network(d, subject, loopback,
                   config.tls == SQL_TLS_REQUIRE || config.tls == SQL_TLS_VERIFY,
                   config.password != NULL || config.tls_cert != NULL);
    sql_config_release(&config);
}

static const struct sql_engine *doctor_sql_engine(enum cli_store_kind kind) {
#if IDEM_HAVE_POSTGRES
    if (kind == CLI_STORE_POSTGRES)
        return &sql_engine_postgres;
#endif
#if IDEM_HAVE_MYSQL
    if (kind == CLI_STORE_MYSQL)
        return &sql_engine_mysql;
#endif
    (void)kind;
    return NULL;
}

void doctor_sql(struct doctor *d, const char *subject, const char *text,
                const struct idem_url *url) {
    struct idem_error err;
    struct idem_sql conn;

    doctor_sql_network_examine(d, subject, url, doctor_sql_engine(cli_store_kind(text)));
    if (idem_sql_open(text, &conn, &err) != 0)
        return; /* doctor_store() reports the error */
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
        if (questions[i].kind == conn.kind)
            doctor_sql_question_ask(d, subject, conn, &questions[i]);
    doctor_sql_tables_examine(d, subject, conn);
    doctor_sql_pooler_examine(d, subject, conn);
    idem_sql_close(conn);
}

#endif
