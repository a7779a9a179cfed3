/*
 * A connection that does one statement at a time, by the library's calls that do not block: each
 * begins, is left when it would have to wait for the socket, and is gone on with when that is
 * ready. A statement is prepared on first use.
 *
 *     IDLE ──> PREPARING ──> EXECUTING ──> STORING ──> ANSWERED ──taken──> IDLE
 *       └───────────────────────^   └───no rows───────────^
 *
 * The library closes its socket whenever it finds it broken, and another may then get that number
 * while the host still watches it: the host is given a descriptor of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/fork.h"
#include "store/mysql/mysql.h"

#define PENDING_MAX SQL_RING(1)
#define VALUE_OVERHEAD 32   /* of a value in a packet, at most: type, NULL bit, length, time */
#define PACKET_OVERHEAD 256 /* of a statement */
#define END_TURNS 100000    /* until a socket that was shut down has nothing more to read */

enum phase { IDLE, PREPARING, EXECUTING, STORING, ANSWERED };

/* A statement that waits for its turn, with a copy of its values. */
struct request {
    enum sql_statement statement;
    size_t too_long; /* 0, or its length: the server would not take it */
    size_t n;
    struct sql_value values[]; /* and their bytes behind them */
};

struct sql_link {
    MYSQL *conn;
    int fd; /* the host's */
    unsigned forks;
    bool tls;
    uint64_t packet_max;
    MYSQL_STMT *stmts[SQL_STATEMENT__COUNT];
    bool prepared[SQL_STATEMENT__COUNT];
    struct request *pending[PENDING_MAX]; /* a ring; the first is under way */
    size_t pending_first, pending_n;
    enum phase phase;
    int waits; /* 0: no call is left in the middle; what it waits for */
    struct sql_answer *answer;
    MYSQL_BIND binds[SQL_VALUES_MAX];
    struct maria_cell cells[SQL_VALUES_MAX];
    const char *dead; /* NULL, or why */
};

static struct request *first(const struct sql_link *link) {
    return link->pending[link->pending_first];
}

static MYSQL_STMT *stmt_of(const struct sql_link *link) {
    return link->stmts[first(link)->statement];
}

/* The calls that may be left in the middle: each begins, or goes on. */

static int prepare_start(struct sql_link *link, int *ret) {
    const char *text = maria_texts[first(link)->statement];

    return mysql_stmt_prepare_start(ret, stmt_of(link), text, strlen(text));
}

static int prepare_cont(struct sql_link *link, int *ret, int ready) {
    return mysql_stmt_prepare_cont(ret, stmt_of(link), ready);
}

/* The library makes the packet of them before it writes: they need not stay. */
static int execute_start(struct sql_link *link, int *ret) {
    const struct request *request = first(link);
    const char *letters = sql_shapes[request->statement].takes;

    for (size_t i = 0; i < request->n; i++)
        maria_bind_in(&link->binds[i], &link->cells[i], letters[i], &request->values[i]);
    if (request->n > 0 && mysql_stmt_bind_param(stmt_of(link), link->binds)) {
        *ret = 1;
        return 0;
    }
    return mysql_stmt_execute_start(ret, stmt_of(link));
}

static int execute_cont(struct sql_link *link, int *ret, int ready) {
    return mysql_stmt_execute_cont(ret, stmt_of(link), ready);
}

static int store_start(struct sql_link *link, int *ret) {
    return mysql_stmt_store_result_start(ret, stmt_of(link));
}

static int store_cont(struct sql_link *link, int *ret, int ready) {
    return mysql_stmt_store_result_cont(ret, stmt_of(link), ready);
}

static const struct {
    int (*start)(struct sql_link *link, int *ret);
    int (*cont)(struct sql_link *link, int *ret, int ready);
} calls[] = {
    [PREPARING] = {prepare_start, prepare_cont},
    [EXECUTING] = {execute_start, execute_cont},
    [STORING] = {store_start, store_cont},
};

/* The way through the phases. */

static void answer_set(struct sql_link *link, struct sql_answer *answer) {
    free(first(link));
    link->pending_first = (link->pending_first + 1) % PENDING_MAX;
    link->pending_n--;
    link->answer = answer;
    link->phase = ANSWERED;
    if (answer == NULL)
        link->dead = "no memory for an answer";
}

static void rows_take(struct sql_link *link) {
    MYSQL_STMT *stmt = stmt_of(link);
    struct sql_answer *answer = maria_answer(stmt, first(link)->statement);

    (void)mysql_stmt_free_result(stmt); /* all of it is here: the server is not asked */
    answer_set(link, answer);
}

/* It would cost the connection. */
static void refuse(struct sql_link *link) {
    char text[200];

    snprintf(text, sizeof(text),
             "%zu bytes are more than a statement may have: raise the server's max_allowed_packet, "
             "which is %llu",
             first(link)->too_long, (unsigned long long)link->packet_max);
    answer_set(link, maria_refusal(SQL_FULL, ER_NET_PACKET_TOO_LARGE, text));
}

static enum phase phase_first(struct sql_link *link) {
    enum sql_statement statement = first(link)->statement;

    if (link->stmts[statement] == NULL)
        link->stmts[statement] = mysql_stmt_init(link->conn);
    if (link->stmts[statement] == NULL) {
        link->dead = "no memory for a statement";
        return IDLE;
    }
    return link->prepared[statement] ? EXECUTING : PREPARING;
}

/* The call of this phase has ended. */
static void phase_end(struct sql_link *link, int failed) {
    if (failed) {
        answer_set(link, maria_failure(stmt_of(link)));
        return;
    }
    switch (link->phase) {
    case PREPARING:
        link->prepared[first(link)->statement] = true;
        link->phase = EXECUTING;
        break;
    case EXECUTING:
        if (mysql_stmt_field_count(stmt_of(link)) > 0)
            link->phase = STORING;
        else
            rows_take(link);
        break;
    default:
        rows_take(link);
        break;
    }
}

static bool is_in_call(const struct sql_link *link) {
    return link->phase == PREPARING || link->phase == EXECUTING || link->phase == STORING;
}

/* As far as it goes without waiting. */
static void drive(struct sql_link *link) {
    struct maria_quiet quiet;
    int failed = 0;

    if (link->dead == NULL && link->phase == IDLE && link->pending_n > 0) {
        if (first(link)->too_long != 0)
            refuse(link);
        else
            link->phase = phase_first(link);
    }
    maria_quiet_begin(&quiet, link->tls);
    while (is_in_call(link)) {
        if (link->waits == 0)
            link->waits = calls[link->phase].start(link, &failed);
        else
            link->waits = calls[link->phase].cont(link, &failed, link->waits & ~MYSQL_WAIT_TIMEOUT);
        if (link->waits != 0)
            break;
        phase_end(link, failed);
    }
    maria_quiet_end(&quiet);
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

static size_t bytes_of(const struct sql_value *values, size_t n) {
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += values[i].type == SQL_BYTES ? values[i].bytes.len : 0;
    return bytes;
}

bool maria_send(struct sql_link *link, enum sql_statement statement, const struct sql_value *values,
                size_t n) {
    size_t bytes = bytes_of(values, n), whole = bytes + n * VALUE_OVERHEAD + PACKET_OVERHEAD;
    bool fits = whole <= link->packet_max;
    struct request *request;

    if (link->dead != NULL || link->pending_n == PENDING_MAX)
        return false;
    request = request_new(statement, values, fits ? n : 0, fits ? bytes : 0);
    if (request == NULL)
        return false;
    request->too_long = fits ? 0 : whole;
    link->pending[(link->pending_first + link->pending_n++) % PENDING_MAX] = request;
    drive(link);
    return true;
}

/* Nothing is due, and something came: the end, or the server's word about it. */
static bool is_ended(const struct sql_link *link) {
    char byte;

    return recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
           (errno != EAGAIN && errno != EINTR);
}

int maria_pump(struct sql_link *link, int events, const char **ret_why) {
    if (link->waits == 0 || events != 0)
        drive(link);
    if (link->dead == NULL && !is_in_call(link) && (events & IDEM_READ) != 0 && is_ended(link))
        link->dead = "the server has ended it";
    if (link->dead != NULL) {
        *ret_why = link->dead;
        return -1;
    }
    return (link->waits & MYSQL_WAIT_WRITE) != 0 ? IDEM_WRITE : IDEM_READ;
}

/* Those that wait in the queue begin when the one before them has been taken. */
struct sql_answer *maria_next(struct sql_link *link) {
    struct sql_answer *answer;

    if (link->phase == IDLE)
        drive(link);
    if (link->phase != ANSWERED)
        return NULL;
    answer = link->answer;
    link->answer = NULL;
    link->phase = IDLE;
    return answer;
}

int maria_fd(const struct sql_link *link) {
    return link->fd;
}

/* Beginning and end. */

struct sql_link *maria_link_new(MYSQL *conn, uint64_t packet_max) {
    struct sql_link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return NULL;
    link->fd = fcntl(mysql_get_socket(conn), F_DUPFD_CLOEXEC, 0);
    /* By TLS the library's calls that do not block would, if the socket does. */
    if (link->fd < 0 || fcntl(link->fd, F_SETFL, O_NONBLOCK) < 0) {
        if (link->fd >= 0)
            close(link->fd);
        free(link);
        return NULL;
    }
    link->conn = conn;
    link->tls = mysql_get_ssl_cipher(conn) != NULL;
    link->packet_max = packet_max;
    link->forks = idem_fork_count();
    return link;
}

/* A call that was left in the middle is gone on with, and fails: its stack holds memory. */
static void call_end(struct sql_link *link) {
    (void)shutdown(link->fd, SHUT_RDWR);
    for (int i = 0; i < END_TURNS && link->waits != 0; i++)
        drive(link);
}

/* As the library wants it, the server is told, unless that would take time. */
static void conn_close(struct sql_link *link) {
    struct maria_quiet quiet;
    int waits;

    maria_quiet_begin(&quiet, link->tls);
    waits = mysql_close_start(link->conn);
    if (waits != 0)
        (void)shutdown(link->fd, SHUT_RDWR);
    for (int i = 0; i < END_TURNS && waits != 0; i++)
        waits = mysql_close_cont(link->conn, waits & ~MYSQL_WAIT_TIMEOUT);
    maria_quiet_end(&quiet);
}

void maria_hang_up(struct sql_link *link) {
    if (link->forks != idem_fork_count()) {
        int own = (int)mysql_get_socket(link->conn);

        if (own >= 0)
            sql_fd_abandon(own);
        sql_fd_abandon(link->fd);
    }
    if (link->waits != 0)
        call_end(link);
    conn_close(link);
    for (size_t i = 0; i < SQL_STATEMENT__COUNT; i++)
        if (link->stmts[i] != NULL)
            (void)mysql_stmt_close(link->stmts[i]); /* without a connection: here alone */
    for (; link->pending_n > 0; link->pending_n--) {
        free(first(link));
        link->pending_first = (link->pending_first + 1) % PENDING_MAX;
    }
    maria_answer_free(link->answer);
    close(link->fd);
    free(link);
}
