/*
 * Runs many operations in one write transaction. With sync=always a writer
 * thread does so: it takes the operations that have gathered, commits them with
 * one fsync, and wakes the loops they belong to. With sync=off the loop itself
 * runs the batch.
 *
 * When a batch cannot be written, its operations are tried again one at a time,
 * so that each gets its own result. That is safe for claims and finishes, which
 * are recognised by their owner id. A nonce or counter whose first try has an
 * unknown outcome is reported as unknown.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/list.h"
#include "base/thread.h"
#include "store/lmdb/lmdb_store.h"

/* Operations per transaction: bounds how long other processes wait for the write lock. */
#define BATCH_MAX 512

#define READERS_CHECK_MS 60000
#define READERS_CHECK_PAGES 32
#define GATHER_MAX_US 500
#define ROOM_BUDGET 64
#define ROOM_STEPS 8
#define GROW_MAX 4 /* steps; one is more than a batch can fill */

void lmdb_jobs_init(struct lmdb_jobs *jobs) {
    jobs->first = NULL;
    jobs->end = &jobs->first;
}

void lmdb_jobs_push(struct lmdb_jobs *jobs, struct lmdb_job *job) {
    job->next = NULL;
    job->link = jobs->end;
    job->list = jobs;
    *jobs->end = job;
    jobs->end = &job->next;
}

static void jobs_remove(struct lmdb_job *job) {
    idem_link_remove_end(&job->list->end, job);
    job->list = NULL;
}

struct lmdb_job *lmdb_jobs_take(struct lmdb_jobs *jobs) {
    struct lmdb_job *first = jobs->first;

    for (struct lmdb_job *job = first; job != NULL; job = job->next)
        job->list = NULL;
    lmdb_jobs_init(jobs);
    return first;
}

struct lmdb_job *lmdb_jobs_pop(struct lmdb_jobs *jobs) {
    struct lmdb_job *job = jobs->first;

    if (job != NULL)
        jobs_remove(job);
    return job;
}

void lmdb_jobs_move(struct lmdb_jobs *jobs, struct lmdb_jobs *from) {
    struct lmdb_job *job;

    while ((job = lmdb_jobs_pop(from)) != NULL)
        lmdb_jobs_push(jobs, job);
}

void lmdb_job_clear(struct lmdb_job *job) {
    idem_op_copy_release(&job->copy);
    idem_shared_bytes_release(job->blob);
    free(job->entries);
}

void lmdb_job_free(struct lmdb_job *job) {
    if (job == NULL)
        return;
    lmdb_job_clear(job);
    free(job);
}

static int batch_sweep(struct lmdb_env *env, MDB_txn *txn, struct idem_time now, size_t jobs) {
    struct lmdb_sweep sweep = {.budget = 2 * jobs + 2};

    if (now.wall < env->sweep_next)
        return 0;
    return lmdb_expiry_sweep(env, txn, now, &sweep);
}

/* A process that died while it read keeps old pages from being reused, so the file grows. */
static void batch_check_readers(struct lmdb_env *env, struct idem_time now) {
    MDB_envinfo info;

    mdb_env_info(env->mdb, &info);
    if (now.lease - env->readers_checked < READERS_CHECK_MS &&
        info.me_last_pgno < env->readers_pages + READERS_CHECK_PAGES)
        return;
    env->readers_checked = now.lease;
    env->readers_pages = info.me_last_pgno;
    lmdb_readers_check(env);
}

/* A write transaction and the jobs that go into it. */
struct batch {
    struct lmdb_env *env;
    MDB_txn *txn;
    struct lmdb_job *first;
    size_t n;
    struct idem_time now;
    bool sweep;
};

static int batch_fill(const struct batch *batch) {
    struct lmdb_job *job = batch->first;
    int rc = 0;

    for (size_t i = 0; i < batch->n && rc == 0; i++, job = job->next)
        rc = lmdb_op_write(batch->env, batch->txn, job, batch->now);
    if (rc == 0 && batch->sweep)
        rc = batch_sweep(batch->env, batch->txn, batch->now, batch->n);
    if (rc == 0)
        rc = lmdb_clock_save(batch->env, batch->txn, batch->now);
    if (rc == 0)
        rc = lmdb_expiry_flush(batch->env, batch->txn, false);
    return rc;
}

static int batch_once(struct batch *batch, bool *ret_unknown) {
    struct idem_time now;
    int rc = lmdb_write_begin(batch->env, &batch->txn);

    *ret_unknown = false;
    if (rc != 0)
        return rc;
    /* Taking the lock may have taken long: a lease must not begin before the lock is held. */
    if (lmdb_now(batch->env, &now, NULL) == 0)
        batch->now = now;
    batch_check_readers(batch->env, batch->now);
    rc = batch_fill(batch);
    if (rc != 0) {
        lmdb_write_abort(batch->env, batch->txn);
        return rc;
    }
    return lmdb_write_commit(batch->env, batch->txn, ret_unknown);
}

/* Runs a batch in one transaction. Returns an MDB code; *ret_unknown: it may have been stored. */
static int batch_try(struct batch *batch, bool *ret_unknown) {
    int rc = batch_once(batch, ret_unknown);

    for (int i = 0; i < GROW_MAX && rc == MDB_MAP_FULL; i++) {
        rc = lmdb_map_grow(batch->env);
        if (rc == 0)
            rc = batch_once(batch, ret_unknown);
    }
    return rc;
}

static void batch_fail_job(struct lmdb_env *env, struct lmdb_job *job, int rc, bool unknown) {
    job->rc = lmdb_fail(env, &job->copy.error, rc, "write");
    if (unknown)
        job->rc = job->copy.error.code = IDEM_E_UNKNOWN;
    job->wakes = false;
}

/* Runs one job of a failed batch alone, without the batch's sweep. A large sweep that finds no
   room is halved until it fits: a small one frees pages. */
static int batch_try_job(struct batch *batch, struct lmdb_job *job, bool *ret_unknown) {
    int rc;

    batch->first = job;
    batch->n = 1;
    batch->sweep = false;
    rc = batch_try(batch, ret_unknown);
    while (rc == MDB_MAP_FULL && job->copy.kind == IDEM_OP_SWEEP && job->copy.in.sweep.max > 1) {
        job->copy.in.sweep.max /= 2;
        rc = batch_try(batch, ret_unknown);
    }
    return rc;
}

static void batch_write(struct lmdb_env *env, struct lmdb_job *first, size_t n,
                        struct idem_time now) {
    struct batch batch = {.env = env, .first = first, .n = n, .now = now, .sweep = true};
    struct lmdb_job *job = first;
    bool unknown, unknown_alone;
    int rc = batch_try(&batch, &unknown);

    if (rc == 0)
        return;
    for (size_t i = 0; i < n; i++, job = job->next) {
        rc = batch_try_job(&batch, job, &unknown_alone);
        if (rc != 0) /* an error now does not undo what the first try may have stored */
            batch_fail_job(env, job, rc, unknown || unknown_alone);
    }
}

/* Sweeps one step if the store is full. False when there is nothing more to remove. */
static bool batch_make_room_step(struct lmdb_env *env, struct idem_time now) {
    struct lmdb_sweep sweep = {.budget = ROOM_BUDGET};
    MDB_txn *txn;
    bool unknown;

    if (lmdb_write_begin(env, &txn) != 0)
        return false;
    if (lmdb_env_full(env, txn) && lmdb_expiry_sweep(env, txn, now, &sweep) == 0 &&
        sweep.removed > 0)
        return lmdb_write_commit(env, txn, &unknown) == 0;
    lmdb_write_abort(env, txn);
    return false;
}

/* lmdb_map_used() reads the map, which another thread may be about to replace. */
static bool batch_file_is_full(struct lmdb_env *env) {
    bool full;

    pthread_rwlock_rdlock(&env->map_lock);
    full = !env->unmapped && lmdb_map_used(env, NULL) >= env->config.size;
    pthread_rwlock_unlock(&env->map_lock);
    return full;
}

/* Once the file has reached its limit, expired records are removed before anything is refused. */
static void batch_make_room(struct lmdb_env *env, struct idem_time now) {
    if (!batch_file_is_full(env) || now.wall < env->sweep_next)
        return;
    for (int i = 0; i < ROOM_STEPS && batch_make_room_step(env, now); i++)
        ;
}

void lmdb_batch_run(struct lmdb_env *env, struct lmdb_job *first) {
    while (first != NULL) {
        struct lmdb_job *job = first;
        struct idem_error err;
        struct idem_time now;
        size_t n = 0;
        int rc = lmdb_now(env, &now, &err);

        for (; job != NULL && n < BATCH_MAX; job = job->next, n++) {
            if (rc != 0) {
                job->rc = rc;
                job->copy.error = err;
            }
        }
        if (rc == 0) {
            if (first->copy.kind != IDEM_OP_SWEEP)
                batch_make_room(env, now);
            batch_write(env, first, n, now);
        }
        for (; n > 0; n--, first = first->next) {
            first->ready = true;
            if (first->wakes)
                lmdb_wake(env, &first->copy.key);
        }
    }
}

/* Hands finished jobs back to the loops they belong to. env->lock is held. */
static void batch_deliver(struct lmdb_job *first) {
    static const uint64_t one = 1;

    while (first != NULL) {
        struct lmdb_job *job = first;

        first = job->next;
        if (job->store == NULL) {
            lmdb_job_free(job);
            continue;
        }
        /* One signal covers all jobs that arrive before the loop reads them. */
        if (job->store->done.first == NULL &&
            write(job->store->event.fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
            errno = 0; /* an eventfd that is full is readable already */
        lmdb_jobs_push(&job->store->done, job);
    }
}

static int64_t batch_now_us(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/*
 * Callers whose operations were in the last commit are about to submit again.
 * Waiting for them for a fraction of a commit lets them share the next one. A
 * lone caller never waits. env->lock is held.
 */
static void batch_gather(struct lmdb_env *env) {
    int64_t wait_us = env->batch_us / 4 < GATHER_MAX_US ? env->batch_us / 4 : GATHER_MAX_US;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)wait_us * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (env->queued < env->batch_size && !env->stop)
        if (pthread_cond_timedwait(&env->wake, &env->lock, &until) != 0)
            break;
}

static void *batch_writer_main(void *data) {
    struct lmdb_env *env = data;
    void (*orphaned)(struct lmdb_env * env);

    pthread_mutex_lock(&env->lock);
    for (;;) {
        struct lmdb_job *first = env->queue.first;

        if (first == NULL && env->stop)
            break;
        if (first == NULL) {
            pthread_cond_wait(&env->wake, &env->lock);
            continue;
        }
        batch_gather(env);
        first = lmdb_jobs_take(&env->queue);
        env->batch = first;
        env->batch_size = env->queued;
        __atomic_store_n(&env->queued, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&env->queued_bytes, 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&env->lock);
        env->batch_us = batch_now_us();
        lmdb_batch_run(env, first);
        env->batch_us = batch_now_us() - env->batch_us;
        pthread_mutex_lock(&env->lock);
        env->batch = NULL;
        batch_deliver(first);
    }
    pthread_mutex_unlock(&env->lock);
    lmdb_env_flush(env);
    pthread_mutex_lock(&env->lock);
    env->writing = false;
    orphaned = env->orphaned;
    pthread_cond_signal(&env->stopped);
    pthread_mutex_unlock(&env->lock);
    if (orphaned != NULL) {
        pthread_detach(pthread_self());
        orphaned(env);
    }
    return NULL;
}

int lmdb_writer_start(struct lmdb_env *env, struct idem_error *err) {
    int rc = idem_thread_start(&env->writer, NULL, batch_writer_main, env);

    if (rc != 0)
        return idem_error_set(err, IDEM_E_NOMEM, "cannot start the writer thread: %s",
                              strerror(rc));
    env->writing = true;
    return 0;
}

bool lmdb_writer_stop(struct lmdb_env *env, void (*orphaned)(struct lmdb_env *env)) {
    struct timespec until;
    bool ended;

    if (env->config.sync == LMDB_SYNC_OFF) {
        lmdb_env_flush(env);
        return true;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += lmdb_patience.stop;
    pthread_mutex_lock(&env->lock);
    env->stop = true;
    pthread_cond_signal(&env->wake);
    while (env->writing)
        if (pthread_cond_timedwait(&env->stopped, &env->lock, &until) != 0)
            break;
    ended = !env->writing;
    if (!ended)
        env->orphaned = orphaned;
    pthread_mutex_unlock(&env->lock);
    if (ended)
        pthread_join(env->writer, NULL);
    return ended;
}

void lmdb_writer_push(struct lmdb_env *env, struct lmdb_jobs *jobs) {
    struct lmdb_job *job;

    pthread_mutex_lock(&env->lock);
    while ((job = lmdb_jobs_pop(jobs)) != NULL) {
        lmdb_jobs_push(&env->queue, job);
        __atomic_fetch_add(&env->queued, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&env->queued_bytes, job->size, __ATOMIC_RELAXED);
    }
    pthread_cond_signal(&env->wake);
    pthread_mutex_unlock(&env->lock);
}

bool lmdb_writer_drop(struct lmdb_env *env, const struct lmdb_jobs *pending, struct lmdb_job *job) {
    bool queued, waiting;

    pthread_mutex_lock(&env->lock);
    queued = job->list == &env->queue;
    waiting = queued || job->list == pending;
    if (waiting)
        jobs_remove(job);
    if (queued) {
        __atomic_fetch_sub(&env->queued, 1, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&env->queued_bytes, job->size, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&env->lock);
    return waiting;
}
