/*
 * One connection to the server.
 *
 *     OFF ──requested──> DIALLING ──> READY
 *                         ^   │         │ lost
 *                         │   v         v
 *                         └── PAUSING <─┘
 *
 * A thread dials, so that neither name lookups nor handshakes block the loop. If a connection is
 * lost while statements are under way, its session is ended at the server before another connection
 * replaces it: the old session must not execute a statement after the new one has repeated it.
 *
 * The server is down if it could not be reached twice in a row or did not respond in time. Then
 * operations are refused at once, and dialling goes on whether there are operations or not. A
 * failed dial marks one connection as down. Silence marks the whole store as down, so it costs the
 * timeout once.
 *
 * If the server refuses to work on a connection (it became read-only), the connection is closed
 * after all responses have arrived, so that a refused statement is not taken for a lost one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/sql_store.h"

#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 500
#define TRIES_MAX 2 /* consecutive failures after which a server is down */

static void connection_on_timer(struct idem_timer *timer);
static void connection_on_ready(struct idem_fd *fd, int events);
static void connection_pump(struct sql_connection *connection, int events);

static struct idem_loop *connection_loop(const struct sql_connection *connection) {
    return connection->store->remote.base.loop;
}

void sql_connection_init(struct sql_connection *connection, struct sql_store *store) {
    *connection = (struct sql_connection){.store = store};
    connection->fd.fd = -1;
    connection->fd.ready = connection_on_ready;
    connection->timer.fire = connection_on_timer;
    connection->flush.run = sql_connection_flush_run;
    remote_queue_init(&connection->turn);
    remote_queue_init(&connection->held);
    connection->polls_end = &connection->polls;
}

struct sql_connection *sql_connection_of(struct sql_store *store,
                                         const struct idem_record_key *key) {
    return &store->connections[key->at[key->prefix_len + IDEM_HASH_LEN - 1] %
                               store->config.connections_n];
}

/* Statements that await their responses. */

static size_t connection_ring_size(const struct sql_connection *connection) {
    return SQL_RING(connection->store->engine->depth);
}

static struct sql_pending connection_take_pending(struct sql_connection *connection) {
    struct sql_pending next = connection->pending[connection->pending_first];

    connection->pending_first = (connection->pending_first + 1) % connection_ring_size(connection);
    connection->pending_n--;
    return next;
}

/* Reports to all statements under way that no response will arrive. */
static void connection_lose_pending(struct sql_connection *connection) {
    struct sql_store *store = connection->store;

    remote_enter(&store->remote);
    for (size_t n = connection->pending_n; n > 0 && !store->remote.closing; n--) {
        struct sql_pending next = connection_take_pending(connection);

        next.take(connection, next.data, NULL);
    }
    (void)remote_leave(&store->remote);
}

bool sql_connection_has_room_for_others(const struct sql_connection *connection) {
    return connection->pending_n - connection->operations_n <
           SQL_OTHERS(connection->store->engine->depth);
}

bool sql_connection_has_room(const struct sql_connection *connection) {
    return connection->operations_n < connection->store->engine->depth;
}

/* Losing the connection. */

static void connection_drop_link(struct sql_connection *connection) {
    for (struct sql_delivery *at = connection->delivery; at != NULL; at = at->outer)
        at->gone = true;
    connection->delivery = NULL;
    if (connection->fd.fd >= 0)
        idem_loop_unwatch(connection_loop(connection), &connection->fd);
    connection->fd.fd = -1;
    connection->events = 0;
    if (connection->native != NULL)
        connection->store->engine->hang_up(connection->native);
    connection->native = NULL;
    connection->listening = false;
    connection->leaving[0] = '\0';
    sql_dial_cancel(&connection->dial);
}

void sql_connection_close(struct sql_connection *connection) {
    connection_drop_link(connection);
    idem_timer_clear(connection_loop(connection), &connection->timer);
    idem_task_drop(connection_loop(connection), &connection->flush);
    free(connection->pending);
    free(connection->busy);
    connection->pending = NULL;
    connection->busy = NULL;
    connection->pending_n = connection->operations_n = 0;
    connection->state = SQL_CONNECTION_OFF;
}

static void connection_pause(struct sql_connection *connection) {
    int64_t ms = PAUSE_MIN_MS << (connection->tries < 6 ? connection->tries : 6);

    if (ms > PAUSE_MAX_MS)
        ms = PAUSE_MAX_MS;
    connection->tries++;
    connection->state = SQL_CONNECTION_PAUSING;
    idem_timer_set(connection_loop(connection), &connection->timer, ms / 2 + rand() % (ms / 2 + 1));
}

static bool connection_is_any_ready(const struct sql_store *store) {
    for (size_t i = 0; i < store->config.connections_n; i++)
        if (store->connections[i].state == SQL_CONNECTION_READY)
            return true;
    return false;
}

/* `text` may be the connection's own. */
static void connection_fail(struct sql_connection *connection, bool silent, int code, bool for_good,
                            const char *text) {
    bool was_ready = connection->state == SQL_CONNECTION_READY;
    char why[300];

    snprintf(why, sizeof(why), "%s", text);
    if (connection->state == SQL_CONNECTION_DIALLING)
        connection->failed++;
    connection->down |= silent || for_good || connection->failed >= TRIES_MAX;
    if (connection->pending_n > 0 && connection->session.id != 0)
        connection->past = connection->session;
    connection->session = (struct sql_session){0};
    connection_drop_link(connection);
    connection_pause(connection);
    if (connection->turn.first != NULL) /* they wait for a response that will not arrive */
        idem_task_post(connection_loop(connection), &connection->flush);
    sql_wake_lost(connection);
    remote_trouble(&connection->store->remote, code, for_good, "%s", why);
    connection->store->silent |=
        silent && (was_ready || !connection_is_any_ready(connection->store));
    if (connection->down)
        remote_resume(&connection->store->remote); /* it refuses them */
    connection_lose_pending(connection);
}

bool sql_connection_is_down(const struct sql_connection *connection) {
    return connection->store->silent ||
           (connection->down && connection->state != SQL_CONNECTION_READY);
}

/* Making the connection. */

/* The server is reachable: dials the connections that were given up, so that operations wait for
   them. */
static void connection_retry_others(struct sql_connection *connection) {
    struct sql_store *store = connection->store;

    for (size_t i = 0; i < store->config.connections_n; i++) {
        struct sql_connection *other = &store->connections[i];

        if (other == connection || !other->down)
            continue;
        other->down = false;
        other->failed = other->tries = 0;
        if (other->state == SQL_CONNECTION_PAUSING)
            idem_timer_set(connection_loop(other), &other->timer, 0);
    }
}

static void connection_on_dialled(void *data) {
    struct sql_connection *connection = data;
    struct sql_store *store = connection->store;
    struct sql_dialled dialled = sql_dial_end(&connection->dial);

    if (dialled.connection == NULL) {
        connection_fail(connection, false, dialled.code, dialled.for_good, dialled.text);
        return;
    }
    connection->native = dialled.connection;
    connection->fd.fd = store->engine->fd(connection->native);
    if (idem_loop_watch(connection_loop(connection), &connection->fd, IDEM_READ) != 0) {
        connection->fd.fd = -1;
        connection_fail(connection, false, IDEM_E_REFUSED, false,
                        "the loop cannot watch the connection");
        return;
    }
    connection->events = IDEM_READ;
    connection->session = dialled.session;
    connection->past = (struct sql_session){0};
    connection->tries = 0;
    connection->down = store->silent = false;
    connection->failed = 0;
    connection_retry_others(connection);
    connection->state = SQL_CONNECTION_READY;
    idem_store_connected(&store->remote.base, &connection->met);
    idem_timer_clear(connection_loop(connection), &connection->timer);
    store->pooled |= dialled.pooled;
    if (dialled.text[0] != '\0')
        sql_store_notice(store, dialled.text);
    sql_store_ready(store);
    if (!store->remote.closing &&
        connection->turn.first != NULL) /* queued before the connection was lost */
        idem_task_post(connection_loop(connection), &connection->flush);
}

void sql_connection_open(struct sql_connection *connection) {
    struct sql_store *store = connection->store;

    if (connection->state != SQL_CONNECTION_OFF)
        return;
    if (connection->pending == NULL)
        connection->pending =
            calloc(connection_ring_size(connection), sizeof(*connection->pending));
    if (connection->busy == NULL)
        connection->busy = calloc(SQL_SLOTS, 1);
    connection->state = SQL_CONNECTION_DIALLING;
    if (connection->pending == NULL || connection->busy == NULL ||
        !sql_dial_begin(&connection->dial, connection_loop(connection), &store->config,
                        &connection->past, connection_on_dialled, connection))
        connection_fail(connection, false, IDEM_E_NOMEM, false,
                        "no memory or no thread for a connection");
    else
        idem_timer_set(connection_loop(connection), &connection->timer,
                       store->config.connect_timeout_ms);
}

/* Using the connection. */

static void connection_arm_timer(struct sql_connection *connection) {
    int64_t left;

    if (connection->pending_n == 0 || connection->timer.link != NULL)
        return;
    left = connection->last_read + connection->store->config.timeout_ms - idem_loop_now();
    idem_timer_set(connection_loop(connection), &connection->timer, left > 0 ? left : 0);
}

/* True if another connection had a response in the later half of the timeout, while this one had
   none: the server is up, and a lock or the network delays this connection. An earlier response,
   from soon after this connection fell silent, does not show that the server is still up. */
static bool connection_others_respond(const struct sql_connection *connection) {
    const struct sql_store *store = connection->store;
    int64_t since = idem_loop_now() - store->config.timeout_ms / 2;

    for (size_t i = 0; i < store->config.connections_n; i++)
        if (&store->connections[i] != connection && store->connections[i].answered >= since)
            return true;
    return false;
}

/* A response is overdue: the server is down or cannot be reached. Idle connections are made anew,
 * which shows if it can be reached. */
static void connection_check_silence(struct sql_connection *connection) {
    struct sql_store *store = connection->store;

    connection_pump(connection, IDEM_READ | IDEM_WRITE); /* this host may have been suspended */
    if (connection->state != SQL_CONNECTION_READY || connection->pending_n == 0)
        return;
    if (connection->last_read + store->config.timeout_ms > idem_loop_now()) {
        connection_arm_timer(connection);
        return;
    }
    if (connection_others_respond(connection)) {
        connection_fail(connection, false, IDEM_E_REFUSED, false,
                        "the server did not answer in time");
        return;
    }
    for (size_t i = 0; i < store->config.connections_n && !store->remote.closing; i++) {
        struct sql_connection *at = &store->connections[i];

        if (at == connection || (at->state == SQL_CONNECTION_READY && at->pending_n == 0))
            connection_fail(at, true, IDEM_E_REFUSED, false, "the server did not answer in time");
        else if (at->turn.first != NULL) /* they wait for room, and are refused now */
            idem_task_post(connection_loop(at), &at->flush);
    }
}

static void connection_on_timer(struct idem_timer *timer) {
    struct sql_connection *connection = idem_container_of(timer, struct sql_connection, timer);
    struct sql_store *store = connection->store;
    char text[64];

    remote_enter(&store->remote);
    switch (connection->state) {
    case SQL_CONNECTION_PAUSING:
        connection->state = SQL_CONNECTION_OFF;
        if (connection->down || store->remote.ops_n > 0 ||
            store->remote.watches_n > 0) /* otherwise the next operation opens it */
            sql_connection_open(connection);
        break;
    case SQL_CONNECTION_DIALLING:
        snprintf(text, sizeof(text), "no connection within %lld ms",
                 (long long)store->config.connect_timeout_ms);
        connection_fail(connection, true, IDEM_E_REFUSED, false, text);
        break;
    case SQL_CONNECTION_READY:
        connection_check_silence(connection);
        break;
    default:
        break;
    }
    (void)remote_leave(&store->remote);
}

bool sql_connection_send(struct sql_connection *connection, enum sql_statement statement,
                         const struct sql_value *values, size_t n, sql_take_fn *take, void *data) {
    size_t at =
        (connection->pending_first + connection->pending_n) % connection_ring_size(connection);

    if (connection->state != SQL_CONNECTION_READY || connection->leaving[0] != '\0' ||
        connection->pending_n == connection_ring_size(connection) ||
        !connection->store->engine->send(connection->native, statement, values, n))
        return false;
    if (connection->pending_n == 0)
        connection->last_read = idem_loop_now();
    connection->pending[at] = (struct sql_pending){take, data};
    connection->pending_n++;
    connection_arm_timer(connection);
    return true;
}

struct sql_answer *sql_connection_take_answer(struct sql_connection *connection) {
    struct sql_answer *answer = connection->delivery->answer;

    connection->delivery->answer = NULL;
    return answer;
}

/* Delivers one response; false: the connection or the store was closed. Deliveries may nest.
 */
static bool connection_deliver(struct sql_connection *connection, struct sql_answer *answer) {
    const struct sql_engine *engine = connection->store->engine;
    struct sql_delivery delivery = {.answer = answer, .outer = connection->delivery};
    struct sql_pending next = connection_take_pending(connection);
    bool broken = answer->trouble == SQL_BROKEN;

    /* A broken response is made by the client library: the server may still execute the
       statement. */
    if (broken && connection->session.id != 0)
        connection->past = connection->session;
    if (answer->trouble == SQL_ELSEWHERE)
        snprintf(connection->leaving, sizeof(connection->leaving), "%s", answer->text);
    connection->last_read = connection->answered = idem_loop_now();
    connection->store->silent = false;
    connection->delivery = &delivery;
    next.take(connection, next.data, broken ? NULL : answer);
    if (!delivery.gone && broken)
        connection_fail(connection, false, IDEM_E_REFUSED, false, answer->text);
    engine->answer_free(delivery.answer);
    if (!delivery.gone)
        connection->delivery = delivery.outer;
    return !delivery.gone;
}

static bool connection_deliver_all(struct sql_connection *connection) {
    const struct sql_engine *engine = connection->store->engine;
    struct sql_answer *answer;
    const char *hex;

    while ((answer = engine->next(connection->native)) != NULL) {
        if (connection->pending_n == 0) { /* a response without a statement */
            engine->answer_free(answer);
            continue;
        }
        if (!connection_deliver(connection, answer))
            return false;
    }
    while (engine->notifies && (hex = engine->notified(connection->native)) != NULL)
        sql_wake_notified(connection, hex);
    return true;
}

static void connection_pump(struct sql_connection *connection, int events) {
    struct sql_store *store = connection->store;
    const char *why = NULL;
    char lost[256];
    int wanted;

    if (connection->state != SQL_CONNECTION_READY)
        return;
    remote_enter(&store->remote);
    wanted = store->engine->pump(connection->native, events, &why);
    /* Responses that arrived before the end are delivered first. */
    if (connection_deliver_all(connection) && connection->state == SQL_CONNECTION_READY) {
        if (wanted < 0) {
            snprintf(lost, sizeof(lost), "the connection was lost: %.200s", why);
            connection_fail(connection, false, IDEM_E_REFUSED, false, lost);
        } else if (connection->leaving[0] != '\0' && connection->pending_n == 0)
            connection_fail(connection, false, IDEM_E_REFUSED, false, connection->leaving);
        else if (wanted != connection->events &&
                 idem_loop_watch(connection_loop(connection), &connection->fd, wanted) == 0)
            connection->events = wanted;
    }
    if (!store->remote.closing)
        sql_wake_room(connection);
    /* Without room they wait for a response, not for the loop, which would spin. */
    if (!store->remote.closing && connection->turn.first != NULL &&
        connection->state == SQL_CONNECTION_READY && sql_connection_has_room(connection))
        idem_task_post(connection_loop(connection), &connection->flush);
    (void)remote_leave(&store->remote);
}

void sql_connection_pump(struct sql_connection *connection) {
    connection_pump(connection, 0);
}

static void connection_on_ready(struct idem_fd *fd, int events) {
    connection_pump(idem_container_of(fd, struct sql_connection, fd), events);
}
