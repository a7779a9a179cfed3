/*
 * Waiting: the watches on each record, and the connections that carry wake-ups. Without a
 * subscription, waiters depend on their own slow poll.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "store/redis/redis_store.h"

/*
 * A record's channel has the record's name, so in a cluster both are in the same slot.
 *
 *     OFF ──subscribe──> WISHED ──confirmed──> IN FORCE
 *      ^                   │                      │
 *      └── lost, MOVED, the slot has moved <──────┘
 *
 * A confirmation wakes all watches of its channel: a message may have been missed before. A watch
 * that joins a channel in force is woken alone. When the connection is lost, all its channels are
 * subscribed again; when a slot moves, the channels of that slot, at the server of the next map.
 */

#define VERSION_SHARDED 70000

enum channel_state { CHANNEL_OFF, CHANNEL_WISHED, CHANNEL_IN_FORCE };

struct redis_channel {
    struct redis_channel *next;
    struct idem_record_key key;
    enum channel_state state;
    struct redis_node *node; /* the server it is subscribed at; NULL while off */
    bool sharded;            /* subscribed by SSUBSCRIBE */
    size_t n;                /* number of watches: those below, and those being woken */
    struct idem_watch *watches;
};

static struct redis_store *wake_store(struct idem_store *base) {
    return idem_container_of(base, struct redis_store, base);
}

static bool wake_same_key(const struct idem_record_key *a, const struct idem_record_key *b) {
    return a->prefix_len == b->prefix_len && memcmp(a->at, b->at, idem_record_key_len(a)) == 0;
}

/* Channels. */

/* Returns the pointer to the channel of a key, or the end of its bucket's list. */
static struct redis_channel **store_find_channel(struct redis_store *store,
                                                 const struct idem_record_key *key) {
    struct redis_channel **at = &store->channels[key->at[key->prefix_len]];

    while (*at != NULL && !wake_same_key(&(*at)->key, key))
        at = &(*at)->next;
    return at;
}

static struct redis_channel *store_get_channel(struct redis_store *store,
                                               const struct idem_record_key *key) {
    struct redis_channel **at = store_find_channel(store, key), *channel = *at;

    if (channel == NULL && (channel = calloc(1, sizeof(*channel))) != NULL) {
        channel->key = *key;
        *at = channel;
    }
    return channel;
}

static void store_each_channel(struct redis_store *store,
                               void (*call)(struct redis_channel *channel, void *data),
                               void *data) {
    for (unsigned i = 0; i < REDIS_CHANNEL_BUCKETS; i++)
        for (struct redis_channel *at = store->channels[i], *next; at != NULL; at = next) {
            next = at->next;
            call(at, data);
        }
}

static void channel_free(struct redis_channel *channel, void *data) {
    (void)data;
    free(channel);
}

void redis_channels_free(struct redis_store *store) {
    store_each_channel(store, channel_free, NULL);
}

/* Waking. */

/* A watch goes back to its channel before its callback, which may remove it. */
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
        idem_watch_put(&(*store_find_channel(store, &watch->key))->watches, watch);
        watch->wake(watch);
    }
    while ((watch = store->waking) != NULL &&
           watch->link != NULL) /* the store was closed meanwhile */
        idem_watch_take(watch);
    (void)redis_store_leave(store);
}

static void store_wake_watch(struct redis_store *store, struct idem_watch *watch) {
    idem_watch_take(watch);
    idem_watch_put(&store->woken, watch);
    idem_task_post(store->base.loop, &store->wake_first);
}

static void store_wake_channel(struct redis_store *store, struct redis_channel *channel) {
    while (channel->watches != NULL)
        store_wake_watch(store, channel->watches);
}

/* Subscriptions. */

static struct redis_node *store_key_node(struct redis_store *store,
                                         const struct idem_record_key *key) {
    char name[REDIS_NAME_MAX];

    if (store->config.kind != REDIS_CLUSTER)
        return store->nodes;
    return store->slots[redis_slot(name, redis_name(key, name))];
}

/* A server of unknown version is more likely new than old. */
static bool node_is_sharded(const struct redis_node *node) {
    return node->store->config.kind == REDIS_CLUSTER &&
           (node->version == 0 || node->version >= VERSION_SHARDED);
}

static bool node_send_subscription(struct redis_node *node, const struct redis_channel *channel,
                                   bool wanted) {
    struct redis_buffer out = {0};
    char name[REDIS_NAME_MAX];
    const char *command = channel->sharded ? (wanted ? "SSUBSCRIBE" : "SUNSUBSCRIBE")
                                           : (wanted ? "SUBSCRIBE" : "UNSUBSCRIBE");
    bool sent;

    redis_put_head(&out, 2);
    redis_put_text(&out, command);
    redis_put_part(&out, name, redis_name(&channel->key, name));
    sent = node->wake.state == REDIS_CONN_READY && !out.failed &&
           redis_conn_send(&node->wake, out.at, out.len, NULL, NULL);
    redis_buffer_release(&out);
    return sent;
}

static void channel_off(struct redis_channel *channel) {
    channel->state = CHANNEL_OFF;
    channel->node = NULL;
}

/* Subscribes at the server that has the slot now, unless done. A subscription at another server
   is dropped. */
static void channel_subscribe(struct redis_channel *channel, void *data) {
    struct redis_store *store = data;
    struct redis_node *node = store_key_node(store, &channel->key);

    if (channel->node != NULL && channel->node != node) {
        (void)node_send_subscription(channel->node, channel, false);
        channel_off(channel);
    }
    if (node == NULL || channel->state != CHANNEL_OFF) /* redis_wake_renew() will retry */
        return;
    redis_conn_open(&node->wake);
    if (store->config.kind == REDIS_CLUSTER && node->conn.state != REDIS_CONN_READY)
        return; /* the command depends on the server's version */
    channel->sharded = node_is_sharded(node);
    if (node_send_subscription(node, channel, true)) {
        channel->state = CHANNEL_WISHED;
        channel->node = node;
    }
}

/* A write may lose the connection. */
static void store_flush_subscriptions(struct redis_store *store) {
    for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
        redis_conn_flush(&node->wake);
}

void redis_wake_renew(struct redis_store *store) {
    if (store->watches_n == 0)
        return;
    store_each_channel(store, channel_subscribe, store);
    store_flush_subscriptions(store);
}

static void channel_leave(struct redis_channel *channel, void *data) {
    if (channel->node == data)
        channel_off(channel);
}

void redis_wake_forget(struct redis_node *node) {
    store_each_channel(node->store, channel_leave, node);
}

/* The connection. */

static void wake_take_greeting(struct redis_conn *conn, void *data,
                               const struct redis_reply *reply) {
    struct redis_node *node = data;

    if (reply == NULL || redis_greet_full(conn, reply))
        return;
    redis_conn_ready(conn);
    redis_wake_renew(node->store);
}

static void wake_greet(struct redis_conn *conn) {
    redis_greet(conn, wake_take_greeting, conn->data);
    redis_conn_flush(conn);
}

static void wake_refused(struct redis_conn *conn, const char *why) {
    redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

static void wake_lost(struct redis_conn *conn) {
    struct redis_node *node = conn->data;

    redis_wake_forget(node);
    if (node->store->config.kind == REDIS_SENTINEL && node->conn.state != REDIS_CONN_READY)
        redis_conn_close(conn); /* it is opened again with the master */
}

/* The meaning of a push for its channel. */
enum meaning { PUSH_NOTHING, PUSH_MESSAGE, PUSH_IN_FORCE, PUSH_OVER };

static enum meaning wake_push_meaning(const char *word) {
    static const struct {
        const char *word;
        enum meaning meaning;
    } words[] = {
        {"message", PUSH_MESSAGE},     {"smessage", PUSH_MESSAGE}, {"subscribe", PUSH_IN_FORCE},
        {"ssubscribe", PUSH_IN_FORCE}, {"unsubscribe", PUSH_OVER}, {"sunsubscribe", PUSH_OVER},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].meaning;
    return PUSH_NOTHING;
}

struct refused {
    const struct redis_node *node;
    unsigned slot; /* REDIS_SLOTS: any slot */
};

static void channel_refuse(struct redis_channel *channel, void *data) {
    const struct refused *refused = data;
    char name[REDIS_NAME_MAX];

    if (channel->node == refused->node && channel->state == CHANNEL_WISHED &&
        (refused->slot == REDIS_SLOTS ||
         redis_slot(name, redis_name(&channel->key, name)) == refused->slot))
        channel_off(channel);
}

/* An error contains no channel name. MOVED has a slot; a temporary error concerns all pending
   subscriptions. Other errors (no permission, unknown command) would repeat, and are left to the
   slow poll. */
static void wake_take_error(struct redis_conn *conn, const struct redis_reply *reply) {
    struct redis_node *node = conn->data;
    struct refused refused = {.node = node, .slot = REDIS_SLOTS};

    if (redis_reply_is(reply, "MOVED")) {
        if (!redis_moved(node->store, reply, conn->host.name, &refused.slot))
            return;
    } else if (!redis_is_passing(reply)) {
        return;
    } else if (node->store->config.kind == REDIS_CLUSTER) {
        redis_cluster_refresh(node->store);
    } else {
        redis_conn_fail(conn, IDEM_E_REFUSED, "the server says: %.100s", reply->text);
        return;
    }
    store_each_channel(node->store, channel_refuse, &refused);
}

/* [message, channel, ""] wakes. [subscribe, channel, n] confirms a subscription, and wakes too:
   a message may have been missed before. [sunsubscribe, channel, n] without a request means that
   the slot has moved. It may also be the reply to an earlier watch's unsubscription, while a new
   watch has joined: then the channel is subscribed once more than needed. */
static void wake_push(struct redis_conn *conn, const struct redis_reply *reply) {
    struct redis_node *node = conn->data;
    struct redis_channel *channel;
    struct idem_record_key key;
    enum meaning meaning;

    if (reply->type == REDIS_REPLY_ERROR) {
        wake_take_error(conn, reply);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 3 ||
        reply->items[0]->type != REDIS_REPLY_STRING ||
        reply->items[1]->type != REDIS_REPLY_STRING ||
        !redis_name_parse(reply->items[1]->text, reply->items[1]->len, &key))
        return;
    channel = *store_find_channel(node->store, &key);
    meaning = wake_push_meaning(reply->items[0]->text);
    if (channel == NULL || meaning == PUSH_NOTHING)
        return;
    if (meaning == PUSH_IN_FORCE && channel->node == node)
        channel->state = CHANNEL_IN_FORCE;
    if (meaning != PUSH_OVER) {
        store_wake_channel(node->store, channel);
    } else if (channel->node == node && channel->state == CHANNEL_IN_FORCE) {
        channel_off(channel);
        if (node->store->config.kind == REDIS_CLUSTER)
            redis_cluster_refresh(node->store);
        else
            redis_wake_renew(node->store);
    }
}

static const struct redis_role wake_role = {
    .greet = wake_greet, .refused = wake_refused, .lost = wake_lost, .push = wake_push};

void redis_wake_conn_init(struct redis_node *node, const struct idem_host_name *host) {
    redis_conn_init(&node->wake, node->store->base.loop, &node->store->config, node->store->tls,
                    host, &wake_role, node);
}

/* The driver's table. */

int redis_watch(struct idem_store *base, struct idem_watch *watch) {
    struct redis_store *store = wake_store(base);
    struct redis_channel *channel = store_get_channel(store, &watch->key);

    if (channel == NULL)
        return IDEM_E_NOMEM;
    idem_watch_put(&channel->watches, watch);
    channel->n++;
    store->watches_n++;
    if (channel->state == CHANNEL_IN_FORCE)
        store_wake_watch(store, watch);
    channel_subscribe(channel, store);
    store_flush_subscriptions(store);
    return 0;
}

void redis_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct redis_store *store = wake_store(base);
    struct redis_channel **at, *channel;

    if (watch->link == NULL)
        return;
    idem_watch_take(watch);
    store->watches_n--;
    at = store_find_channel(store, &watch->key);
    channel = *at;
    if (channel == NULL || --channel->n > 0)
        return;
    *at = channel->next;
    if (channel->node != NULL && store->forks == idem_fork_count() &&
        node_send_subscription(channel->node, channel, false))
        redis_conn_flush(&channel->node->wake);
    free(channel);
}
