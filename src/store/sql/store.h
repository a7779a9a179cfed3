/*
 * A SQL store itself: its lanes, and the operations under way.
 */
#ifndef IDEM_STORE_SQL_STORE_H
#define IDEM_STORE_SQL_STORE_H

#include "store/sql/sql.h"

#define SQL_CHANNEL_BUCKETS 256 /* by the first byte of the hash */
#define SQL_SLOTS 4096          /* of a lane; by 12 bits of the hash */

struct sql_store;
struct sql_lane;

/* One that waits for an answer; NULL: the connection was lost before it came. The answer is the
   lane's, unless it is taken by sql_lane_keep(). */
typedef void sql_take_fn(struct sql_lane *lane, void *data, struct sql_answer *answer);
struct sql_want {
    sql_take_fn *take;
    void *data;
};

/* An answer that is being told. */
struct sql_telling {
    struct sql_answer *answer; /* NULL: it was kept */
    bool gone;                 /* the link is, meanwhile */
    struct sql_telling *outer;
};

enum sql_lane_state { SQL_LANE_OFF, SQL_LANE_DIALLING, SQL_LANE_READY, SQL_LANE_PAUSING };

/* One connection. All that concerns a key goes by the same one, in order. */
struct sql_lane {
    struct sql_store *store;
    enum sql_lane_state state;
    struct sql_link *link;
    struct sql_dial *dial;
    struct sql_session session, past; /* past: lost with statements under way */
    struct idem_fd fd;
    struct idem_timer timer; /* to dial; until dialled; for the oldest answer */
    int events;              /* that the fd is watched for */
    unsigned tries;
    bool met;               /* it was connected before */
    struct sql_want *wants; /* a ring */
    size_t wants_first, wants_n;
    size_t operations_n; /* of them */
    int64_t heard;       /* when an answer came last, or the oldest want was sent */
    struct sql_telling *telling;
    char leaving[300];                /* nothing more is sent, and why; "": no */
    bool listening;                   /* LISTEN was said */
    unsigned char *busy;              /* by slot: an operation is reading and changing there */
    struct sql_job *held, **held_end; /* those that wait for a slot */
    struct sql_job *turn, **turn_end; /* to be sent */
    struct idem_task flush;
    struct sql_channel *asks, **asks_end; /* to be asked about when there is room */
};

/* One operation under way. */
struct sql_job {
    struct sql_store *store;
    struct sql_lane *lane;
    struct idem_op *op;           /* NULL: nobody wants to know any more */
    struct sql_job *next, **link; /* all of them, by their deadline; or those that were dropped */
    struct sql_job *turn_next;
    int64_t deadline;
    size_t size;
    bool queued; /* in a turn, or in a pause */
    bool wanted; /* a statement of it is under way */
    bool sent;   /* something that changes was sent: it may have happened */
    bool holds;  /* the slot of its key */
    bool lost;   /* at least once, with its connection */
    const struct sql_step *step;
    struct idem_record record; /* as read, and as decided */
    int64_t revision, was, now;
    struct sql_answer *read; /* what record's bytes lie in */
    struct idem_entry *entries;
    struct sql_walk *walk;                    /* a sweep */
    unsigned char bound[IDEM_PREFIX_MAX + 1]; /* a list: behind its last prefix */
    struct idem_op copy;                      /* its strings lie behind the job */
};

/* Where a walk through the tables stands. */
struct sql_walk {
    unsigned table;
    struct idem_record_key at;    /* prefix_len 0: at its beginning */
    struct idem_record_key bound; /* of the part that is being swept; prefix_len 0: the end */
};

/* Sweeping of its own accord. */
struct sql_sweeper {
    struct idem_timer timer;
    unsigned char id[IDEM_OWNER_LEN];
    bool named, elected, flying;
    int64_t save_at;
    struct sql_walk walk;
    struct idem_op op;
};

struct sql_store {
    struct idem_store base;
    const struct sql_engine *engine;
    struct sql_config config;
    unsigned forks, depth;
    bool closing;

    struct sql_lane lanes[SQL_LANES_MAX];
    bool was_ready; /* once: since then a server that is away is waited for */
    bool pooled;    /* by the config, or as it was found */
    char trouble[300];
    int trouble_code;
    bool for_good;
    char noticed[300]; /* the last thing that was told */

    struct sql_job *jobs, **jobs_end;
    size_t jobs_n, jobs_bytes;
    struct sql_job *dropped; /* nobody asks for them, but a lane knows them */
    struct sql_job *paused, **paused_end;
    struct idem_task refuse;
    struct idem_timer deadline, again;

    struct sql_channel *channels[SQL_CHANNEL_BUCKETS]; /* that somebody waits at */
    size_t watches_n;
    struct idem_watch *woken, *waking;
    struct idem_task wake_first;
    struct idem_timer wake_timer;

    struct sql_sweeper sweeper;
    struct sql_walk walk; /* of operations that sweep */

    struct idem_op nobody; /* whose call-back does nothing: for what goes on while it is closed */

    uint64_t tally[IDEM_EVENT__COUNT], tally_sent[IDEM_EVENT__COUNT];
    unsigned tally_flying;
    struct idem_timer tally_timer;
};

/* lane.c */
void sql_lane_init(struct sql_lane *lane, struct sql_store *store);
void sql_lane_open(struct sql_lane *lane); /* unless it is under way or in a pause */
void sql_lane_close(struct sql_lane *lane);
void sql_lane_fail(struct sql_lane *lane, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool sql_lane_has_room(const struct sql_lane *lane);   /* for an operation */
bool sql_lane_has_beside(const struct sql_lane *lane); /* for something else */
/* Sends a statement; false: not ready, no room, no memory. */
bool sql_lane_send(struct sql_lane *lane, enum sql_statement statement,
                   const struct sql_value *values, size_t n, sql_take_fn *take, void *data);
void sql_lane_pump(struct sql_lane *lane);
/* Inside a sql_take_fn: its answer becomes the caller's. */
struct sql_answer *sql_lane_keep(struct sql_lane *lane);
struct sql_lane *sql_lane_of(struct sql_store *store, const struct idem_record_key *key);

/* job.c */
struct sql_job *sql_job_new(struct sql_store *store, struct idem_op *op);
void sql_job_turn(struct sql_job *job);
void sql_job_drop(struct sql_job *job);
void sql_job_complete(struct sql_job *job, int rc);
int sql_job_fail(struct sql_job *job, const char *otherwise);
void sql_lane_flush_run(struct idem_task *task);
void sql_again_fire(struct idem_timer *timer);
void sql_jobs_resume(struct sql_store *store); /* a lane is ready: those that pause go on */
void sql_jobs_free(struct sql_store *store);

/* ops.c */

/* A statement to send, and what to do with its answer. */
enum sql_next {
    SQL_NEXT_SEND,  /* job->step is to be sent */
    SQL_NEXT_PAUSE, /* the same after a moment */
    SQL_NEXT_DONE,
};
struct sql_step {
    enum sql_statement statement;
    bool changes;
    size_t (*write)(struct sql_job *job, struct sql_value *values);
    enum sql_next (*take)(struct sql_job *job, struct sql_answer *answer, int *ret_rc);
    bool passes; /* takes SQL_AGAIN, too */
};
/* Where it begins, also when it begins anew. 0 or a code with job->copy.error. */
int sql_job_begin(struct sql_job *job);
int sql_job_trouble(struct sql_job *job, const struct sql_answer *answer);
bool sql_job_repeats(const struct sql_job *job); /* saying it twice is answered as the first */
bool sql_job_looks(const struct sql_job *job);   /* it changes nothing */

/* scan.c */
extern const struct sql_step sql_step_list, sql_step_stats, sql_step_time;

/* sweep.c */
const struct sql_step *sql_sweep_begin(struct sql_job *job);
void sql_sweeper_init(struct sql_store *store);
void sql_sweeper_arm(struct sql_store *store); /* somebody uses the store */
void sql_sweeper_stop(struct sql_store *store);

/* wake.c */
int sql_watch(struct idem_store *base, struct idem_watch *watch);
void sql_unwatch(struct idem_store *base, struct idem_watch *watch);
void sql_wake_first_run(struct idem_task *task);
void sql_wake_fire(struct idem_timer *timer);
void sql_wake_notified(struct sql_lane *lane, const char *hex);
void sql_wake_lost(struct sql_lane *lane);
void sql_wake_room(struct sql_lane *lane); /* there may be some for those that are to be asked */
void sql_channels_free(struct sql_store *store);

/* driver.c */
void sql_store_enter(struct sql_store *store);
bool sql_store_leave(struct sql_store *store); /* true: it is gone */
void sql_store_ready(struct sql_store *store);
void sql_store_trouble(struct sql_store *store, int code, bool for_good, const char *text);
void sql_store_notice(struct sql_store *store, const char *text);
int sql_open(const struct sql_engine *engine, const struct idem_url *url, struct idem_loop *loop,
             struct idem_store **ret, struct idem_error *err);
int sql_check(const struct sql_engine *engine, const struct idem_url *url, struct idem_error *err);
void sql_close(struct idem_store *base);
int sql_submit(struct idem_store *base, struct idem_op *op);
void sql_cancel(struct idem_store *base, struct idem_op *op);
void sql_tally(struct idem_store *base, enum idem_event event, uint64_t n);

#endif
