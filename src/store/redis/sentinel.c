/*
 * Which server is the master: asked of the sentinels in turn, each time a
 * connection to it is made. One that knows it is asked first the next time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "store/redis/store.h"

#define ROUND_PAUSE_MAX_MS 1000

struct redis_sentinel {
    struct redis_store *store;
    struct redis_conn conn;
    struct idem_timer timer;
    size_t at; /* which of the config's hosts */
    size_t asked;
    unsigned rounds; /* since the master was there for a while */
    int64_t settled; /* when it was ready; 0: it is not */
    bool asking;
};

static void ask_this(struct redis_sentinel *sentinel);

/* Before the next round; none before the first one. A failover is not to be slept through. */
static int64_t round_pause(struct redis_sentinel *sentinel) {
    int64_t pause = sentinel->rounds == 0 ? 0 : redis_pause_ms(sentinel->rounds);

    if (sentinel->rounds < 16)
        sentinel->rounds++;
    return pause < ROUND_PAUSE_MAX_MS ? pause : ROUND_PAUSE_MAX_MS;
}

void redis_sentinel_settled(struct redis_store *store) {
    if (store->sentinel != NULL)
        store->sentinel->settled = idem_loop_now();
}

bool redis_sentinel_is_asked(const struct redis_store *store) {
    return store->sentinel != NULL && redis_conn_is_made(&store->sentinel->conn);
}

static void ask_next(struct redis_sentinel *sentinel) {
    const struct redis_config *config = &sentinel->store->config;

    redis_conn_close(&sentinel->conn);
    sentinel->at = (sentinel->at + 1) % config->hosts_n;
    if (++sentinel->asked < config->hosts_n) {
        ask_this(sentinel);
        return;
    }
    sentinel->asked = 0;
    idem_timer_set(sentinel->store->base.loop, &sentinel->timer, round_pause(sentinel));
}

/* The master's node is made anew where it has moved. */
static void master_set(struct redis_store *store, const struct idem_host_name *host) {
    struct redis_node *node = store->nodes;

    if (node == NULL)
        node = redis_node_new(store, host);
    if (node == NULL) {
        redis_store_trouble(store, IDEM_E_NOMEM, false, "no memory for a connection");
        return;
    }
    if (node->conn.host.port != host->port || strcmp(node->conn.host.name, host->name) != 0) {
        redis_conn_close(&node->conn);
        redis_conn_close(&node->wake);
        redis_wake_forget(node);
        redis_conn_move(&node->conn, host);
        redis_conn_move(&node->wake, host);
    }
    redis_conn_open(&node->conn);
}

/* [host, port], or nil where the name is not known. */
static void take_address(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_sentinel *sentinel = data;
    struct redis_store *store = sentinel->store;
    struct idem_host_name host = {0};

    if (reply == NULL)
        return;
    if (reply->type == REDIS_REPLY_NIL) {
        redis_store_trouble(store, IDEM_E_REFUSED, false, "%s: no master is called \"%.64s\"",
                            conn->place, store->config.master);
        ask_next(sentinel);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 2 ||
        reply->items[0]->len >= sizeof(host.name) ||
        (uint16_t)strtoul(reply->items[1]->text, NULL, 10) == 0) {
        redis_store_trouble(store, IDEM_E_REFUSED, false, "%s: %.100s", conn->place,
                            reply->type == REDIS_REPLY_ERROR ? reply->text : "is no sentinel");
        ask_next(sentinel);
        return;
    }
    snprintf(host.name, sizeof(host.name), "%s", reply->items[0]->text);
    host.port = (uint16_t)strtoul(reply->items[1]->text, NULL, 10);
    sentinel->asking = false;
    sentinel->asked = 0;
    redis_conn_close(conn);
    master_set(store, &host);
}

static void sentinel_greet(struct redis_conn *conn) {
    struct redis_sentinel *sentinel = conn->data;
    struct redis_buffer out = {0};

    redis_greet(conn, NULL, NULL);
    redis_put_command(&out, "SENTINEL", "get-master-addr-by-name", sentinel->store->config.master,
                      NULL);
    (void)redis_conn_send(conn, out.at, out.len, take_address, sentinel);
    redis_buffer_release(&out);
    redis_conn_flush(conn);
}

static void sentinel_lost(struct redis_conn *conn) {
    struct redis_sentinel *sentinel = conn->data;

    redis_store_trouble(sentinel->store, conn->code, false, "the sentinel %s: %s", conn->place,
                        conn->why);
    ask_next(sentinel);
}

static void sentinel_refused(struct redis_conn *conn, const char *why) {
    redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

static const struct redis_role sentinel_role = {
    .greet = sentinel_greet, .refused = sentinel_refused, .lost = sentinel_lost};

static void ask_this(struct redis_sentinel *sentinel) {
    struct redis_store *store = sentinel->store;

    redis_conn_init(&sentinel->conn, store->base.loop, &store->config, store->tls,
                    &store->config.hosts[sentinel->at], &sentinel_role, sentinel);
    sentinel->conn.sentinel = true;
    /* All of them are to be asked in the time of one: the operation that waits has no more. */
    sentinel->conn.connect_ms =
        (store->config.connect_timeout_ms - 1) / (int64_t)store->config.hosts_n + 1;
    redis_conn_open(&sentinel->conn);
}

static void round_fire(struct idem_timer *timer) {
    ask_this(idem_container_of(timer, struct redis_sentinel, timer));
}

void redis_sentinel_ask(struct redis_store *store) {
    struct redis_sentinel *sentinel = store->sentinel;

    if (sentinel->asking)
        return;
    sentinel->asking = true;
    sentinel->asked = 0;
    /* One that is ready and hangs up, again and again, is no reason to hurry. */
    if (sentinel->settled != 0 && idem_loop_now() - sentinel->settled >= ROUND_PAUSE_MAX_MS)
        sentinel->rounds = 0;
    sentinel->settled = 0;
    /* From the loop: the one who asks may be in the middle of losing a connection. */
    idem_timer_set(store->base.loop, &sentinel->timer, round_pause(sentinel));
}

int redis_sentinel_new(struct redis_store *store, struct idem_error *err) {
    struct redis_sentinel *sentinel = calloc(1, sizeof(*sentinel));

    if (sentinel == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    sentinel->store = store;
    sentinel->timer.fire = round_fire;
    sentinel->conn.fd.fd = -1;
    sentinel->conn.loop = store->base.loop;
    store->sentinel = sentinel;
    redis_sentinel_ask(store);
    return 0;
}

void redis_sentinel_free(struct redis_sentinel *sentinel) {
    if (sentinel == NULL)
        return;
    idem_timer_clear(sentinel->store->base.loop, &sentinel->timer);
    redis_conn_close(&sentinel->conn);
    free(sentinel);
}
