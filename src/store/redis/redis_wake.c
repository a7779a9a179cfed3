/*
 * Waiting: the subscriptions to records that have watches, and the connections that carry wake-ups.
 * Without a subscription, waiters depend on their own slow poll.
 */
#include <string.h>

#include "base/fork.h"
#include "store/redis/redis_store.h"

/*
 * A record's channel has the record's name, so in a cluster both are in the same slot.
 *
 *     OFF ──subscribe──> PENDING ─confirmed──> IN FORCE
 *      ^                   │                      │
 *      └── lost, MOVED, the slot has moved <──────┘
 *
 * OFF is a channel without a node, PENDING one with a node that is not in force. A confirmation
 * wakes all watches of its channel: a message may have been missed before. A watch that joins a
 * channel in force is woken alone. When the connection is lost, all its channels are subscribed
 * again; when a slot moves, the channels of that slot, at the server of the next map.
 */

#define VERSION_SHARDED 70000

static struct redis_channel *channel_of(struct remote_channel *channel) {
    return idem_container_of(channel, struct redis_channel, base);
}

/* Subscriptions. */

static struct redis_node *store_key_node(struct redis_store *store,
                                         const struct idem_record_key *key) {
    char name[REDIS_NAME_MAX];

    if (store->config.kind != REDIS_CLUSTER)
        return store->nodes;
    return store->slots[redis_cluster_slot(name, redis_name(key, name))];
}

/* A server of unknown version is more likely new than old. */
static bool node_is_sharded(const struct redis_node *node) {
    return node->store->config.kind == REDIS_CLUSTER &&
           (node->version == 0 || node->version >= VERSION_SHARDED);
}

static bool node_send_subscription(struct redis_node *node, const struct redis_channel *channel,
                                   bool wanted) {
    struct idem_buffer out = {0};
    char name[REDIS_NAME_MAX];
    const char *command = channel->sharded ? (wanted ? "SSUBSCRIBE" : "SUNSUBSCRIBE")
                                           : (wanted ? "SUBSCRIBE" : "UNSUBSCRIBE");
    bool sent;

    redis_put_head(&out, 2);
    redis_put_text(&out, command);
    redis_put_part(&out, name, redis_name(&channel->base.key, name));
    sent = node->wake.state == REDIS_CONN_READY && !out.failed &&
           redis_conn_send(&node->wake, out.at, out.len, NULL, NULL);
    idem_buffer_release(&out);
    return sent;
}

static void channel_off(struct redis_channel *channel) {
    channel->base.in_force = false;
    channel->node = NULL;
}

/* Subscribes at the server that has the slot now, unless done. A subscription at another server
   is dropped. */
static void channel_subscribe(struct remote_channel *base, void *data) {
    struct redis_channel *channel = channel_of(base);
    struct redis_store *store = data;
    struct redis_node *node = store_key_node(store, &channel->base.key);

    if (channel->node != NULL && channel->node != node) {
        (void)node_send_subscription(channel->node, channel, false);
        channel_off(channel);
    }
    if (node == NULL || channel->node != NULL) /* redis_wake_renew() will retry */
        return;
    redis_conn_open(&node->wake);
    if (store->config.kind == REDIS_CLUSTER && node->conn.state != REDIS_CONN_READY)
        return; /* the command depends on the server's version */
    channel->sharded = node_is_sharded(node);
    if (node_send_subscription(node, channel, true))
        channel->node = node;
}

/* A write may lose the connection. */
static void store_flush_subscriptions(struct redis_store *store) {
    for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
        redis_conn_flush(&node->wake);
}

void redis_wake_renew(struct redis_store *store) {
    if (store->remote.watches_n == 0)
        return;
    remote_channel_each(&store->remote, channel_subscribe, store);
    store_flush_subscriptions(store);
}

static void channel_leave(struct remote_channel *base, void *data) {
    struct redis_channel *channel = channel_of(base);

    if (channel->node == data)
        channel_off(channel);
}

void redis_wake_forget(struct redis_node *node) {
    remote_channel_each(&node->store->remote, channel_leave, node);
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

static void channel_refuse(struct remote_channel *base, void *data) {
    struct redis_channel *channel = channel_of(base);
    const struct refused *refused = data;
    char name[REDIS_NAME_MAX];

    if (channel->node == refused->node && !base->in_force &&
        (refused->slot == REDIS_SLOTS ||
         redis_cluster_slot(name, redis_name(&channel->base.key, name)) == refused->slot))
        channel_off(channel);
}

/* An error contains no channel name. MOVED has a slot; a temporary error concerns all pending
   subscriptions. Other errors (no permission, unknown command) would repeat, and are left to the
   slow poll. */
static void wake_take_error(struct redis_conn *conn, const struct redis_reply *reply) {
    struct redis_node *node = conn->data;
    struct refused refused = {.node = node, .slot = REDIS_SLOTS};

    if (redis_reply_is(reply, "MOVED")) {
        if (!redis_cluster_take_moved(node->store, reply, conn->host.name, &refused.slot))
            return;
    } else if (!redis_is_passing(reply)) {
        return;
    } else if (node->store->config.kind == REDIS_CLUSTER) {
        redis_cluster_refresh(node->store);
    } else {
        redis_conn_fail(conn, IDEM_E_REFUSED, "the server says: %.100s", reply->text);
        return;
    }
    remote_channel_each(&node->store->remote, channel_refuse, &refused);
}

/* [message, channel, ""] wakes. [subscribe, channel, n] confirms a subscription, and wakes too:
   a message may have been missed before. [sunsubscribe, channel, n] without a request means that
   the slot has moved. It may also be the reply to an earlier watch's unsubscription, while a new
   watch has joined: then the channel is subscribed once more than needed. */
static void wake_push(struct redis_conn *conn, const struct redis_reply *reply) {
    struct redis_node *node = conn->data;
    struct remote *r = &node->store->remote;
    struct remote_channel *channel;
    struct idem_record_key key;
    enum meaning meaning;
    bool mine;

    if (reply->type == REDIS_REPLY_ERROR) {
        wake_take_error(conn, reply);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 3 ||
        reply->items[0]->type != REDIS_REPLY_STRING ||
        reply->items[1]->type != REDIS_REPLY_STRING ||
        !redis_name_parse(reply->items[1]->text, reply->items[1]->len, &key))
        return;
    channel = *remote_channel_find(r, &key);
    meaning = wake_push_meaning(reply->items[0]->text);
    if (channel == NULL || meaning == PUSH_NOTHING)
        return;
    mine = channel_of(channel)->node == node;
    if (meaning == PUSH_IN_FORCE && mine)
        channel->in_force = true;
    if (meaning != PUSH_OVER) {
        remote_channel_wake(r, channel);
    } else if (mine && channel->in_force) {
        channel_off(channel_of(channel));
        if (node->store->config.kind == REDIS_CLUSTER)
            redis_cluster_refresh(node->store);
        else
            redis_wake_renew(node->store);
    }
}

static const struct redis_role wake_role = {
    .greet = wake_greet, .lost = wake_lost, .push = wake_push};

void redis_wake_conn_init(struct redis_node *node, const struct idem_host_name *host) {
    redis_conn_init(&node->wake, node->store->remote.base.loop, &node->store->config,
                    node->store->tls, host, &wake_role, node);
}

/* Watches. */

void redis_watched(struct remote *r, struct remote_channel *channel) {
    struct redis_store *store = redis_store_of(r);

    channel_subscribe(channel, store);
    store_flush_subscriptions(store);
}

void redis_unwatched(struct remote *r, struct remote_channel *channel) {
    struct redis_node *node = channel_of(channel)->node;
    bool sent = false;

    if (channel->n > 0)
        return;
    if (node != NULL && r->forks == idem_fork_count())
        sent = node_send_subscription(node, channel_of(channel), false);
    remote_channel_free(r, channel);
    if (sent)
        redis_conn_flush(&node->wake);
}
