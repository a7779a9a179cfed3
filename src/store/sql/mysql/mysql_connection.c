/*
 * The engine of MySQL and MariaDB, in three parts: the statements on a connection, one at a time
 * and without blocking; the session, set up in a thread that may block; and the driver's table.
 */
#include <errno.h>
#include <fcntl.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"
#include "store/sql/mysql/mysql.h"
#include "store/sql/sql_store.h"

/*
 * A connection that executes one statement at a time, with the library's non-blocking calls: each
 * is started, suspended if it would have to wait for the socket, and continued when the socket is
 * ready. A statement is prepared on first use.
 *
 *     IDLE ──> PREPARING ──> EXECUTING ──> STORING ──> ANSWERED ──taken──> IDLE
 *       └───────────────────────^   └───no rows───────────^
 *
 * The library closes its socket as soon as it finds it broken. Another file may then get that
 * number while the host still watches it, so the host watches a duplicate of the descriptor.
 */

#define PENDING_MAX SQL_RING(1)
#define VALUE_OVERHEAD 32   /* of a value in a packet, upper bound: type, NULL bit, length, time */
#define PACKET_OVERHEAD 256 /* of a statement */
#define END_TURNS 100000    /* the most calls after a shutdown until nothing is left to read */

enum phase { IDLE, PREPARING, EXECUTING, STORING, ANSWERED };

/* A statement in the queue, with a copy of its values. */
struct request {
    enum sql_statement statement;
    size_t too_long; /* 0, or its length: the server would not accept it */
    size_t n;
    struct sql_value values[]; /* followed by their bytes */
};

struct sql_engine_connection {
    MYSQL *mysql;
    int fd; /* the duplicate that the host watches */
    unsigned forks;
    bool tls;
    uint64_t packet_max;
    MYSQL_STMT *stmts[SQL_STATEMENT__COUNT];
    bool prepared[SQL_STATEMENT__COUNT];
    struct request *pending[PENDING_MAX]; /* a ring; the first is being executed */
    size_t pending_first, pending_n;
    enum phase phase;
    int waits; /* the events for which a call is suspended; 0: none is */
    struct sql_answer *answer;
    MYSQL_BIND binds[SQL_VALUES_MAX];
    struct maria_cell cells[SQL_VALUES_MAX];
    const char *dead; /* NULL, or the reason */
};

static struct request *connection_request(const struct sql_engine_connection *connection) {
    return connection->pending[connection->pending_first];
}

static MYSQL_STMT *connection_statement(const struct sql_engine_connection *connection) {
    return connection->stmts[connection_request(connection)->statement];
}

/* The calls that may be suspended: each is started or continued. */

/* The library builds the packet before it writes, so the bound values need not stay. */
static int connection_start_execute(struct sql_engine_connection *connection, int *ret) {
    const struct request *request = connection_request(connection);
    const char *letters = sql_shapes[request->statement].takes;

    for (size_t i = 0; i < request->n; i++)
        maria_bind_in(&connection->binds[i], &connection->cells[i], letters[i],
                      &request->values[i]);
    if (request->n > 0 &&
        mysql_stmt_bind_param(connection_statement(connection), connection->binds)) {
        *ret = 1;
        return 0;
    }
    return mysql_stmt_execute_start(ret, connection_statement(connection));
}

static int connection_start_call(struct sql_engine_connection *connection, int *ret) {
    MYSQL_STMT *stmt = connection_statement(connection);
    const char *text = maria_texts[connection_request(connection)->statement];

    switch (connection->phase) {
    case PREPARING:
        return mysql_stmt_prepare_start(ret, stmt, text, strlen(text));
    case EXECUTING:
        return connection_start_execute(connection, ret);
    default:
        return mysql_stmt_store_result_start(ret, stmt);
    }
}

static int connection_continue_call(struct sql_engine_connection *connection, int *ret) {
    MYSQL_STMT *stmt = connection_statement(connection);
    int ready = connection->waits & ~MYSQL_WAIT_TIMEOUT;

    switch (connection->phase) {
    case PREPARING:
        return mysql_stmt_prepare_cont(ret, stmt, ready);
    case EXECUTING:
        return mysql_stmt_execute_cont(ret, stmt, ready);
    default:
        return mysql_stmt_store_result_cont(ret, stmt, ready);
    }
}

/* Phases. */

static void connection_set_answer(struct sql_engine_connection *connection,
                                  struct sql_answer *answer) {
    free(connection_request(connection));
    connection->pending_first = (connection->pending_first + 1) % PENDING_MAX;
    connection->pending_n--;
    connection->answer = answer;
    connection->phase = ANSWERED;
    if (answer == NULL)
        connection->dead = "no memory for a response";
}

static void connection_take_rows(struct sql_engine_connection *connection) {
    MYSQL_STMT *stmt = connection_statement(connection);
    struct sql_answer *answer = maria_answer(stmt, connection_request(connection)->statement);

    (void)mysql_stmt_free_result(stmt); /* all rows are here: this sends nothing to the server */
    connection_set_answer(connection, answer);
}

/* A statement that is too long would cost the connection, so it is not sent. */
static void connection_refuse(struct sql_engine_connection *connection) {
    char text[200];

    snprintf(text, sizeof(text),
             "%zu bytes are more than a statement may have: raise the server's max_allowed_packet, "
             "which is %llu",
             connection_request(connection)->too_long, (unsigned long long)connection->packet_max);
    connection_set_answer(connection, maria_refusal(SQL_FULL, ER_NET_PACKET_TOO_LARGE, text));
}

static enum phase connection_first_phase(struct sql_engine_connection *connection) {
    enum sql_statement statement = connection_request(connection)->statement;

    if (connection->stmts[statement] == NULL)
        connection->stmts[statement] = mysql_stmt_init(connection->mysql);
    if (connection->stmts[statement] == NULL) {
        connection->dead = "no memory for a statement";
        return IDLE;
    }
    return connection->prepared[statement] ? EXECUTING : PREPARING;
}

/* The call of this phase has ended. */
static void connection_end_phase(struct sql_engine_connection *connection, int failed) {
    if (failed) {
        connection_set_answer(connection, maria_failure(connection_statement(connection)));
        return;
    }
    switch (connection->phase) {
    case PREPARING:
        connection->prepared[connection_request(connection)->statement] = true;
        connection->phase = EXECUTING;
        break;
    case EXECUTING:
        if (mysql_stmt_field_count(connection_statement(connection)) > 0)
            connection->phase = STORING;
        else
            connection_take_rows(connection);
        break;
    default:
        connection_take_rows(connection);
        break;
    }
}

static bool connection_is_in_call(const struct sql_engine_connection *connection) {
    return connection->phase == PREPARING || connection->phase == EXECUTING ||
           connection->phase == STORING;
}

/* Advances as far as possible without waiting. */
static void connection_advance(struct sql_engine_connection *connection) {
    struct maria_sigpipe sigpipe;
    int failed = 0;

    if (connection->dead == NULL && connection->phase == IDLE && connection->pending_n > 0) {
        if (connection_request(connection)->too_long != 0)
            connection_refuse(connection);
        else
            connection->phase = connection_first_phase(connection);
    }
    maria_sigpipe_block(&sigpipe, connection->tls);
    while (connection_is_in_call(connection)) {
        connection->waits = connection->waits == 0 ? connection_start_call(connection, &failed)
                                                   : connection_continue_call(connection, &failed);
        if (connection->waits != 0)
            break;
        connection_end_phase(connection, failed);
    }
    maria_sigpipe_restore(&sigpipe);
}

/* Sending. */

static struct request *request_new(enum sql_statement statement, const struct sql_value *values,
                                   size_t n, size_t bytes) {
    struct request *request = malloc(sizeof(*request) + n * sizeof(*values) + bytes);
    unsigned char *at;

    if (request == NULL)
        return NULL;
    request->statement = statement;
    request->n = n;
    at = (unsigned char *)(request->values + n);
    for (size_t i = 0; i < n; i++) {
        request->values[i] = values[i];
        if (values[i].type != SQL_BYTES || values[i].bytes.len == 0)
            continue;
        memcpy(at, values[i].bytes.at, values[i].bytes.len);
        request->values[i].bytes.at = at;
        at += values[i].bytes.len;
    }
    return request;
}

static size_t request_bytes(const struct sql_value *values, size_t n) {
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += values[i].type == SQL_BYTES ? values[i].bytes.len : 0;
    return bytes;
}

bool maria_send(struct sql_engine_connection *connection, enum sql_statement statement,
                const struct sql_value *values, size_t n) {
    size_t bytes = request_bytes(values, n), whole = bytes + n * VALUE_OVERHEAD + PACKET_OVERHEAD;
    bool fits = whole <= connection->packet_max;
    struct request *request;

    if (connection->dead != NULL || connection->pending_n == PENDING_MAX)
        return false;
    request = request_new(statement, values, fits ? n : 0, fits ? bytes : 0);
    if (request == NULL)
        return false;
    request->too_long = fits ? 0 : whole;
    connection->pending[(connection->pending_first + connection->pending_n++) % PENDING_MAX] =
        request;
    connection_advance(connection);
    return true;
}

/* True if input arrived though no response is due: the end of the connection, or a message
   about it. */
static bool connection_is_ended(const struct sql_engine_connection *connection) {
    char byte;

    return recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
           (errno != EAGAIN && errno != EINTR);
}

int maria_pump(struct sql_engine_connection *connection, int events, const char **ret_why) {
    if (connection->waits == 0 || events != 0)
        connection_advance(connection);
    if (connection->dead == NULL && !connection_is_in_call(connection) &&
        (events & IDEM_READ) != 0 && connection_is_ended(connection))
        connection->dead = "the server has ended it";
    if (connection->dead != NULL) {
        *ret_why = connection->dead;
        return -1;
    }
    return (connection->waits & MYSQL_WAIT_WRITE) != 0 ? IDEM_WRITE : IDEM_READ;
}

/* A queued statement starts when the response to the one before it has been taken. */
struct sql_answer *maria_next(struct sql_engine_connection *connection) {
    struct sql_answer *answer;

    if (connection->phase == IDLE)
        connection_advance(connection);
    if (connection->phase != ANSWERED)
        return NULL;
    answer = connection->answer;
    connection->answer = NULL;
    connection->phase = IDLE;
    return answer;
}

int maria_fd(const struct sql_engine_connection *connection) {
    return connection->fd;
}

/* Creation and release. */

/* Takes over `conn`; NULL without memory. A statement must be shorter than
   `packet_max` bytes. */
static struct sql_engine_connection *connection_new(MYSQL *conn, uint64_t packet_max) {
    struct sql_engine_connection *connection = calloc(1, sizeof(*connection));

    if (connection == NULL)
        return NULL;
    connection->fd = fcntl(mysql_get_socket(conn), F_DUPFD_CLOEXEC, 0);
    /* With TLS, the library's non-blocking calls block if the socket does. */
    if (connection->fd < 0 || fcntl(connection->fd, F_SETFL, O_NONBLOCK) < 0) {
        if (connection->fd >= 0)
            close(connection->fd);
        free(connection);
        return NULL;
    }
    connection->mysql = conn;
    connection->tls = mysql_get_ssl_cipher(conn) != NULL;
    connection->packet_max = packet_max;
    connection->forks = idem_fork_count();
    return connection;
}

/* Continues a suspended call until it fails, because its stack holds memory. */
static void connection_end_call(struct sql_engine_connection *connection) {
    (void)shutdown(connection->fd, SHUT_RDWR);
    for (int i = 0; i < END_TURNS && connection->waits != 0; i++)
        connection_advance(connection);
}

/* Closes as the library requires, with a message to the server, unless that would take time. */
static void connection_close(struct sql_engine_connection *connection) {
    struct maria_sigpipe sigpipe;
    int waits;

    maria_sigpipe_block(&sigpipe, connection->tls);
    waits = mysql_close_start(connection->mysql);
    if (waits != 0)
        (void)shutdown(connection->fd, SHUT_RDWR);
    for (int i = 0; i < END_TURNS && waits != 0; i++)
        waits = mysql_close_cont(connection->mysql, waits & ~MYSQL_WAIT_TIMEOUT);
    maria_sigpipe_restore(&sigpipe);
}

void maria_hang_up(struct sql_engine_connection *connection) {
    if (connection->forks != idem_fork_count()) {
        int own = (int)mysql_get_socket(connection->mysql);

        if (own >= 0)
            sql_fd_abandon(own);
        sql_fd_abandon(connection->fd);
    }
    if (connection->waits != 0)
        connection_end_call(connection);
    connection_close(connection);
    for (size_t i = 0; i < SQL_STATEMENT__COUNT; i++)
        if (connection->stmts[i] != NULL)
            (void)mysql_stmt_close(connection->stmts[i]); /* only frees memory now */
    for (; connection->pending_n > 0; connection->pending_n--) {
        free(connection_request(connection));
        connection->pending_first = (connection->pending_first + 1) % PENDING_MAX;
    }
    maria_answer_free(connection->answer);
    close(connection->fd);
    free(connection);
}

/*
 * Sets up a session: connects, checks the server (version, tables, writable), and configures the
 * session so that no setting of the server changes the meaning of a statement. Runs in a thread
 * that may block. Fails with a text that shows an operator what to do.
 */

#define MARIADB_MIN 100300
#define MYSQL_MIN 80000
#define COLUMNS_MAX 4

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
    return sql_dialled_fail(ret, IDEM_E_REFUSED, false, mysql_error(conn));
}

static bool session_is_mariadb(MYSQL *conn) {
    return mysql_get_server_info(conn) != NULL &&
           strstr(mysql_get_server_info(conn), "MariaDB") != NULL;
}

static bool session_check_server(MYSQL *conn, struct sql_dialled *ret) {
    if (mysql_get_server_version(conn) >= (session_is_mariadb(conn) ? MARIADB_MIN : MYSQL_MIN))
        return true;
    return sql_dialled_fail(ret, IDEM_E_REFUSED, true,
                            "the server is older than MariaDB 10.3 or MySQL 8.0");
}

static bool session_configure(MYSQL *conn, struct sql_dialled *ret) {
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (mysql_real_query(conn, settings[i], strlen(settings[i])) != 0)
            return session_fail(conn, ret);
    if ((conn->server_status & SERVER_STATUS_AUTOCOMMIT) != 0 &&
        (conn->server_status & SERVER_STATUS_IN_TRANS) == 0)
        return true;
    return sql_dialled_fail(ret, IDEM_E_REFUSED, true, "statements are not committed one by one");
}

static bool session_check_tables(MYSQL *conn, struct sql_dialled *ret) {
    char text[200];
    int64_t values[2] = {0, 0};

    if (!session_query(conn, "SELECT version, oldest FROM idem_meta", values, 2)) {
        if (mysql_errno(conn) == ER_NO_SUCH_TABLE)
            return sql_dialled_fail(ret, IDEM_E_REFUSED, true, sql_schema_missing);
        if (mysql_errno(conn) != 0)
            return session_fail(conn, ret);
    }
    return sql_schema_fits(values[0], values[1], text, sizeof(text)) ||
           sql_dialled_fail(ret, IDEM_E_REFUSED, true, text);
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
    if (values[2] != 0)
        return sql_dialled_fail(ret, IDEM_E_REFUSED, false,
                                "the server is read only: not the primary");
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
        ret->connection = connection_new(conn, packet_max);
        if (ret->connection != NULL)
            return;
        sql_dialled_fail(ret, IDEM_E_NOMEM, false, "no memory for a connection");
    }
    mysql_close(conn);
}

/*
 * The MySQL driver's table.
 */

static void *driver_connect(const struct sql_config *config, struct sql_dialled *ret) {
    return maria_connect(config, ret);
}

static void driver_disconnect(void *conn) {
    mysql_close(conn);
}

const struct sql_engine sql_engine_mysql = {
    .name = "MySQL",
    .password = "IDEM_MYSQL_PASSWORD",
    .form = "written mysql://USER:PASSWORD@HOST:PORT/DATABASE, or "
            "mysql:/SOCKET?user=USER&db=DATABASE",
    .port = 3306,
    .hosts_max = 1,
    .depth = 1,
    .connect = driver_connect,
    .disconnect = driver_disconnect,
    .dial = maria_dial,
    .hang_up = maria_hang_up,
    .fd = maria_fd,
    .send = maria_send,
    .pump = maria_pump,
    .next = maria_next,
    .answer_free = maria_answer_free,
};

static const char *const schemes[] = {"mysql", "mariadb", NULL};

const struct idem_driver idem_driver_mysql = {
    .name = "mysql",
    .schemes = schemes,
    .engine = &sql_engine_mysql,
    SQL_DRIVER_SLOTS,
};
