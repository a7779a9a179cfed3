/*
 * Stores in SQL databases: their common internals. The core's tables make every decision of the
 * protocol in this process; the server executes single-row statements, each a transaction of its
 * own:
 *
 *     claim of a new key    INSERT                            one round trip
 *     done by its owner     UPDATE ... WHERE owner            one round trip
 *     everything else       SELECT, decide, UPDATE or DELETE ... WHERE revision = the one read;
 *                           starts again at SELECT if the revision has changed
 *
 * Each change sets the revision to a new random number. Time is the server's: it comes with the row
 * that was read, and the server adds durations to its own clock.
 *
 *     sql_driver.c      open, close, counts (store/remote.c has what Redis needs as well);
 *                       operations: their slots, sending, responses
 *     sql_steps.c       each operation as steps of statements; the values that each statement
 *                       takes and returns
 *     sql_record.c      a record as a row
 *     sql_scan.c        list, stats and time
 *     sql_sweep.c       removes expired rows; one elected process does it for all; checks the
 *                       version of the tables
 *     sql_wake.c        records with waiting claims: marks, notifications, polls
 *     sql_connection.c  one connection: connected, used, lost, connected again
 *     sql_connect.c     a thread that connects; connections inherited over a fork; the URL
 *
 * An engine (store/sql/postgres, store/sql/mysql) provides the texts of the statements and the
 * connection.
 */
#ifndef IDEM_STORE_SQL_SQL_ENGINE_H
#define IDEM_STORE_SQL_SQL_ENGINE_H

#include "store/sql/sql_failure.h"
#include "store/store_url.h"

/* Configuration. */

#define SQL_HOSTS_MAX 8
#define SQL_CONNECTIONS_MAX 64

enum sql_tls { SQL_TLS_UNSET, SQL_TLS_OFF, SQL_TLS_PREFER, SQL_TLS_REQUIRE, SQL_TLS_VERIFY };

struct sql_engine;

struct sql_config {
    const struct sql_engine *engine;
    struct idem_host_name hosts[SQL_HOSTS_MAX]; /* or one socket, with port 0 */
    size_t hosts_n;
    char *user, *password, *db; /* NULL: not set */
    enum sql_tls tls;
    char *tls_ca, *tls_cert, *tls_key; /* NULL: the system's, none, none */
    char *name;                        /* of the connection, for the server's lists */
    int64_t connect_timeout_ms, timeout_ms;
    size_t connections_n;
    bool patient; /* the caller blocks: no timeout for responses */
    bool pooled;  /* a proxy may assign each transaction to another session */
    bool sweep;   /* take part in the election of the process that removes expired rows */
};

int sql_config_read(const struct sql_engine *engine, const struct idem_url *url,
                    struct sql_config *ret, struct idem_error *err);
void sql_config_release(struct sql_config *config);
bool sql_config_copy(const struct sql_config *config,
                     struct sql_config *ret); /* false: no memory */

/* The number of statements that may be under way on one connection: those of operations (the
   engine's depth) and others. Each kind has its own share, so that neither blocks the other. */
#define SQL_OTHERS(depth) ((depth) + 2)
#define SQL_RING(depth) ((depth) + SQL_OTHERS(depth))

/* Statements: sql_steps.c lists the values of each, the engine has its text. */

enum sql_statement {
    SQL_INSERT,
    SQL_READ,
    SQL_FINISH,
    SQL_WRITE,
    SQL_WRITE_RESULT,
    SQL_DELETE,
    SQL_COUNTER_INSERT,
    SQL_COUNTER_READ,
    SQL_COUNTER_WRITE,
    SQL_LIST,
    SQL_STATS,
    SQL_EVENTS,
    SQL_EVENT_ADD,
    SQL_TIME,
    SQL_TX,
    SQL_ELECT,
    SQL_ELECTED,
    SQL_SAVE,
    SQL_BOUND_RECORD,
    SQL_BOUND_COUNTER,
    SQL_BOUND_TX,
    SQL_SWEEP_RECORD, /* engines that skip locked rows delete in one statement */
    SQL_SWEEP_COUNTER,
    SQL_SWEEP_TX,
    SQL_EXPIRED_RECORD, /* other engines would wait: they first list the expired rows, */
    SQL_EXPIRED_COUNTER,
    SQL_EXPIRED_TX,
    SQL_REMOVE_RECORD, /* then delete only those */
    SQL_REMOVE_COUNTER,
    SQL_REMOVE_TX,
    SQL_MARK, /* if the server notifies */
    SQL_LOOK, /* if it does not */
    SQL_LISTEN,
    SQL_STATEMENT__COUNT
};

/* A letter for each value: i number, n and h numbers of 32 and 16 bits, d a duration in ms,
   added to the server's time, t a point in time, b bytes. */
struct sql_shape {
    const char *takes, *returns;
};
extern const struct sql_shape sql_shapes[SQL_STATEMENT__COUNT];

#define SQL_REMOVE_MAX 64 /* rows of one SQL_REMOVE_ statement */
#define SQL_VALUES_MAX (2 * SQL_REMOVE_MAX)

enum sql_type { SQL_NULL, SQL_INT, SQL_MS, SQL_BYTES };

/* A number; a time in ms since 1970; bytes, borrowed. */
struct sql_value {
    enum sql_type type;
    int64_t n;
    struct idem_bytes bytes;
};

static inline struct sql_value sql_int(int64_t n) {
    return (struct sql_value){.type = SQL_INT, .n = n};
}
static inline struct sql_value sql_bytes(const void *at, size_t len) {
    return (struct sql_value){.type = SQL_BYTES, .bytes = {at, len}};
}
static inline struct sql_value sql_null(void) {
    return (struct sql_value){.type = SQL_NULL};
}

/* The response to a statement. */
struct sql_answer {
    enum sql_trouble trouble;
    char text[300]; /* the server's error text, without values */
    int64_t affected;
    size_t rows, columns;
    const struct sql_value *cells; /* rows * columns */
    void *native;                  /* memory of the engine */
};

static inline const struct sql_value *sql_cell(const struct sql_answer *answer, size_t row,
                                               size_t column) {
    return &answer->cells[row * answer->columns + column];
}

/* Engines. */

/* A session as the server identifies it. A lost session is ended at the server before another
   statement is sent. */
struct sql_session {
    int64_t id, since; /* id 0: none; since: distinguishes sessions with the same id */
};

struct sql_engine_connection; /* one connection; each engine defines it */

/* The outcome of connecting. */
struct sql_dialled {
    struct sql_engine_connection *connection; /* NULL: failed */
    struct sql_session session;
    bool pooled;   /* a proxy is in between */
    bool for_good; /* a retry cannot help */
    int code;
    char text[300]; /* the reason of the failure; after success, a notice for operators, or "" */
};

struct sql_engine {
    const char *name;     /* for error texts */
    const char *password; /* the environment variable */
    const char *form;     /* of a URL, for error texts */
    uint16_t port;
    unsigned hosts_max;
    unsigned depth; /* limit of operations' statements under way on one connection */
    bool notifies;  /* supports LISTEN */
    bool skips;     /* SQL_SWEEP_ skips rows that are locked */

    /* Blocks. Returns a connection of the engine's library, for other users; NULL: failed, with
       the reason in *ret. */
    void *(*connect)(const struct sql_config *config, struct sql_dialled *ret);
    void (*disconnect)(void *conn);
    /* Blocks: connects, checks the server and the version of the tables, ends the `past`
       session. */
    void (*dial)(const struct sql_config *config, const struct sql_session *past,
                 struct sql_dialled *ret);
    void (*hang_up)(struct sql_engine_connection *connection); /* does not block */
    int (*fd)(const struct sql_engine_connection *connection);

    /* Queues a statement, up to SQL_RING(depth) of them; copies its values. False: no memory,
       or the connection is broken. */
    bool (*send)(struct sql_engine_connection *connection, enum sql_statement statement,
                 const struct sql_value *values, size_t n);
    /* Writes and reads as much as is possible without blocking. Returns the events to wait for,
       or -1: broken, with the reason. `events` are those that occurred; 0: a statement was just
       sent. */
    int (*pump)(struct sql_engine_connection *connection, int events, const char **ret_why);
    /* The next complete response, or NULL. */
    struct sql_answer *(*next)(struct sql_engine_connection *connection);
    void (*answer_free)(struct sql_answer *answer); /* takes NULL */
    /* The hash in hex of the next notification, or NULL; valid until the next call. */
    const char *(*notified)(struct sql_engine_connection *connection);
};

extern const struct sql_engine sql_engine_postgres, sql_engine_mysql;

/* Connecting. */

/* For engines: sets the reason of a failure, on one line, and returns false; the file of
   certificate authorities of the URL, the environment or the system; ends a lost session by `kill`,
   which returns true if it does not exist any more. */
bool sql_dialled_fail(struct sql_dialled *ret, int code, bool for_good, const char *text);
const char *sql_authorities(const struct sql_config *config);
bool sql_end_past(bool (*kill)(void *conn, const struct sql_session *past), void *conn,
                  const struct sql_session *past, struct sql_dialled *ret);

/* An attempt to connect, in a thread. */
struct sql_dial {
    struct idem_offload *offload; /* NULL: none */
    struct connect_call *call;
};
/* `done` runs from the loop, and calls sql_dial_end(): the outcome, whose connection becomes the
   caller's. A dial that is cancelled before leaves its thread to itself, which closes its
   connection. False: no memory or no thread. */
bool sql_dial_begin(struct sql_dial *dial, struct idem_loop *loop, const struct sql_config *config,
                    const struct sql_session *past, void (*done)(void *data), void *data);
struct sql_dialled sql_dial_end(struct sql_dial *dial);
void sql_dial_cancel(struct sql_dial *dial); /* no effect without one */

/* In a forked child the socket also belongs to the parent: the bytes that a library sends on
   close must not reach the server. The descriptor stays open, but its peer is closed. */
void sql_fd_abandon(int fd);

/* The version of the tables (sql/schema) that this program knows. Newer tables record the
   oldest version that may use them. False: this program may not, and `text` has the reason and
   the remedy. */
#define SQL_SCHEMA 1
extern const char sql_schema_missing[];
bool sql_schema_fits(int64_t version, int64_t oldest, char *text, size_t size);

/* Divides the sweeper's pauses. Variable only so that tests need not wait. */
extern unsigned sql_sweep_hurry;

/* Rows. */

/* The columns of a record in the order in which they are read (sql_steps.c). */
enum sql_column {
    SQL_COL_REVISION,
    SQL_COL_FORMAT,
    SQL_COL_STATE,
    SQL_COL_FLAGS,
    SQL_COL_ATTEMPT,
    SQL_COL_TRIES,
    SQL_COL_OWNER,
    SQL_COL_DEFINITION,
    SQL_COL_FINGERPRINT,
    SQL_COL_BIND,
    SQL_COL_LEASE_END,
    SQL_COL_EXPIRES,
    SQL_COL_CREATED,
    SQL_COL_CHANGED,
    SQL_COL_STATUS,
    SQL_COL_PRIOR_STATE,
    SQL_COL_PRIOR_TRIES,
    SQL_COL_PRIOR_DUE,
    SQL_COL_PRIOR_EXPIRES,
    SQL_COL_PRIOR_DEFINITION,
    SQL_COL_PRIOR_FINGERPRINT,
    SQL_COL_LABEL,
    SQL_COL_REASON,
    SQL_COL_RESULT, /* NULL if it was not requested */
    SQL_COL_RESULT_LEN,
    SQL_COL_NOW,
    SQL_COL__COUNT
};

/* The same as text, up to the result. */
#define SQL_RECORD_COLUMNS                                                                         \
    "revision, format, state, flags, attempt, tries, owner, definition, fingerprint, bind, "       \
    "lease_end, expires, created, changed, status, prior_state, prior_tries, prior_due, "          \
    "prior_expires, prior_definition, prior_fingerprint, label, reason, "

/* `cells` are the SQL_COL__COUNT cells of one row. 0, IDEM_E_CORRUPT or IDEM_E_VERSION. A
   result that was not requested has its length, and sql_unread as its bytes. */
extern const unsigned char sql_unread[1];
int sql_row_decode(const struct sql_value *cells, struct idem_record *ret, int64_t *ret_now);
/* Fills in the values of SQL_WRITE or SQL_WRITE_RESULT, except the last, and returns their
   number. `was` is the revision to replace. */
size_t sql_row_encode(const struct idem_record_key *key, const struct idem_record *record,
                      int64_t was, int64_t revision, bool result, struct sql_value *out);
/* Fills in the values of SQL_INSERT and returns their number. */
size_t sql_row_insert(const struct idem_record_key *key, const struct idem_record *record,
                      int64_t revision, int64_t lease_ms, int64_t life_ms, struct sql_value *out);

int64_t sql_row_flags(const struct idem_record *record);

static inline struct sql_value sql_prefix(const struct idem_record_key *key) {
    return sql_bytes(key->at, key->prefix_len);
}
static inline struct sql_value sql_hash(const struct idem_record_key *key) {
    return sql_bytes(key->at + key->prefix_len, IDEM_HASH_LEN);
}
static inline size_t sql_put_key(const struct idem_record_key *key, struct sql_value *out) {
    out[0] = sql_prefix(key);
    out[1] = sql_hash(key);
    return 2;
}

#endif
