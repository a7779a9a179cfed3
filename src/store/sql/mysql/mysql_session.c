/*
 * Sets up a session: connects, checks the server (version, tables, writable), and configures the
 * session so that no setting of the server changes the meaning of a statement. Runs in a thread
 * that may block. Fails with a text that shows an operator what to do.
 */
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sql/mysql/mysql.h"

#define MARIADB_MIN 100300
#define MYSQL_MIN 80000
#define COLUMNS_MAX 5

/* Our locks are held for single statements, so a longer wait is one for another program's
   transaction. Values that do not fit are refused, not cut. A transaction that init_connect
   left open would contain all later statements and never commit; autocommit = 1 alone does not
   end it. */
static const char *const settings[] = {
    "ROLLBACK AND NO CHAIN NO RELEASE",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00', autocommit = 1, "
    "innodb_lock_wait_timeout = 1, lock_wait_timeout = 2, sql_safe_updates = 0, "
    "sql_big_selects = 1, sql_select_limit = 18446744073709551615",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
};

/* Reads one row of numbers; false: an error, or no row. */
static bool session_query(MYSQL *conn, const char *sql, int64_t *ret, unsigned n) {
    MYSQL_RES *res = NULL;
    MYSQL_ROW row = NULL;

    if (mysql_real_query(conn, sql, strlen(sql)) == 0)
        res = mysql_store_result(conn);
    if (res != NULL && mysql_num_fields(res) == n)
        row = mysql_fetch_row(res);
    for (unsigned i = 0; row != NULL && i < n; i++)
        ret[i] = row[i] == NULL ? 0 : strtoll(row[i], NULL, 10);
    mysql_free_result(res);
    return row != NULL;
}

static bool session_fail(MYSQL *conn, struct sql_dialled *ret) {
    sql_dialled_fail(ret, IDEM_E_REFUSED, false, mysql_error(conn));
    return false;
}

static bool session_is_mariadb(MYSQL *conn) {
    return mysql_get_server_info(conn) != NULL &&
           strstr(mysql_get_server_info(conn), "MariaDB") != NULL;
}

static bool session_check_server(MYSQL *conn, struct sql_dialled *ret) {
    if (mysql_get_server_version(conn) >= (session_is_mariadb(conn) ? MARIADB_MIN : MYSQL_MIN))
        return true;
    sql_dialled_fail(ret, IDEM_E_REFUSED, true,
                     "the server is older than MariaDB 10.3 or MySQL 8.0");
    return false;
}

static bool session_configure(MYSQL *conn, struct sql_dialled *ret) {
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (mysql_real_query(conn, settings[i], strlen(settings[i])) != 0)
            return session_fail(conn, ret);
    if ((conn->server_status & SERVER_STATUS_AUTOCOMMIT) != 0 &&
        (conn->server_status & SERVER_STATUS_IN_TRANS) == 0)
        return true;
    sql_dialled_fail(ret, IDEM_E_REFUSED, true, "statements are not committed one by one");
    return false;
}

static bool session_check_tables(MYSQL *conn, struct sql_dialled *ret) {
    char text[200];
    int64_t values[2] = {0, 0};

    if (!session_query(conn, "SELECT version, oldest FROM idem_meta", values, 2)) {
        if (mysql_errno(conn) == ER_NO_SUCH_TABLE)
            sql_dialled_fail(ret, IDEM_E_REFUSED, true, sql_schema_missing);
        if (mysql_errno(conn) != 0)
            return mysql_errno(conn) == ER_NO_SUCH_TABLE ? false : session_fail(conn, ret);
    }
    if (sql_schema_fits(values[0], values[1], text, sizeof(text)))
        return true;
    sql_dialled_fail(ret, IDEM_E_REFUSED, true, text);
    return false;
}

/* A restarted server reuses session numbers. A checksum of the server's start time, which is
   exact within one statement, and of its location identifies this run of the server.
   information_schema.PROCESSLIST is avoided: it needs disk space. */
#define LIFE(status)                                                                               \
    "SELECT CONNECTION_ID(), @@session.max_allowed_packet, "                                       \
    "CONCAT(@@global.read_only) IN ('1', 'ON') OR @@global.innodb_read_only, "                     \
    "CRC32(CONCAT_WS(' ', UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED), @@hostname, "         \
    "@@port, @@datadir)) FROM " status " WHERE VARIABLE_NAME = 'Uptime'"

static bool session_inspect(MYSQL *conn, struct sql_dialled *ret, uint64_t *ret_packet_max) {
    int64_t values[COLUMNS_MAX];

    if (!session_query(conn,
                       session_is_mariadb(conn) ? LIFE("information_schema.GLOBAL_STATUS")
                                                : LIFE("performance_schema.global_status"),
                       values, 4))
        return session_fail(conn, ret);
    if (values[2] != 0) {
        sql_dialled_fail(ret, IDEM_E_REFUSED, false, "the server is read only: not the primary");
        return false;
    }
    ret->session = (struct sql_session){values[0], values[3]};
    *ret_packet_max = (uint64_t)values[1];
    /* A proxy returns a thread id of its own, and may use another session for each statement. */
    ret->pooled = (uint64_t)values[0] != mysql_thread_id(conn);
    if (ret->pooled)
        ret->session = (struct sql_session){0};
    return true;
}

/* Ends a lost session; true if it does not exist any more. */
static bool session_kill_past(void *conn, const struct sql_session *past) {
    char text[60];

    snprintf(text, sizeof(text), "KILL CONNECTION %lld", (long long)past->id);
    return mysql_real_query(conn, text, strlen(text)) != 0 &&
           mysql_errno(conn) == ER_NO_SUCH_THREAD;
}

void maria_dial(const struct sql_config *config, const struct sql_session *past,
                struct sql_dialled *ret) {
    uint64_t packet_max = 0;
    MYSQL *conn;

    *ret = (struct sql_dialled){0};
    conn = maria_connect(config, ret);
    if (conn == NULL)
        return;
    if (session_check_server(conn, ret) && session_configure(conn, ret) &&
        session_check_tables(conn, ret) && session_inspect(conn, ret, &packet_max) &&
        (past->since != ret->session.since || /* it ended with an earlier run of the server */
         sql_end_past(session_kill_past, conn, past, ret))) {
        ret->pooled |= config->pooled;
        ret->link = maria_link_new(conn, packet_max);
        if (ret->link != NULL)
            return;
        sql_dialled_fail(ret, IDEM_E_NOMEM, false, "no memory for a connection");
    }
    mysql_close(conn);
}
