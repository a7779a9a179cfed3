/*
 * Waiting: who wants to be woken at which record, and the connections that carry
 * it. A record's channel has its name, so that in a cluster it is where the
 * record is.
 *
 *     OFF ──wish sent──> WISHED ──confirmed──> IN FORCE
 *      ^                   │                      │
 *      └── lost, MOVED, the slot has gone away <──┘
 *
 * That a wish is in force wakes all of its channel: something may have been missed
 * before. Who comes to a channel that is in force is woken alone. When such a
 * connection is lost, all its wishes are made anew; when a slot moves, those of
 * its channels, where the next map says. Without all that, waiters go by their own
 * slow poll.
 */
#include <stdlib.h>
#include <string.h>

#include "core/fork.h"
#include "store/redis/store.h"

#define VERSION_SHARDED 70000

enum channel_state { CHANNEL_OFF, CHANNEL_WISHED, CHANNEL_IN_FORCE };

struct redis_channel {
    struct redis_channel *next;
    struct idem_record_key key;
    enum channel_state state;
    struct redis_node *node; /* to whom it was said; NULL while it is off */
    bool sharded;            /* and how */
    size_t n;                /* who waits: those below, and those that are being woken */
    struct idem_watch *watches;
};

static struct redis_store *store_of(struct idem_store *base) {
    return idem_container_of(base, struct redis_store, base);
}

static bool same_key(const struct idem_record_key *a, const struct idem_record_key *b) {
    return a->prefix_len == b->prefix_len && memcmp(a->at, b->at, idem_record_key_len(a)) == 0;
}

/* Channels. */

/* Where it is linked, or would be. */
static struct redis_channel **channel_at(struct redis_store *store,
                                         const struct idem_record_key *key) {
    struct redis_channel **at = &store->channels[key->at[key->prefix_len]];

    while (*at != NULL && !same_key(&(*at)->key, key))
        at = &(*at)->next;
    return at;
}

static struct redis_channel *channel_get(struct redis_store *store,
                                         const struct idem_record_key *key) {
    struct redis_channel **at = channel_at(store, key), *channel = *at;

    if (channel == NULL && (channel = calloc(1, sizeof(*channel))) != NULL) {
        channel->key = *key;
        *at = channel;
    }
    return channel;
}

static void channels_each(struct redis_store *store,
                          void (*call)(struct redis_channel *channel, void *data), void *data) {
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
    channels_each(store, channel_free, NULL);
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
        idem_watch_put(&(*channel_at(store, &watch->key))->watches, watch);
        watch->wake(watch);
    }
    while ((watch = store->waking) != NULL && watch->link != NULL) /* closed meanwhile */
        idem_watch_take(watch);
    (void)redis_store_leave(store);
}

static void wake_one(struct redis_store *store, struct idem_watch *watch) {
    idem_watch_take(watch);
    idem_watch_put(&store->woken, watch);
    idem_task_post(store->base.loop, &store->wake_first);
}

static void wake(struct redis_store *store, struct redis_channel *channel) {
    while (channel->watches != NULL)
        wake_one(store, channel->watches);
}

/* Wishes, to the server. */

static struct redis_node *node_of(struct redis_store *store, const struct idem_record_key *key) {
    char name[REDIS_NAME_MAX];

    if (store->config.kind != REDIS_CLUSTER)
        return store->nodes;
    return store->slots[redis_slot(name, redis_name(key, name))];
}

/* Where the version is not told, it is a newer one more likely than an old one. */
static bool is_sharded(const struct redis_node *node) {
    return node->store->config.kind == REDIS_CLUSTER &&
           (node->version == 0 || node->version >= VERSION_SHARDED);
}

static bool wish_send(struct redis_node *node, const struct redis_channel *channel, bool wanted) {
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

/* Says it to who has its slot now, unless that is done; what was said to another does not count. */
static void channel_wish(struct redis_channel *channel, void *data) {
    struct redis_store *store = data;
    struct redis_node *node = node_of(store, &channel->key);

    if (channel->node != NULL && channel->node != node) {
        (void)wish_send(channel->node, channel, false);
        channel_off(channel);
    }
    if (node == NULL || channel->state != CHANNEL_OFF) /* redis_wake_renew() comes back to it */
        return;
    redis_conn_open(&node->wake);
    if (store->config.kind == REDIS_CLUSTER && node->conn.state != REDIS_CONN_READY)
        return; /* how it is said depends on its version */
    channel->sharded = is_sharded(node);
    if (wish_send(node, channel, true)) {
        channel->state = CHANNEL_WISHED;
        channel->node = node;
    }
}

/* A write may find the connection lost. */
static void wishes_flush(struct redis_store *store) {
    for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
        redis_conn_flush(&node->wake);
}

void redis_wake_renew(struct redis_store *store) {
    if (store->watches_n == 0)
        return;
    channels_each(store, channel_wish, store);
    wishes_flush(store);
}

static void channel_leave(struct redis_channel *channel, void *data) {
    if (channel->node == data)
        channel_off(channel);
}

void redis_wake_forget(struct redis_node *node) {
    channels_each(node->store, channel_leave, node);
}

/* The connection. */

static void take_greeting(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_node *node = data;

    if (reply == NULL || redis_greet_full(conn, reply))
        return;
    redis_conn_ready(conn);
    redis_wake_renew(node->store);
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

    redis_wake_forget(node);
    if (node->store->config.kind == REDIS_SENTINEL && node->conn.state != REDIS_CONN_READY)
        redis_conn_close(conn); /* it comes back with the master */
}

/* What a push may say of a channel. */
enum said { SAID_NOTHING, SAID_MESSAGE, SAID_IN_FORCE, SAID_OVER };

static enum said said_of(const char *word) {
    static const struct {
        const char *word;
        enum said said;
    } words[] = {
        {"message", SAID_MESSAGE},     {"smessage", SAID_MESSAGE}, {"subscribe", SAID_IN_FORCE},
        {"ssubscribe", SAID_IN_FORCE}, {"unsubscribe", SAID_OVER}, {"sunsubscribe", SAID_OVER},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].said;
    return SAID_NOTHING;
}

struct refused {
    const struct redis_node *node;
    unsigned slot; /* REDIS_SLOTS: any */
};

static void channel_refuse(struct redis_channel *channel, void *data) {
    const struct refused *refused = data;
    char name[REDIS_NAME_MAX];

    if (channel->node == refused->node && channel->state == CHANNEL_WISHED &&
        (refused->slot == REDIS_SLOTS ||
         redis_slot(name, redis_name(&channel->key, name)) == refused->slot))
        channel_off(channel);
}

/* An error has no channel's name; but MOVED has a slot, and what passes is for all. The rest (no
   permission, no such command) will be the same the next time, and is left to the slow poll. */
static void take_error(struct redis_conn *conn, const struct redis_reply *reply) {
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
    channels_each(node->store, channel_refuse, &refused);
}

/* [message, channel, ""] wakes; [subscribe, channel, n] says that a wish is in force: something may
   have been missed before, so that wakes, too. [sunsubscribe, channel, n] that nobody asked for
   says that its slot has gone; or it is the answer to who went before others came, and costs a wish
   too many. */
static void wake_push(struct redis_conn *conn, const struct redis_reply *reply) {
    struct redis_node *node = conn->data;
    struct redis_channel *channel;
    struct idem_record_key key;
    enum said said;

    if (reply->type == REDIS_REPLY_ERROR) {
        take_error(conn, reply);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 3 ||
        reply->items[0]->type != REDIS_REPLY_STRING ||
        reply->items[1]->type != REDIS_REPLY_STRING ||
        !redis_name_parse(reply->items[1]->text, reply->items[1]->len, &key))
        return;
    channel = *channel_at(node->store, &key);
    said = said_of(reply->items[0]->text);
    if (channel == NULL || said == SAID_NOTHING)
        return;
    if (said == SAID_IN_FORCE && channel->node == node)
        channel->state = CHANNEL_IN_FORCE;
    if (said != SAID_OVER) {
        wake(node->store, channel);
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

/* The driver's slots. */

int redis_watch(struct idem_store *base, struct idem_watch *watch) {
    struct redis_store *store = store_of(base);
    struct redis_channel *channel = channel_get(store, &watch->key);

    if (channel == NULL)
        return IDEM_E_NOMEM;
    idem_watch_put(&channel->watches, watch);
    channel->n++;
    store->watches_n++;
    if (channel->state == CHANNEL_IN_FORCE)
        wake_one(store, watch);
    channel_wish(channel, store);
    wishes_flush(store);
    return 0;
}

void redis_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct redis_store *store = store_of(base);
    struct redis_channel **at, *channel;

    if (watch->link == NULL)
        return;
    idem_watch_take(watch);
    store->watches_n--;
    at = channel_at(store, &watch->key);
    channel = *at;
    if (channel == NULL || --channel->n > 0)
        return;
    *at = channel->next;
    if (channel->node != NULL && store->forks == idem_fork_count() &&
        wish_send(channel->node, channel, false))
        redis_conn_flush(&channel->node->wake);
    free(channel);
}
