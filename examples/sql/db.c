/*
 * A database by URL, and statements on it.
 */
#include "db.h"

#include <err.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *db_url(int *argc, char **argv) {
    const char *url = getenv("IDEM_EXAMPLE_DB");

    if (*argc > 2 && strcmp(argv[1], "-d") == 0) {
        url = argv[2];
        memmove(argv + 1, argv + 3, (size_t)(*argc - 2) * sizeof(*argv)); /* with the NULL */
        *argc -= 2;
    }
    return url == NULL ? "sqlite:example.db" : url;
}

struct idem_sql db_open(const char *url) {
    struct idem_error error;
    struct idem_sql conn;

    if (idem_sql_open(url, &conn, &error) < 0)
        errx(1, "%s", error.text);
    return conn;
}

/* PostgreSQL: the places of values are numbered, and values are texts. */

static int postgres_say(struct idem_sql conn, struct db_answer *ret, const char *sql,
                        const struct idem_sql_value *values, size_t n) {
    char text[1000], numbers[10][24];
    const char *bound[10];
    size_t at = 0, place = 0;
    PGresult *res;
    int rc = 0;

    for (const char *c = sql; *c != '\0' && at < sizeof(text) - 5; c++) {
        if (*c == '?')
            at += (size_t)snprintf(text + at, 5, "$%zu", ++place);
        else
            text[at++] = *c;
    }
    text[at] = '\0';
    for (size_t i = 0; i < n; i++) {
        snprintf(numbers[i], sizeof(numbers[i]), "%lld", (long long)values[i].number);
        bound[i] = values[i].type == IDEM_SQL_INT ? numbers[i] : values[i].at;
    }
    res = PQexecParams(conn.at.pg, text, (int)n, NULL, bound, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
        rc = idem_sql_failure(conn, PQresultErrorField(res, PG_DIAG_SQLSTATE), NULL);
    ret->changed = strtoll(PQcmdTuples(res), NULL, 10);
    ret->found = PQntuples(res) > 0;
    snprintf(ret->text, sizeof(ret->text), "%s", ret->found ? PQgetvalue(res, 0, 0) : "");
    PQclear(res);
    return rc;
}

/* MySQL and MariaDB: a statement that is prepared. */

static bool mysql_run(MYSQL_STMT *stmt, struct db_answer *ret, const char *sql, MYSQL_BIND *bound) {
    my_bool null = 0;
    MYSQL_BIND cell = {.buffer_type = MYSQL_TYPE_STRING,
                       .buffer = ret->text,
                       .buffer_length = sizeof(ret->text) - 1,
                       .is_null = &null};

    if (mysql_stmt_prepare(stmt, sql, strlen(sql)) != 0 ||
        mysql_stmt_bind_param(stmt, bound) != 0 || mysql_stmt_execute(stmt) != 0)
        return false;
    ret->changed = (int64_t)mysql_stmt_affected_rows(stmt);
    if (mysql_stmt_field_count(stmt) == 0)
        return true;
    if (mysql_stmt_bind_result(stmt, &cell) != 0 || mysql_stmt_store_result(stmt) != 0)
        return false;
    ret->found = mysql_stmt_fetch(stmt) == 0;
    return true;
}

static int mysql_say(struct idem_sql conn, struct db_answer *ret, const char *sql,
                     const struct idem_sql_value *values, size_t n) {
    MYSQL_STMT *stmt = mysql_stmt_init(conn.at.mysql);
    MYSQL_BIND bound[10] = {0};
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        bool number = values[i].type == IDEM_SQL_INT;

        bound[i].buffer_type = number ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_STRING;
        bound[i].buffer = number ? (void *)&values[i].number : (void *)values[i].at;
        bound[i].buffer_length = values[i].len;
    }
    if (stmt == NULL || !mysql_run(stmt, ret, sql, bound))
        rc = idem_sql_failure(conn, NULL, NULL);
    if (stmt != NULL)
        mysql_stmt_close(stmt);
    return rc;
}

/* SQLite. */

static int sqlite_say(struct idem_sql conn, struct db_answer *ret, const char *sql,
                      const struct idem_sql_value *values, size_t n) {
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(conn.at.sqlite, sql, -1, &stmt, NULL);

    for (size_t i = 0; i < n && rc == SQLITE_OK; i++)
        rc = values[i].type == IDEM_SQL_INT ? sqlite3_bind_int64(stmt, (int)i + 1, values[i].number)
                                            : sqlite3_bind_text(stmt, (int)i + 1, values[i].at,
                                                                (int)values[i].len, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    ret->found = rc == SQLITE_ROW;
    if (ret->found)
        snprintf(ret->text, sizeof(ret->text), "%s", (const char *)sqlite3_column_text(stmt, 0));
    ret->changed = sqlite3_changes(conn.at.sqlite);
    rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : idem_sql_failure(conn, NULL, NULL);
    sqlite3_finalize(stmt);
    return rc;
}

int db_say(struct idem_sql conn, struct db_answer *ret, const char *sql,
           const struct idem_sql_value *values, size_t n) {
    struct db_answer own;

    if (ret == NULL)
        ret = &own;
    *ret = (struct db_answer){0};
    if (n > 10)
        errx(1, "%s: more than ten values", sql);
    return conn.kind == IDEM_SQL_POSTGRES ? postgres_say(conn, ret, sql, values, n)
           : conn.kind == IDEM_SQL_MYSQL  ? mysql_say(conn, ret, sql, values, n)
                                          : sqlite_say(conn, ret, sql, values, n);
}

void db_print(struct idem_sql conn, const char *sql, struct idem_sql_value value) {
    struct db_answer answer;
    int rc = db_say(conn, &answer, sql, &value, 1);

    if (rc < 0 || !answer.found)
        errx(1, "%s", rc < 0 ? idem_code_name(rc) : "there is none");
    printf("%s\n", answer.text);
}

void db_do(struct idem_sql conn, const char *sql) {
    int rc = db_say(conn, NULL, sql, NULL, 0);

    if (rc < 0)
        errx(1, "%s: %s", sql, idem_code_name(rc));
}

/* Keys and answers. */

struct idem_guard *db_guard(const char *prefix) {
    const struct idem_policy policy = {.prefix = prefix, .scope = IDEM_SCOPE_NONE};
    struct idem_guard *guard;
    struct idem_error error;

    if (idem_guard_new(NULL, &policy, &guard, &error) < 0)
        errx(1, "%s", error.text);
    return guard;
}

struct idem_args db_args(const char *key, const char *words) {
    return (struct idem_args){
        .key = key, .key_len = strlen(key), .fingerprint = words, .fingerprint_len = strlen(words)};
}

int db_tell(const struct idem_tx_answer *answer, const char *why) {
    switch (answer->verdict) {
    case IDEM_TX_FIRST:
    case IDEM_TX_HAPPENED:
    case IDEM_TX_DUPLICATE:
        printf("%s: %.*s\n", answer->verdict == IDEM_TX_DUPLICATE ? "duplicate" : "first",
               (int)answer->result_len, (const char *)answer->result);
        return 0;
    case IDEM_TX_MISMATCH:
        printf("refused: this key stands for something else\n");
        return 1;
    default:
        printf("refused: %s\n", why);
        return 1;
    }
}
