/*
 * The Redis driver: takes operations, and calls back on a loop.
 *
 * Operations submitted in one turn of the loop go out in one write per server. An operation whose
 * connection was lost may have happened: if the same owner ID makes a repeat safe, it is sent
 * again; if not, it is UNKNOWN. The operation's deadline limits all of this.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/visible.h"
#include "store/redis/redis_store.h"

#define QUEUE_MAX 32768
#define QUEUE_BYTES_MAX ((size_t)256 << 20)
#define TALLY_MS 1000     /* the interval between two batches of counts */
#define CLOSE_WAIT_MS 500 /* limit for submitted operations when the store is closed */

static struct redis_store *driver_store(struct idem_store *base) {
    return idem_container_of(base, struct redis_store, base);
}

static bool store_is_inherited(const struct redis_store *store) {
    return store->forks != idem_fork_count();
}

/* Lifetime. */

static void store_free(struct redis_store *store) {
    redis_pages_free(store);
    redis_channels_free(store);
    redis_scripts_release(&store->scripts);
    redis_tls_config_free(store->tls);
    redis_config_release(&store->config);
    free(store->slots);
    free(store);
}

void redis_store_enter(struct redis_store *store) {
    store->depth++;
}

bool redis_store_leave(struct redis_store *store) {
    if (--store->depth > 0 || !store->closing)
        return store->closing;
    store_free(store);
    return true;
}

/* Trouble and deadlines. */

static struct redis_job *store_first_unsent(const struct redis_store *store) {
    struct redis_job *job = store->jobs;

    while (job != NULL && (job->sent || job->wanted > 0))
        job = job->next;
    return job;
}

/* Refuses jobs that were never sent, because waiting does not help. Jobs that their callbacks
   submit are not included. */
static void store_refuse_jobs(struct redis_store *store) {
    struct redis_job *job;

    redis_store_enter(store);
    for (size_t n = store->jobs_n; n > 0 && !store->closing; n--) {
        job = store_first_unsent(store);
        if (job == NULL)
            break;
        redis_job_complete(job, redis_job_fail(job, "the server cannot be reached"));
    }
    (void)redis_store_leave(store);
}

/* True while a host whose state is unknown is being tried: another host of the URL. */
static bool store_is_hopeful(const struct redis_store *store) {
    for (const struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (redis_conn_is_made(&node->conn))
            return true;
    return store->was_ready || redis_sentinel_is_asked(store);
}

/* Runs from the loop, when all hosts that can be tried are being tried. */
static void driver_run_refuse(struct idem_task *task) {
    struct redis_store *store = idem_container_of(task, struct redis_store, refuse);

    if (store->for_good || !store_is_hopeful(store)) {
        store->for_good = false;
        store->unreachable = true;
        store_refuse_jobs(store);
    }
}

void redis_store_trouble(struct redis_store *store, int code, bool for_good, const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    vsnprintf(store->trouble, sizeof(store->trouble), fmt, args);
    va_end(args);
    store->trouble_code = code;
    store->for_good |= for_good;
    if (for_good || !store->was_ready)
        idem_task_post(store->base.loop, &store->refuse);
}

void redis_store_notice(struct redis_store *store, unsigned bit, const char *fmt, ...) {
    char text[400];
    va_list args;

    if ((store->noticed & bit) != 0)
        return;
    store->noticed |= bit;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)idem_visible_copy(text, strlen(text), '?', text,
                            sizeof(text)); /* may contain a server's text */
    if (store->base.notice != NULL)
        store->base.notice(store->base.notice_data, text);
}

static void store_arm_deadline(struct redis_store *store) {
    int64_t left;

    if (store->jobs == NULL || store->deadline.link != NULL)
        return;
    left = store->jobs->deadline - idem_loop_now();
    idem_timer_set(store->base.loop, &store->deadline, left > 0 ? left : 0);
}

static void driver_fire_deadline(struct idem_timer *timer) {
    struct redis_store *store = idem_container_of(timer, struct redis_store, deadline);
    int64_t now = idem_loop_now();

    redis_store_enter(store);
    for (struct redis_node *node = store->nodes; node != NULL;
         node = store->closing ? NULL : node->next)
        redis_conn_pump(&node->conn);
    while (!store->closing && store->jobs != NULL && store->jobs->deadline <= now) {
        struct redis_job *job = store->jobs;

        redis_job_complete(job, redis_job_fail(job, "the server did not answer in time"));
    }
    if (!redis_store_leave(store))
        store_arm_deadline(store);
}

/* The driver's table. */

static int driver_submit(struct idem_store *base, struct idem_op *op) {
    struct redis_store *store = driver_store(base);
    struct redis_job *job;
    int rc = idem_op_admit(op, store->forks);

    if (rc != 0)
        return rc;
    if (store->jobs_n >= QUEUE_MAX || store->jobs_bytes > QUEUE_BYTES_MAX)
        return idem_error_set(&op->error, IDEM_E_REFUSED,
                              "%d operations or %zu MiB wait for the server", QUEUE_MAX,
                              QUEUE_BYTES_MAX >> 20);
    job = redis_job_new(store, op);
    if (job == NULL)
        return idem_error_set(&op->error, IDEM_E_NOMEM, "no memory for an operation");
    op->driver = job;
    job->deadline = idem_loop_now() + store->config.timeout_ms;
    job->link = store->jobs_end;
    *store->jobs_end = job;
    store->jobs_end = &job->next;
    store->jobs_n++;
    store->jobs_bytes += job->size;
    store_arm_deadline(store);
    redis_jobs_turn(store, job);
    return 0;
}

static void driver_cancel(struct idem_store *base, struct idem_op *op) {
    struct redis_job *job = op->driver;

    (void)base;
    op->driver = NULL;
    redis_job_drop(job);
}

/* A timer sends counts: they are many, and not urgent. One batch is under way at a time;
   tally_sent has its counts until the replies arrive. */

static void store_arm_tally(struct redis_store *store) {
    if (store->tally_timer.link == NULL)
        idem_timer_set(store->base.loop, &store->tally_timer, TALLY_MS);
}

/* A count that was refused was not counted, and is sent again. A count that was lost with its
   connection, or that a master counted while it was being replaced, may have been counted. It is
   sent again as well: an event that is counted twice can be investigated, a missing one cannot. */
static void driver_take_tally(struct redis_conn *conn, void *data,
                              const struct redis_reply *reply) {
    struct redis_store *store = ((struct redis_node *)conn->data)->store;
    uint64_t *sent = data;

    store->tally_flying--;
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR || redis_sentinel_holds(store)) {
        store->tally[sent - store->tally_sent] += *sent;
        store_arm_tally(store);
    }
    if (reply != NULL && store->cluster != NULL && redis_reply_is(reply, "MOVED"))
        redis_cluster_refresh(store);
}

/* False: the previous batch is pending. During a failover nothing is sent: the old master would
   count events that the new one never sees. */
static bool store_send_tally(struct redis_store *store) {
    struct redis_node *node = store->nodes;
    struct redis_buffer out = {0};
    bool first = true;

    if (store->tally_flying > 0)
        return false;
    if (redis_sentinel_holds(store))
        return true;
    if (store->config.kind == REDIS_CLUSTER)
        node = store->slots[redis_slot(REDIS_EVENTS_NAME, strlen(REDIS_EVENTS_NAME))];
    if (node == NULL || node->conn.state != REDIS_CONN_READY ||
        redis_tally_write(store, &out) == 0 || out.failed) {
        redis_buffer_release(&out);
        return true;
    }
    for (int i = 0; i < IDEM_EVENT__COUNT; i++) {
        if (store->tally[i] == 0)
            continue;
        if (!redis_conn_send(&node->conn, out.at, first ? out.len : 0, driver_take_tally,
                             &store->tally_sent[i])) {
            if (!first) /* the commands are queued, and their replies would have no callback */
                redis_conn_fail(&node->conn, IDEM_E_NOMEM, "no memory for an answer");
            redis_buffer_release(&out);
            return true;
        }
        first = false;
        store->tally_flying++;
        store->tally_sent[i] = store->tally[i];
        store->tally[i] = 0;
    }
    redis_conn_flush(&node->conn);
    redis_buffer_release(&out);
    return true;
}

static void driver_fire_tally(struct idem_timer *timer) {
    struct redis_store *store = idem_container_of(timer, struct redis_store, tally_timer);

    redis_store_enter(
        store); /* a write may lose the connection, and a callback may close the store */
    (void)store_send_tally(store);
    for (int i = 0; i < IDEM_EVENT__COUNT && !store->closing; i++)
        if (store->tally[i] != 0)
            store_arm_tally(store);
    (void)redis_store_leave(store);
}

static void driver_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    struct redis_store *store = driver_store(base);

    store->tally[event] += n;
    if (!store_is_inherited(store))
        store_arm_tally(store);
}

/* Closing. */

static bool store_is_waiting(const struct redis_store *store) {
    for (const struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (node->conn.state == REDIS_CONN_READY &&
            (node->conn.wants_n > 0 || node->conn.out.len > 0 || node->conn.cipher.len > 0))
            return true;
    return false;
}

/* Completes submitted operations without callbacks. Closing a socket with unread replies
   discards data it has sent, so replies are read for a while. */
static void store_drain(struct redis_store *store) {
    int64_t until = idem_loop_now() + CLOSE_WAIT_MS, left;
    struct pollfd fds[64];
    struct redis_job *job;
    bool tallied;
    nfds_t n;

    for (job = store->jobs; job != NULL; job = job->next) {
        if (job->op != NULL)
            job->op->driver = NULL;
        job->op = &store->nobody;
    }
    redis_flush_run(&store->flush);
    tallied = store_send_tally(store);
    while (store_is_waiting(store) && (left = until - idem_loop_now()) > 0) {
        for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
            redis_conn_pump(&node->conn);
        if (!tallied)
            tallied = store_send_tally(store);
        if (!store_is_waiting(store))
            break;
        n = 0;
        for (struct redis_node *node = store->nodes; node != NULL && n < 64; node = node->next)
            if (node->conn.state == REDIS_CONN_READY)
                fds[n++] = (struct pollfd){
                    .fd = node->conn.fd.fd,
                    .events = (short)(POLLIN | (node->conn.watching_write ? POLLOUT : 0))};
        if (poll(fds, n, (int)left) <= 0 && errno != EINTR)
            break;
        for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
            redis_conn_flush(&node->conn);
    }
}

static void driver_ignore_completion(struct idem_op *op, int rc) {
    (void)op;
    (void)rc;
}

static void driver_close(struct idem_store *base) {
    struct redis_store *store = driver_store(base);
    struct redis_node *node;

    store->closing = true;
    if (!store_is_inherited(store)) {
        store->closing = false;
        redis_store_enter(store);
        store_drain(store);
        store->depth--;
        store->closing = true;
    }
    idem_task_drop(base->loop, &store->flush);
    idem_task_drop(base->loop, &store->refuse);
    idem_task_drop(base->loop, &store->wake_first);
    idem_timer_clear(base->loop, &store->deadline);
    idem_timer_clear(base->loop, &store->again);
    idem_timer_clear(base->loop, &store->tally_timer);
    redis_sentinel_free(store->sentinel);
    redis_cluster_free(store->cluster);
    redis_name_watch_free(store->name_watch);
    while ((node = store->nodes) != NULL) {
        store->nodes = node->next;
        redis_node_free(node);
    }
    redis_jobs_free(store);
    if (store->depth == 0)
        store_free(store);
}

/* Opening. */

static int store_start(struct redis_store *store, struct idem_error *err) {
    struct redis_node *node;

    switch (store->config.kind) {
    case REDIS_SENTINEL:
        return redis_sentinel_new(store, err);
    case REDIS_CLUSTER:
        return redis_cluster_new(store, err);
    default:
        node = redis_node_new(store, &store->config.hosts[0]);
        if (node == NULL)
            return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
        redis_conn_open(&node->conn);
        return redis_name_watch_new(store, err);
    }
}

static int driver_check(const struct idem_url *url, struct idem_error *err) {
    struct redis_config config;
    int rc = redis_config_read(url, &config, err);

    if (rc == 0)
        redis_config_release(&config);
    return rc;
}

static int driver_open(const struct idem_url *url, struct idem_loop *loop,
                       const struct idem_clock *clock, struct idem_store **ret,
                       struct idem_error *err) {
    struct redis_store *store = calloc(1, sizeof(*store));
    int rc;

    (void)clock; /* the server's own clock is used */
    if (store == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    store->base.loop = loop;
    idem_fork_watch();
    store->forks = idem_fork_count();
    store->jobs_end = &store->jobs;
    redis_queue_init(&store->turn);
    redis_queue_init(&store->paused);
    store->flush.run = redis_flush_run;
    store->refuse.run = driver_run_refuse;
    store->wake_first.run = redis_wake_first_run;
    store->deadline.fire = driver_fire_deadline;
    store->again.fire = redis_again_fire;
    store->tally_timer.fire = driver_fire_tally;
    store->nobody.complete = driver_ignore_completion;
    rc = redis_config_read(url, &store->config, err);
    if (rc == 0)
        rc = redis_tls_config_new(&store->config, &store->tls, err);
    if (rc == 0)
        rc = redis_scripts_make(store->config.kind == REDIS_CLUSTER ? "SPUBLISH" : "PUBLISH",
                                &store->scripts, err);
    if (rc == 0)
        rc = store_start(store, err);
    if (rc != 0) {
        driver_close(&store->base);
        return rc;
    }
    store->base.timeout_ms = store->config.timeout_ms;
    *ret = &store->base;
    return 0;
}

static const char *const schemes[] = {
    "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", NULL,
};

const struct idem_driver idem_driver_redis = {
    .name = "redis",
    .schemes = schemes,
    .check = driver_check,
    .open = driver_open,
    .close = driver_close,
    .submit = driver_submit,
    .cancel = driver_cancel,
    .watch = redis_watch,
    .unwatch = redis_unwatch,
    .tally = driver_tally,
};
