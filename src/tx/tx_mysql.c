/*
 * MySQL and MariaDB, by MariaDB's Connector/C, with blocking calls on the caller's connection.
 *
 * Values are literals in the statement: numbers, or hexadecimal digits, which every sql_mode and
 * character set reads the same way. That takes one round trip, where a prepared statement takes
 * two, and nothing stays on the server. Errors contain the server's text only if it quotes no
 * value.
 *
 * A conflict is an error here (1062), because INSERT IGNORE would hide other errors as well. An
 * error packet does not show whether the transaction is still open, so after a deadlock or a
 * timeout one more statement asks the server.
 */
#include <errno.h>
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "tx/tx_dialect.h"

#define BINARY_CHARSET 63

static bool mysql_in_transaction(MYSQL *conn) {
    return (conn->server_status & SERVER_STATUS_IN_TRANS) != 0;
}

/* With autocommit off, the next statement begins a transaction. */
static bool mysql_is_inside(MYSQL *conn) {
    return mysql_in_transaction(conn) || (conn->server_status & SERVER_STATUS_AUTOCOMMIT) == 0;
}

static int mysql_connection_lost(MYSQL *conn, unsigned number, bool inside,
                                 struct idem_error *err) {
    if (inside)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "the connection to MySQL was lost (%u: %s), and the transaction with "
                              "it",
                              number, mysql_error(conn));
    return idem_error_set(err, IDEM_E_UNKNOWN,
                          "the connection to MySQL was lost before it answered (%u: %s)", number,
                          mysql_error(conn));
}

/* `inside`: a transaction was open before the statement. */
static int mysql_failure_report(MYSQL *conn, bool inside, enum idem_sql_why *ret_why,
                                struct idem_error *err) {
    unsigned number = mysql_errno(conn);
    const struct sql_failure *f = mysql_failure_find(number);
    const char *what = f->text != NULL ? f->text : mysql_error(conn);
    int rc;

    *ret_why = f->why;
    if (f->why == IDEM_WHY_CONNECTION)
        return mysql_connection_lost(conn, number, inside, err);
    rc = idem_error_set(err, f->code, "MySQL refused a statement (%u): %s%s%s", number, what,
                        f->help == NULL ? "" : "; ", f->help == NULL ? "" : f->help);
    if (rc != IDEM_E_RETRY_TX || !inside)
        return rc;
    /* mysql_ping() would not do: it does not read the server's status flags. */
    if (mysql_real_query(conn, "DO 0", strlen("DO 0")) == 0 && mysql_in_transaction(conn))
        return rc;
    *ret_why = IDEM_WHY_NONE;
    return idem_error_set(err, IDEM_E_TX_LOST,
                          "MySQL has rolled the transaction back (%u): %s; begin it anew", number,
                          what);
}

/* The transaction flag of a connection outlives the connection, so the socket is checked. */
static int mysql_connection_check(MYSQL *conn, struct idem_error *err) {
    if (mysql_get_socket(conn) != MARIADB_INVALID_SOCKET)
        return 0;
    return idem_error_set(err, IDEM_E_REFUSED, "the connection to MySQL is not open");
}

static int mysql_inside(struct idem_sql conn, struct idem_error *err) {
    int rc = mysql_connection_check(conn.at.mysql, err);

    if (rc != 0 || mysql_is_inside(conn.at.mysql))
        return rc;
    return idem_error_set(err, IDEM_E_INVALID,
                          "no transaction is open: START TRANSACTION first, or it was lost");
}

static int mysql_outside(struct idem_sql conn, struct idem_error *err) {
    int rc = mysql_connection_check(conn.at.mysql, err);

    return rc == 0 && mysql_in_transaction(conn.at.mysql) ? idem_outside_failed(err) : rc;
}

static void query_append_hex(struct idem_query *q, const char *before,
                             const struct idem_sql_value *value) {
    idem_query_add(q, before);
    idem_query_hex(q, value);
    idem_query_add(q, "'");
}

static void mysql_value(struct idem_query *q, const struct idem_sql_value *value) {
    char number[24];

    switch (value->type) {
    case IDEM_SQL_INT:
        snprintf(number, sizeof(number), "%lld", (long long)value->number);
        idem_query_add(q, number);
        break;
    case IDEM_SQL_TEXT:
        query_append_hex(q, "_utf8mb4 X'", value);
        break;
    case IDEM_SQL_BYTES:
        query_append_hex(q, "X'", value);
        break;
    default:
        idem_query_add(q, "NULL");
    }
}

static bool value_is_digits(const struct idem_sql_value *value) {
    const char *at = value->at;
    size_t n = value->len, i = n > 0 && at[0] == '-';

    while (i < n && (at[i] >= '0' && at[i] <= '9'))
        i++;
    if (i + 1 < n && at[i] == '.')
        i++;
    while (i < n && (at[i] >= '0' && at[i] <= '9'))
        i++;
    return i == n && n > 0;
}

/* MySQL compares a text and a number as numbers, so that '7abc' equals 7. A number is therefore
   also compared as text. A text that is not a number must not match a numeric column: a column is
   numeric if its HEX() differs from the HEX() of its digits. */
static void mysql_same(struct idem_query *q, const char *column,
                       const struct idem_sql_value *value) {
    char number[32];

    if (value->type == IDEM_SQL_INT) {
        idem_query_add(q, " AND ");
        idem_query_column(q, column);
        snprintf(number, sizeof(number), " = '%lld'", (long long)value->number);
        idem_query_add(q, number);
    } else if (value->type == IDEM_SQL_BYTES || !value_is_digits(value)) {
        idem_query_add(q, " AND HEX(");
        idem_query_column(q, column);
        idem_query_add(q, ") = HEX(CONCAT(");
        idem_query_column(q, column);
        idem_query_add(q, "))");
    }
}

static bool mysql_field_is_number(const MYSQL_FIELD *field) {
    switch (field->type) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
        return true;
    default:
        return false;
    }
}

/* Dates and decimals have the binary character set, too, but only strings with it are bytes. */
static bool mysql_field_is_bytes(const MYSQL_FIELD *field) {
    return field->charsetnr == BINARY_CHARSET &&
           (field->type == MYSQL_TYPE_STRING || field->type == MYSQL_TYPE_VAR_STRING ||
            (field->type >= MYSQL_TYPE_TINY_BLOB && field->type <= MYSQL_TYPE_BLOB));
}

/* False for an unsigned value above INT64_MAX, which stays text. */
static bool mysql_integer_read(const char *digits, int64_t *ret) {
    errno = 0;
    *ret = strtoll(digits, NULL, 10);
    return errno == 0;
}

static int mysql_row_read(MYSQL_RES *result, struct idem_reply *ret, struct idem_error *err) {
    struct idem_sql_value cells[IDEM_SQL_COLUMNS_MAX];
    MYSQL_ROW row = mysql_fetch_row(result);
    unsigned long *lengths = mysql_fetch_lengths(result);
    const MYSQL_FIELD *fields = mysql_fetch_fields(result);
    unsigned n = mysql_num_fields(result);

    if (row == NULL || lengths == NULL)
        return 0;
    if (n > IDEM_SQL_COLUMNS_MAX)
        n = IDEM_SQL_COLUMNS_MAX;
    for (unsigned i = 0; i < n; i++) {
        cells[i] = (struct idem_sql_value){.type = IDEM_SQL_NULL};
        if (row[i] == NULL)
            continue;
        if (mysql_field_is_number(&fields[i]) && mysql_integer_read(row[i], &cells[i].number))
            cells[i].type = IDEM_SQL_INT;
        else
            cells[i] = (struct idem_sql_value){
                .type = mysql_field_is_bytes(&fields[i]) ? IDEM_SQL_BYTES : IDEM_SQL_TEXT,
                .at = row[i],
                .len = lengths[i]};
    }
    return idem_reply_row(ret, cells, n, err);
}

static int mysql_run(struct idem_query *q, struct idem_reply *ret, struct idem_error *err) {
    MYSQL *conn = q->conn.at.mysql;
    bool inside = mysql_is_inside(conn);
    MYSQL_RES *result;
    int rc = 0;

    if (mysql_real_query(conn, q->text.at, q->text.len) != 0)
        return mysql_failure_report(conn, inside, &ret->why, err);
    result = mysql_store_result(conn);
    if (result == NULL && mysql_field_count(conn) != 0)
        return mysql_failure_report(conn, inside, &ret->why, err);
    if (result != NULL) {
        ret->rows = (size_t)mysql_num_rows(result);
        rc = mysql_row_read(result, ret, err);
        mysql_free_result(result);
    } else {
        ret->changed = (int64_t)mysql_affected_rows(conn);
        ret->warned = mysql_warning_count(conn) > 0;
    }
    return rc;
}

static int mysql_failure(struct idem_sql conn, const char *sqlstate, struct idem_error *err) {
    MYSQL *my = conn.at.mysql;
    unsigned number = mysql_errno(my);
    enum idem_sql_why why;

    (void)sqlstate;
    /* The lost statement may have been a COMMIT. */
    if (mysql_failure_find(number)->why == IDEM_WHY_CONNECTION)
        return mysql_connection_lost(my, number, false, err);
    return mysql_failure_report(my, true, &why, err);
}

static int mysql_begin(struct idem_sql conn, enum idem_isolation isolation,
                       struct idem_error *err) {
    static const char *const texts[] = {
        NULL,
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    };
    int rc = 0;

    if (texts[isolation] != NULL)
        rc = idem_query_do(conn, &idem_dialect_mysql, texts[isolation], err);
    return rc != 0 ? rc : idem_query_do(conn, &idem_dialect_mysql, "START TRANSACTION", err);
}

#define NO_SAVEPOINT 1305

/* The error of a failed COMMIT does not show whether it happened; only the deadlock of a cluster
   does. */
static int mysql_end(struct idem_sql conn, struct idem_error *err) {
    MYSQL *my = conn.at.mysql;
    enum idem_sql_why ignored;
    struct idem_error why;

    if (mysql_real_query(my, IDEM_TX_UNMARK, strlen(IDEM_TX_UNMARK)) != 0)
        return mysql_errno(my) == NO_SAVEPOINT ? idem_mark_gone(err)
                                               : mysql_failure_report(my, true, &ignored, err);
    if (mysql_real_query(my, "COMMIT", strlen("COMMIT")) == 0)
        return 0;
    if (mysql_errno(my) == 1213)
        return mysql_failure_report(my, true, &ignored, err);
    (void)mysql_failure_report(my, true, &ignored, &why);
    return idem_error_set(err, IDEM_E_UNKNOWN,
                          "COMMIT was not answered, or not clearly (%s): connect anew, and ask "
                          "idem_tx_outcome()",
                          why.text);
}

static int mysql_undo(struct idem_sql conn, struct idem_error *err) {
    if (mysql_real_query(conn.at.mysql, "ROLLBACK", strlen("ROLLBACK")) == 0 ||
        mysql_failure_find(mysql_errno(conn.at.mysql))->why == IDEM_WHY_CONNECTION)
        return 0;
    return idem_rollback_failed(err);
}

static int mysql_wait_set(struct idem_sql conn, const char *seconds, struct idem_error *err) {
    char text[96];

    snprintf(text, sizeof(text), "SET SESSION innodb_lock_wait_timeout = %s", seconds);
    return idem_query_do(conn, &idem_dialect_mysql, text, err);
}

/* MySQL counts the limit in whole seconds. */
static int mysql_wait_begin(struct idem_sql conn, struct idem_wait *wait, struct idem_error *err) {
    char seconds[24];
    int64_t before;
    int rc = idem_query_number(conn, &idem_dialect_mysql,
                               "SELECT @@SESSION.innodb_lock_wait_timeout", NULL, &before, err);

    if (rc != 0)
        return rc;
    snprintf(wait->before, sizeof(wait->before), "%lld", (long long)before);
    snprintf(seconds, sizeof(seconds), "%lld", (long long)((wait->ms + 999) / 1000));
    rc = mysql_wait_set(conn, seconds, err);
    wait->set = rc == 0;
    return rc;
}

static int mysql_wait_end(struct idem_sql conn, struct idem_wait *wait, enum idem_wait_end how,
                          struct idem_error *err) {
    (void)how; /* the server undoes only the statement */
    return mysql_wait_set(conn, wait->before, err);
}

/* Migration. DDL is not transactional here: a named lock keeps other processes out, and the next
   attempt keeps the tables that an interrupted one created. Procedures store the sql_mode of their
   creation, so the session's sql_mode is set to a fixed value meanwhile. */

static const char schema[] =
#include "mysql.sql.h"
    ;

#define LOCK_NAME "CONCAT('idem:', SHA1(DATABASE()))"
#define LOCK_WAIT_S "60"

static int mysql_migration_begin(struct idem_sql conn, struct idem_error *err) {
    int64_t got = 0;
    int rc = idem_query_number(conn, &idem_dialect_mysql,
                               "SELECT GET_LOCK(" LOCK_NAME ", " LOCK_WAIT_S ")", NULL, &got, err);

    if (rc == 0 && got != 1)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "no database is chosen on the connection, or another session has "
                              "been making its tables for " LOCK_WAIT_S " s");
    if (rc == 0)
        rc = idem_query_do(conn, &idem_dialect_mysql,
                           "SET @idem_sql_mode = @@SESSION.sql_mode, "
                           "SESSION sql_mode = 'STRICT_ALL_TABLES'",
                           err);
    return rc;
}

static int mysql_migration_end(struct idem_sql conn, int rc, struct idem_error *err) {
    struct idem_error later;

    if (rc == 0)
        rc = idem_query_do(conn, &idem_dialect_mysql, "COMMIT", err); /* autocommit may be off */
    (void)idem_query_do(conn, &idem_dialect_mysql,
                        "SET SESSION sql_mode = @idem_sql_mode, @idem_sql_mode = NULL", &later);
    (void)idem_query_do(conn, &idem_dialect_mysql, "SELECT RELEASE_LOCK(" LOCK_NAME ")", &later);
    return rc;
}

static int mysql_statement_run(struct idem_sql conn, const char *text, size_t len,
                               struct idem_error *err) {
    struct idem_query q;
    struct idem_reply reply;
    int rc;

    idem_query_begin(&q, conn, &idem_dialect_mysql);
    idem_query_put(&q, text, len);
    rc = idem_query_run(&q, &reply, err);
    idem_reply_release(&reply);
    idem_query_end(&q);
    return rc;
}

/* Splits the script as mysql(1) does: a statement ends at the end of a line, with ; or with the
   mark of the last `DELIMITER x` line. */
static int mysql_migration_script(struct idem_sql conn, const char *text, struct idem_error *err) {
    static const char word[] = "DELIMITER ";
    char mark[8] = ";";
    const char *from = text, *end;
    int rc = 0;

    for (const char *line = text; *line != '\0' && rc == 0; line = end + (*end == '\n')) {
        size_t n = strcspn(line, "\n"), tail = strlen(mark);

        end = line + n;
        if (idem_text_begins(line, word)) {
            snprintf(mark, sizeof(mark), "%.*s", (int)(n - strlen(word)), line + strlen(word));
            from = end;
        } else if (n >= tail && memcmp(end - tail, mark, tail) == 0) {
            rc = mysql_statement_run(conn, from, (size_t)(end - from) - tail, err);
            from = end;
        }
    }
    return rc;
}

const struct idem_dialect idem_dialect_mysql = {
    .name = "MySQL",
    .quote = '`',
    .tx = IDEM_TX_TEXTS("UTC_TIMESTAMP(3)", "UTC_TIMESTAMP(3) + INTERVAL ? SECOND", "",
                        " LOCK IN SHARE MODE"),
    .on_conflict = NULL,
    .present = " LOCK IN SHARE MODE",
    .lock = " FOR UPDATE",
    .lock_now = " FOR UPDATE NOWAIT",
    .lock_free = " FOR UPDATE SKIP LOCKED",
    .now = "CURRENT_TIMESTAMP(6)",
    .bytes_open = "CAST(",
    .bytes_close = " AS BINARY)",
    .text_open = "CAST(CONVERT(",
    .text_close = " USING utf8mb4) AS BINARY)",
    .unique = "SELECT COUNT(*) FROM (SELECT index_name FROM information_schema.statistics WHERE "
              "table_schema = COALESCE(?, DATABASE()) AND table_name = ? AND non_unique = 0 "
              "GROUP BY index_name HAVING SUM(sub_part IS NULL AND (column_name = ? OR "
              "column_name = ?)) = COUNT(*) AND COUNT(*) = ?) AS found",
    .transactional = "SELECT COUNT(*) FROM information_schema.tables AS t JOIN "
                     "information_schema.engines AS e ON e.engine = t.engine WHERE "
                     "t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ? AND "
                     "e.transactions = 'YES'",
    .inside = mysql_inside,
    .outside = mysql_outside,
    .value = mysql_value,
    .same = mysql_same,
    .run = mysql_run,
    .failure = mysql_failure,
    .begin = mysql_begin,
    .commit = mysql_end,
    .rollback = mysql_undo,
    .wait_begin = mysql_wait_begin,
    .wait_end = mysql_wait_end,
    .migration =
        {
            .schema = schema,
            .exists = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = "
                      "DATABASE() AND table_name = 'idem_meta'",
            .begin = mysql_migration_begin,
            .end = mysql_migration_end,
            .script = mysql_migration_script,
        },
};
