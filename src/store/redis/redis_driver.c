/*
 * The Redis driver: opens and closes the store, and sends its counts. Operations submitted in one
 * turn of the loop go out in one write per server.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/redis_store.h"

void redis_store_notice(struct redis_store *store, unsigned bit, const char *fmt, ...) {
    char text[400];
    va_list args;

    if ((store->noticed & bit) != 0)
        return;
    store->noticed |= bit;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    remote_notice(&store->remote, text);
}

/* True while a host whose state is unknown is being tried: another host of the URL. */
static bool driver_is_hopeful(struct remote *r) {
    const struct redis_store *store = redis_store_of(r);

    for (const struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (redis_conn_is_made(&node->conn))
            return true;
    return redis_sentinel_is_asked(store);
}

static void driver_pump(struct remote *r) {
    struct redis_store *store = redis_store_of(r);

    for (struct redis_node *node = store->nodes; node != NULL;
         node = r->closing ? NULL : node->next)
        redis_conn_pump(&node->conn);
}

/* Counts. */

/* A master that is being replaced may have added a count that the next one never sees. */
static void driver_take_tally(struct redis_conn *conn, void *data,
                              const struct redis_reply *reply) {
    struct redis_store *store = ((struct redis_node *)conn->data)->store;

    remote_tally_answered(&store->remote, data,
                          reply != NULL && reply->type != REDIS_REPLY_ERROR &&
                              !redis_sentinel_holds(store));
    if (reply != NULL && store->cluster != NULL && redis_reply_is(reply, "MOVED"))
        redis_cluster_refresh(store);
}

/* False: the previous batch is pending. During a failover nothing is sent: the old master would
   count events that the new one never sees. */
static bool store_send_tally(struct redis_store *store) {
    struct redis_node *node = store->nodes;
    char n[24];

    if (store->remote.tally_flying > 0)
        return false;
    if (redis_sentinel_holds(store))
        return true;
    if (store->config.kind == REDIS_CLUSTER)
        node = store->slots[redis_cluster_slot(REDIS_EVENTS_NAME, strlen(REDIS_EVENTS_NAME))];
    if (node == NULL || node->conn.state != REDIS_CONN_READY)
        return true;
    for (int i = 0; i < IDEM_EVENT__COUNT; i++) {
        if (store->remote.tally[i] == 0)
            continue;
        snprintf(n, sizeof(n), "%lld", (long long)store->remote.tally[i]);
        if (!redis_conn_command(&node->conn, driver_take_tally, &store->remote.tally_sent[i],
                                "HINCRBY", REDIS_EVENTS_NAME, idem_event_name((enum idem_event)i),
                                n, NULL))
            break;
        remote_tally_sent(&store->remote, i);
    }
    redis_conn_flush(&node->conn);
    return true;
}

static void driver_tally_send(struct remote *r) {
    (void)store_send_tally(redis_store_of(r));
}

/* Closing. */

static bool node_is_waiting(const struct redis_node *node) {
    return node->conn.state == REDIS_CONN_READY &&
           (node->conn.pending_n > 0 || node->conn.out.len > 0 || node->conn.cipher.len > 0);
}

static nfds_t driver_drain(struct remote *r, struct pollfd fds[REMOTE_POLL_MAX]) {
    struct redis_store *store = redis_store_of(r);
    nfds_t n = 0;

    redis_flush_run(&store->flush);
    driver_pump(r);
    if (!store->tallied)
        store->tallied = store_send_tally(store);
    for (struct redis_node *node = store->nodes; node != NULL && n < REMOTE_POLL_MAX;
         node = node->next)
        if (node_is_waiting(node))
            fds[n++] = (struct pollfd){
                .fd = node->conn.fd.fd,
                .events = (short)(POLLIN | (node->conn.watching_write ? POLLOUT : 0))};
    return n;
}

static void driver_disconnect(struct remote *r) {
    struct redis_store *store = redis_store_of(r);
    struct redis_node *node;

    idem_task_drop(r->base.loop, &store->flush);
    redis_sentinel_free(store->sentinel);
    redis_cluster_free(store->cluster);
    redis_name_watch_free(store->name_watch);
    while ((node = store->nodes) != NULL) {
        store->nodes = node->next;
        redis_node_free(node);
    }
}

static void driver_free(struct remote *r) {
    struct redis_store *store = redis_store_of(r);

    redis_jobs_free(store);
    redis_pages_free(store);
    redis_scripts_release(&store->scripts);
    redis_tls_config_free(store->tls);
    redis_config_release(&store->config);
    free(store->slots);
    free(store);
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

static int driver_check(const struct idem_driver *driver, const struct idem_url *url,
                        struct idem_error *err) {
    struct redis_config config;
    int rc = redis_config_read(url, &config, err);

    (void)driver;
    if (rc == 0)
        redis_config_release(&config);
    return rc;
}

static const struct remote_engine engine = {
    .op_size = sizeof(struct redis_job),
    .op_new = redis_job_new,
    .op_free = redis_job_free,
    .op_begin = redis_job_begin,
    .op_turn = redis_job_turn,
    .again_ms = 50,
    .is_hopeful = driver_is_hopeful,
    .pump = driver_pump,
    .channel_size = sizeof(struct redis_channel),
    .watched = redis_watched,
    .unwatched = redis_unwatched,
    .tally_send = driver_tally_send,
    .tally_again_ms = 1000,
    .drain = driver_drain,
    .disconnect = driver_disconnect,
    .free = driver_free,
};

static int driver_open(const struct idem_driver *driver, const struct idem_url *url,
                       struct idem_loop *loop, const struct idem_clock *clock,
                       struct idem_store **ret, struct idem_error *err) {
    struct redis_store *store = calloc(1, sizeof(*store));
    int rc;

    (void)driver;
    (void)clock; /* the server's own clock is used */
    if (store == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    rc = redis_config_read(url, &store->config, err);
    remote_init(&store->remote, &engine, loop, store->config.timeout_ms);
    remote_queue_init(&store->turn);
    store->flush.run = redis_flush_run;
    if (rc == 0)
        rc = redis_tls_config_new(&store->config, &store->tls, err);
    if (rc == 0)
        rc = redis_scripts_make(store->config.kind == REDIS_CLUSTER ? "SPUBLISH" : "PUBLISH",
                                &store->scripts, err);
    if (rc == 0)
        rc = store_start(store, err);
    if (rc != 0)
        remote_close(&store->remote.base);
    else
        *ret = &store->remote.base;
    return rc;
}

static const char *const schemes[] = {
    "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", NULL,
};

const struct idem_driver idem_driver_redis = {
    .name = "redis",
    .schemes = schemes,
    .check = driver_check,
    .open = driver_open,
    .close = remote_close,
    REMOTE_DRIVER_SLOTS,
};
