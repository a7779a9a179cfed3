/*
 * SQL stores: runs the operations, statement by statement; opens and closes the store, and sends
 * its counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/sql/sql_store.h"

/*
 * Operations under way: one statement at a time; each response decides on the next statement.
 *
 *     submitted ──> queue of its connection ──> sent ──response──> next step, or complete
 *                     ^                          │
 *                     │                          v
 *                   paused <── the server rolled it back, or the connection is lost or missing
 *
 * remote.c has their lists, pauses and deadlines.
 */

static void job_turn(struct remote_op *op) {
    struct sql_connection *connection = sql_job_of(op)->connection;

    remote_op_turn(op, &connection->turn, &connection->flush);
}

/* Slots: of the operations that read and change the records of one slot, one at a time is under
   way. Without slots, the others on this connection would find the record changed, and start again
   and again. */

static unsigned char *job_slot(const struct sql_job *job) {
    const unsigned char *hash = job->base.copy.key.at + job->base.copy.key.prefix_len;

    return &job->connection->busy[(hash[0] << 4 | hash[1] >> 4) % SQL_SLOTS];
}

/* False: the job waits for the slot. */
static bool job_take_slot(struct sql_job *job) {
    struct sql_connection *connection = job->connection;

    if (job->holds || remote_op_only_reads(&job->base) ||
        (job->step->statement != SQL_READ && job->step->statement != SQL_COUNTER_READ))
        return true;
    if (*job_slot(job) == 0) {
        *job_slot(job) = 1;
        job->holds = true;
        return true;
    }
    remote_queue_put(&connection->held, &job->base);
    return false;
}

/* Hands the slot to the first job that waits for it. */
static void job_release_slot(struct sql_job *job) {
    struct sql_connection *connection = job->connection;
    struct remote_op **at = &connection->held.first, *next;

    if (!job->holds)
        return;
    job->holds = false;
    *job_slot(job) = 0;
    while (*at != NULL && job_slot(sql_job_of(*at)) != job_slot(job))
        at = &(*at)->queue_next;
    next = *at;
    if (next == NULL)
        return;
    *at = next->queue_next;
    if (*at == NULL)
        connection->held.end = at;
    next->queued = false;
    /* From now on: a job that was dropped meanwhile passes the slot on. */
    sql_job_of(next)->holds = true;
    *job_slot(job) = 1;
    job_turn(next);
}

/* The slots of struct remote_engine for an operation. */

static void job_free(struct remote_op *op) {
    struct sql_job *job = sql_job_of(op);

    if (!op->remote->closing)
        job_release_slot(job);
    job->store->engine->answer_free(job->read);
    free(job->entries);
    free(job);
}

static struct remote_op *job_new(struct remote *r, size_t room) {
    struct sql_job *job = malloc(room);

    if (job == NULL)
        return NULL;
    memset(job, 0, offsetof(struct sql_job, base.copy));
    job->store = sql_store_of(r);
    return &job->base;
}

static int job_begin(struct remote_op *op) {
    struct sql_job *job = sql_job_of(op);

    if (job->connection == NULL)
        job->connection = remote_op_is_keyed(op) ? sql_connection_of(job->store, &op->copy.key)
                                                 : &job->store->connections[0];
    job_release_slot(job);
    return sql_job_restart(job);
}

/* Responses. */

static void job_take_response(struct sql_connection *connection, void *data,
                              struct sql_answer *answer) {
    struct sql_job *job = data;
    int rc;

    connection->operations_n--;
    job->base.responses_due--;
    if (remote_op_is_gone(&job->base))
        return;
    if (answer == NULL) {
        job->base.lost |= job->step->changes;
        remote_op_lost(&job->base);
        return;
    }
    job->base.sent = job->base.lost;
    if (answer->trouble == SQL_ELSEWHERE || (answer->trouble == SQL_AGAIN && !job->step->passes)) {
        remote_op_pause(&job->base);
        return;
    }
    if (answer->trouble > SQL_ELSEWHERE) {
        remote_op_complete(&job->base, remote_op_judge(&job->base, sql_job_trouble(job, answer)));
        return;
    }
    rc = job->step->take(job, answer);
    if (rc == SQL_MORE)
        job_turn(&job->base);
    else
        remote_op_complete(&job->base, remote_op_judge(&job->base, rc));
}

/* Sending. */

static void job_send(struct sql_job *job) {
    struct sql_value values[SQL_VALUES_MAX];
    struct sql_connection *connection = job->connection;
    size_t n;

    if (sql_connection_is_down(connection)) {
        remote_op_give_up(&job->base, "the server cannot be reached");
        return;
    }
    if (connection->state != SQL_CONNECTION_READY) {
        remote_op_pause(&job->base); /* remote_resume() ends the pause */
        return;
    }
    if (!job_take_slot(job))
        return;
    n = job->step->write(job, values);
    job->base.responses_due++;
    if (!sql_connection_send(connection, job->step->statement, values, n, job_take_response, job)) {
        job->base.responses_due--;
        remote_op_pause(&job->base);
        return;
    }
    connection->operations_n++;
    if (job->step->changes)
        job->base.sent = true;
}

void sql_connection_flush_run(struct idem_task *task) {
    struct sql_connection *connection = idem_container_of(task, struct sql_connection, flush);
    struct sql_store *store = connection->store;
    struct remote_op *op;

    remote_enter(&store->remote);
    if (connection->turn.first != NULL)
        sql_connection_open(connection);
    while (!store->remote.closing && (op = connection->turn.first) != NULL) {
        if (op->caller != NULL && connection->state == SQL_CONNECTION_READY &&
            !sql_connection_has_room(connection) && !sql_connection_is_down(connection))
            break;
        (void)remote_queue_pop(&connection->turn);
        if (!remote_op_is_gone(op))
            job_send(sql_job_of(op));
    }
    if (!store->remote.closing)
        sql_connection_pump(connection);
    (void)remote_leave(&store->remote);
}

/* The store, as its connections see it. */

void sql_store_ready(struct sql_store *store) {
    sql_sweeper_arm(store);
    remote_ready(&store->remote);
    if (store->remote.watches_n > 0)
        idem_timer_set(store->remote.base.loop, &store->wake_timer, 0);
}

/* The last notice is not repeated. */
void sql_store_notice(struct sql_store *store, const char *text) {
    if (strcmp(store->noticed, text) == 0)
        return;
    snprintf(store->noticed, sizeof(store->noticed), "%s", text);
    remote_notice(&store->remote, text);
}

static void driver_pump(struct remote *r) {
    struct sql_store *store = sql_store_of(r);

    for (size_t i = 0; i < store->config.connections_n && !r->closing; i++)
        sql_connection_pump(&store->connections[i]);
}

/* Counts. */

static void driver_take_tally(struct sql_connection *connection, void *data,
                              struct sql_answer *answer) {
    remote_tally_answered(&connection->store->remote, data,
                          answer != NULL && answer->trouble == SQL_FINE);
}

/* Prefers a connection that is ready: a short-lived process may never have another. */
static struct sql_connection *store_tally_connection(struct sql_store *store) {
    for (size_t i = 0; i < store->config.connections_n; i++)
        if (store->connections[i].state == SQL_CONNECTION_READY)
            return &store->connections[i];
    return &store->connections[0];
}

static void store_send_tally(struct sql_store *store) {
    struct remote *r = &store->remote;
    struct sql_value values[2];

    if (r->tally_flying > 0)
        return;
    for (int i = 0; i < IDEM_EVENT__COUNT; i++) {
        const char *name = idem_event_name((enum idem_event)i);

        if (r->tally[i] == 0)
            continue;
        values[0] = sql_bytes(name, strlen(name));
        values[1] = sql_int((int64_t)r->tally[i]);
        if (!sql_connection_send(store_tally_connection(store), SQL_EVENT_ADD, values, 2,
                                 driver_take_tally, &r->tally_sent[i]))
            return;
        remote_tally_sent(r, i);
    }
}

static void driver_tally_send(struct remote *r) {
    struct sql_connection *connection = store_tally_connection(sql_store_of(r));

    sql_connection_open(connection);
    store_send_tally(sql_store_of(r));
    sql_connection_pump(connection);
}

/* Closing. */

static bool store_is_waiting(struct sql_store *store) {
    for (size_t i = 0; i < store->config.connections_n; i++)
        if (store->connections[i].state == SQL_CONNECTION_READY &&
            (store->connections[i].pending_n > 0 || store->connections[i].turn.first != NULL))
            return true;
    return remote_has_tally(&store->remote) &&
           store_tally_connection(store)->state == SQL_CONNECTION_READY;
}

static nfds_t driver_drain(struct remote *r, struct pollfd fds[REMOTE_POLL_MAX]) {
    struct sql_store *store = sql_store_of(r);
    nfds_t n = 0;

    if (r->ops == NULL)
        store_send_tally(store);
    for (size_t i = 0; i < store->config.connections_n; i++) {
        struct sql_connection *connection = &store->connections[i];

        if (connection->state != SQL_CONNECTION_READY)
            continue;
        sql_connection_flush_run(&connection->flush);
        connection->fd.ready(&connection->fd, IDEM_READ | IDEM_WRITE);
        if (connection->state == SQL_CONNECTION_READY)
            fds[n++] = (struct pollfd){
                .fd = connection->fd.fd,
                .events = (short)(POLLIN | ((connection->events & IDEM_WRITE) != 0 ? POLLOUT : 0))};
    }
    return store_is_waiting(store) ? n : 0;
}

static void driver_disconnect(struct remote *r) {
    struct sql_store *store = sql_store_of(r);

    sql_sweeper_stop(store);
    idem_timer_clear(r->base.loop, &store->wake_timer);
    for (size_t i = 0; i < store->config.connections_n; i++)
        sql_connection_close(&store->connections[i]);
}

static void driver_free(struct remote *r) {
    struct sql_store *store = sql_store_of(r);

    sql_config_release(&store->config);
    free(store);
}

void sql_close(struct idem_store *base) {
    sql_sweeper_stop(sql_store_of(remote_of(base)));
    remote_close(base);
}

/* Opening. */

static const struct remote_engine engine = {
    .op_size = sizeof(struct sql_job),
    .op_new = job_new,
    .op_free = job_free,
    .op_begin = job_begin,
    .op_turn = job_turn,
    .again_ms = 20,
    .pump = driver_pump,
    .channel_size = sizeof(struct sql_channel),
    .watched = sql_watched,
    .unwatched = sql_unwatched,
    .tally_send = driver_tally_send,
    .tally_again_ms = 50,
    .drain = driver_drain,
    .disconnect = driver_disconnect,
    .free = driver_free,
};

int sql_open(const struct idem_driver *driver, const struct idem_url *url, struct idem_loop *loop,
             const struct idem_clock *clock, struct idem_store **ret, struct idem_error *err) {
    struct sql_store *store = calloc(1, sizeof(*store));
    int rc;

    (void)clock; /* the server's clock is used */
    if (store == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    rc = sql_config_read(driver->engine, url, &store->config, err);
    if (rc != 0) {
        free(store);
        return rc;
    }
    remote_init(&store->remote, &engine, loop, store->config.timeout_ms);
    store->engine = driver->engine;
    store->pooled = store->config.pooled;
    store->wake_timer.fire = sql_wake_fire;
    for (size_t i = 0; i < store->config.connections_n; i++)
        sql_connection_init(&store->connections[i], store);
    sql_sweeper_init(store);
    *ret = &store->remote.base;
    return 0;
}

int sql_check(const struct idem_driver *driver, const struct idem_url *url,
              struct idem_error *err) {
    struct sql_config config;
    int rc = sql_config_read(driver->engine, url, &config, err);

    if (rc == 0)
        sql_config_release(&config);
    return rc;
}
