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

struct sql_engine_connection {
    PGconn *pg;
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

struct sql_engine_connection *pg_connection_new(PGconn *conn, bool pooled) {
    struct sql_engine_connection *connection = calloc(1, sizeof(*connection));

    if (connection == NULL)
        return NULL;
    connection->asked_size = SQL_RING(sql_engine_postgres.depth);
    connection->asked = calloc(connection->asked_size, sizeof(*connection->asked));
    connection->fd = fcntl(PQsocket(conn), F_DUPFD_CLOEXEC, 0);
    if (connection->asked == NULL || connection->fd < 0 || PQsetnonblocking(conn, 1) != 0 ||
        PQenterPipelineMode(conn) != 1) {
        if (connection->fd >= 0)
            close(connection->fd);
        free(connection->asked);
        free(connection);
        return NULL;
    }
    connection->pg = conn;
    connection->forks = idem_fork_count();
    connection->pooled = pooled;
    return connection;
}

static void pg_hang_up(struct sql_engine_connection *connection) {
    if (connection->forks != idem_fork_count() && PQsocket(connection->pg) >= 0)
        sql_fd_abandon(PQsocket(connection->pg));
    PQclear(connection->held);
    PQfreemem(connection->notify);
    PQfinish(connection->pg);
    close(connection->fd);
    free(connection->asked);
    free(connection);
}

static int pg_fd(const struct sql_engine_connection *connection) {
    return connection->fd;
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

static bool connection_prepare(struct sql_engine_connection *connection,
                               enum sql_statement statement, const char *name, const Oid *oids,
                               size_t n) {
    connection->prepared[statement] =
        PQsendPrepare(connection->pg, name, pg_texts[statement], (int)n, oids) == 1;
    return connection->prepared[statement];
}

static bool pg_send(struct sql_engine_connection *connection, enum sql_statement statement,
                    const struct sql_value *values, size_t n) {
    unsigned char numbers[SQL_VALUES_MAX][16];
    const char *at[SQL_VALUES_MAX];
    int lengths[SQL_VALUES_MAX], formats[SQL_VALUES_MAX];
    Oid oids[SQL_VALUES_MAX];
    bool sent, prepares = !connection->pooled && !connection->prepared[statement];
    char name[16];

    if (connection->asked_n == connection->asked_size)
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
    if (connection->pooled)
        sent = PQsendQueryParams(connection->pg, pg_texts[statement], (int)n, oids, at, lengths,
                                 formats, 1) == 1;
    else
        sent = (!prepares || connection_prepare(connection, statement, name, oids, n)) &&
               PQsendQueryPrepared(connection->pg, name, (int)n, at, lengths, formats, 1) == 1;
    if (!sent || PQpipelineSync(connection->pg) != 1)
        return false;
    connection->asked[(connection->asked_first + connection->asked_n++) % connection->asked_size] =
        (struct asked){statement, prepares};
    return true;
}

static bool connection_is_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) > 0;
}

static int pg_pump(struct sql_engine_connection *connection, int events, const char **ret_why) {
    int flushed = PQflush(connection->pg);

    /* Read everything: an edge-triggered host reports the event only once. */
    if (flushed >= 0 && (events & IDEM_READ) != 0)
        do {
            if (PQconsumeInput(connection->pg) != 1)
                flushed = -1;
        } while (flushed >= 0 && connection_is_readable(PQsocket(connection->pg)));
    if (flushed > 0)
        flushed = PQflush(connection->pg);
    if (flushed >= 0 && PQstatus(connection->pg) == CONNECTION_OK)
        return IDEM_READ | (flushed > 0 ? IDEM_WRITE : 0);
    snprintf(connection->why, sizeof(connection->why), "%.190s", PQerrorMessage(connection->pg));
    connection->why[strcspn(connection->why, "\n")] = '\0';
    *ret_why = connection->why;
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
    snprintf(answer->text, sizeof(answer->text), "%.250s (%s)", text == NULL ? "no response" : text,
             state == NULL ? "?" : state);
}

static bool connection_is_error(const PGresult *res) {
    ExecStatusType status = PQresultStatus(res);

    return status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
}

/* The result becomes the answer's; NULL without memory. */
static struct sql_answer *connection_make_answer(PGresult *res, enum sql_statement statement) {
    size_t rows = PQresultStatus(res) == PGRES_TUPLES_OK ? (size_t)PQntuples(res) : 0;
    size_t columns = strlen(sql_shapes[statement].returns);
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
                                            sql_shapes[statement].returns[column]);
    if (connection_is_error(res))
        answer_set_error(answer, res);
    return answer;
}

/* Among the results before a sync, the first error counts, or else the last result. A statement
   that could not be prepared (a lock timeout, for example) is prepared again. */
static void connection_hold(struct sql_engine_connection *connection, PGresult *res) {
    const struct asked *asked = &connection->asked[connection->asked_first];

    if (connection->held == NULL && asked->prepares && connection_is_error(res))
        connection->prepared[asked->statement] = false;
    if (connection->held != NULL && connection_is_error(connection->held)) {
        PQclear(res);
        return;
    }
    PQclear(connection->held);
    connection->held = res;
}

/* True if the statement was sent behind its own preparation, which failed. */
static bool connection_is_early(const struct sql_engine_connection *connection,
                                enum sql_statement statement) {
    const char *state = PQresultErrorField(connection->held, PG_DIAG_SQLSTATE);

    return state != NULL && strcmp(state, "26000") == 0 && !connection->pooled &&
           !connection->prepared[statement];
}

static struct sql_answer *connection_next_answer(struct sql_engine_connection *connection) {
    enum sql_statement statement = connection->asked[connection->asked_first].statement;
    struct sql_answer *answer = connection_make_answer(connection->held, statement);

    if (answer == NULL)
        return NULL; /* no memory: this response and all behind it must count as lost */
    if (connection_is_early(connection, statement))
        answer->trouble = SQL_AGAIN;
    connection->held = NULL;
    connection->asked_first = (connection->asked_first + 1) % connection->asked_size;
    connection->asked_n--;
    return answer;
}

static struct sql_answer *pg_next(struct sql_engine_connection *connection) {
    unsigned gaps = 0; /* a gap follows each result; two gaps mean that nothing is left */
    PGresult *res;

    while (connection->asked_n > 0 && gaps < 2 && !PQisBusy(connection->pg)) {
        res = PQgetResult(connection->pg);
        if (res == NULL) {
            gaps++;
            continue;
        }
        gaps = 0;
        if (PQresultStatus(res) != PGRES_PIPELINE_SYNC) {
            connection_hold(connection, res);
            continue;
        }
        PQclear(res);
        if (connection->held != NULL)
            return connection_next_answer(connection);
    }
    return NULL;
}

static void pg_answer_free(struct sql_answer *answer) {
    if (answer == NULL)
        return;
    PQclear(answer->native);
    free(answer);
}

static const char *pg_notified(struct sql_engine_connection *connection) {
    PQfreemem(connection->notify);
    connection->notify = PQnotifies(connection->pg);
    return connection->notify == NULL ? NULL : connection->notify->extra;
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
            "postgres:/DIRECTORY?user=USER&db=DATABASE with the directory of its socket",
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
