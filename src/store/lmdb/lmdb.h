/*
 * The embedded store, inside. Files of this folder and their jobs:
 *
 *   driver.c  the driver table: operations in and call-backs out, on a loop
 *   registry.c one environment per process and path, shared by its handles
 *   env.c     an LMDB environment: open, check, transactions
 *   map.c     how data.mdb is mapped: for reading, or, where it may, for writing
 *   tables.c  what stands in the file: tables, format, boot
 *   folder.c  the directory: as whom root uses it, and what must not stand in it
 *   state.c   the small files beside it: who has it open, how, since which boot
 *   clock.c   the two clocks, and the refusal of a jump
 *   jumps.c   how far real time has jumped forward, and how far it may
 *   batch.c   many operations in one transaction; the writer thread
 *   ops.c     each operation on one record, inside a transaction
 *   scan.c    list and stats: operations that look at many records
 *   aux.c     nonces and counters
 *   expiry.c  the index on time, and the sweep
 *   check.c   LMDB's files, checked where LMDB trusts them
 *   tree.c    the pages of data.mdb, walked with nothing taken on trust
 *   shared.c  memory shared by all processes: counts, and who waits for what
 *
 * A store (one per handle, used by its
 * loop's thread) has jobs; an environment (one per process and path) runs them.
 */
#ifndef IDEM_STORE_LMDB_H
#define IDEM_STORE_LMDB_H

#include <lmdb.h>
#include <pthread.h>
#include <sys/stat.h>

#include "core/spare.h"
#include "store/store.h"

enum lmdb_sync { LMDB_SYNC_ALWAYS, LMDB_SYNC_OFF };

struct lmdb_config {
    char *path;
    enum lmdb_sync sync;
    bool accept_loss;  /* start empty after an unclean power-off with sync=off */
    bool accept_clock; /* take the machine's clock as it is now */
    bool create;       /* where there is no store, make one */
    size_t size;       /* the file's limit, in bytes */
};

/* An operation on its way: a copy of what was asked, and room for the answer. */
struct lmdb_job {
    struct lmdb_job *next, **link;
    struct lmdb_jobs *list;   /* the one it can be taken out of; NULL: it is being written */
    size_t size;              /* of what it holds */
    struct lmdb_store *store; /* NULL: its store was closed */
    struct idem_op *op;       /* NULL: cancelled */
    int rc;
    bool ready; /* answered */
    bool wakes; /* waiters for its key must be told, once it is stored */
    void *blob; /* what `copy.out` points to */
    struct idem_entry *entries;
    struct idem_op copy; /* byte strings point behind this struct */
};

struct lmdb_jobs {
    struct lmdb_job *first, **end;
};

/* state.c */
#define LMDB_BOOT_LEN 36
struct lmdb_state {
    enum lmdb_sync sync;
    bool clean;
    int64_t size, mtime_ns; /* of data.mdb, when it was closed cleanly */
    char boot[LMDB_BOOT_LEN + 1];
};

/* jumps.c: as it stands in the shared file and in data.mdb */
#define LMDB_JUMP_DAYS 8
struct lmdb_jumps {
    char boot[LMDB_BOOT_LEN];     /* whose lease clock it is */
    uint32_t format;              /* 0: there is none yet */
    int64_t uptime, lease;        /* ms of uptime, over all boots, when the lease clock said that */
    int64_t offset;               /* the store's time minus the lease clock, as it was accepted */
    int64_t days[LMDB_JUMP_DAYS]; /* ms of jumps in each day of uptime; they take turns */
    uint64_t changes;             /* how often one was added, or all were accepted */
    uint64_t accepted;            /* how often by the operator */
};

/* clock.c */
struct lmdb_clock {
    pthread_mutex_t lock;
    struct idem_clock source;
    int64_t lease, wall; /* a moment both were read at */
    int64_t high;        /* of the file, or of this process where that has none */
    int64_t saved;       /* what the file has of the highest */
    uint64_t changes;    /* what it has of the jumps */
    uint64_t accepted;   /* by the operator, when this process looked */

    /* As they were when the store was opened. */
    char boot[LMDB_BOOT_LEN + 1];
    bool same_boot;                /* the file's clock is this boot's */
    int64_t file_lease, file_wall; /* the file's clock */
    struct lmdb_jumps jumps;       /* the file's */
};

#define LMDB_READERS_MAX 1024

/* shared.c: how many handles with waiters, in all processes, can be woken */
#define LMDB_SLOTS 256
#define LMDB_BUCKETS 1024 /* of keys */

/* expiry.c: what a sweep may do before it must stop */
struct lmdb_sweep {
    size_t budget;
    size_t removed;
    bool more;
};

struct lmdb_file {
    dev_t dev;
    ino_t ino;
};

/* folder.c: the directory's, as whom root uses it */
struct lmdb_owner {
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t groups_n;
};

struct lmdb_env {
    struct lmdb_env *next; /* in the process's registry */
    unsigned refs;
    unsigned forks; /* idem_fork_count() when it was opened */
    pid_t pid;
    dev_t dev; /* of the folder */
    ino_t ino;
    struct lmdb_owner owner;
    bool usable; /* neither being opened nor being closed; under the registry's lock */
    struct lmdb_file data_file, lock_file, door_file; /* as they were opened */
    struct timespec looked;                           /* when they were last seen in place */
    bool gone;
    char *data_path;
    struct lmdb_config config;

    int dir_fd, lock_fd;
    MDB_env *mdb;
    bool direct; /* its pages are written in the map; under `map_lock`: */
    bool unmapped;
    MDB_dbi records, expiry, aux, meta;
    pthread_mutex_t write_lock; /* held through a write transaction */
    pthread_rwlock_t map_lock;  /* held for writing while the map is resized */
    uint32_t epoch;             /* which boot: leases of another one are over */
    struct lmdb_clock clock;
    struct lmdb_shared *shared;
    bool slots[LMDB_SLOTS];       /* which of the shared ones are ours; under `lock` */
    int64_t sweep_next;           /* wall ms; before it there is nothing to sweep */
    struct lmdb_pending *pending; /* index entries that are not written yet */
    int64_t readers_checked;
    size_t readers_pages;   /* pages of the file then */
    unsigned char *scratch; /* of whoever has the write transaction */
    size_t scratch_size;
    size_t full_checked; /* the transaction in which `full` was found out */
    bool full;

    /* the writer thread, with sync=always */
    pthread_t writer;
    pthread_mutex_t lock;
    pthread_cond_t wake, stopped;
    struct lmdb_jobs queue;
    size_t queued, queued_bytes;
    struct lmdb_job *batch; /* what it is writing now */
    size_t batch_size;      /* of the last one */
    int64_t batch_us;       /* how long its commit took */
    bool writing, stop;
    void (*orphaned)(struct lmdb_env *env); /* ends it, when nobody waits for the writer */
};

struct lmdb_store {
    struct idem_store base;
    struct lmdb_env *env;
    MDB_txn *reader;           /* reset between uses */
    struct lmdb_jobs pending;  /* submitted in this turn */
    struct lmdb_jobs done;     /* answered by the writer; under env->lock */
    struct lmdb_jobs finished; /* call-backs to run */
    struct idem_spare spare;   /* jobs that are over */
    struct idem_task flush, wake_first;
    struct idem_fd event; /* eventfd: the writer has answered */
    struct idem_fd fifo;  /* somebody finished a key we watch */
    int slot;             /* in shared memory; -1: none */
    bool fifo_tried;
    struct idem_watch *watches[LMDB_BUCKETS]; /* by key */
    struct idem_watch *woken;                 /* to be called */
    unsigned wishes[LMDB_BUCKETS];            /* how many of both */
    unsigned depth;                           /* of call-backs being run */
    bool closing;
};

/* registry.c */

/* How long others are waited for, in seconds. Variable only so that tests need not last as long. */
struct lmdb_patience {
    int door;   /* by who opens or closes, for another process that does */
    int stop;   /* by a closing, for what is still being written */
    int busy;   /* by who opens, for another thread that opens or closes the same store */
    int length; /* for another process that changes the length of the file */
};
extern struct lmdb_patience lmdb_patience;

int lmdb_env_open(const struct lmdb_config *config, const struct idem_clock *clock,
                  struct lmdb_env **ret, struct idem_error *err);
void lmdb_env_close(struct lmdb_env *env);
/* Held while a descriptor is opened that a forked child must know of. */
void lmdb_registry_take(void);
void lmdb_registry_give(void);

/* env.c: new (ENOMEM) and free; between them start, and flush and seal when it is closed. */
int lmdb_env_new(const struct lmdb_config *config, const struct idem_clock *clock, int dir_fd,
                 const struct stat *st, struct lmdb_env **ret);
int lmdb_env_start(struct lmdb_env *env, struct idem_error *err);
void lmdb_env_flush(struct lmdb_env *env);
void lmdb_env_seal(struct lmdb_env *env);
void lmdb_env_free(struct lmdb_env *env);
int lmdb_fail(const struct lmdb_env *env, struct idem_error *err, int rc, const char *doing);

/* Begins as open does and once a process was found dead. */
void lmdb_readers_check(struct lmdb_env *env);

/* Bytes of pages that hold something. MDB codes. */
int lmdb_env_used(struct lmdb_env *env, MDB_txn *reader, size_t *ret);
/* No room for a new record: what is left is for finishes and the sweep. Asked of the
   store as it was before this write transaction. */
bool lmdb_env_full(struct lmdb_env *env, MDB_txn *txn);

/* map.c. How large the file may become: its size, and room for finishes and the sweep. */
size_t lmdb_map_limit(const struct lmdb_config *config);
/* Opens data.mdb and checks what is not trusted. */
int lmdb_map_open(struct lmdb_env *env, bool alone, bool trusted, struct idem_error *err);
/* How often in a row it may be found larger than it is mapped: each time another process has used
   up a step, and steps double. */
#define LMDB_RESIZES_MAX 16
/* Another process has made the file larger: take that over. No transaction of this thread may
   be open. MDB codes, as for the next. */
int lmdb_map_adopt(struct lmdb_env *env);
/* After MDB_MAP_FULL: makes the file larger, if it may be. */
int lmdb_map_grow(struct lmdb_env *env);

/* Begin and end: with MDB_MAP_RESIZED taken care of. MDB codes. */
int lmdb_read_begin(struct lmdb_store *store);
void lmdb_read_end(struct lmdb_store *store);
int lmdb_write_begin(struct lmdb_env *env, MDB_txn **ret);
/* LMDB_GONE instead of writing to a file that nobody else will read. */
#define LMDB_GONE (MDB_LAST_ERRCODE + 1)
/* *ret_unknown: it failed, and may have been stored all the same. */
int lmdb_write_commit(struct lmdb_env *env, MDB_txn *txn, bool *ret_unknown);
void lmdb_write_abort(struct lmdb_env *env, MDB_txn *txn);

/* state.c */
#define LMDB_LOCK_FILE "idem.lock"
int lmdb_boot_id(char out[LMDB_BOOT_LEN + 1], struct idem_error *err);
/* The same, another one in each time namespace: by whose clock leases are judged. */
int lmdb_clock_id(char out[LMDB_BOOT_LEN + 1], struct idem_error *err);
int lmdb_lock_open(struct lmdb_env *env, bool *ret_alone, struct idem_error *err);
bool lmdb_lock_leave(struct lmdb_env *env); /* true: nobody else has it open */
void lmdb_lock_opened(struct lmdb_env *env);
void lmdb_lock_close(struct lmdb_env *env);
/* Held while the file's length is looked at, changed and mapped: LMDB cuts it to what it maps. */
int lmdb_lock_length(struct lmdb_env *env);
void lmdb_unlock_length(struct lmdb_env *env);
/* Held while jumps of the clock are looked at and added. */
int lmdb_lock_clock(struct lmdb_env *env);
void lmdb_unlock_clock(struct lmdb_env *env);
bool lmdb_lock_slot(struct lmdb_env *env, int slot); /* for shared.c */
void lmdb_unlock_slot(struct lmdb_env *env, int slot);
/* The text is cut to pieces. *ret is untouched on failure. */
int lmdb_state_parse(const struct lmdb_env *env, char *text, struct lmdb_state *ret,
                     struct idem_error *err);
int lmdb_state_read(struct lmdb_env *env, struct lmdb_state *ret, bool *ret_found,
                    struct idem_error *err);
/* Whether data.mdb is as a clean close left it; and to say how that was. */
bool lmdb_state_fits(const struct lmdb_env *env, const struct lmdb_state *state);
void lmdb_state_note(const struct lmdb_env *env, struct lmdb_state *state);
int lmdb_state_write(struct lmdb_env *env, const struct lmdb_state *state, struct idem_error *err);

/* tables.c */
int lmdb_tables_open(struct lmdb_env *env, bool alone, const struct lmdb_state *state,
                     struct idem_error *err);

/* clock.c */
void lmdb_clock_init(struct lmdb_clock *clock, const struct idem_clock *source);
int lmdb_clock_load(struct lmdb_env *env, MDB_txn *txn, bool same_boot, struct idem_error *err);
/* With accept_clock=yes: the file forgets what it knew. */
int lmdb_clock_accept(struct lmdb_env *env, MDB_txn *txn, struct idem_error *err);
int lmdb_clock_save(struct lmdb_env *env, MDB_txn *txn, struct idem_time now);
/* The time that was saved last may not have been stored. */
void lmdb_clock_unsaved(struct lmdb_env *env);
/* A jump of more than a day, back or forward. */
int lmdb_clock_refuse(const struct lmdb_env *env, int64_t by, struct idem_error *err);
/* The machine's real time as it was last read, which may go back. */
int64_t lmdb_clock_real(struct lmdb_env *env);
int lmdb_now(struct lmdb_env *env, struct idem_time *ret, struct idem_error *err);

/* batch.c */
void lmdb_jobs_init(struct lmdb_jobs *jobs);
void lmdb_jobs_push(struct lmdb_jobs *jobs, struct lmdb_job *job);
struct lmdb_job *lmdb_jobs_pop(struct lmdb_jobs *jobs);
void lmdb_jobs_remove(struct lmdb_job *job);             /* from the list it is in */
struct lmdb_job *lmdb_jobs_take(struct lmdb_jobs *jobs); /* all of them, in no list any more */
void lmdb_job_free(struct lmdb_job *job);
void lmdb_batch_run(struct lmdb_env *env, struct lmdb_job *first);
int lmdb_writer_start(struct lmdb_env *env, struct idem_error *err);
/* True when it has ended, with everything written. False after waiting in vain: then it calls
   `orphaned` when it is through. */
bool lmdb_writer_stop(struct lmdb_env *env, void (*orphaned)(struct lmdb_env *env));
void lmdb_writer_push(struct lmdb_env *env, struct lmdb_jobs *jobs);
/* True if it was still waiting, there or in a store's `pending`; then it will not be written. */
bool lmdb_writer_drop(struct lmdb_env *env, const struct lmdb_jobs *pending, struct lmdb_job *job);

/*
 * ops.c: runs a job inside a transaction and fills in its answer. Returns 0, or
 * the MDB code that spoilt the transaction; what concerns the job alone is in
 * job->rc.
 */
int lmdb_op_write(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
/* True if it could be answered by reading; otherwise it must be written. */
bool lmdb_op_read(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
/* scan.c: reads on for a while; sets job->ready when it has seen everything. */
void lmdb_op_scan(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
bool lmdb_op_scans(const struct lmdb_job *job);

/* The record under a key; MDB_NOTFOUND, or job->rc when it cannot be read. */
struct lmdb_found {
    bool there;
    struct idem_record record;
    uint64_t indexed; /* stamp under which the index has it */
};
int lmdb_record_get(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    struct lmdb_found *ret, struct idem_error *err, int *ret_code);
int lmdb_record_read(const struct lmdb_env *env, MDB_val value, const struct idem_record_key *key,
                     struct lmdb_found *ret);
int lmdb_record_del(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    uint64_t indexed);
int lmdb_record_put(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    const struct idem_record *record, uint64_t indexed);

/* expiry.c. MDB codes; only inside a write transaction, except for begin and end. */
enum lmdb_kind { LMDB_KIND_RECORD = 1, LMDB_KIND_AUX = 2 };
int lmdb_expiry_begin(struct lmdb_env *env);
void lmdb_expiry_end(struct lmdb_env *env);

/* An entry for a look at that time, written now or with others later; gives back its stamp. */
int lmdb_expiry_add(struct lmdb_env *env, MDB_txn *txn, enum lmdb_kind kind,
                    const struct idem_record_key *key, int64_t look_ms, uint64_t *ret_stamp);
int lmdb_expiry_drop(struct lmdb_env *env, MDB_txn *txn, uint64_t stamp);
int lmdb_expiry_sweep(struct lmdb_env *env, MDB_txn *txn, struct idem_time now,
                      struct lmdb_sweep *sweep);

/* A process was found dead: look at every record, for entries it had not written. */
void lmdb_expiry_died(struct lmdb_env *env);

/* Before a commit: writes what has gathered, if that is due or `all` is wanted. After it: whether
   the transaction was stored. */
bool lmdb_expiry_waits(const struct lmdb_env *env); /* there is something to flush */
int lmdb_expiry_flush(struct lmdb_env *env, MDB_txn *txn, bool all);
void lmdb_expiry_settled(struct lmdb_env *env, bool stored);

/* shared.c */
int lmdb_shared_open(struct lmdb_env *env, bool alone, struct idem_error *err);
void lmdb_shared_close(struct lmdb_env *env);
void lmdb_shared_tally(struct lmdb_env *env, enum idem_event event, uint64_t n);
/* The highest real time that any process has seen; raised to `wall`. */
int64_t lmdb_shared_high(struct lmdb_env *env, int64_t wall);
struct lmdb_jumps *lmdb_shared_jumps(struct lmdb_env *env);
uint64_t lmdb_shared_count(const struct lmdb_env *env, enum idem_event event);
int lmdb_slot_take(struct lmdb_env *env, int *ret_slot, int *ret_fd);
void lmdb_slot_leave(struct lmdb_env *env, int slot);
void lmdb_slot_want(struct lmdb_env *env, int slot, const struct idem_record_key *key);
void lmdb_slot_unwant(struct lmdb_env *env, int slot, const struct idem_record_key *key);
bool lmdb_slot_overflowed(struct lmdb_env *env, int slot);
void lmdb_wake(struct lmdb_env *env, const struct idem_record_key *key);
unsigned lmdb_bucket(const struct idem_record_key *key);
unsigned lmdb_hash_bucket(const unsigned char *hash);

#endif
