/*
 * Waiting: wakes the watches of records that have changed.
 *
 * Each watched key has a channel, which polls its record's revision: a new revision means a
 * change. If the server notifies, a poll also marks the record, so that the statement that ends
 * the wait notifies every process. A mark lasts a minute, so such polls can be rare. A key
 * without a mark (no record yet, a new record in its place, or a server that does not notify) is
 * polled often.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/hex.h"
#include "store/sql/sql_store.h"

#define MARKED_MS 20000 /* a third of the duration in the engines' SQL_MARK */
#define ASK_MIN_MS 20
#define ASK_MAX_MS 320

struct sql_channel {
    struct sql_channel *next;
    struct idem_record_key key;
    bool in_force; /* its revision is known */
    bool flying;   /* a poll is under way */
    bool queued;   /* a poll waits on its connection */
    struct sql_channel *ask_next;
    int64_t revision;
    int64_t ask_at, ask_ms; /* the time of the next poll, on the loop's clock; the pause after it */
    size_t n;               /* number of watches: those below and those being woken */
    struct idem_watch *watches;
};

static struct sql_store *store_of(struct idem_store *base) {
    return idem_container_of(base, struct sql_store, base);
}

static bool wake_same_key(const struct idem_record_key *a, const struct idem_record_key *b) {
    return a->prefix_len == b->prefix_len && memcmp(a->at, b->at, idem_record_key_len(a)) == 0;
}

/* Channels. */

/* The link to the channel of a key, or to the place where it belongs. */
static struct sql_channel **wake_channel_slot(struct sql_store *store,
                                              const struct idem_record_key *key) {
    struct sql_channel **at = &store->channels[key->at[key->prefix_len]];

    while (*at != NULL && !wake_same_key(&(*at)->key, key))
        at = &(*at)->next;
    return at;
}

static struct sql_channel *wake_channel_get(struct sql_store *store,
                                            const struct idem_record_key *key) {
    struct sql_channel **at = wake_channel_slot(store, key), *channel = *at;

    if (channel == NULL && (channel = calloc(1, sizeof(*channel))) != NULL) {
        channel->key = *key;
        channel->ask_ms = ASK_MIN_MS;
        *at = channel;
    }
    return channel;
}

/* Frees the channel unless it has a watch or a poll. */
static void wake_channel_release(struct sql_store *store, struct sql_channel *channel) {
    struct sql_channel **at = wake_channel_slot(store, &channel->key);

    if (channel->n > 0 || channel->flying || channel->queued)
        return;
    *at = channel->next;
    free(channel);
}

static void wake_each_channel(struct sql_store *store,
                              void (*call)(struct sql_channel *channel, void *data), void *data) {
    for (unsigned i = 0; i < SQL_CHANNEL_BUCKETS; i++)
        for (struct sql_channel *at = store->channels[i], *next; at != NULL; at = next) {
            next = at->next;
            call(at, data);
        }
}

static void channel_free(struct sql_channel *channel, void *data) {
    (void)data;
    free(channel);
}

void sql_channels_free(struct sql_store *store) {
    wake_each_channel(store, channel_free, NULL);
}

/* Waking. */

/* Each watch goes back to its channel before its callback runs, because the callback may remove
   it. */
void sql_wake_first_run(struct idem_task *task) {
    struct sql_store *store = idem_container_of(task, struct sql_store, wake_first);
    struct idem_watch *watch;

    store->waking = store->woken;
    store->woken = NULL;
    if (store->waking != NULL)
        store->waking->link = &store->waking;
    sql_store_enter(store);
    while (!store->closing && (watch = store->waking) != NULL) {
        idem_watch_take(watch);
        idem_watch_put(&(*wake_channel_slot(store, &watch->key))->watches, watch);
        watch->wake(watch);
    }
    while ((watch = store->waking) != NULL && watch->link != NULL) /* the store closed meanwhile */
        idem_watch_take(watch);
    (void)sql_store_leave(store);
}

static void wake_one(struct sql_store *store, struct idem_watch *watch) {
    idem_watch_take(watch);
    idem_watch_put(&store->woken, watch);
    idem_task_post(store->base.loop, &store->wake_first);
}

static void wake(struct sql_store *store, struct sql_channel *channel) {
    while (channel->watches != NULL)
        wake_one(store, channel->watches);
}

/* Polling. */

static bool wake_notifies(const struct sql_store *store) {
    return store->engine->notifies && !store->pooled;
}

static void wake_set_timer(struct sql_store *store, int64_t at) {
    int64_t left = at - idem_loop_now();

    if (store->wake_timer.link != NULL && store->wake_timer.at <= at)
        return;
    idem_timer_set(store->base.loop, &store->wake_timer, left > 0 ? left : 0);
}

static void wake_take_nothing(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    (void)lane;
    (void)data;
    (void)answer;
}

static void wake_take_look(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    struct sql_store *store = lane->store;
    struct sql_channel *channel = data;
    bool there, changed;
    int64_t revision;

    channel->flying = false;
    if (answer != NULL && answer->trouble == SQL_FINE) {
        there = answer->rows > 0;
        revision = there ? sql_cell(answer, 0, 0)->n : 0;
        changed = !channel->in_force || revision != channel->revision;
        channel->in_force = true;
        channel->revision = revision;
        if (changed) {
            channel->ask_ms = ASK_MIN_MS;
            wake(store, channel);
        } else if (channel->ask_ms < ASK_MAX_MS) {
            channel->ask_ms *= 2;
        }
        channel->ask_at =
            idem_loop_now() + (there && wake_notifies(store) ? MARKED_MS : channel->ask_ms);
    } else {
        channel->ask_at = idem_loop_now() + ASK_MAX_MS;
    }
    wake_set_timer(store, channel->ask_at);
    wake_channel_release(store, channel);
}

/* False: the poll could not be sent. */
static bool wake_ask(struct sql_lane *lane, struct sql_channel *channel) {
    bool marks = wake_notifies(lane->store);
    struct sql_value values[2] = {sql_prefix(&channel->key), sql_hash(&channel->key)};

    if (marks && !lane->listening)
        lane->listening = sql_lane_send(lane, SQL_LISTEN, NULL, 0, wake_take_nothing, NULL);
    if (marks && !lane->listening)
        return false;
    channel->flying =
        sql_lane_send(lane, marks ? SQL_MARK : SQL_LOOK, values, 2, wake_take_look, channel);
    return channel->flying;
}

static struct sql_channel *wake_next_ask(struct sql_lane *lane) {
    struct sql_channel *channel = lane->asks;

    lane->asks = channel->ask_next;
    if (lane->asks == NULL)
        lane->asks_end = &lane->asks;
    channel->queued = false;
    return channel;
}

void sql_wake_room(struct sql_lane *lane) {
    struct sql_store *store = lane->store;
    struct sql_channel *channel;
    bool sent = false;

    while (lane->asks != NULL && lane->state == SQL_LANE_READY && sql_lane_has_beside(lane)) {
        channel = wake_next_ask(lane);
        if (channel->n > 0 && !wake_ask(lane, channel)) {
            wake_set_timer(store, idem_loop_now() + ASK_MIN_MS); /* it will be due again then */
            break;
        }
        sent |= channel->flying;
        wake_channel_release(store, channel);
    }
    if (sent) /* the response may have arrived already */
        idem_task_post(store->base.loop, &lane->flush);
}

/* Queues the channel on its connection if its poll is due. */
static void channel_due(struct sql_channel *channel, void *data) {
    struct sql_store *store = data;
    struct sql_lane *lane = sql_lane_of(store, &channel->key);

    if (channel->flying || channel->queued)
        return;
    if (channel->ask_at > idem_loop_now()) {
        wake_set_timer(store, channel->ask_at);
        return;
    }
    channel->queued = true;
    channel->ask_next = NULL;
    *lane->asks_end = channel;
    lane->asks_end = &channel->ask_next;
}

/* A connection that is not ready or has no room calls sql_wake_room() later. */
void sql_wake_fire(struct idem_timer *timer) {
    struct sql_store *store = idem_container_of(timer, struct sql_store, wake_timer);

    sql_store_enter(store);
    wake_each_channel(store, channel_due, store);
    for (size_t i = 0; i < store->config.lanes_n && !store->closing; i++) {
        if (store->lanes[i].asks == NULL)
            continue;
        sql_lane_open(&store->lanes[i]);
        sql_wake_room(&store->lanes[i]);
    }
    (void)sql_store_leave(store);
}

static void channel_ask_soon(struct sql_channel *channel, void *data) {
    struct sql_lane *lane = data;

    if (sql_lane_of(lane->store, &channel->key) != lane)
        return;
    channel->ask_at = 0;
    wake_set_timer(lane->store, 0);
}

/* Notifications may have been lost with the connection. */
void sql_wake_lost(struct sql_lane *lane) {
    wake_each_channel(lane->store, channel_ask_soon, lane);
}

void sql_wake_notified(struct sql_lane *lane, const char *hex) {
    unsigned char hash[IDEM_HASH_LEN];
    struct sql_channel *next;

    if (!idem_hex_parse(hex, hash))
        return;
    for (struct sql_channel *at = lane->store->channels[hash[0]]; at != NULL; at = next) {
        next = at->next;
        if (memcmp(at->key.at + at->key.prefix_len, hash, IDEM_HASH_LEN) != 0 ||
            sql_lane_of(lane->store, &at->key) != lane)
            continue;
        wake(lane->store, at);
        at->ask_ms = ASK_MIN_MS;
        at->ask_at = 0;
        wake_set_timer(lane->store, 0);
    }
}

/* The driver's slots. */

int sql_watch(struct idem_store *base, struct idem_watch *watch) {
    struct sql_store *store = store_of(base);
    struct sql_channel *channel = wake_channel_get(store, &watch->key);

    if (channel == NULL)
        return IDEM_E_NOMEM;
    idem_watch_put(&channel->watches, watch);
    channel->n++;
    store->watches_n++;
    if (channel->in_force)
        wake_one(store, watch);
    wake_set_timer(store, channel->ask_at);
    return 0;
}

void sql_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct sql_store *store = store_of(base);
    struct sql_channel *channel;

    if (watch->link == NULL)
        return;
    idem_watch_take(watch);
    store->watches_n--;
    channel = *wake_channel_slot(store, &watch->key);
    if (channel == NULL)
        return;
    channel->n--;
    wake_channel_release(store, channel);
}
