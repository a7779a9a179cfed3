/*
 * Waiting: wakes the watches of records that have changed.
 *
 * Each watched key has a channel, which polls its record's revision: a new revision means a
 * change. If the server notifies, a poll also marks the record, so that the statement that ends
 * the wait notifies every process. A mark lasts a minute, so such polls can be rare. A key
 * without a mark (no record yet, a new record in its place, or a server that does not notify) is
 * polled often.
 */
#include <string.h>

#include "base/hash.h"
#include "base/hex.h"
#include "store/sql/sql_store.h"

#define MARKED_MS 20000 /* a third of the duration in the engines' SQL_MARK */
#define POLL_MIN_MS 20
#define POLL_MAX_MS 320

static struct sql_channel *channel_of(struct remote_channel *channel) {
    return idem_container_of(channel, struct sql_channel, base);
}

/* Frees the channel unless it has a watch or a poll. */
static void wake_channel_release(struct sql_store *store, struct sql_channel *channel) {
    if (channel->base.n == 0 && !channel->flying && !channel->queued)
        remote_channel_free(&store->remote, &channel->base);
}

/* Polling. */

static bool wake_notifies(const struct sql_store *store) {
    return store->engine->notifies && !store->pooled;
}

static void wake_set_timer(struct sql_store *store, int64_t at) {
    int64_t left = at - idem_loop_now();

    if (store->wake_timer.link != NULL && store->wake_timer.at <= at)
        return;
    idem_timer_set(store->remote.base.loop, &store->wake_timer, left > 0 ? left : 0);
}

static void wake_take_nothing(struct sql_connection *connection, void *data,
                              struct sql_answer *answer) {
    (void)connection;
    (void)data;
    (void)answer;
}

static void wake_take_look(struct sql_connection *connection, void *data,
                           struct sql_answer *answer) {
    struct sql_store *store = connection->store;
    struct sql_channel *channel = data;
    bool there, changed;
    int64_t revision;

    channel->flying = false;
    if (answer != NULL && answer->trouble == SQL_FINE) {
        there = answer->rows > 0;
        revision = there ? sql_cell(answer, 0, 0)->n : 0;
        changed = !channel->base.in_force || revision != channel->revision;
        channel->base.in_force = true;
        channel->revision = revision;
        if (changed) {
            channel->poll_ms = POLL_MIN_MS;
            remote_channel_wake(&store->remote, &channel->base);
        } else if (channel->poll_ms < POLL_MAX_MS) {
            channel->poll_ms *= 2;
        }
        channel->poll_at =
            idem_loop_now() + (there && wake_notifies(store) ? MARKED_MS : channel->poll_ms);
    } else {
        channel->poll_at = idem_loop_now() + POLL_MAX_MS;
    }
    wake_set_timer(store, channel->poll_at);
    wake_channel_release(store, channel);
}

/* False: the poll could not be sent. */
static bool wake_poll(struct sql_connection *connection, struct sql_channel *channel) {
    bool marks = wake_notifies(connection->store);
    struct sql_value values[2] = {sql_prefix(&channel->base.key), sql_hash(&channel->base.key)};

    if (marks && !connection->listening)
        connection->listening =
            sql_connection_send(connection, SQL_LISTEN, NULL, 0, wake_take_nothing, NULL);
    if (marks && !connection->listening)
        return false;
    channel->flying = sql_connection_send(connection, marks ? SQL_MARK : SQL_LOOK, values, 2,
                                          wake_take_look, channel);
    return channel->flying;
}

static struct sql_channel *wake_next_poll(struct sql_connection *connection) {
    struct sql_channel *channel = connection->polls;

    connection->polls = channel->poll_next;
    if (connection->polls == NULL)
        connection->polls_end = &connection->polls;
    channel->queued = false;
    return channel;
}

void sql_wake_room(struct sql_connection *connection) {
    struct sql_store *store = connection->store;
    struct sql_channel *channel;
    bool sent = false;

    while (connection->polls != NULL && connection->state == SQL_CONNECTION_READY &&
           sql_connection_has_room_for_others(connection)) {
        channel = wake_next_poll(connection);
        if (channel->base.n > 0 && !wake_poll(connection, channel)) {
            wake_set_timer(store, idem_loop_now() + POLL_MIN_MS); /* it will be due again then */
            break;
        }
        sent |= channel->flying;
        wake_channel_release(store, channel);
    }
    if (sent) /* the response may have arrived already */
        idem_task_post(store->remote.base.loop, &connection->flush);
}

/* Queues the channel on its connection if its poll is due. */
static void channel_due(struct remote_channel *base, void *data) {
    struct sql_channel *channel = channel_of(base);
    struct sql_store *store = data;
    struct sql_connection *connection = sql_connection_of(store, &channel->base.key);

    if (channel->flying || channel->queued)
        return;
    if (channel->poll_at > idem_loop_now()) {
        wake_set_timer(store, channel->poll_at);
        return;
    }
    channel->queued = true;
    channel->poll_next = NULL;
    *connection->polls_end = channel;
    connection->polls_end = &channel->poll_next;
}

/* A connection that is not ready or has no room calls sql_wake_room() later. */
void sql_wake_fire(struct idem_timer *timer) {
    struct sql_store *store = idem_container_of(timer, struct sql_store, wake_timer);

    remote_enter(&store->remote);
    remote_channel_each(&store->remote, channel_due, store);
    for (size_t i = 0; i < store->config.connections_n && !store->remote.closing; i++) {
        if (store->connections[i].polls == NULL)
            continue;
        sql_connection_open(&store->connections[i]);
        sql_wake_room(&store->connections[i]);
    }
    (void)remote_leave(&store->remote);
}

static void channel_poll_soon(struct remote_channel *channel, void *data) {
    struct sql_connection *connection = data;

    if (sql_connection_of(connection->store, &channel->key) != connection)
        return;
    channel_of(channel)->poll_at = 0;
    wake_set_timer(connection->store, 0);
}

/* Notifications may have been lost with the connection. */
void sql_wake_lost(struct sql_connection *connection) {
    remote_channel_each(&connection->store->remote, channel_poll_soon, connection);
}

void sql_wake_notified(struct sql_connection *connection, const char *hex) {
    unsigned char hash[IDEM_HASH_LEN];
    struct remote_channel *next;

    if (!idem_hex_parse(hex, strlen(hex), hash))
        return;
    for (struct remote_channel *at = connection->store->remote.channels[hash[0]]; at != NULL;
         at = next) {
        next = at->next;
        if (memcmp(at->key.at + at->key.prefix_len, hash, IDEM_HASH_LEN) != 0 ||
            sql_connection_of(connection->store, &at->key) != connection)
            continue;
        remote_channel_wake(&connection->store->remote, at);
        channel_of(at)->poll_ms = POLL_MIN_MS;
        channel_of(at)->poll_at = 0;
        wake_set_timer(connection->store, 0);
    }
}

/* Watches. */

void sql_watched(struct remote *r, struct remote_channel *channel) {
    if (channel_of(channel)->poll_ms == 0)
        channel_of(channel)->poll_ms = POLL_MIN_MS;
    wake_set_timer(sql_store_of(r), channel_of(channel)->poll_at);
}

void sql_unwatched(struct remote *r, struct remote_channel *channel) {
    wake_channel_release(sql_store_of(r), channel_of(channel));
}
