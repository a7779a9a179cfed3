/*
 * The embedded store's driver: operations in, call-backs out, on a loop.
 *
 * What is submitted in one turn of the loop gathers, and is looked at together:
 * reads are answered at once, writes go into one transaction, run here with
 * sync=off and by the writer thread with sync=always. Call-backs run from the
 * loop only. A handle that was inherited over a fork refuses everything.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/error.h"
#include "core/fork.h"
#include "core/units.h"
#include "store/lmdb/lmdb.h"

#define SIZE_DEFAULT ((size_t)16 << 30)
#define SIZE_MIN ((size_t)1 << 20)
#define SIZE_MAX_TB ((size_t)16 << 40)
#define QUEUE_MAX 32768
#define QUEUE_BYTES_MAX (256 << 20)
/* A job with this much room, for strings that are not long, is used again. */
#define JOB_ROOM (sizeof(struct lmdb_job) + 1024)

static struct lmdb_store *store_of(struct idem_store *base) {
    return idem_container_of(base, struct lmdb_store, base);
}

/* Copies of what was asked. */

static struct lmdb_job *job_new(struct lmdb_store *store, struct idem_op *op) {
    size_t size = sizeof(struct lmdb_job) + idem_op_strings_len(op);
    struct lmdb_job *job =
        size <= JOB_ROOM ? idem_spare_take(&store->spare, JOB_ROOM) : malloc(size);

    if (job == NULL)
        return NULL;
    memset(job, 0, offsetof(struct lmdb_job, copy));
    job->store = store;
    job->op = op;
    job->size = size;
    idem_op_copy(op, &job->copy, (unsigned char *)(job + 1));
    if (op->kind == IDEM_OP_STATS)
        memset(&job->copy.in, 0, sizeof(job->copy.in));
    return job;
}

/* Call-backs. */

static void store_free(struct lmdb_store *store) {
    idem_spare_free(&store->spare);
    free(store);
}

static void store_enter(struct lmdb_store *store) {
    store->depth++;
}

/* True if the store is gone. */
static bool store_leave(struct lmdb_store *store) {
    if (--store->depth > 0 || !store->closing)
        return store->closing;
    store_free(store);
    return true;
}

/* For the next one. */
static void job_keep(struct lmdb_store *store, struct lmdb_job *job) {
    free(job->blob);
    free(job->entries);
    idem_spare_give(&store->spare, job);
}

static void job_complete(struct lmdb_store *store, struct lmdb_job *job) {
    struct idem_op *op = job->op;

    if (op != NULL) {
        op->out = job->copy.out;
        if (job->rc != 0)
            op->error = job->copy.error;
        idem_op_complete(&store->base, op, job->rc);
    }
    if (job->size <= JOB_ROOM && !store->closing)
        job_keep(store, job);
    else
        lmdb_job_free(job);
}

/* Runs what is answered; operations submitted meanwhile wait for the next turn. */
static void store_complete(struct lmdb_store *store) {
    struct lmdb_job *job;

    store_enter(store);
    while (!store->closing && (job = lmdb_jobs_pop(&store->finished)) != NULL)
        job_complete(store, job);
    (void)store_leave(store);
}

static void event_ready(struct idem_fd *fd, int events) {
    struct lmdb_store *store = idem_container_of(fd, struct lmdb_store, event);
    struct lmdb_job *job;
    uint64_t n;

    (void)events;
    if (read(fd->fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        return;
    pthread_mutex_lock(&store->env->lock);
    while ((job = lmdb_jobs_pop(&store->done)) != NULL)
        lmdb_jobs_push(&store->finished, job);
    pthread_mutex_unlock(&store->env->lock);
    store_complete(store);
}

/* A turn. */

static void turn_fail(struct lmdb_store *store, struct lmdb_jobs *jobs, int rc,
                      const struct idem_error *err) {
    struct lmdb_job *job;

    while ((job = lmdb_jobs_pop(jobs)) != NULL) {
        job->rc = rc;
        job->copy.error = *err;
        lmdb_jobs_push(&store->finished, job);
    }
}

/* Answers what can be read; leaves in `writes` what must be written. */
static void turn_read(struct lmdb_store *store, struct lmdb_jobs *jobs, struct lmdb_jobs *writes,
                      struct idem_time now) {
    struct lmdb_job *job;

    while ((job = lmdb_jobs_pop(jobs)) != NULL) {
        if (lmdb_op_scans(job)) {
            lmdb_op_scan(store->env, store->reader, job, now);
            if (job->ready) {
                lmdb_jobs_push(&store->finished, job);
            } else {
                lmdb_jobs_push(&store->pending, job);
                idem_task_post(store->base.loop, &store->flush);
            }
        } else if (lmdb_op_read(store->env, store->reader, job, now)) {
            lmdb_jobs_push(&store->finished, job);
        } else {
            lmdb_jobs_push(writes, job);
        }
    }
}

static void turn_run(struct lmdb_store *store) {
    struct lmdb_jobs jobs, writes;
    struct lmdb_job *job, *next;
    struct idem_error err;
    struct idem_time now;
    int rc;

    if (store->pending.first == NULL)
        return;
    lmdb_jobs_init(&jobs);
    lmdb_jobs_init(&writes);
    while ((job = lmdb_jobs_pop(&store->pending)) != NULL)
        lmdb_jobs_push(&jobs, job);
    rc = lmdb_now(store->env, &now, &err);
    if (rc == 0 && (rc = lmdb_read_begin(store)) != 0)
        rc = lmdb_fail(store->env, &err, rc, "read");
    if (rc != 0) {
        turn_fail(store, &jobs, rc, &err);
        return;
    }
    turn_read(store, &jobs, &writes, now);
    lmdb_read_end(store);
    if (writes.first == NULL)
        return;
    if (store->env->config.sync == LMDB_SYNC_ALWAYS) {
        lmdb_writer_push(store->env, &writes);
        return;
    }
    job = lmdb_jobs_take(&writes);
    lmdb_batch_run(store->env, job);
    for (; job != NULL; job = next) {
        next = job->next;
        lmdb_jobs_push(&store->finished, job);
    }
}

static void flush_run(struct idem_task *task) {
    struct lmdb_store *store = idem_container_of(task, struct lmdb_store, flush);

    turn_run(store);
    store_complete(store);
}

static int lmdb_submit(struct idem_store *base, struct idem_op *op) {
    struct lmdb_store *store = store_of(base);
    struct lmdb_job *job;
    int rc = idem_op_admit(op, store->env->forks);

    if (rc != 0)
        return rc;
    if (__atomic_load_n(&store->env->queued, __ATOMIC_RELAXED) > QUEUE_MAX ||
        __atomic_load_n(&store->env->queued_bytes, __ATOMIC_RELAXED) > QUEUE_BYTES_MAX)
        return idem_error_set(&op->error, IDEM_E_REFUSED,
                              "%s: %d operations or %d MiB wait to be written; the disk is too "
                              "slow, or another process holds the store's lock",
                              store->env->config.path, QUEUE_MAX, QUEUE_BYTES_MAX >> 20);
    job = job_new(store, op);
    if (job == NULL)
        return idem_error_set(&op->error, IDEM_E_NOMEM, "no memory for an operation");
    op->driver = job;
    lmdb_jobs_push(&store->pending, job);
    idem_task_post(base->loop, &store->flush);
    return 0;
}

/* What was not begun is dropped, with what it holds; the rest comes to its end untold. */
static void lmdb_cancel(struct idem_store *base, struct idem_op *op) {
    struct lmdb_store *store = store_of(base);
    struct lmdb_job *job = op->driver;

    job->op = NULL;
    op->driver = NULL;
    if (store->env->forks == idem_fork_count() &&
        lmdb_writer_drop(store->env, &store->pending, job))
        lmdb_job_free(job);
}

/* Waiting. */

/* Each goes back to its place before it is called, because it may be taken out then. Who is
   woken again meanwhile is called again in a later turn. */
static void watches_wake(struct lmdb_store *store) {
    struct idem_watch *watch, *woken = store->woken;

    store->woken = NULL;
    if (woken != NULL)
        woken->link = &woken;
    store_enter(store);
    while ((watch = woken) != NULL && !store->closing) {
        idem_watch_take(watch);
        idem_watch_put(&store->watches[lmdb_bucket(&watch->key)], watch);
        watch->wake(watch);
    }
    while (woken != NULL) /* closed meanwhile */
        idem_watch_take(woken);
    (void)store_leave(store);
}

/* Those of one key, whose bucket its hash tells; or all of a bucket. */
static void watches_mark(struct lmdb_store *store, unsigned bucket, const unsigned char *hash) {
    struct idem_watch *watch = store->watches[bucket], *next;

    for (; watch != NULL; watch = next) {
        next = watch->next;
        if (hash != NULL && memcmp(watch->key.at + watch->key.prefix_len, hash, IDEM_HASH_LEN) != 0)
            continue;
        idem_watch_take(watch);
        idem_watch_put(&store->woken, watch);
    }
}

/* Hashes are written whole, so they are read whole. */
static void fifo_ready(struct idem_fd *fd, int events) {
    struct lmdb_store *store = idem_container_of(fd, struct lmdb_store, fifo);
    unsigned char buf[64 * IDEM_HASH_LEN];
    ssize_t n;

    (void)events;
    while ((n = read(fd->fd, buf, sizeof(buf))) > 0)
        for (ssize_t at = 0; at + IDEM_HASH_LEN <= n; at += IDEM_HASH_LEN)
            watches_mark(store, lmdb_hash_bucket(buf + at), buf + at);
    if (lmdb_slot_overflowed(store->env, store->slot))
        for (unsigned bucket = 0; bucket < LMDB_BUCKETS; bucket++)
            watches_mark(store, bucket, NULL);
    watches_wake(store);
}

/* Without a slot the waiters are woken by their own slow poll alone. */
static void fifo_open(struct lmdb_store *store) {
    if (store->fifo_tried)
        return;
    store->fifo_tried = true;
    if (lmdb_slot_take(store->env, &store->slot, &store->fifo.fd) < 0)
        return;
    store->fifo.ready = fifo_ready;
    if (idem_loop_watch(store->base.loop, &store->fifo, IDEM_READ) != 0) {
        close(store->fifo.fd);
        lmdb_slot_leave(store->env, store->slot);
        store->slot = -1;
    }
}

static void wake_first_run(struct idem_task *task) {
    struct lmdb_store *store = idem_container_of(task, struct lmdb_store, wake_first);

    watches_wake(store);
}

static int lmdb_watch(struct idem_store *base, struct idem_watch *watch) {
    struct lmdb_store *store = store_of(base);

    fifo_open(store);
    if (store->slot >= 0)
        lmdb_slot_want(store->env, store->slot, &watch->key);
    store->wishes[lmdb_bucket(&watch->key)]++;
    idem_watch_put(&store->woken, watch); /* the wish is in force */
    idem_task_post(base->loop, &store->wake_first);
    return 0;
}

static void lmdb_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct lmdb_store *store = store_of(base);
    unsigned bucket = lmdb_bucket(&watch->key);

    if (watch->link == NULL)
        return;
    idem_watch_take(watch);
    if (--store->wishes[bucket] > 0 || store->slot < 0 || store->env->forks != idem_fork_count())
        return;
    lmdb_slot_unwant(store->env, store->slot, &watch->key);
}

static void lmdb_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    lmdb_shared_tally(store_of(base)->env, event, n);
}

/* Open and close. */

static void jobs_drop(struct lmdb_jobs *jobs) {
    struct lmdb_job *job;

    while ((job = lmdb_jobs_pop(jobs)) != NULL) {
        if (job->op != NULL)
            job->op->driver = NULL;
        lmdb_job_free(job);
    }
}

static void queue_detach(struct lmdb_store *store, struct lmdb_job *job) {
    for (; job != NULL; job = job->next) {
        if (job->store != store)
            continue;
        job->store = NULL;
        if (job->op != NULL)
            job->op->driver = NULL;
        job->op = NULL;
    }
}

/* What was submitted is still written; nobody is told any more. */
static void store_drain(struct lmdb_store *store) {
    struct lmdb_env *env = store->env;
    struct lmdb_job *job;

    for (job = store->pending.first; job != NULL; job = job->next) {
        if (job->op != NULL)
            job->op->driver = NULL;
        job->op = NULL;
    }
    turn_run(store);
    jobs_drop(&store->pending); /* scans that were not through */
    jobs_drop(&store->finished);
    pthread_mutex_lock(&env->lock);
    jobs_drop(&store->done);
    queue_detach(store, env->queue.first);
    queue_detach(store, env->batch);
    pthread_mutex_unlock(&env->lock);
}

static void lmdb_close(struct idem_store *base) {
    struct lmdb_store *store = store_of(base);
    bool forked = store->env->forks != idem_fork_count();

    if (!forked)
        store_drain(store);
    idem_task_drop(base->loop, &store->flush);
    idem_task_drop(base->loop, &store->wake_first);
    idem_loop_unwatch(base->loop, &store->event);
    if (store->slot >= 0)
        idem_loop_unwatch(base->loop, &store->fifo);
    if (!forked) {
        if (store->reader != NULL)
            mdb_txn_abort(store->reader);
        if (store->slot >= 0)
            lmdb_slot_leave(store->env, store->slot);
    }
    close(store->event.fd);
    if (store->slot >= 0)
        close(store->fifo.fd);
    lmdb_env_close(store->env);
    store->closing = true;
    if (store->depth == 0)
        store_free(store);
}

/* *ret stays as it is where the option is not given. */
static int bool_option(const struct idem_url *url, const char *name, bool *ret,
                       struct idem_error *err) {
    const char *value = idem_url_get(url, name);

    if (value == NULL)
        return 0;
    if (strcmp(value, "no") == 0)
        *ret = false;
    else if (strcmp(value, "yes") == 0)
        *ret = true;
    else
        return idem_error_set(err, IDEM_E_INVALID, "lmdb: %s=%s; allowed: yes, no", name, value);
    return 0;
}

static int options_known(const struct idem_url *url, struct idem_error *err) {
    static const char *const known[] = {"sync", "accept_loss", "accept_clock", "size", "create"};

    for (size_t i = 0; i < url->query_n; i++) {
        size_t k = 0;

        while (k < sizeof(known) / sizeof(known[0]) && strcmp(url->query[i].name, known[k]) != 0)
            k++;
        if (k == sizeof(known) / sizeof(known[0]))
            return idem_error_set(err, IDEM_E_INVALID,
                                  "lmdb: unknown option %s; allowed: sync, "
                                  "size, create, accept_loss, accept_clock",
                                  url->query[i].name);
    }
    return 0;
}

static int config_read(const struct idem_url *url, struct lmdb_config *config,
                       struct idem_error *err) {
    const char *sync = idem_url_get(url, "sync"), *size = idem_url_get(url, "size");
    int64_t bytes;
    int rc;

    *config = (struct lmdb_config){.path = url->rest, .size = SIZE_DEFAULT, .create = true};
    if (url->rest[0] == '\0')
        return idem_error_set(err, IDEM_E_INVALID, "lmdb: a path is needed: lmdb:/var/lib/idem");
    if ((rc = options_known(url, err)) != 0 ||
        (rc = bool_option(url, "accept_loss", &config->accept_loss, err)) != 0 ||
        (rc = bool_option(url, "accept_clock", &config->accept_clock, err)) != 0 ||
        (rc = bool_option(url, "create", &config->create, err)) != 0)
        return rc;
    if (sync != NULL && strcmp(sync, "off") == 0)
        config->sync = LMDB_SYNC_OFF;
    else if (sync != NULL && strcmp(sync, "always") != 0)
        return idem_error_set(err, IDEM_E_INVALID, "lmdb: sync=%s; allowed: always, off", sync);
    if (size != NULL) {
        rc = idem_size_parse(size, strlen(size), &bytes, err);
        if (rc != 0)
            return rc;
        if (bytes < (int64_t)SIZE_MIN || bytes > (int64_t)SIZE_MAX_TB)
            return idem_error_set(err, IDEM_E_INVALID, "lmdb: size=%s; allowed: 1M to 16T", size);
        config->size = (size_t)bytes;
    }
    return 0;
}

static int lmdb_check(const struct idem_url *url, struct idem_error *err) {
    struct lmdb_config config;

    return config_read(url, &config, err);
}

static int lmdb_open(const struct idem_url *url, struct idem_loop *loop,
                     const struct idem_clock *clock, struct idem_store **ret,
                     struct idem_error *err) {
    struct lmdb_store *store;
    struct lmdb_config config;
    int rc = config_read(url, &config, err);

    if (rc != 0)
        return rc;
    store = calloc(1, sizeof(*store));
    if (store == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to open a store");
    store->base.loop = loop;
    store->slot = -1;
    store->flush.run = flush_run;
    store->wake_first.run = wake_first_run;
    lmdb_jobs_init(&store->pending);
    lmdb_jobs_init(&store->done);
    lmdb_jobs_init(&store->finished);
    rc = lmdb_env_open(&config, clock, &store->env, err);
    if (rc != 0) {
        free(store);
        return rc;
    }
    store->event.ready = event_ready;
    store->event.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (store->event.fd < 0 || idem_loop_watch(loop, &store->event, IDEM_READ) != 0) {
        if (store->event.fd >= 0)
            close(store->event.fd);
        lmdb_env_close(store->env);
        free(store);
        return idem_error_set(err, IDEM_E_NOMEM, "no descriptor for the store's wake-ups");
    }
    *ret = &store->base;
    return 0;
}

static const char *const lmdb_schemes[] = {"lmdb", NULL};

const struct idem_driver idem_driver_lmdb = {
    .name = "lmdb",
    .schemes = lmdb_schemes,
    .check = lmdb_check,
    .open = lmdb_open,
    .close = lmdb_close,
    .submit = lmdb_submit,
    .cancel = lmdb_cancel,
    .watch = lmdb_watch,
    .unwatch = lmdb_unwatch,
    .tally = lmdb_tally,
};
