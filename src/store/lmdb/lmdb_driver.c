/*
 * The embedded store's driver: operations in, callbacks out, on a loop.
 *
 * Operations submitted in one turn of the loop gather, and are run together:
 * reads complete at once; writes go into one transaction, run here with
 * sync=off and by the writer thread with sync=always. Callbacks run from the
 * loop only. A handle that was inherited over a fork refuses everything.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/list.h"
#include "base/units.h"
#include "store/lmdb/lmdb_directory.h"
#include "store/lmdb/lmdb_store.h"
#include "store/store_url.h"

#define SIZE_DEFAULT ((size_t)16 << 30)
#define SIZE_MIN ((size_t)1 << 20)
#define SIZE_MAX_TB ((size_t)16 << 40)
#define QUEUE_MAX 32768
#define QUEUE_BYTES_MAX (256 << 20)
/* Jobs of this size, enough for short strings, are reused. */
#define JOB_ROOM (sizeof(struct lmdb_job) + 1024)

static struct lmdb_store *store_of(struct idem_store *base) {
    return idem_container_of(base, struct lmdb_store, base);
}

/* Jobs: copies of submitted operations. */

static struct lmdb_job *driver_new_job(struct lmdb_store *store, struct idem_op *op) {
    size_t room = sizeof(struct lmdb_job) + idem_op_copy_len(op);
    bool fits = room <= JOB_ROOM;
    struct lmdb_job *job = fits ? idem_freelist_take(&store->freelist, JOB_ROOM) : malloc(room);

    if (job == NULL)
        return NULL;
    memset(job, 0, offsetof(struct lmdb_job, copy));
    job->store = store;
    job->op = op;
    job->size = sizeof(struct lmdb_job) + idem_op_strings_len(op);
    job->fits = fits;
    idem_op_copy(op, &job->copy, (unsigned char *)(job + 1));
    if (op->kind == IDEM_OP_STATS)
        memset(&job->copy.in, 0, sizeof(job->copy.in));
    return job;
}

/* Callbacks. */

static void store_free(struct lmdb_store *store) {
    idem_freelist_free(&store->freelist);
    free(store);
}

static void store_enter(struct lmdb_store *store) {
    store->depth++;
}

/* True if the store is closed; it may have been freed. */
static bool store_leave(struct lmdb_store *store) {
    if (--store->depth > 0 || !store->closing)
        return store->closing;
    store_free(store);
    return true;
}

static void driver_complete_job(struct lmdb_store *store, struct lmdb_job *job) {
    struct idem_op *op = job->op;

    if (op != NULL) {
        op->out = job->copy.out;
        if (job->rc != 0)
            op->error = job->copy.error;
        idem_op_complete(&store->base, op, job->rc);
    }
    lmdb_job_clear(job);
    if (job->fits && !store->closing)
        idem_freelist_put(&store->freelist, job);
    else
        free(job);
}

/* Runs the callbacks of finished jobs; operations submitted meanwhile wait for the next turn. */
static void store_complete(struct lmdb_store *store) {
    struct lmdb_job *job;

    store_enter(store);
    while (!store->closing && (job = lmdb_jobs_pop(&store->finished)) != NULL)
        driver_complete_job(store, job);
    (void)store_leave(store);
}

static void driver_event_ready(struct idem_fd *fd, int events) {
    struct lmdb_store *store = idem_container_of(fd, struct lmdb_store, event);
    uint64_t n;

    (void)events;
    if (read(fd->fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        return;
    pthread_mutex_lock(&store->env->lock);
    lmdb_jobs_move(&store->finished, &store->done);
    pthread_mutex_unlock(&store->env->lock);
    store_complete(store);
}

/* One turn of the loop. */

static void store_fail_turn(struct lmdb_store *store, struct lmdb_jobs *jobs, int rc,
                            const struct idem_error *err) {
    struct lmdb_job *job;

    while ((job = lmdb_jobs_pop(jobs)) != NULL) {
        job->rc = rc;
        job->copy.error = *err;
        lmdb_jobs_push(&store->finished, job);
    }
}

/* Completes the jobs for which reading is enough; leaves the others in `writes`. */
static void store_read_turn(struct lmdb_store *store, struct lmdb_jobs *jobs,
                            struct lmdb_jobs *writes, struct idem_time now) {
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

static void store_run_turn(struct lmdb_store *store) {
    struct lmdb_jobs jobs, writes;
    struct lmdb_job *job, *next;
    struct idem_error err;
    struct idem_time now;
    int rc;

    if (store->pending.first == NULL)
        return;
    lmdb_jobs_init(&jobs);
    lmdb_jobs_init(&writes);
    lmdb_jobs_move(&jobs, &store->pending);
    rc = lmdb_now(store->env, &now, &err);
    if (rc == 0 && (rc = lmdb_read_begin(store)) != 0)
        rc = lmdb_fail(store->env, &err, rc, "read");
    if (rc != 0) {
        store_fail_turn(store, &jobs, rc, &err);
        return;
    }
    store_read_turn(store, &jobs, &writes, now);
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

static void driver_run_flush(struct idem_task *task) {
    struct lmdb_store *store = idem_container_of(task, struct lmdb_store, flush);

    store_run_turn(store);
    store_complete(store);
}

static int driver_submit(struct idem_store *base, struct idem_op *op) {
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
    job = driver_new_job(store, op);
    if (job == NULL)
        return idem_error_set(&op->error, IDEM_E_NOMEM, "no memory for an operation");
    op->driver = job;
    lmdb_jobs_push(&store->pending, job);
    idem_task_post(base->loop, &store->flush);
    return 0;
}

/* An operation that has not begun is dropped with its memory; one that has begun is completed
   without a callback. */
static void driver_cancel(struct idem_store *base, struct idem_op *op) {
    struct lmdb_store *store = store_of(base);
    struct lmdb_job *job = op->driver;

    job->op = NULL;
    op->driver = NULL;
    if (store->env->forks == idem_fork_count() &&
        lmdb_writer_drop(store->env, &store->pending, job))
        lmdb_job_free(job);
}

/* Waiters. */

/* Each watch is moved back to its bucket before its callback, because the callback may remove
   it. A watch that is woken again meanwhile is called again in a later turn. */
static void store_wake_watches(struct lmdb_store *store) {
    struct idem_watch *watch, *woken = store->woken;

    store->woken = NULL;
    if (woken != NULL)
        woken->link = &woken;
    store_enter(store);
    while ((watch = woken) != NULL && !store->closing) {
        idem_link_remove(watch);
        idem_link_insert(&store->watches[lmdb_bucket(&watch->key)], watch);
        watch->wake(watch);
    }
    while (woken != NULL) /* closed meanwhile */
        idem_link_remove(woken);
    (void)store_leave(store);
}

/* Marks the watches of one key, whose hash determines the bucket; without a hash, all of the
   bucket. */
static void store_mark_watches(struct lmdb_store *store, unsigned bucket,
                               const unsigned char *hash) {
    struct idem_watch *watch = store->watches[bucket], *next;

    for (; watch != NULL; watch = next) {
        next = watch->next;
        if (hash != NULL && memcmp(watch->key.at + watch->key.prefix_len, hash, IDEM_HASH_LEN) != 0)
            continue;
        idem_link_remove(watch);
        idem_link_insert(&store->woken, watch);
    }
}

/* Hashes are written atomically, so a read returns complete ones. */
static void driver_fifo_ready(struct idem_fd *fd, int events) {
    struct lmdb_store *store = idem_container_of(fd, struct lmdb_store, fifo);
    unsigned char buf[64 * IDEM_HASH_LEN];
    ssize_t n;

    (void)events;
    while ((n = read(fd->fd, buf, sizeof(buf))) > 0)
        for (ssize_t at = 0; at + IDEM_HASH_LEN <= n; at += IDEM_HASH_LEN)
            store_mark_watches(store, lmdb_hash_bucket(buf + at), buf + at);
    if (lmdb_slot_overflowed(store->env, store->slot))
        for (unsigned bucket = 0; bucket < LMDB_BUCKETS; bucket++)
            store_mark_watches(store, bucket, NULL);
    store_wake_watches(store);
}

/* Without a slot, waiters rely on their own slow poll. */
static void store_open_fifo(struct lmdb_store *store) {
    if (store->fifo_tried)
        return;
    store->fifo_tried = true;
    if (lmdb_slot_take(store->env, &store->slot, &store->fifo.fd) < 0)
        return;
    store->fifo.ready = driver_fifo_ready;
    if (idem_loop_watch(store->base.loop, &store->fifo, IDEM_READ) != 0) {
        close(store->fifo.fd);
        lmdb_slot_leave(store->env, store->slot);
        store->slot = -1;
    }
}

static void driver_run_wake_first(struct idem_task *task) {
    struct lmdb_store *store = idem_container_of(task, struct lmdb_store, wake_first);

    store_wake_watches(store);
}

static int driver_watch(struct idem_store *base, struct idem_watch *watch) {
    struct lmdb_store *store = store_of(base);

    store_open_fifo(store);
    if (store->slot >= 0)
        lmdb_slot_want(store->env, store->slot, &watch->key);
    store->watches_n[lmdb_bucket(&watch->key)]++;
    idem_link_insert(&store->woken, watch); /* its bit is set: time for its first look */
    idem_task_post(base->loop, &store->wake_first);
    return 0;
}

static void driver_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct lmdb_store *store = store_of(base);
    unsigned bucket = lmdb_bucket(&watch->key);

    if (watch->link == NULL)
        return;
    idem_link_remove(watch);
    if (--store->watches_n[bucket] > 0 || store->slot < 0 || store->env->forks != idem_fork_count())
        return;
    lmdb_slot_unwant(store->env, store->slot, &watch->key);
}

static void driver_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    lmdb_shared_tally(store_of(base)->env, event, n);
}

/* Open and close. */

static void job_detach(struct lmdb_job *job) {
    if (job->op != NULL)
        job->op->driver = NULL;
    job->op = NULL;
}

static void jobs_drop(struct lmdb_jobs *jobs) {
    struct lmdb_job *job;

    while ((job = lmdb_jobs_pop(jobs)) != NULL) {
        job_detach(job);
        lmdb_job_free(job);
    }
}

static void store_detach_queue(struct lmdb_store *store, struct lmdb_job *job) {
    for (; job != NULL; job = job->next) {
        if (job->store != store)
            continue;
        job->store = NULL;
        job_detach(job);
    }
}

/* Submitted operations are still written, without a callback. */
static void store_drain(struct lmdb_store *store) {
    struct lmdb_env *env = store->env;
    struct lmdb_job *job;

    for (job = store->pending.first; job != NULL; job = job->next)
        job_detach(job);
    store_run_turn(store);
    jobs_drop(&store->pending); /* scans that have not finished */
    jobs_drop(&store->finished);
    pthread_mutex_lock(&env->lock);
    jobs_drop(&store->done);
    store_detach_queue(store, env->queue.first);
    store_detach_queue(store, env->batch);
    pthread_mutex_unlock(&env->lock);
}

static void driver_close(struct idem_store *base) {
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

static int driver_read_sync(struct idem_reading *r, const char *name, const char *value,
                            void *field) {
    if (strcmp(value, "off") != 0 && strcmp(value, "always") != 0)
        return idem_reading_refuse_value(r, name, value, "always, off");
    *(enum lmdb_sync *)field = value[0] == 'o' ? LMDB_SYNC_OFF : LMDB_SYNC_ALWAYS;
    return 0;
}

static int driver_read_size(struct idem_reading *r, const char *name, const char *value,
                            void *field) {
    int64_t bytes;
    int rc = idem_size_parse(value, strlen(value), &bytes, r->err);

    if (rc != 0)
        return rc;
    if (bytes < (int64_t)SIZE_MIN || bytes > (int64_t)SIZE_MAX_TB)
        return idem_reading_refuse_value(r, name, value, "1M to 16T");
    *(size_t *)field = (size_t)bytes;
    return 0;
}

static int driver_read_config(const struct idem_url *url, struct lmdb_config *config,
                              struct idem_error *err) {
    static const struct idem_url_option options[] = {
#define AT(field) offsetof(struct lmdb_config, field)
        {"sync", AT(sync), driver_read_sync, NULL},
        {"size", AT(size), driver_read_size, NULL},
        {"create", AT(create), idem_read_flag, NULL},
        {"accept_loss", AT(accept_loss), idem_read_flag, NULL},
        {"accept_clock", AT(accept_clock), idem_read_flag, NULL},
#undef AT
    };
    struct idem_reading r = {.url = url, .config = config, .err = err};

    *config = (struct lmdb_config){.path = url->rest, .size = SIZE_DEFAULT, .create = true};
    if (url->rest[0] == '\0')
        return idem_error_set(err, IDEM_E_INVALID, "lmdb: a path is needed: lmdb:/var/lib/idem");
    return idem_read_options(&r, options, sizeof(options) / sizeof(options[0]), NULL);
}

static int driver_check(const struct idem_driver *driver, const struct idem_url *url,
                        struct idem_error *err) {
    struct lmdb_config config;

    (void)driver;
    return driver_read_config(url, &config, err);
}

static bool driver_may_open(const struct idem_url *url) {
    return lmdb_directory_may_open(url->rest);
}

static int driver_open(const struct idem_driver *driver, const struct idem_url *url,
                       struct idem_loop *loop, const struct idem_clock *clock,
                       struct idem_store **ret, struct idem_error *err) {
    struct lmdb_store *store;
    struct lmdb_config config;
    int rc = driver_read_config(url, &config, err);

    (void)driver;
    if (rc != 0)
        return rc;
    store = calloc(1, sizeof(*store));
    if (store == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to open a store");
    store->base.loop = loop;
    store->slot = -1;
    store->flush.run = driver_run_flush;
    store->wake_first.run = driver_run_wake_first;
    lmdb_jobs_init(&store->pending);
    lmdb_jobs_init(&store->done);
    lmdb_jobs_init(&store->finished);
    rc = lmdb_env_open(&config, clock, &store->env, err);
    if (rc != 0) {
        free(store);
        return rc;
    }
    store->event.ready = driver_event_ready;
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
    .check = driver_check,
    .may_open = driver_may_open,
    .open = driver_open,
    .close = driver_close,
    .submit = driver_submit,
    .cancel = driver_cancel,
    .watch = driver_watch,
    .unwatch = driver_unwatch,
    .tally = driver_tally,
};
