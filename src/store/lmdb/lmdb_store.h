/*
 * The embedded store's internal interfaces. The files of this directory:
 *
 *   lmdb_driver.c     the driver table: operations in, callbacks out, on a loop
 *   lmdb_env.c        one environment per process and path, shared by its handles; an LMDB
 *                     environment: open, check, transactions
 *   lmdb_map.c        maps data.mdb for reading or, where possible, for writing
 *   lmdb_tables.c     the contents of data.mdb: tables, format, boot
 *   lmdb_directory.c  the directory: root uses it as its owner; its files are checked
 *   lmdb_state.c      the small files beside data.mdb: locks, sync mode, boot
 *   lmdb_clock.c      the two clocks, and the refusal of a jump; counts how far real time has
 *                     jumped forward, and limits it
 *   lmdb_batch.c      many operations in one transaction; the writer thread
 *   lmdb_ops.c        each operation on one record, inside a transaction; nonces and counters
 *   lmdb_scan.c       list and stats: operations that read many records
 *   lmdb_expiry.c     the index on time, and the sweep
 *   lmdb_check.c      checks LMDB's files where LMDB trusts them; verifies the pages of data.mdb,
 *                     trusting none
 *   lmdb_shared.c     memory shared by all processes: counts, and waiters by key
 *
 * A store (one per handle, used by its loop's thread) has jobs; an environment
 * (one per process and path) runs them.
 */
#ifndef IDEM_STORE_LMDB_LMDB_STORE_H
#define IDEM_STORE_LMDB_LMDB_STORE_H

#include <lmdb.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/freelist.h"
#include "store/store.h"

enum lmdb_sync { LMDB_SYNC_ALWAYS, LMDB_SYNC_OFF };

struct lmdb_config {
    char *path;
    enum lmdb_sync sync;
    bool accept_loss;  /* start empty after an unclean power-off with sync=off */
    bool accept_clock; /* trust the machine's clock as it is now */
    bool create;       /* create the store if there is none */
    size_t size;       /* the file's limit, in bytes */
};

/* A submitted operation: a copy of its arguments, and room for its result. */
struct lmdb_job {
    struct lmdb_job *next, **link;
    struct lmdb_jobs *list;   /* the list it can be removed from; NULL: it is being written */
    size_t size;              /* bytes of the job and its strings, shared ones as well */
    struct lmdb_store *store; /* NULL: its store was closed */
    struct idem_op *op;       /* NULL: cancelled */
    int rc;
    bool ready;                     /* it has its result */
    bool wakes;                     /* waiters for its key must be woken, once it is stored */
    bool fits;                      /* into a block of the store's free list, and is one */
    struct idem_shared_bytes *blob; /* the bytes that `copy.out` points to */
    struct idem_entry *entries;
    struct idem_op copy; /* byte strings point behind this struct, or to shared bytes */
};

struct lmdb_jobs {
    struct lmdb_job *first, **end;
};

/* lmdb_state.c */
#define LMDB_BOOT_LEN 36
struct lmdb_state {
    enum lmdb_sync sync;
    bool clean;
    int64_t size, mtime_ns; /* of data.mdb, when it was closed cleanly */
    char boot[LMDB_BOOT_LEN + 1];
};

/* lmdb_clock.c: as stored in the shared file and in data.mdb */
#define LMDB_JUMP_DAYS 8
struct lmdb_jumps {
    char boot[LMDB_BOOT_LEN]; /* the boot that `lease` belongs to */
    uint32_t format;          /* 0: no count yet */
    int64_t uptime, lease;    /* ms of uptime over all boots, and the lease clock at that moment */
    int64_t offset;           /* the accepted difference: the store's time minus the lease clock */
    int64_t days[LMDB_JUMP_DAYS]; /* ms of jumps in each day of uptime; a ring */
    uint64_t changes;             /* how many times a jump was added or all were accepted */
    uint64_t accepted;            /* how many times the operator has accepted the clock */
};

/* lmdb_clock.c */
struct lmdb_clock {
    pthread_mutex_t lock;
    struct idem_clock source;
    int64_t lease, wall; /* both clocks, as read last */
    int64_t high;        /* the file's high-water mark; without one, this process's */
    int64_t saved;       /* the high-water mark as last saved in the file */
    uint64_t changes;    /* `changes` of the jumps, as last saved in the file */
    uint64_t accepted;   /* the shared `accepted`, as last read by this process */

    /* As read when the store was opened. */
    char boot[LMDB_BOOT_LEN + 1];
    bool same_boot;                /* the file's clock is this boot's */
    int64_t file_lease, file_wall; /* the file's clock */
    struct lmdb_jumps jumps;       /* the count in the file */
};

#define LMDB_READERS_MAX 1024

/* lmdb_shared.c: handles with waiters, in all processes, that can be woken */
#define LMDB_SLOTS 256
#define LMDB_BUCKETS 1024 /* of keys */

/* lmdb_expiry.c: how much a sweep may do before it must stop */
struct lmdb_sweep {
    size_t budget;
    size_t removed;
    bool more;
};

struct lmdb_file {
    dev_t dev;
    ino_t ino;
};

/* lmdb_directory.c: the directory's owner, as whom root uses it */
struct lmdb_owner {
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t groups_n;
};

struct lmdb_env {
    struct lmdb_env *next, **link; /* in the process's registry */
    unsigned refs;
    unsigned forks; /* idem_fork_count() when it was opened */
    pid_t pid;
    dev_t dev; /* of the directory */
    ino_t ino;
    struct lmdb_owner owner;
    bool foreign; /* root has opened it, and another user owns it */
    bool usable;  /* neither being opened nor being closed; under the registry's lock */
    struct lmdb_file data_file, lock_file, door_file; /* as opened */
    struct timespec looked; /* when they were last checked to be in place */
    bool gone;
    char *data_path;
    struct lmdb_config config;

    int dir_fd, lock_fd;
    MDB_env *mdb;
    bool direct; /* pages are written in the map; under `map_lock`: */
    bool unmapped;
    MDB_dbi records, expiry, aux, meta;
    pthread_mutex_t write_lock; /* held through a write transaction */
    pthread_rwlock_t map_lock;  /* held for writing while the map is resized */
    uint32_t epoch;             /* number of the boot: leases of other boots are over */
    struct lmdb_clock clock;
    struct lmdb_shared *shared;
    bool slots[LMDB_SLOTS];       /* the shared slots that this process holds; under `lock` */
    int64_t sweep_next;           /* wall ms; no sweep is due before it */
    struct lmdb_pending *pending; /* index entries that are not written yet */
    int64_t readers_checked;
    size_t readers_pages;   /* pages of the file at that check */
    unsigned char *scratch; /* belongs to the open write transaction */
    size_t scratch_size;
    size_t full_checked; /* the transaction for which `full` was determined */
    bool full;

    /* the writer thread, with sync=always */
    pthread_t writer;
    pthread_mutex_t lock;
    pthread_cond_t wake, stopped;
    struct lmdb_jobs queue;
    size_t queued, queued_bytes;
    struct lmdb_job *batch; /* the jobs being written */
    size_t batch_size;      /* size of the last batch */
    int64_t batch_us;       /* duration of its commit */
    bool writing, stop;
    void (*orphaned)(struct lmdb_env *env); /* frees the environment once the writer ends, if its
                                               close has given up waiting */
};

struct lmdb_store {
    struct idem_store base;
    struct lmdb_env *env;
    MDB_txn *reader;               /* reset between uses */
    struct lmdb_jobs pending;      /* submitted in this turn of the loop */
    struct lmdb_jobs done;         /* finished by the writer; under env->lock */
    struct lmdb_jobs finished;     /* callbacks to run */
    struct idem_freelist freelist; /* jobs for reuse */
    struct idem_task flush, wake_first;
    struct idem_fd event; /* eventfd: the writer has finished jobs */
    struct idem_fd fifo;  /* a watched key was finished */
    int slot;             /* its slot in shared memory; -1: none */
    bool fifo_tried;
    struct idem_watch *watches[LMDB_BUCKETS]; /* by key */
    struct idem_watch *woken;                 /* whose callback is due */
    unsigned watches_n[LMDB_BUCKETS];         /* number of both, by bucket */
    unsigned depth;                           /* nesting of callbacks */
    bool closing;
};

/* lmdb_env.c */

/* Seconds to wait for other threads and processes. Variable only so that tests need not last as
   long. */
struct lmdb_patience {
    int door;   /* an open or close waits for another process that opens or closes */
    int stop;   /* a close waits for the writer */
    int busy;   /* an open waits for another thread that opens or closes the same store */
    int length; /* for another process that changes the length of the file */
};
extern struct lmdb_patience lmdb_patience;

int lmdb_env_open(const struct lmdb_config *config, const struct idem_clock *clock,
                  struct lmdb_env **ret, struct idem_error *err);
void lmdb_env_close(struct lmdb_env *env);
/* Held while a descriptor is opened that a forked child must know. */
void lmdb_registry_lock(void);
void lmdb_registry_unlock(void);

void lmdb_env_flush(struct lmdb_env *env);
int lmdb_fail(const struct lmdb_env *env, struct idem_error *err, int rc, const char *doing);

/* Clears the reader slots of dead processes; if it finds one, a crawl over all records begins. */
void lmdb_readers_check(struct lmdb_env *env);

/* Bytes of the pages in use. MDB codes. */
int lmdb_env_used(struct lmdb_env *env, MDB_txn *reader, size_t *ret);
/* True if there is no room for a new record: the rest is reserved for finishes and the sweep.
   Judged by the store as it was before this write transaction. */
bool lmdb_env_full(struct lmdb_env *env, MDB_txn *txn);

/* lmdb_map.c. The file's maximal length: its size, and room for finishes and the sweep. */
size_t lmdb_map_limit(const struct lmdb_config *config);
/* The length of the file up to its last page. */
size_t lmdb_map_used(const struct lmdb_env *env, size_t *ret_page_size); /* which may be NULL */
/* Opens data.mdb; checks its pages if `alone` and not `trusted`. */
int lmdb_map_open(struct lmdb_env *env, bool alone, bool trusted, struct idem_error *err);
/* Limit of tries when the file is found larger than its map. Each means that another process has
   used up a step, and steps double. */
#define LMDB_RESIZES_MAX 16
/* Maps the file anew after another process has lengthened it. No transaction of this thread may
   be open. MDB codes, as for the next. */
int lmdb_map_adopt(struct lmdb_env *env);
/* After MDB_MAP_FULL: lengthens the file, if its limit permits. */
int lmdb_map_grow(struct lmdb_env *env);

/* Transactions; MDB_MAP_RESIZED is handled inside. MDB codes. */
int lmdb_read_begin(struct lmdb_store *store);
void lmdb_read_end(struct lmdb_store *store);
int lmdb_write_begin(struct lmdb_env *env, MDB_txn **ret);
/* Returned instead of writing to a file that no other process will read. */
#define LMDB_GONE (MDB_LAST_ERRCODE + 1)
/* *ret_unknown: it failed, and may have been stored all the same. */
int lmdb_write_commit(struct lmdb_env *env, MDB_txn *txn, bool *ret_unknown);
void lmdb_write_abort(struct lmdb_env *env, MDB_txn *txn);

/* lmdb_state.c */
#define LMDB_LOCK_FILE "idem.lock"
int lmdb_boot_id(char out[LMDB_BOOT_LEN + 1], struct idem_error *err);
/* The same, but different in each time namespace: leases are judged by its clock. */
int lmdb_clock_id(char out[LMDB_BOOT_LEN + 1], struct idem_error *err);
int lmdb_lock_open(struct lmdb_env *env, bool *ret_alone, struct idem_error *err);
bool lmdb_lock_leave(struct lmdb_env *env); /* true: no other process has it open */
void lmdb_lock_opened(struct lmdb_env *env);
void lmdb_lock_close(struct lmdb_env *env);
/* Held while the file's length is read, changed and mapped: LMDB cuts the file to what it maps. */
int lmdb_lock_length(struct lmdb_env *env);
void lmdb_unlock_length(struct lmdb_env *env);
/* Held while jumps of the clock are read and added. */
int lmdb_lock_clock(struct lmdb_env *env);
void lmdb_unlock_clock(struct lmdb_env *env);
bool lmdb_lock_slot(struct lmdb_env *env, int slot); /* for lmdb_shared.c */
void lmdb_unlock_slot(struct lmdb_env *env, int slot);
/* Modifies the text. *ret is untouched on failure. */
int lmdb_state_parse(const struct lmdb_env *env, char *text, struct lmdb_state *ret,
                     struct idem_error *err);
int lmdb_state_read(struct lmdb_env *env, struct lmdb_state *ret, bool *ret_found,
                    struct idem_error *err);
/* `fits` is true if data.mdb is as a clean close left it; `note` records its size and time. */
bool lmdb_state_fits(const struct lmdb_env *env, const struct lmdb_state *state);
void lmdb_state_note(const struct lmdb_env *env, struct lmdb_state *state);
int lmdb_state_write(struct lmdb_env *env, const struct lmdb_state *state, struct idem_error *err);

/* lmdb_tables.c */
/* An entry of the table `meta`. MDB codes. */
int lmdb_meta_get(struct lmdb_env *env, MDB_txn *txn, const char *label, MDB_val *ret);
int lmdb_meta_put(struct lmdb_env *env, MDB_txn *txn, const char *label, const void *at,
                  size_t len);
int lmdb_tables_open(struct lmdb_env *env, bool alone, const struct lmdb_state *state,
                     struct idem_error *err);

/* lmdb_clock.c */
void lmdb_clock_init(struct lmdb_clock *clock, const struct idem_clock *source);
int lmdb_clock_load(struct lmdb_env *env, MDB_txn *txn, bool same_boot, struct idem_error *err);
/* With accept_clock=yes: replaces the clock readings in the file. */
int lmdb_clock_accept(struct lmdb_env *env, MDB_txn *txn, struct idem_error *err);
int lmdb_clock_save(struct lmdb_env *env, MDB_txn *txn, struct idem_time now);
/* The time that was saved last may not be stored: save it again. */
void lmdb_clock_unsaved(struct lmdb_env *env);
/* The machine's real time as last read, which may go back. */
int64_t lmdb_clock_real(struct lmdb_env *env);
int lmdb_now(struct lmdb_env *env, struct idem_time *ret, struct idem_error *err);

/* lmdb_clock.c: the count of how far real time has jumped forward. */

/* Continues the count of the shared file or of data.mdb, and judges the time that the clock has
   read; with accept_clock=yes takes that time as right. */
int lmdb_jumps_open(struct lmdb_env *env, struct idem_error *err);

/* Moves the count forward to `lease`; clears days that have left the window. */
void lmdb_jumps_pass(struct lmdb_jumps *jumps, int64_t lease);

/* Parses the count as stored in data.mdb. MDB_CORRUPTED if it is invalid; *ret is untouched on
   failure. */
int lmdb_jumps_parse(const void *bytes, size_t len, struct lmdb_jumps *ret);

/* lmdb_batch.c */
void lmdb_jobs_init(struct lmdb_jobs *jobs);
void lmdb_jobs_push(struct lmdb_jobs *jobs, struct lmdb_job *job);
void lmdb_jobs_move(struct lmdb_jobs *jobs, struct lmdb_jobs *from); /* all of them, to the end */
struct lmdb_job *lmdb_jobs_pop(struct lmdb_jobs *jobs);
struct lmdb_job *lmdb_jobs_take(struct lmdb_jobs *jobs); /* all of them, unlinked from the list */
void lmdb_job_free(struct lmdb_job *job);
void lmdb_job_clear(struct lmdb_job *job); /* frees what the job refers to, but not the job */
void lmdb_batch_run(struct lmdb_env *env, struct lmdb_job *first);
int lmdb_writer_start(struct lmdb_env *env, struct idem_error *err);
/* True when the writer has ended with everything written. False after a timeout: the writer then
   calls `orphaned` when it ends. */
bool lmdb_writer_stop(struct lmdb_env *env, void (*orphaned)(struct lmdb_env *env));
void lmdb_writer_push(struct lmdb_env *env, struct lmdb_jobs *jobs);
/* True if the job was still waiting, in the queue or in a store's `pending`; then it will not be
   written. */
bool lmdb_writer_drop(struct lmdb_env *env, const struct lmdb_jobs *pending, struct lmdb_job *job);

/*
 * lmdb_ops.c: runs a job inside a transaction and fills in its result. Returns
 * 0, or the MDB code of an error that spoils the transaction; errors of the job
 * alone are in job->rc.
 */
int lmdb_op_write(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
/* True if reading was enough; otherwise the job must be written. */
bool lmdb_op_read(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
/* lmdb_scan.c: reads a bounded number of records; sets job->ready when it has read everything. */
void lmdb_op_scan(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
bool lmdb_op_scans(const struct lmdb_job *job);

/* Nonces and counters are values with a lifetime, in a table apart from the records. The sweep
   calls this after it has removed the row's index entry. MDB codes. */
int lmdb_aux_visit(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                   struct idem_time now, bool *ret_gone);

/* The record under a key. A damaged record is reported in *ret_code, an error of the transaction
   by the return value. */
struct lmdb_found {
    bool there;
    struct idem_record record;
    uint64_t indexed; /* stamp of its index entry */
};
int lmdb_record_get(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    struct lmdb_found *ret, struct idem_error *err, int *ret_code);
int lmdb_record_read(const struct lmdb_env *env, MDB_val value, const struct idem_record_key *key,
                     struct lmdb_found *ret);
int lmdb_record_del(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    uint64_t indexed);
int lmdb_record_put(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    const struct idem_record *record, uint64_t indexed);

/* lmdb_expiry.c. MDB codes; only inside a write transaction, except for begin and end. */
enum lmdb_kind { LMDB_KIND_RECORD = 1, LMDB_KIND_AUX = 2 };
int lmdb_expiry_begin(struct lmdb_env *env);
void lmdb_expiry_end(struct lmdb_env *env);

/* Adds an entry for a visit at that time, written now or with others later; *ret_stamp
   identifies it. */
int lmdb_expiry_add(struct lmdb_env *env, MDB_txn *txn, enum lmdb_kind kind,
                    const struct idem_record_key *key, int64_t look_ms, uint64_t *ret_stamp);
int lmdb_expiry_drop(struct lmdb_env *env, MDB_txn *txn, uint64_t stamp);
int lmdb_expiry_sweep(struct lmdb_env *env, MDB_txn *txn, struct idem_time now,
                      struct lmdb_sweep *sweep);

/* A process was found dead: crawl over all records, for entries it had not written. */
void lmdb_expiry_died(struct lmdb_env *env);

/* `flush` runs before a commit and writes the gathered entries, if that is due or `all` is set.
   `settled` runs after the commit: `stored` is its outcome. */
bool lmdb_expiry_waits(const struct lmdb_env *env); /* there is something to flush */
int lmdb_expiry_flush(struct lmdb_env *env, MDB_txn *txn, bool all);
void lmdb_expiry_settled(struct lmdb_env *env, bool stored);

/* lmdb_shared.c */
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
