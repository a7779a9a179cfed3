/*
 * Waiting: who wants to be woken at which record.
 *
 * Each key that is waited for is asked about on its lane, and again after a while: its revision
 * tells whether something happened. Where the server notifies, asking also marks the record, so
 * that the statement that ends it next tells everybody; a mark lasts a minute, and asking can then
 * be slow. A key without a mark (there is no record yet, a new one has taken its place, or the
 * server does not notify) is asked about often.
 */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "store/sql/store.h"

#define MARKED_MS 20000 /* a third of what the engines' SQL_MARK says */
#define ASK_MIN_MS 20
#define ASK_MAX_MS 320

struct sql_channel {
    struct sql_channel *next;
    struct idem_record_key key;
    bool in_force; /* its revision is known */
    bool flying;   /* it is being asked about */
    bool queued;   /* it is to be, on its lane */
    struct sql_channel *ask_next;
    int64_t revision;
    int64_t ask_at, ask_ms; /* when next, on the loop's clock; and the pause after that */
    size_t n;               /* who waits: those below, and those that are being woken */
    struct idem_watch *watches;
};

static struct sql_store *store_of(struct idem_store *base) {
    return idem_container_of(base, struct sql_store, base);
}

static bool same_key(const struct idem_record_key *a, const struct idem_record_key *b) {
    return a->prefix_len == b->prefix_len && memcmp(a->at, b->at, idem_record_key_len(a)) == 0;
}

/* Channels. */

/* Where it is linked, or would be. */
static struct sql_channel **channel_at(struct sql_store *store, const struct idem_record_key *key) {
    struct sql_channel **at = &store->channels[key->at[key->prefix_len]];

    while (*at != NULL && !same_key(&(*at)->key, key))
        at = &(*at)->next;
    return at;
}

static struct sql_channel *channel_get(struct sql_store *store, const struct idem_record_key *key) {
    struct sql_channel **at = channel_at(store, key), *channel = *at;

    if (channel == NULL && (channel = calloc(1, sizeof(*channel))) != NULL) {
        channel->key = *key;
        channel->ask_ms = ASK_MIN_MS;
        *at = channel;
    }
    return channel;
}

/* Nobody waits there any more, and no answer is due. */
static void channel_end(struct sql_store *store, struct sql_channel *channel) {
    struct sql_channel **at = channel_at(store, &channel->key);

    if (channel->n > 0 || channel->flying || channel->queued)
        return;
    *at = channel->next;
    free(channel);
}

static void channels_each(struct sql_store *store,
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
    channels_each(store, channel_free, NULL);
}

/* Waking. */

/* Each goes back to its place before it is called, because it may be taken out then. */
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
        idem_watch_put(&(*channel_at(store, &watch->key))->watches, watch);
        watch->wake(watch);
    }
    while ((watch = store->waking) != NULL && watch->link != NULL) /* closed meanwhile */
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

/* Asking. */

static bool notifies(const struct sql_store *store) {
    return store->engine->notifies && !store->pooled;
}

static void timer_set(struct sql_store *store, int64_t at) {
    int64_t left = at - idem_loop_now();

    if (store->wake_timer.link != NULL && store->wake_timer.at <= at)
        return;
    idem_timer_set(store->base.loop, &store->wake_timer, left > 0 ? left : 0);
}

static void take_nothing(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    (void)lane;
    (void)data;
    (void)answer;
}

static void take_look(struct sql_lane *lane, void *data, struct sql_answer *answer) {
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
            idem_loop_now() + (there && notifies(store) ? MARKED_MS : channel->ask_ms);
    } else {
        channel->ask_at = idem_loop_now() + ASK_MAX_MS;
    }
    timer_set(store, channel->ask_at);
    channel_end(store, channel);
}

/* False: it could not be sent. */
static bool channel_ask(struct sql_lane *lane, struct sql_channel *channel) {
    bool told = notifies(lane->store);
    struct sql_value values[2] = {sql_prefix(&channel->key), sql_hash(&channel->key)};

    if (told && !lane->listening)
        lane->listening = sql_lane_send(lane, SQL_LISTEN, NULL, 0, take_nothing, NULL);
    if (told && !lane->listening)
        return false;
    channel->flying =
        sql_lane_send(lane, told ? SQL_MARK : SQL_LOOK, values, 2, take_look, channel);
    return channel->flying;
}

static struct sql_channel *ask_take(struct sql_lane *lane) {
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
        channel = ask_take(lane);
        if (channel->n > 0 && !channel_ask(lane, channel)) {
            timer_set(store, idem_loop_now() + ASK_MIN_MS); /* then it is due again */
            break;
        }
        sent |= channel->flying;
        channel_end(store, channel);
    }
    if (sent) /* the answer may be there already */
        idem_task_post(store->base.loop, &lane->flush);
}

/* Those that are due stand in line. */
static void channel_due(struct sql_channel *channel, void *data) {
    struct sql_store *store = data;
    struct sql_lane *lane = sql_lane_of(store, &channel->key);

    if (channel->flying || channel->queued)
        return;
    if (channel->ask_at > idem_loop_now()) {
        timer_set(store, channel->ask_at);
        return;
    }
    channel->queued = true;
    channel->ask_next = NULL;
    *lane->asks_end = channel;
    lane->asks_end = &channel->ask_next;
}

/* A lane that is not ready yet, or has no room, comes back to them. */
void sql_wake_fire(struct idem_timer *timer) {
    struct sql_store *store = idem_container_of(timer, struct sql_store, wake_timer);

    sql_store_enter(store);
    channels_each(store, channel_due, store);
    for (size_t i = 0; i < store->config.lanes_n && !store->closing; i++) {
        if (store->lanes[i].asks == NULL)
            continue;
        sql_lane_open(&store->lanes[i]);
        sql_wake_room(&store->lanes[i]);
    }
    (void)sql_store_leave(store);
}

static void channel_hurry(struct sql_channel *channel, void *data) {
    struct sql_lane *lane = data;

    if (sql_lane_of(lane->store, &channel->key) != lane)
        return;
    channel->ask_at = 0;
    timer_set(lane->store, 0);
}

/* It may have missed something. */
void sql_wake_lost(struct sql_lane *lane) {
    channels_each(lane->store, channel_hurry, lane);
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
        timer_set(lane->store, 0);
    }
}

/* The driver's slots. */

int sql_watch(struct idem_store *base, struct idem_watch *watch) {
    struct sql_store *store = store_of(base);
    struct sql_channel *channel = channel_get(store, &watch->key);

    if (channel == NULL)
        return IDEM_E_NOMEM;
    idem_watch_put(&channel->watches, watch);
    channel->n++;
    store->watches_n++;
    if (channel->in_force)
        wake_one(store, watch);
    timer_set(store, channel->ask_at);
    return 0;
}

void sql_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct sql_store *store = store_of(base);
    struct sql_channel *channel;

    if (watch->link == NULL)
        return;
    idem_watch_take(watch);
    store->watches_n--;
    channel = *channel_at(store, &watch->key);
    if (channel == NULL)
        return;
    channel->n--;
    channel_end(store, channel);
}
