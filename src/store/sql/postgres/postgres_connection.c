/*
 * A connection in libpq's pipeline mode: statements are sent at once, each followed by a sync, so
 * that each is a transaction of its own; responses arrive in the same order. Statements are
 * prepared on first use, except behind a proxy, where the next transaction may run in another
 * session.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/big_endian.h"
#include "base/fork.h"
#include "store/sql/postgres/postgres.h"
#include "store/sql/sql_store.h"

#define EPOCH_MS INT64_C(946684800000) /* 2000-01-01, the server's epoch */

/* A statement whose response is due. */
struct asked {
    enum sql_statement statement;
    bool prepares; /* its first result is that of the preparation */
};

struct sql_link {
    PGconn *conn;
    /* A duplicate that the host watches: the library may close its own socket in the middle of
       a call, and another file may get that number before the host is informed. */
    int fd;
    unsigned forks;
    bool pooled;
    bool prepared[SQL_STATEMENT__COUNT];
    struct asked *asked; /* a ring */
    size_t asked_first, asked_n, asked_size;
    PGresult *held; /* result of the incomplete response */
    PGnotify *notify;
    char why[200];
};

struct sql_link *pg_link_new(PGconn *conn, bool pooled) {
    struct sql_link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return NULL;
    link->asked_size = SQL_RING(sql_engine_postgres.depth);
    link->asked = calloc(link->asked_size, sizeof(*link->asked));
    link->fd = fcntl(PQsocket(conn), F_DUPFD_CLOEXEC, 0);
    if (link->asked == NULL || link->fd < 0 || PQsetnonblocking(conn, 1) != 0 ||
        PQenterPipelineMode(conn) != 1) {
        if (link->fd >= 0)
            close(link->fd);
        free(link->asked);
        free(link);
        return NULL;
    }
    link->conn = conn;
    link->forks = idem_fork_count();
    link->pooled = pooled;
    return link;
}

static void pg_hang_up(struct sql_link *link) {
    if (link->forks != idem_fork_count() && PQsocket(link->conn) >= 0)
        sql_fd_abandon(PQsocket(link->conn));
    PQclear(link->held);
    PQfreemem(link->notify);
    PQfinish(link->conn);
    close(link->fd);
    free(link->asked);
    free(link);
}

static int pg_fd(const struct sql_link *link) {
    return link->fd;
}

/* Sending. */

/* For a letter of sql_shapes: the type, and its size in bytes; 0: variable. */
static const struct form {
    char letter;
    Oid oid;
    int size;
} forms[] = {
    {'b', PG_BYTEA, 0}, {'i', PG_INT8, 8},        {'n', PG_INT4, 4},
    {'h', PG_INT2, 2},  {'t', PG_TIMESTAMPTZ, 8}, {'d', PG_INTERVAL, 16},
};

static const struct form *form_of(char letter) {
    const struct form *form = forms;

    while (form->letter != letter)
        form++;
    return form;
}

/* Big-endian. A duration is a number of microseconds, then days and months, which are 0. */
static void connection_put_number(unsigned char out[16], const struct sql_value *value,
                                  const struct form *form) {
    int64_t n = value->n;

    if (form->letter == 'd')
        n *= 1000;
    else if (form->letter == 't')
        n = (n - EPOCH_MS) * 1000;
    memset(out + 8, 0, 8);
    idem_be_put(out, (uint64_t)n, form->letter == 'd' ? 8 : (size_t)form->size);
}

static bool connection_prepare(struct sql_link *link, enum sql_statement statement,
                               const char *name, const Oid *oids, size_t n) {
    link->prepared[statement] =
        PQsendPrepare(link->conn, name, pg_texts[statement], (int)n, oids) == 1;
    return link->prepared[statement];
}

static bool pg_send(struct sql_link *link, enum sql_statement statement,
                    const struct sql_value *values, size_t n) {
    unsigned char numbers[SQL_VALUES_MAX][16];
    const char *at[SQL_VALUES_MAX];
    int lengths[SQL_VALUES_MAX], formats[SQL_VALUES_MAX];
    Oid oids[SQL_VALUES_MAX];
    bool sent, prepares = !link->pooled && !link->prepared[statement];
    char name[16];

    if (link->asked_n == link->asked_size)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct form *form = form_of(sql_shapes[statement].takes[i]);
        const struct sql_value *value = &values[i];

        oids[i] = form->oid;
        formats[i] = 1;
        lengths[i] = form->size;
        at[i] = (const char *)numbers[i];
        if (value->type == SQL_NULL) {
            at[i] = NULL;
        } else if (form->size != 0) {
            connection_put_number(numbers[i], value, form);
        } else {
            lengths[i] = (int)value->bytes.len;
            at[i] = value->bytes.len == 0 ? "" : (const char *)value->bytes.at;
        }
    }
    snprintf(name, sizeof(name), "idem%d", (int)statement);
    if (link->pooled)
        sent = PQsendQueryParams(link->conn, pg_texts[statement], (int)n, oids, at, lengths,
                                 formats, 1) == 1;
    else
        sent = (!prepares || connection_prepare(link, statement, name, oids, n)) &&
               PQsendQueryPrepared(link->conn, name, (int)n, at, lengths, formats, 1) == 1;
    if (!sent || PQpipelineSync(link->conn) != 1)
        return false;
    link->asked[(link->asked_first + link->asked_n++) % link->asked_size] =
        (struct asked){statement, prepares};
    return true;
}

static bool connection_is_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) > 0;
}

static int pg_pump(struct sql_link *link, int events, const char **ret_why) {
    int flushed = PQflush(link->conn);

    /* Read everything: an edge-triggered host reports the event only once. */
    if (flushed >= 0 && (events & IDEM_READ) != 0)
        do {
            if (PQconsumeInput(link->conn) != 1)
                flushed = -1;
        } while (flushed >= 0 && connection_is_readable(PQsocket(link->conn)));
    if (flushed > 0)
        flushed = PQflush(link->conn);
    if (flushed >= 0 && PQstatus(link->conn) == CONNECTION_OK)
        return IDEM_READ | (flushed > 0 ? IDEM_WRITE : 0);
    snprintf(link->why, sizeof(link->why), "%.190s", PQerrorMessage(link->conn));
    link->why[strcspn(link->why, "\n")] = '\0';
    *ret_why = link->why;
    return -1;
}

/* Responses. */

/* A signed big-endian number of 1 to 8 bytes; a boolean has one byte. */
static int64_t connection_get_number(const unsigned char *at, size_t len) {
    unsigned shift = 64 - 8 * (unsigned)len;

    return (int64_t)(idem_be_get(at, len) << shift) >> shift;
}

static struct sql_value connection_get_value(const PGresult *res, int row, int column,
                                             char letter) {
    const unsigned char *at = (const unsigned char *)PQgetvalue(res, row, column);
    size_t len = (size_t)PQgetlength(res, row, column);
    int64_t n;

    if (PQgetisnull(res, row, column))
        return sql_null();
    if (letter == 'b')
        return sql_bytes(at, len);
    if (len < 1 || len > 8)
        return sql_null();
    n = connection_get_number(at, len);
    if (letter == 'i')
        return sql_int(n);
    /* Rounded down to a whole ms. */
    return (struct sql_value){.type = SQL_MS, .n = n / 1000 - (n % 1000 < 0 ? 1 : 0) + EPOCH_MS};
}

static void answer_set_error(struct sql_answer *answer, const PGresult *res) {
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);

    answer->trouble = state == NULL ? SQL_BROKEN : postgres_failure_find(state)->trouble;
    snprintf(answer->text, sizeof(answer->text), "%.250s (%s)", text == NULL ? "no answer" : text,
             state == NULL ? "?" : state);
}

static bool connection_is_error(const PGresult *res) {
    ExecStatusType status = PQresultStatus(res);

    return status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
}

/* The result becomes the answer's; NULL without memory. */
static struct sql_answer *connection_make_answer(PGresult *res, enum sql_statement statement) {
    size_t rows = PQresultStatus(res) == PGRES_TUPLES_OK ? (size_t)PQntuples(res) : 0;
    size_t columns = strlen(sql_shapes[statement].gives);
    struct sql_answer *answer;
    struct sql_value *cells;

    if (columns > (size_t)PQnfields(res))
        rows = columns = 0;
    answer = malloc(sizeof(*answer) + rows * columns * sizeof(*cells));
    if (answer == NULL)
        return NULL;
    cells = (struct sql_value *)(answer + 1);
    *answer = (struct sql_answer){.rows = rows, .columns = columns, .cells = cells, .native = res};
    answer->affected = strtoll(PQcmdTuples(res), NULL, 10);
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            *cells++ = connection_get_value(res, (int)row, (int)column,
                                            sql_shapes[statement].gives[column]);
    if (connection_is_error(res))
        answer_set_error(answer, res);
    return answer;
}

/* Among the results before a sync, the first error counts, or else the last result. A statement
   that could not be prepared (a lock timeout, for example) is prepared again. */
static void connection_hold(struct sql_link *link, PGresult *res) {
    const struct asked *asked = &link->asked[link->asked_first];

    if (link->held == NULL && asked->prepares && connection_is_error(res))
        link->prepared[asked->statement] = false;
    if (link->held != NULL && connection_is_error(link->held)) {
        PQclear(res);
        return;
    }
    PQclear(link->held);
    link->held = res;
}

/* True if the statement was sent behind its own preparation, which failed. */
static bool connection_is_early(const struct sql_link *link, enum sql_statement statement) {
    const char *state = PQresultErrorField(link->held, PG_DIAG_SQLSTATE);

    return state != NULL && strcmp(state, "26000") == 0 && !link->pooled &&
           !link->prepared[statement];
}

static struct sql_answer *connection_next_answer(struct sql_link *link) {
    enum sql_statement statement = link->asked[link->asked_first].statement;
    struct sql_answer *answer = connection_make_answer(link->held, statement);

    if (answer == NULL)
        return NULL; /* no memory: this response and all behind it must count as lost */
    if (connection_is_early(link, statement))
        answer->trouble = SQL_AGAIN;
    link->held = NULL;
    link->asked_first = (link->asked_first + 1) % link->asked_size;
    link->asked_n--;
    return answer;
}

static struct sql_answer *pg_next(struct sql_link *link) {
    unsigned gaps = 0; /* a gap follows each result; two gaps mean that nothing is left */
    PGresult *res;

    while (link->asked_n > 0 && gaps < 2 && !PQisBusy(link->conn)) {
        res = PQgetResult(link->conn);
        if (res == NULL) {
            gaps++;
            continue;
        }
        gaps = 0;
        if (PQresultStatus(res) != PGRES_PIPELINE_SYNC) {
            connection_hold(link, res);
            continue;
        }
        PQclear(res);
        if (link->held != NULL)
            return connection_next_answer(link);
    }
    return NULL;
}

static void pg_answer_free(struct sql_answer *answer) {
    if (answer == NULL)
        return;
    PQclear(answer->native);
    free(answer);
}

static const char *pg_notified(struct sql_link *link) {
    PQfreemem(link->notify);
    link->notify = PQnotifies(link->conn);
    return link->notify == NULL ? NULL : link->notify->extra;
}

/*
 * The PostgreSQL driver's table.
 */

static void *driver_connect(const struct sql_config *config, struct sql_dialled *ret) {
    return pg_connect(config, ret);
}

static void driver_disconnect(void *conn) {
    PQfinish(conn);
}

const struct sql_engine sql_engine_postgres = {
    .name = "PostgreSQL",
    .password = "IDEM_POSTGRES_PASSWORD",
    .form = "written postgres://USER:PASSWORD@HOST:PORT/DATABASE, or "
            "postgres:/FOLDER?user=USER&db=DATABASE with the folder of its socket",
    .port = 5432,
    .hosts_max = SQL_HOSTS_MAX,
    .depth = 64,
    .notifies = true,
    .skips = true,
    .connect = driver_connect,
    .disconnect = driver_disconnect,
    .dial = pg_dial,
    .hang_up = pg_hang_up,
    .fd = pg_fd,
    .send = pg_send,
    .pump = pg_pump,
    .next = pg_next,
    .answer_free = pg_answer_free,
    .notified = pg_notified,
};

static const char *const schemes[] = {"postgres", "postgresql", NULL};

const struct idem_driver idem_driver_postgres = {
    .name = "postgres",
    .schemes = schemes,
    .engine = &sql_engine_postgres,
    SQL_DRIVER_SLOTS,
};
