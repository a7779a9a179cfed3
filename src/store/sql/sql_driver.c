/*
 * SQL stores: takes operations and calls their callbacks, on a loop. An operation whose connection
 * was lost may have happened: if the same owner id makes a repetition safe, it starts again,
 * otherwise its result is UNKNOWN. The operation's deadline bounds all of this.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/visible.h"
#include "store/sql/sql_store.h"

#define QUEUE_MAX 32768
#define QUEUE_BYTES_MAX ((size_t)256 << 20)
#define TALLY_MS 1000     /* the interval between batches of counts */
#define TALLY_AGAIN_MS 50 /* while there is no connection */
#define CLOSE_WAIT_MS 500 /* for submitted operations, when the store is closed */

static struct sql_store *store_of(struct idem_store *base) {
    return idem_container_of(base, struct sql_store, base);
}

static bool store_is_inherited(const struct sql_store *store) {
    return store->forks != idem_fork_count();
}

/* Life time of the store. */

static void store_free(struct sql_store *store) {
    sql_channels_free(store);
    sql_config_release(&store->config);
    free(store);
}

void sql_store_enter(struct sql_store *store) {
    store->depth++;
}

bool sql_store_leave(struct sql_store *store) {
    if (--store->depth > 0 || !store->closing)
        return store->closing;
    store_free(store);
    return true;
}

/* Trouble, and deadlines. */

static struct sql_job *store_first_unsent(const struct sql_store *store) {
    struct sql_job *job = store->jobs;

    while (job != NULL && (job->sent || job->wanted))
        job = job->next;
    return job;
}

/* Refuses the operations that were never sent, if waiting does not help; but not the new operations
   that their callbacks submit. */
static void driver_refuse_unsent(struct idem_task *task) {
    struct sql_store *store = idem_container_of(task, struct sql_store, refuse);
    struct sql_job *job;

    if (!store->for_good && store->was_ready)
        return;
    store->for_good = false;
    sql_store_enter(store);
    for (size_t n = store->jobs_n; n > 0 && !store->closing; n--) {
        job = store_first_unsent(store);
        if (job == NULL)
            break;
        sql_job_complete(job, sql_job_fail(job, "the server cannot be reached"));
    }
    (void)sql_store_leave(store);
}

void sql_store_trouble(struct sql_store *store, int code, bool for_good, const char *text) {
    snprintf(store->trouble, sizeof(store->trouble), "%s", text);
    store->trouble_code = code;
    store->for_good |= for_good;
    if (for_good || !store->was_ready)
        idem_task_post(store->base.loop, &store->refuse);
}

void sql_store_ready(struct sql_store *store) {
    store->was_ready = true;
    store->trouble[0] = '\0';
    store->trouble_code = 0;
    sql_sweeper_arm(store);
    sql_jobs_resume(store);
    if (store->watches_n > 0)
        idem_timer_set(store->base.loop, &store->wake_timer, 0);
}

void sql_store_notice(struct sql_store *store, const char *text) {
    char shown[sizeof(store->noticed)];

    (void)idem_visible_copy(text, strlen(text), '?', shown,
                            sizeof(shown)); /* the text of a server is untrusted */
    if (strcmp(store->noticed, shown) == 0)
        return;
    memcpy(store->noticed, shown, sizeof(shown));
    if (store->base.notice != NULL)
        store->base.notice(store->base.notice_data, shown);
}

static void store_arm_deadline(struct sql_store *store) {
    int64_t left;

    if (store->jobs == NULL || store->deadline.link != NULL)
        return;
    left = store->jobs->deadline - idem_loop_now();
    idem_timer_set(store->base.loop, &store->deadline, left > 0 ? left : 0);
}

static void driver_on_deadline(struct idem_timer *timer) {
    struct sql_store *store = idem_container_of(timer, struct sql_store, deadline);
    int64_t now = idem_loop_now();

    sql_store_enter(store);
    for (size_t i = 0; i < store->config.lanes_n && !store->closing; i++)
        sql_lane_pump(&store->lanes[i]);
    while (!store->closing && store->jobs != NULL && store->jobs->deadline <= now) {
        struct sql_job *job = store->jobs;

        sql_job_complete(job, sql_job_fail(job, "the server did not answer in time"));
    }
    if (!sql_store_leave(store))
        store_arm_deadline(store);
}

/* The driver's slots. */

int sql_submit(struct idem_store *base, struct idem_op *op) {
    struct sql_store *store = store_of(base);
    struct sql_job *job;
    int rc = idem_op_admit(op, store->forks);

    if (rc != 0)
        return rc;
    if (store->jobs_n >= QUEUE_MAX || store->jobs_bytes > QUEUE_BYTES_MAX)
        return idem_error_set(&op->error, IDEM_E_REFUSED,
                              "%d operations or %zu MiB wait for the server", QUEUE_MAX,
                              QUEUE_BYTES_MAX >> 20);
    job = sql_job_new(store, op);
    if (job == NULL)
        return idem_error_set(&op->error, IDEM_E_NOMEM, "no memory for an operation");
    rc = sql_job_begin(job);
    if (rc != 0) {
        op->error = job->copy.error;
        free(job);
        return rc;
    }
    op->driver = job;
    job->deadline = idem_loop_now() + store->config.timeout_ms;
    job->link = store->jobs_end;
    *store->jobs_end = job;
    store->jobs_end = &job->next;
    store->jobs_n++;
    store->jobs_bytes += job->size;
    store_arm_deadline(store);
    sql_job_turn(job);
    return 0;
}

void sql_cancel(struct idem_store *base, struct idem_op *op) {
    struct sql_job *job = op->driver;

    (void)base;
    op->driver = NULL;
    sql_job_drop(job);
}

/* A timer sends the counts: they are many, and none is urgent. One batch at a time: its counts stay
   in tally_sent until their responses arrive. */

static void store_arm_tally(struct sql_store *store) {
    if (store->tally_timer.link == NULL)
        idem_timer_set(store->base.loop, &store->tally_timer, TALLY_MS);
}

/* A refused count was not added and is sent again. A count that was lost with its connection may
   have been added. It is sent again as well, because an event that is counted twice can be
   examined, and one that is not counted cannot. */
static void driver_take_tally(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    struct sql_store *store = lane->store;
    uint64_t *sent = data;

    store->tally_flying--;
    if (answer == NULL || answer->trouble != SQL_FINE) {
        store->tally[sent - store->tally_sent] += *sent;
        store_arm_tally(store);
    }
    *sent = 0;
}

/* Prefers a connection that is ready: a short-lived process may never have another. */
static struct sql_lane *store_tally_connection(struct sql_store *store) {
    for (size_t i = 0; i < store->config.lanes_n; i++)
        if (store->lanes[i].state == SQL_LANE_READY)
            return &store->lanes[i];
    return &store->lanes[0];
}

/* False: there are more counts, but the batch before has no response yet. */
static bool store_send_tally(struct sql_store *store) {
    struct sql_value values[2];

    if (store->tally_flying > 0)
        return false;
    for (int i = 0; i < IDEM_EVENT__COUNT; i++) {
        const char *name = idem_event_name((enum idem_event)i);

        if (store->tally[i] == 0)
            continue;
        values[0] = sql_bytes(name, strlen(name));
        values[1] = sql_int((int64_t)store->tally[i]);
        if (!sql_lane_send(store_tally_connection(store), SQL_EVENT_ADD, values, 2,
                           driver_take_tally, &store->tally_sent[i]))
            return false;
        store->tally_flying++;
        store->tally_sent[i] = store->tally[i];
        store->tally[i] = 0;
    }
    return true;
}

static void driver_on_tally_timer(struct idem_timer *timer) {
    struct sql_store *store = idem_container_of(timer, struct sql_store, tally_timer);

    sql_store_enter(store);
    sql_lane_open(store_tally_connection(store));
    if (!store_send_tally(store) && store->tally_timer.link == NULL)
        idem_timer_set(store->base.loop, &store->tally_timer, TALLY_AGAIN_MS);
    sql_lane_pump(store_tally_connection(store));
    (void)sql_store_leave(store);
}

void sql_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    struct sql_store *store = store_of(base);

    store->tally[event] += n;
    if (!store_is_inherited(store))
        store_arm_tally(store);
}

/* Closing. */

static bool store_is_waiting(const struct sql_store *store) {
    for (size_t i = 0; i < store->config.lanes_n; i++)
        if (store->lanes[i].state == SQL_LANE_READY &&
            (store->lanes[i].wants_n > 0 || store->lanes[i].turn != NULL))
            return true;
    return false;
}

static bool store_has_tally(struct sql_store *store) {
    for (int i = 0; i < IDEM_EVENT__COUNT; i++)
        if (store->tally[i] != 0)
            return store_tally_connection(store)->state == SQL_LANE_READY;
    return false;
}

/* Completes and counts the submitted operations, but calls no callback any more. */
static void store_drain(struct sql_store *store) {
    int64_t until = idem_loop_now() + CLOSE_WAIT_MS, left;
    struct pollfd fds[SQL_LANES_MAX];
    nfds_t n;

    for (struct sql_job *job = store->jobs; job != NULL; job = job->next) {
        if (job->op != NULL)
            job->op->driver = NULL;
        job->op = &store->nobody;
    }
    for (size_t i = 0; i < store->config.lanes_n; i++)
        if (store->lanes[i].state == SQL_LANE_READY)
            sql_lane_flush_run(&store->lanes[i].flush);
    while ((store_is_waiting(store) || store_has_tally(store)) &&
           (left = until - idem_loop_now()) > 0) {
        if (store->jobs == NULL)
            (void)store_send_tally(store);
        n = 0;
        for (size_t i = 0; i < store->config.lanes_n; i++) {
            sql_lane_flush_run(&store->lanes[i].flush);
            if (store->lanes[i].state == SQL_LANE_READY)
                fds[n++] = (struct pollfd){
                    .fd = store->lanes[i].fd.fd,
                    .events =
                        (short)(POLLIN | (store->lanes[i].events & IDEM_WRITE ? POLLOUT : 0))};
        }
        if (!store_is_waiting(store) && !store_has_tally(store))
            break;
        if (poll(fds, n, (int)left) < 0 && errno != EINTR)
            break;
        for (size_t i = 0; i < store->config.lanes_n; i++)
            if (store->lanes[i].state == SQL_LANE_READY)
                store->lanes[i].fd.ready(&store->lanes[i].fd, IDEM_READ | IDEM_WRITE);
    }
}

static void driver_ignore_completion(struct idem_op *op, int rc) {
    (void)op;
    (void)rc;
}

void sql_close(struct idem_store *base) {
    struct sql_store *store = store_of(base);

    sql_sweeper_stop(store);
    if (!store_is_inherited(store)) {
        sql_store_enter(store);
        store_drain(store);
        store->depth--;
    }
    store->closing = true;
    idem_task_drop(base->loop, &store->refuse);
    idem_task_drop(base->loop, &store->wake_first);
    idem_timer_clear(base->loop, &store->deadline);
    idem_timer_clear(base->loop, &store->again);
    idem_timer_clear(base->loop, &store->wake_timer);
    idem_timer_clear(base->loop, &store->tally_timer);
    sql_sweeper_stop(store);
    sql_jobs_free(store);
    for (size_t i = 0; i < store->config.lanes_n; i++)
        sql_lane_close(&store->lanes[i]);
    if (store->depth == 0)
        store_free(store);
}

/* Opening. */

int sql_open(const struct sql_engine *engine, const struct idem_url *url, struct idem_loop *loop,
             struct idem_store **ret, struct idem_error *err) {
    struct sql_store *store = calloc(1, sizeof(*store));
    int rc;

    if (store == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    rc = sql_config_read(engine, url, &store->config, err);
    if (rc != 0) {
        free(store);
        return rc;
    }
    store->base.loop = loop;
    store->engine = engine;
    store->pooled = store->config.pooled;
    idem_fork_watch();
    store->forks = idem_fork_count();
    store->jobs_end = &store->jobs;
    store->paused_end = &store->paused;
    store->refuse.run = driver_refuse_unsent;
    store->wake_first.run = sql_wake_first_run;
    store->deadline.fire = driver_on_deadline;
    store->again.fire = sql_again_fire;
    store->wake_timer.fire = sql_wake_fire;
    store->tally_timer.fire = driver_on_tally_timer;
    store->nobody.complete = driver_ignore_completion;
    for (size_t i = 0; i < store->config.lanes_n; i++)
        sql_lane_init(&store->lanes[i], store);
    sql_sweeper_init(store);
    store->base.timeout_ms = store->config.timeout_ms;
    *ret = &store->base;
    return 0;
}

int sql_check(const struct sql_engine *engine, const struct idem_url *url, struct idem_error *err) {
    struct sql_config config;
    int rc = sql_config_read(engine, url, &config, err);

    if (rc == 0)
        sql_config_release(&config);
    return rc;
}
