/*
 * Stores in SQL databases, inside. The protocol is decided here, by the core's tables; what the
 * server does is single-row statements, each a transaction of its own:
 *
 *     claim of a new key    INSERT                            one round trip
 *     done by its owner     UPDATE ... WHERE owner            one round trip
 *     everything else       SELECT, decide, UPDATE or DELETE ... WHERE revision = the one read;
 *                           again from SELECT if that found another
 *
 * A revision is a random number that each change makes anew. Time is the server's: told with what
 * was read, and added to there.
 *
 *     driver.c    the driver's table: open, close, submit, deadlines, counts
 *     job.c       operations under way: sent, answered, sent again, given up
 *     ops.c       each operation as steps of statements
 *     row.c       a record as a row
 *     scan.c      list and stats
 *     sweep.c     removing what has expired: one process of all does
 *     wake.c      who waits: marks, notifications, polls
 *     lane.c      one connection: dialled, used, lost, dialled again
 *     dial.c      a thread that dials; a connection that is the parent's
 *     config.c    the URL
 *     statement.c which values a statement takes and gives
 *     schema.c    whether the tables are those that we know
 *
 * An engine (store/postgres, store/mysql) brings the texts of the statements and the connection.
 */
#ifndef IDEM_STORE_SQL_SQL_H
#define IDEM_STORE_SQL_SQL_H

#include "store/reading.h"

/* Config. */

#define SQL_HOSTS_MAX 8
#define SQL_LANES_MAX 64

enum sql_tls { SQL_TLS_UNSAID, SQL_TLS_OFF, SQL_TLS_PREFER, SQL_TLS_REQUIRE, SQL_TLS_VERIFY };

struct sql_engine;

struct sql_config {
    const struct sql_engine *engine;
    struct idem_host_name hosts[SQL_HOSTS_MAX]; /* or one socket, with port 0 */
    size_t hosts_n;
    char *user, *password, *db; /* NULL: not said */
    enum sql_tls tls;
    char *tls_ca, *tls_cert, *tls_key; /* NULL: the system's, none, none */
    char *name;                        /* of the connection, for the server's lists */
    int64_t connect_timeout_ms, timeout_ms;
    size_t lanes_n;
    bool patient; /* of a caller who blocks: an answer is waited for as long as it takes */
    bool pooled;  /* a proxy may give each transaction another session */
    bool sweep;   /* take part in the election of the one who removes what has expired */
};

int sql_config_read(const struct sql_engine *engine, const struct idem_url *url,
                    struct sql_config *ret, struct idem_error *err);
void sql_config_release(struct sql_config *config);
bool sql_config_copy(const struct sql_config *config,
                     struct sql_config *ret); /* false: no memory */

/* Statements that may be under way on one connection: those of operations (the engine's depth), and
   others beside them, so that neither keeps the other from it. */
#define SQL_BESIDE(depth) ((depth) + 2)
#define SQL_RING(depth) ((depth) + SQL_BESIDE(depth))

/* Statements: what each takes and gives is in statement.c, its text with the engine. */

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
    SQL_SWEEP_RECORD, /* where it passes over rows that others hold */
    SQL_SWEEP_COUNTER,
    SQL_SWEEP_TX,
    SQL_EXPIRED_RECORD, /* where it would wait for them: first it is seen which, */
    SQL_EXPIRED_COUNTER,
    SQL_EXPIRED_TX,
    SQL_REMOVE_RECORD, /* then those alone are touched */
    SQL_REMOVE_COUNTER,
    SQL_REMOVE_TX,
    SQL_MARK, /* where the server notifies */
    SQL_LOOK, /* where it does not */
    SQL_LISTEN,
    SQL_STATEMENT__COUNT
};

/* A letter for each value: i number, n and h numbers of 32 and 16 bits, d a time in ms from now, t
   time of day, b bytes. */
struct sql_shape {
    const char *takes, *gives;
};
extern const struct sql_shape sql_shapes[SQL_STATEMENT__COUNT];

#define SQL_REMOVE_MAX 64 /* rows of one SQL_REMOVE_ */
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

enum sql_trouble {
    SQL_FINE,
    SQL_CONFLICT,  /* the name is taken */
    SQL_AGAIN,     /* the server undid it: deadlock, serialization, lock time-out */
    SQL_ELSEWHERE, /* it did nothing, and will not on this connection: read only, forgotten */
    SQL_REFUSED,
    SQL_FULL,   /* no room */
    SQL_BROKEN, /* no answer, or the connection's end: it may have happened */
};

/* What a statement was answered. */
struct sql_answer {
    enum sql_trouble trouble;
    char text[300]; /* the server's own words, without values */
    int64_t affected;
    size_t rows, columns;
    const struct sql_value *cells; /* rows * columns */
    void *native;                  /* the engine's */
};

static inline const struct sql_value *sql_cell(const struct sql_answer *answer, size_t row,
                                               size_t column) {
    return &answer->cells[row * answer->columns + column];
}

/* Engines. */

/* A session as the server knows it, to be ended there before anything is said again. */
struct sql_session {
    int64_t id, since; /* id 0: none; since: what tells two of that number apart, the engine's */
};

struct sql_link; /* one connection, the engine's */

/* What dialling came to. */
struct sql_dialled {
    struct sql_link *link; /* NULL: it failed */
    struct sql_session session;
    bool pooled;   /* there is a proxy between */
    bool for_good; /* trying again does not help */
    int code;
    char text[300]; /* why it failed; with a link, what operators should know, or "" */
};

struct sql_engine {
    const char *name;     /* as people write it */
    const char *password; /* the variable of the environment */
    const char *form;     /* of a URL, for errors */
    uint16_t port;
    unsigned hosts_max;
    unsigned depth; /* statements of operations that may be under way on one connection */
    bool notifies;  /* LISTEN */
    bool skips;     /* SQL_SWEEP_ passes over rows that others hold */

    /* Blocks: a connection as the engine's library has it, for others; NULL, with why. */
    void *(*connect)(const struct sql_config *config, struct sql_dialled *ret);
    void (*disconnect)(void *conn);
    /* Blocks: connects, checks the server and the tables' version, ends the session before it. */
    void (*dial)(const struct sql_config *config, const struct sql_session *past,
                 struct sql_dialled *ret);
    void (*hang_up)(struct sql_link *link); /* does not block */
    int (*fd)(const struct sql_link *link);

    /* Queues a statement, up to SQL_RING(depth) of them; its values are copied. False: no memory,
       or broken. */
    bool (*send)(struct sql_link *link, enum sql_statement statement,
                 const struct sql_value *values, size_t n);
    /* Writes and reads what it can without blocking. The events to wait for, or -1: broken, and
       why. `events` are those that have come; 0: it was just sent to. */
    int (*pump)(struct sql_link *link, int events, const char **ret_why);
    /* The next answer, or NULL: none is whole yet. */
    struct sql_answer *(*next)(struct sql_link *link);
    void (*answer_free)(struct sql_answer *answer);
    /* The next notification's hash in hex, NULL: none; valid until the next call. */
    const char *(*notified)(struct sql_link *link);
};

extern const struct sql_engine sql_engine_postgres, sql_engine_mysql;

/* Dialling. */

struct sql_dial;
typedef void sql_dialled_fn(void *data, const struct sql_dialled *dialled);
/* Dials in a thread; `done` runs from the loop, and owns the link. Freed by its owner, in `done` or
   whenever: the thread goes on alone, and hangs up. NULL: no memory, or no thread. */
struct sql_dial *sql_dial_new(struct idem_loop *loop, const struct sql_config *config,
                              const struct sql_session *past, sql_dialled_fn *done, void *data);
void sql_dial_free(struct sql_dial *dial);

/* In a child that was forked the socket is the parent's, too: what a library says when it is closed
   must not reach the server. The descriptor is left, and leads nowhere. */
void sql_fd_abandon(int fd);

/* The version of the tables (sql/schema) that we know. Newer ones say which is the oldest that may
   use them. False: not this one, and what to do about it. */
#define SQL_SCHEMA 1
extern const char sql_schema_missing[];
bool sql_schema_fits(int64_t version, int64_t oldest, char *text, size_t size);

/* Rows. */

/* The columns of a record that is read, in their order (statement.c). */
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
    SQL_COL_RESULT, /* NULL where it was not asked for */
    SQL_COL_RESULT_LEN,
    SQL_COL_NOW,
    SQL_COL__COUNT
};

/* `cells` are SQL_COL__COUNT of one row. 0, IDEM_E_CORRUPT or IDEM_E_VERSION. A result that was not
   asked for has its length, and sql_unread as its bytes. */
extern const unsigned char sql_unread[1];
int sql_row_decode(const struct sql_value *cells, struct idem_record *ret, int64_t *ret_now);
/* The values of SQL_WRITE, or of SQL_WRITE_RESULT, but for the last; how many. `was` is the
   revision that it is to replace. */
size_t sql_row_encode(const struct idem_record_key *key, const struct idem_record *record,
                      int64_t was, int64_t revision, bool result, struct sql_value *out);
/* The values of SQL_INSERT. */
size_t sql_row_insert(const struct idem_record_key *key, const struct idem_record *record,
                      int64_t revision, int64_t lease_ms, int64_t life_ms, struct sql_value *out);

int64_t sql_row_flags(const struct idem_record *record);

static inline struct sql_value sql_prefix(const struct idem_record_key *key) {
    return sql_bytes(key->at, key->prefix_len);
}
static inline struct sql_value sql_hash(const struct idem_record_key *key) {
    return sql_bytes(key->at + key->prefix_len, IDEM_HASH_LEN);
}

#endif
