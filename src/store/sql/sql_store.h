/*
 * The state of a SQL store: its connections, and the operations under way.
 */
#ifndef IDEM_STORE_SQL_SQL_STORE_H
#define IDEM_STORE_SQL_SQL_STORE_H

#include "store/remote.h"
#include "store/sql/sql_engine.h"

#define SQL_SLOTS 4096 /* of a connection; by 12 bits of the hash */

struct sql_store;
struct sql_connection;

/* A statement under way. `take` receives the response; NULL: the connection was lost before it
   arrived. The response belongs to the connection, unless sql_connection_take_answer() takes it. */
typedef void sql_take_fn(struct sql_connection *connection, void *data, struct sql_answer *answer);
struct sql_pending {
    sql_take_fn *take;
    void *data;
};

/* A response that is being delivered. */
struct sql_delivery {
    struct sql_answer *answer; /* NULL: the receiver kept it */
    bool gone;                 /* the connection was closed meanwhile */
    struct sql_delivery *outer;
};

enum sql_connection_state {
    SQL_CONNECTION_OFF,
    SQL_CONNECTION_DIALLING,
    SQL_CONNECTION_READY,
    SQL_CONNECTION_PAUSING
};

/* One connection. All operations on a key use the same connection, in order. */
struct sql_connection {
    struct sql_store *store;
    enum sql_connection_state state;
    struct sql_engine_connection *native; /* the engine's; NULL: none */
    struct sql_dial dial;
    struct sql_session session, past; /* past: lost with statements under way */
    struct idem_fd fd;
    struct idem_timer timer; /* ends a pause; bounds dialling; bounds the oldest response */
    int events;              /* for which the fd is watched */
    unsigned tries;
    bool met;                    /* it was connected before */
    bool down;                   /* the server could not be reached, or did not respond in time */
    unsigned failed;             /* consecutive attempts to connect that failed */
    struct sql_pending *pending; /* a ring */
    size_t pending_first, pending_n;
    size_t operations_n; /* the share of operations in pending_n */
    int64_t last_read;   /* the time of the last response, or when the oldest statement was sent */
    int64_t answered;    /* the time of the last response; 0: never */
    struct sql_delivery *delivery;
    char leaving[300];        /* the reason why nothing more is sent; "": sending goes on */
    bool listening;           /* LISTEN was sent */
    unsigned char *busy;      /* by slot: an operation there reads and changes its record */
    struct remote_queue held; /* jobs that wait for a slot */
    struct remote_queue turn; /* jobs to be sent */
    struct idem_task flush;
    struct sql_channel *polls, **polls_end; /* channels to be polled when there is room */
};

/* One operation under way. */
struct sql_job {
    struct sql_store *store;
    struct sql_connection *connection;
    bool holds; /* it holds the slot of its key */
    const struct sql_step *step;
    struct idem_record record; /* as read, then as decided */
    int64_t revision, was, now;
    struct sql_answer *read; /* contains the bytes of `record` */
    struct idem_entry *entries;
    struct sql_walk *walk;                    /* of a sweep */
    unsigned char bound[IDEM_PREFIX_MAX + 1]; /* of a list: the end of its last prefix */
    struct remote_op base;                    /* last: its strings are stored behind it */
};

/* The position of a walk through the tables. */
struct sql_walk {
    unsigned table;
    struct idem_record_key at;    /* prefix_len 0: at the beginning */
    struct idem_record_key bound; /* the end of the part being swept; prefix_len 0: no end */
};

/* The store's own periodic sweep. */
struct sql_sweeper {
    struct idem_timer timer;
    unsigned char id[IDEM_OWNER_LEN];
    bool named, elected, flying;
    int64_t save_at;
    struct sql_walk walk;
    struct idem_op op;
};

/* A record with watches: a poll reads its revision. */
struct sql_channel {
    struct remote_channel base;
    bool flying; /* a poll is under way */
    bool queued; /* a poll waits on its connection */
    struct sql_channel *poll_next;
    int64_t revision;
    int64_t poll_at,
        poll_ms; /* the time of the next poll, on the loop's clock; the pause after it */
};

struct sql_store {
    struct remote remote;
    const struct sql_engine *engine;
    struct sql_config config;

    struct sql_connection connections[SQL_CONNECTIONS_MAX];
    bool silent;       /* a response is overdue, and none has arrived since */
    bool pooled;       /* set by the configuration, or detected */
    char noticed[300]; /* the last notice, which is not repeated */

    struct idem_timer wake_timer;

    struct sql_sweeper sweeper;
    struct sql_walk walk; /* of operations that sweep */
};

static inline struct sql_store *sql_store_of(struct remote *r) {
    return idem_container_of(r, struct sql_store, remote);
}
static inline struct sql_job *sql_job_of(struct remote_op *op) {
    return idem_container_of(op, struct sql_job, base);
}

/* sql_connection.c */
void sql_connection_init(struct sql_connection *connection, struct sql_store *store);
void sql_connection_open(
    struct sql_connection *connection); /* no effect while it is dialling, ready or in a pause */
void sql_connection_close(struct sql_connection *connection);
/* True if operations on it are refused: it does not help to wait for the server. */
bool sql_connection_is_down(const struct sql_connection *connection);
bool sql_connection_has_room(const struct sql_connection *connection); /* for an operation */
bool sql_connection_has_room_for_others(
    const struct sql_connection *connection); /* for other statements */
/* Sends a statement; false: not ready, no room, or no memory. */
bool sql_connection_send(struct sql_connection *connection, enum sql_statement statement,
                         const struct sql_value *values, size_t n, sql_take_fn *take, void *data);
void sql_connection_pump(struct sql_connection *connection);
/* Inside a sql_take_fn: transfers the response to the caller. */
struct sql_answer *sql_connection_take_answer(struct sql_connection *connection);
struct sql_connection *sql_connection_of(struct sql_store *store,
                                         const struct idem_record_key *key);

/* sql_steps.c */

#define SQL_MORE 1 /* the operation goes on: send job->step */
/* A statement to send, and the function that receives its response. */
struct sql_step {
    enum sql_statement statement;
    bool changes;
    size_t (*write)(struct sql_job *job, struct sql_value *values);
    /* SQL_MORE, or the operation's code: 0, or one with job->base.copy.error. */
    int (*take)(struct sql_job *job, struct sql_answer *answer);
    bool passes; /* receives SQL_AGAIN, too */
};
static inline int sql_job_continue(struct sql_job *job, const struct sql_step *step) {
    job->step = step;
    return SQL_MORE;
}
/* Sets the first step, also when the job starts again. 0, or a code with job->base.copy.error. */
int sql_job_restart(struct sql_job *job);
/* Inside `take`: the response becomes job->read. */
void sql_job_take_answer(struct sql_job *job);
int sql_job_trouble(struct sql_job *job, const struct sql_answer *answer);

/* sql_scan.c */
extern const struct sql_step sql_step_list, sql_step_stats, sql_step_time;

/* sql_sweep.c */
const struct sql_step *sql_sweep_begin(struct sql_job *job);
void sql_sweeper_init(struct sql_store *store);
void sql_sweeper_arm(struct sql_store *store); /* the store is in use */
void sql_sweeper_stop(struct sql_store *store);

/* sql_wake.c */
void sql_watched(struct remote *r, struct remote_channel *channel);
void sql_unwatched(struct remote *r, struct remote_channel *channel);
void sql_wake_fire(struct idem_timer *timer);
void sql_wake_notified(struct sql_connection *connection, const char *hex);
void sql_wake_lost(struct sql_connection *connection);
void sql_wake_room(
    struct sql_connection *connection); /* channels that wait for room may be polled */

/* sql_driver.c */
void sql_connection_flush_run(struct idem_task *task); /* sends the jobs in `turn` */
void sql_store_ready(struct sql_store *store);
void sql_store_notice(struct sql_store *store, const char *text);
int sql_open(const struct idem_driver *driver, const struct idem_url *url, struct idem_loop *loop,
             const struct idem_clock *clock, struct idem_store **ret, struct idem_error *err);
int sql_check(const struct idem_driver *driver, const struct idem_url *url, struct idem_error *err);
void sql_close(struct idem_store *base);
/* The slots of a driver with a struct sql_engine. */
#define SQL_DRIVER_SLOTS                                                                           \
    .transactions = true, .check = sql_check, .open = sql_open, .close = sql_close,                \
    REMOTE_DRIVER_SLOTS

#endif
