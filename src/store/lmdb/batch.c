/*
 * Many operations in one transaction, and the thread that does so with
 * sync=always: it takes what has gathered, commits it with one fsync, and wakes
 * the loops it came from. With sync=off the loop itself runs the batch.
 *
 * When a batch cannot be written, its operations are tried again one by one, so
 * that each gets its own answer. That is safe: an operation repeated under its
 * owner id is recognised.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "store/lmdb/lmdb.h"

/* The most that one transaction takes: bounds how long others wait for the lock. */
#define BATCH_MAX 512

#define READERS_CHECK_MS 60000
#define GATHER_MAX_US 500

void lmdb_jobs_init(struct lmdb_jobs *jobs) {
    jobs->first = NULL;
    jobs->end = &jobs->first;
}

void lmdb_jobs_push(struct lmdb_jobs *jobs, struct lmdb_job *job) {
    job->next = NULL;
    *jobs->end = job;
    jobs->end = &job->next;
}

struct lmdb_job *lmdb_jobs_pop(struct lmdb_jobs *jobs) {
    struct lmdb_job *job = jobs->first;

    if (job == NULL)
        return NULL;
    jobs->first = job->next;
    if (jobs->first == NULL)
        jobs->end = &jobs->first;
    return job;
}

void lmdb_job_free(struct lmdb_job *job) {
    if (job == NULL)
        return;
    free(job->blob);
    free(job->entries);
    free(job);
}

static int batch_sweep(struct lmdb_env *env, MDB_txn *txn, struct idem_time now, size_t jobs) {
    struct lmdb_sweep sweep = {.budget = 2 * jobs + 2};

    if (now.wall < env->sweep_next)
        return 0;
    return lmdb_expiry_sweep(env, txn, now, &sweep);
}

/* A process that died while it read keeps old pages from being used again. */
static void readers_check(struct lmdb_env *env, struct idem_time now) {
    int dead;

    if (now.lease - env->readers_checked < READERS_CHECK_MS)
        return;
    env->readers_checked = now.lease;
    (void)mdb_reader_check(env->mdb, &dead);
}

/* Runs n jobs in one transaction; MDB codes. *ret_unknown: the commit itself failed. */
static int batch_try(struct lmdb_env *env, struct lmdb_job *first, size_t n, struct idem_time now,
                     bool *ret_unknown) {
    struct lmdb_job *job = first;
    MDB_txn *txn;
    int rc = lmdb_write_begin(env, &txn);

    *ret_unknown = false;
    if (rc != 0)
        return rc;
    readers_check(env, now);
    for (size_t i = 0; i < n && rc == 0; i++, job = job->next)
        rc = lmdb_op_write(env, txn, job, now);
    if (rc == 0)
        rc = batch_sweep(env, txn, now, n);
    if (rc == 0)
        rc = lmdb_clock_save(env, txn, now);
    if (rc == 0)
        rc = lmdb_expiry_flush(env, txn, false);
    if (rc != 0) {
        lmdb_write_abort(env, txn);
        return rc;
    }
    rc = lmdb_write_commit(env, txn);
    *ret_unknown = rc != 0 && rc != ENOSPC && rc != EDQUOT && rc != MDB_MAP_FULL && rc != ENOMEM;
    return rc;
}

static void job_fail(struct lmdb_env *env, struct lmdb_job *job, int rc, bool unknown) {
    job->rc = lmdb_fail(env, &job->copy.error, rc, "write");
    if (unknown)
        job->rc = job->copy.error.code = IDEM_E_UNKNOWN;
    job->wakes = false;
}

static void batch_write(struct lmdb_env *env, struct lmdb_job *first, size_t n,
                        struct idem_time now) {
    struct lmdb_job *job = first;
    bool unknown, unknown_alone = false;
    int rc = batch_try(env, first, n, now, &unknown);

    if (rc == 0)
        return;
    for (size_t i = 0; i < n; i++, job = job->next) {
        if (n > 1)
            rc = batch_try(env, job, 1, now, &unknown_alone);
        if (rc != 0) /* a refusal now does not undo what the first try may have stored */
            job_fail(env, job, rc, unknown || unknown_alone);
    }
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
        if (rc == 0)
            batch_write(env, first, n, now);
        for (; n > 0; n--, first = first->next) {
            first->ready = true;
            if (first->wakes)
                lmdb_wake(env, &first->copy.key);
        }
    }
}

/* Hands the answers back to the loops they belong to; env->lock is held. */
static void writer_deliver(struct lmdb_job *first) {
    static const uint64_t one = 1;

    while (first != NULL) {
        struct lmdb_job *job = first;

        first = job->next;
        if (job->store == NULL) {
            lmdb_job_free(job);
            continue;
        }
        /* One signal for all that arrive before the loop looks. */
        if (job->store->done.first == NULL &&
            write(job->store->event.fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
            errno = 0; /* an eventfd that is full is readable already */
        lmdb_jobs_push(&job->store->done, job);
    }
}

static int64_t now_us(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/*
 * Those who were answered by the last commit are about to ask again: waiting for
 * them a fraction of what a commit takes lets them share the next one. A lone
 * caller never waits. env->lock is held.
 */
static void writer_gather(struct lmdb_env *env) {
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

static void *writer_main(void *data) {
    struct lmdb_env *env = data;

    pthread_mutex_lock(&env->lock);
    for (;;) {
        struct lmdb_job *first = env->queue.first;

        if (first == NULL && env->stop)
            break;
        if (first == NULL) {
            pthread_cond_wait(&env->wake, &env->lock);
            continue;
        }
        writer_gather(env);
        first = env->queue.first;
        lmdb_jobs_init(&env->queue);
        env->batch = first;
        env->batch_size = env->queued;
        env->queued = 0;
        pthread_mutex_unlock(&env->lock);
        env->batch_us = now_us();
        lmdb_batch_run(env, first);
        env->batch_us = now_us() - env->batch_us;
        pthread_mutex_lock(&env->lock);
        env->batch = NULL;
        writer_deliver(first);
    }
    pthread_mutex_unlock(&env->lock);
    return NULL;
}

int lmdb_writer_start(struct lmdb_env *env, struct idem_error *err) {
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&env->writer, NULL, writer_main, env);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return idem_error_set(err, IDEM_E_NOMEM, "cannot start the writer thread: %s",
                              strerror(rc));
    env->writing = true;
    return 0;
}

void lmdb_writer_stop(struct lmdb_env *env) {
    if (!env->writing)
        return;
    pthread_mutex_lock(&env->lock);
    env->stop = true;
    pthread_cond_signal(&env->wake);
    pthread_mutex_unlock(&env->lock);
    pthread_join(env->writer, NULL);
    env->writing = false;
}

void lmdb_writer_push(struct lmdb_env *env, struct lmdb_jobs *jobs) {
    struct lmdb_job *job;

    pthread_mutex_lock(&env->lock);
    for (; (job = lmdb_jobs_pop(jobs)) != NULL; env->queued++)
        lmdb_jobs_push(&env->queue, job);
    pthread_cond_signal(&env->wake);
    pthread_mutex_unlock(&env->lock);
}
