/*
 * Waiting: who wants to be woken at which record, and the connections that carry
 * it. A record's channel has its name, so that in a cluster it is where the
 * record is.
 *
 * A wish is in force when the server has confirmed it, which wakes: something may
 * have been missed before. When such a connection is lost, all its wishes are made
 * anew. Without it, waiters go by their own slow poll.
 */
#include <stdlib.h>
#include <string.h>

#include "core/fork.h"
#include "store/redis/store.h"

#define VERSION_SHARDED 70000

static struct redis_store *store_of(struct idem_store *base) {
    return idem_container_of(base, struct redis_store, base);
}

static unsigned bucket_of(const struct idem_record_key *key) {
    return key->at[key->prefix_len];
}

static bool same_key(const struct idem_record_key *a, const struct idem_record_key *b) {
    return a->prefix_len == b->prefix_len && memcmp(a->at, b->at, idem_record_key_len(a)) == 0;
}

static bool is_watched(const struct redis_store *store, const struct idem_record_key *key) {
    const struct idem_watch *watch;

    if (store->watches_n == 0)
        return false;
    for (watch = store->watches[bucket_of(key)]; watch != NULL; watch = watch->next)
        if (same_key(&watch->key, key))
            return true;
    for (watch = store->woken; watch != NULL; watch = watch->next)
        if (same_key(&watch->key, key))
            return true;
    for (watch = store->waking; watch != NULL; watch = watch->next)
        if (same_key(&watch->key, key))
            return true;
    return false;
}

/* Waking. */

/* Each goes back to its place before it is called, because it may be taken out then. */
void redis_wake_first_run(struct idem_task *task) {
    struct redis_store *store = idem_container_of(task, struct redis_store, wake_first);
    struct idem_watch *watch;

    store->waking = store->woken;
    store->woken = NULL;
    if (store->waking != NULL)
        store->waking->link = &store->waking;
    redis_store_enter(store);
    while (!store->closing && (watch = store->waking) != NULL) {
        idem_watch_take(watch);
        idem_watch_put(&store->watches[bucket_of(&watch->key)], watch);
        watch->wake(watch);
    }
    while ((watch = store->waking) != NULL && watch->link != NULL) /* closed meanwhile */
        idem_watch_take(watch);
    (void)redis_store_leave(store);
}

/* Those of one key. */
static void wake(struct redis_store *store, const struct idem_record_key *key) {
    struct idem_watch *watch, *next;

    for (watch = store->watches[bucket_of(key)]; watch != NULL; watch = next) {
        next = watch->next;
        if (!same_key(&watch->key, key))
            continue;
        idem_watch_take(watch);
        idem_watch_put(&store->woken, watch);
    }
    if (store->woken != NULL)
        idem_task_post(store->base.loop, &store->wake_first);
}

/* Wishes, to the server. */

static bool is_sharded(const struct redis_store *store) {
    /* Where the version is not told, it is a newer one more likely than an old one. */
    return store->config.kind == REDIS_CLUSTER &&
           (store->nodes == NULL || store->nodes->version == 0 ||
            store->nodes->version >= VERSION_SHARDED);
}

static struct redis_node *node_of(struct redis_store *store, const struct idem_record_key *key) {
    char name[REDIS_NAME_MAX];

    if (store->config.kind != REDIS_CLUSTER)
        return store->nodes;
    return store->slots[redis_slot(name, redis_name(key, name))];
}

static void wish_send(struct redis_node *node, const struct idem_record_key *key, bool wanted) {
    struct redis_store *store = node->store;
    struct redis_buffer out = {0};
    char name[REDIS_NAME_MAX];
    const char *command = is_sharded(store) ? (wanted ? "SSUBSCRIBE" : "SUNSUBSCRIBE")
                                            : (wanted ? "SUBSCRIBE" : "UNSUBSCRIBE");

    redis_put_head(&out, 2);
    redis_put_text(&out, command);
    redis_put_part(&out, name, redis_name(key, name));
    if (node->wake.state == REDIS_CONN_READY && !out.failed)
        (void)redis_conn_send(&node->wake, out.at, out.len, NULL, NULL);
    redis_buffer_release(&out);
}

/* All wishes that this server has to know of. */
static void wishes_send(struct redis_node *node) {
    struct redis_store *store = node->store;
    struct idem_watch *watch;

    for (unsigned i = 0; i < REDIS_WATCH_BUCKETS; i++)
        for (watch = store->watches[i]; watch != NULL; watch = watch->next)
            if (node_of(store, &watch->key) == node)
                wish_send(node, &watch->key, true);
    for (watch = store->woken; watch != NULL; watch = watch->next)
        if (node_of(store, &watch->key) == node)
            wish_send(node, &watch->key, true);
    for (watch = store->waking; watch != NULL; watch = watch->next)
        if (node_of(store, &watch->key) == node)
            wish_send(node, &watch->key, true);
    redis_conn_flush(&node->wake);
}

/* The connection. */

static void take_greeting(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_node *node = data;

    if (reply == NULL)
        return;
    redis_conn_ready(conn);
    wishes_send(node);
}

static void wake_greet(struct redis_conn *conn) {
    redis_greet(conn, take_greeting, conn->data);
    redis_conn_flush(conn);
}

static void wake_refused(struct redis_conn *conn, const char *why) {
    redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

static void wake_lost(struct redis_conn *conn) {
    struct redis_node *node = conn->data;

    if (node->store->config.kind == REDIS_SENTINEL && node->conn.state != REDIS_CONN_READY)
        redis_conn_close(conn); /* it comes back with the master */
}

/* [message, channel, ""] wakes; [subscribe, channel, n] says that a wish is in force: something may
   have been missed before, so that wakes, too. */
static void wake_push(struct redis_conn *conn, const struct redis_reply *reply) {
    static const char *const wakes[] = {"message", "smessage", "subscribe", "ssubscribe"};
    struct redis_node *node = conn->data;
    struct idem_record_key key;

    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 3 ||
        reply->items[0]->type != REDIS_REPLY_STRING || reply->items[1]->type != REDIS_REPLY_STRING)
        return;
    for (size_t i = 0; i < sizeof(wakes) / sizeof(wakes[0]); i++)
        if (strcmp(reply->items[0]->text, wakes[i]) == 0 &&
            redis_name_parse(reply->items[1]->text, reply->items[1]->len, &key))
            wake(node->store, &key);
}

static const struct redis_role wake_role = {
    .greet = wake_greet, .refused = wake_refused, .lost = wake_lost, .push = wake_push};

void redis_wake_conn_init(struct redis_node *node, const struct redis_host *host) {
    redis_conn_init(&node->wake, node->store->base.loop, &node->store->config, node->store->tls,
                    host, &wake_role, node);
}

void redis_wake_renew(struct redis_store *store) {
    if (store->watches_n == 0)
        return;
    for (struct redis_node *node = store->nodes; node != NULL; node = node->next) {
        redis_conn_open(&node->wake);
        if (node->wake.state == REDIS_CONN_READY)
            wishes_send(node);
    }
}

/* The driver's slots. */

/* Each is wished for, also if others wait for the same: that it is in force is told by the server.
 */
int redis_watch(struct idem_store *base, struct idem_watch *watch) {
    struct redis_store *store = store_of(base);
    struct redis_node *node = node_of(store, &watch->key);

    idem_watch_put(&store->watches[bucket_of(&watch->key)], watch);
    store->watches_n++;
    if (node == NULL) /* redis_wake_renew() comes back to it */
        return 0;
    redis_conn_open(&node->wake);
    wish_send(node, &watch->key, true);
    redis_conn_flush(&node->wake);
    return 0;
}

void redis_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct redis_store *store = store_of(base);
    struct redis_node *node;

    if (watch->link == NULL)
        return;
    idem_watch_take(watch);
    store->watches_n--;
    if (store->forks != idem_fork_count() || is_watched(store, &watch->key))
        return;
    node = node_of(store, &watch->key);
    if (node == NULL)
        return;
    wish_send(node, &watch->key, false);
    redis_conn_flush(&node->wake);
}
