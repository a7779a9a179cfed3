/*
 * SQL stores: opens and closes the store, and sends its counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/sql/sql_store.h"

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

    for (size_t i = 0; i < store->config.lanes_n && !r->closing; i++)
        sql_lane_pump(&store->lanes[i]);
}

/* Counts. */

static void driver_take_tally(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    remote_tally_answered(&lane->store->remote, data,
                          answer != NULL && answer->trouble == SQL_FINE);
}

/* Prefers a connection that is ready: a short-lived process may never have another. */
static struct sql_lane *store_tally_connection(struct sql_store *store) {
    for (size_t i = 0; i < store->config.lanes_n; i++)
        if (store->lanes[i].state == SQL_LANE_READY)
            return &store->lanes[i];
    return &store->lanes[0];
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
        if (!sql_lane_send(store_tally_connection(store), SQL_EVENT_ADD, values, 2,
                           driver_take_tally, &r->tally_sent[i]))
            return;
        remote_tally_sent(r, i);
    }
}

static void driver_tally_send(struct remote *r) {
    struct sql_lane *lane = store_tally_connection(sql_store_of(r));

    sql_lane_open(lane);
    store_send_tally(sql_store_of(r));
    sql_lane_pump(lane);
}

/* Closing. */

static bool store_is_waiting(struct sql_store *store) {
    for (size_t i = 0; i < store->config.lanes_n; i++)
        if (store->lanes[i].state == SQL_LANE_READY &&
            (store->lanes[i].wants_n > 0 || store->lanes[i].turn.first != NULL))
            return true;
    return remote_has_tally(&store->remote) &&
           store_tally_connection(store)->state == SQL_LANE_READY;
}

static nfds_t driver_drain(struct remote *r, struct pollfd fds[REMOTE_POLL_MAX]) {
    struct sql_store *store = sql_store_of(r);
    nfds_t n = 0;

    if (r->ops == NULL)
        store_send_tally(store);
    for (size_t i = 0; i < store->config.lanes_n; i++) {
        struct sql_lane *lane = &store->lanes[i];

        if (lane->state != SQL_LANE_READY)
            continue;
        sql_lane_flush_run(&lane->flush);
        lane->fd.ready(&lane->fd, IDEM_READ | IDEM_WRITE);
        if (lane->state == SQL_LANE_READY)
            fds[n++] = (struct pollfd){
                .fd = lane->fd.fd,
                .events = (short)(POLLIN | ((lane->events & IDEM_WRITE) != 0 ? POLLOUT : 0))};
    }
    return store_is_waiting(store) ? n : 0;
}

static void driver_disconnect(struct remote *r) {
    struct sql_store *store = sql_store_of(r);

    sql_sweeper_stop(store);
    idem_timer_clear(r->base.loop, &store->wake_timer);
    for (size_t i = 0; i < store->config.lanes_n; i++)
        sql_lane_close(&store->lanes[i]);
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
    .op_new = sql_job_new,
    .op_free = sql_job_free,
    .op_begin = sql_job_begin,
    .op_turn = sql_job_turn,
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
    for (size_t i = 0; i < store->config.lanes_n; i++)
        sql_lane_init(&store->lanes[i], store);
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
