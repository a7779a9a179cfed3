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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/sql_store.h"

#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 500
#define TRIES_MAX 2 /* consecutive failures after which a server is down */

static void connection_on_timer(struct idem_timer *timer);
static void connection_on_ready(struct idem_fd *fd, int events);
static void connection_pump(struct sql_lane *lane, int events);

static struct idem_loop *connection_loop(const struct sql_lane *lane) {
    return lane->store->remote.base.loop;
}

void sql_lane_init(struct sql_lane *lane, struct sql_store *store) {
    *lane = (struct sql_lane){.store = store};
    lane->fd.fd = -1;
    lane->fd.ready = connection_on_ready;
    lane->timer.fire = connection_on_timer;
    lane->flush.run = sql_lane_flush_run;
    remote_queue_init(&lane->turn);
    remote_queue_init(&lane->held);
    lane->asks_end = &lane->asks;
}

struct sql_lane *sql_lane_of(struct sql_store *store, const struct idem_record_key *key) {
    return &store->lanes[key->at[key->prefix_len + IDEM_HASH_LEN - 1] % store->config.lanes_n];
}

/* Statements that await their responses. */

static size_t connection_ring_size(const struct sql_lane *lane) {
    return SQL_RING(lane->store->engine->depth);
}

static struct sql_want connection_take_pending(struct sql_lane *lane) {
    struct sql_want want = lane->wants[lane->wants_first];

    lane->wants_first = (lane->wants_first + 1) % connection_ring_size(lane);
    lane->wants_n--;
    return want;
}

/* Reports to all statements under way that no response will arrive. */
static void connection_lose_pending(struct sql_lane *lane) {
    struct sql_store *store = lane->store;

    remote_enter(&store->remote);
    for (size_t n = lane->wants_n; n > 0 && !store->remote.closing; n--) {
        struct sql_want want = connection_take_pending(lane);

        want.take(lane, want.data, NULL);
    }
    (void)remote_leave(&store->remote);
}

bool sql_lane_has_beside(const struct sql_lane *lane) {
    return lane->wants_n - lane->operations_n < SQL_BESIDE(lane->store->engine->depth);
}

bool sql_lane_has_room(const struct sql_lane *lane) {
    return lane->operations_n < lane->store->engine->depth;
}

/* Losing the connection. */

static void connection_drop_link(struct sql_lane *lane) {
    for (struct sql_telling *at = lane->telling; at != NULL; at = at->outer)
        at->gone = true;
    lane->telling = NULL;
    if (lane->fd.fd >= 0)
        idem_loop_unwatch(connection_loop(lane), &lane->fd);
    lane->fd.fd = -1;
    lane->events = 0;
    if (lane->link != NULL)
        lane->store->engine->hang_up(lane->link);
    lane->link = NULL;
    lane->listening = false;
    lane->leaving[0] = '\0';
    sql_dial_free(lane->dial);
    lane->dial = NULL;
}

void sql_lane_close(struct sql_lane *lane) {
    connection_drop_link(lane);
    idem_timer_clear(connection_loop(lane), &lane->timer);
    idem_task_drop(connection_loop(lane), &lane->flush);
    free(lane->wants);
    free(lane->busy);
    lane->wants = NULL;
    lane->busy = NULL;
    lane->wants_n = lane->operations_n = 0;
    lane->state = SQL_LANE_OFF;
}

static void connection_pause(struct sql_lane *lane) {
    int64_t ms = PAUSE_MIN_MS << (lane->tries < 6 ? lane->tries : 6);

    if (ms > PAUSE_MAX_MS)
        ms = PAUSE_MAX_MS;
    lane->tries++;
    lane->state = SQL_LANE_PAUSING;
    idem_timer_set(connection_loop(lane), &lane->timer, ms / 2 + rand() % (ms / 2 + 1));
}

static bool connection_is_any_ready(const struct sql_store *store) {
    for (size_t i = 0; i < store->config.lanes_n; i++)
        if (store->lanes[i].state == SQL_LANE_READY)
            return true;
    return false;
}

static void connection_fail(struct sql_lane *lane, bool silent, int code, bool for_good,
                            const char *text) {
    bool was_ready = lane->state == SQL_LANE_READY;

    if (lane->state == SQL_LANE_DIALLING)
        lane->failed++;
    lane->down |= silent || for_good || lane->failed >= TRIES_MAX;
    if (lane->wants_n > 0 && lane->session.id != 0)
        lane->past = lane->session;
    lane->session = (struct sql_session){0};
    connection_drop_link(lane);
    connection_pause(lane);
    if (lane->turn.first != NULL) /* they wait for a response that will not arrive */
        idem_task_post(connection_loop(lane), &lane->flush);
    sql_wake_lost(lane);
    remote_trouble(&lane->store->remote, code, for_good, "%s", text);
    lane->store->silent |= silent && (was_ready || !connection_is_any_ready(lane->store));
    if (lane->down)
        remote_resume(&lane->store->remote); /* it refuses them */
    connection_lose_pending(lane);
}

void sql_lane_fail(struct sql_lane *lane, int code, const char *fmt, ...) {
    char text[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    connection_fail(lane, false, code, false, text);
}

bool sql_lane_is_down(const struct sql_lane *lane) {
    return lane->store->silent || (lane->down && lane->state != SQL_LANE_READY);
}

/* Making the connection. */

/* The server is reachable: dials the connections that were given up, so that operations wait for
   them. */
static void connection_retry_others(struct sql_lane *lane) {
    struct sql_store *store = lane->store;

    for (size_t i = 0; i < store->config.lanes_n; i++) {
        struct sql_lane *other = &store->lanes[i];

        if (other == lane || !other->down)
            continue;
        other->down = false;
        other->failed = other->tries = 0;
        if (other->state == SQL_LANE_PAUSING)
            idem_timer_set(connection_loop(other), &other->timer, 0);
    }
}

static void connection_on_dialled(void *data, const struct sql_dialled *dialled) {
    struct sql_lane *lane = data;
    struct sql_store *store = lane->store;

    sql_dial_free(lane->dial);
    lane->dial = NULL;
    if (dialled->link == NULL) {
        connection_fail(lane, false, dialled->code, dialled->for_good, dialled->text);
        return;
    }
    lane->link = dialled->link;
    lane->fd.fd = store->engine->fd(lane->link);
    if (idem_loop_watch(connection_loop(lane), &lane->fd, IDEM_READ) != 0) {
        lane->fd.fd = -1;
        connection_fail(lane, false, IDEM_E_REFUSED, false, "the loop cannot watch the connection");
        return;
    }
    lane->events = IDEM_READ;
    lane->session = dialled->session;
    lane->past = (struct sql_session){0};
    lane->tries = 0;
    lane->down = store->silent = false;
    lane->failed = 0;
    connection_retry_others(lane);
    lane->state = SQL_LANE_READY;
    idem_store_connected(&store->remote.base, &lane->met);
    idem_timer_clear(connection_loop(lane), &lane->timer);
    store->pooled |= dialled->pooled;
    if (dialled->text[0] != '\0')
        sql_store_notice(store, dialled->text);
    sql_store_ready(store);
    if (!store->remote.closing &&
        lane->turn.first != NULL) /* queued before the connection was lost */
        idem_task_post(connection_loop(lane), &lane->flush);
}

void sql_lane_open(struct sql_lane *lane) {
    struct sql_store *store = lane->store;

    if (lane->state != SQL_LANE_OFF)
        return;
    if (lane->wants == NULL)
        lane->wants = calloc(connection_ring_size(lane), sizeof(*lane->wants));
    if (lane->busy == NULL)
        lane->busy = calloc(SQL_SLOTS, 1);
    lane->state = SQL_LANE_DIALLING;
    lane->dial = lane->wants == NULL || lane->busy == NULL
                     ? NULL
                     : sql_dial_new(connection_loop(lane), &store->config, &lane->past,
                                    connection_on_dialled, lane);
    if (lane->dial == NULL)
        connection_fail(lane, false, IDEM_E_NOMEM, false,
                        "no memory or no thread for a connection");
    else
        idem_timer_set(connection_loop(lane), &lane->timer, store->config.connect_timeout_ms);
}

/* Using the connection. */

static void connection_arm_timer(struct sql_lane *lane) {
    int64_t left;

    if (lane->wants_n == 0 || lane->timer.link != NULL)
        return;
    left = lane->heard + lane->store->config.timeout_ms - idem_loop_now();
    idem_timer_set(connection_loop(lane), &lane->timer, left > 0 ? left : 0);
}

/* True if another connection had a response in the later half of the timeout, while this one had
   none: the server is up, and a lock or the network delays this connection. An earlier response,
   from soon after this connection fell silent, does not show that the server is still up. */
static bool connection_others_respond(const struct sql_lane *lane) {
    const struct sql_store *store = lane->store;
    int64_t since = idem_loop_now() - store->config.timeout_ms / 2;

    for (size_t i = 0; i < store->config.lanes_n; i++)
        if (&store->lanes[i] != lane && store->lanes[i].answered >= since)
            return true;
    return false;
}

/* A response is overdue: the server is down or cannot be reached. Idle connections are made anew,
 * which shows if it can be reached. */
static void connection_check_silence(struct sql_lane *lane) {
    struct sql_store *store = lane->store;

    connection_pump(lane, IDEM_READ | IDEM_WRITE); /* this host may have been suspended */
    if (lane->state != SQL_LANE_READY || lane->wants_n == 0)
        return;
    if (lane->heard + store->config.timeout_ms > idem_loop_now()) {
        connection_arm_timer(lane);
        return;
    }
    if (connection_others_respond(lane)) {
        connection_fail(lane, false, IDEM_E_REFUSED, false, "the server did not answer in time");
        return;
    }
    for (size_t i = 0; i < store->config.lanes_n && !store->remote.closing; i++) {
        struct sql_lane *at = &store->lanes[i];

        if (at == lane || (at->state == SQL_LANE_READY && at->wants_n == 0))
            connection_fail(at, true, IDEM_E_REFUSED, false, "the server did not answer in time");
        else if (at->turn.first != NULL) /* they wait for room, and are refused now */
            idem_task_post(connection_loop(at), &at->flush);
    }
}

static void connection_on_timer(struct idem_timer *timer) {
    struct sql_lane *lane = idem_container_of(timer, struct sql_lane, timer);
    struct sql_store *store = lane->store;
    char text[64];

    remote_enter(&store->remote);
    switch (lane->state) {
    case SQL_LANE_PAUSING:
        lane->state = SQL_LANE_OFF;
        if (lane->down || store->remote.ops_n > 0 ||
            store->remote.watches_n > 0) /* otherwise the next operation opens it */
            sql_lane_open(lane);
        break;
    case SQL_LANE_DIALLING:
        snprintf(text, sizeof(text), "no connection within %lld ms",
                 (long long)store->config.connect_timeout_ms);
        connection_fail(lane, true, IDEM_E_REFUSED, false, text);
        break;
    case SQL_LANE_READY:
        connection_check_silence(lane);
        break;
    default:
        break;
    }
    (void)remote_leave(&store->remote);
}

bool sql_lane_send(struct sql_lane *lane, enum sql_statement statement,
                   const struct sql_value *values, size_t n, sql_take_fn *take, void *data) {
    size_t at = (lane->wants_first + lane->wants_n) % connection_ring_size(lane);

    if (lane->state != SQL_LANE_READY || lane->leaving[0] != '\0' ||
        lane->wants_n == connection_ring_size(lane) ||
        !lane->store->engine->send(lane->link, statement, values, n))
        return false;
    if (lane->wants_n == 0)
        lane->heard = idem_loop_now();
    lane->wants[at] = (struct sql_want){take, data};
    lane->wants_n++;
    connection_arm_timer(lane);
    return true;
}

struct sql_answer *sql_lane_keep(struct sql_lane *lane) {
    struct sql_answer *answer = lane->telling->answer;

    lane->telling->answer = NULL;
    return answer;
}

/* Delivers one response; false: the connection or the store was closed. Deliveries may nest. */
static bool connection_deliver(struct sql_lane *lane, struct sql_answer *answer) {
    const struct sql_engine *engine = lane->store->engine;
    struct sql_telling telling = {.answer = answer, .outer = lane->telling};
    struct sql_want want = connection_take_pending(lane);
    bool broken = answer->trouble == SQL_BROKEN;

    /* A broken response is made by the client library: the server may still execute the
       statement. */
    if (broken && lane->session.id != 0)
        lane->past = lane->session;
    if (answer->trouble == SQL_ELSEWHERE)
        snprintf(lane->leaving, sizeof(lane->leaving), "%s", answer->text);
    lane->heard = lane->answered = idem_loop_now();
    lane->store->silent = false;
    lane->telling = &telling;
    want.take(lane, want.data, broken ? NULL : answer);
    if (!telling.gone && broken)
        sql_lane_fail(lane, IDEM_E_REFUSED, "%s", answer->text);
    if (telling.answer != NULL)
        engine->answer_free(telling.answer);
    if (!telling.gone)
        lane->telling = telling.outer;
    return !telling.gone;
}

static bool connection_deliver_all(struct sql_lane *lane) {
    const struct sql_engine *engine = lane->store->engine;
    struct sql_answer *answer;
    const char *hex;

    while ((answer = engine->next(lane->link)) != NULL) {
        if (lane->wants_n == 0) { /* a response without a statement */
            engine->answer_free(answer);
            continue;
        }
        if (!connection_deliver(lane, answer))
            return false;
    }
    while (engine->notifies && (hex = engine->notified(lane->link)) != NULL)
        sql_wake_notified(lane, hex);
    return true;
}

static void connection_leave(struct sql_lane *lane) {
    char why[sizeof(lane->leaving)];

    memcpy(why, lane->leaving, sizeof(why));
    connection_fail(lane, false, IDEM_E_REFUSED, false, why);
}

static void connection_pump(struct sql_lane *lane, int events) {
    struct sql_store *store = lane->store;
    const char *why = NULL;
    int wanted;

    if (lane->state != SQL_LANE_READY)
        return;
    remote_enter(&store->remote);
    wanted = store->engine->pump(lane->link, events, &why);
    /* Responses that arrived before the end are delivered first. */
    if (connection_deliver_all(lane) && lane->state == SQL_LANE_READY) {
        if (wanted < 0)
            sql_lane_fail(lane, IDEM_E_REFUSED, "the connection was lost: %.200s", why);
        else if (lane->leaving[0] != '\0' && lane->wants_n == 0)
            connection_leave(lane);
        else if (wanted != lane->events &&
                 idem_loop_watch(connection_loop(lane), &lane->fd, wanted) == 0)
            lane->events = wanted;
    }
    if (!store->remote.closing)
        sql_wake_room(lane);
    /* Without room they wait for a response, not for the loop, which would spin. */
    if (!store->remote.closing && lane->turn.first != NULL && lane->state == SQL_LANE_READY &&
        sql_lane_has_room(lane))
        idem_task_post(connection_loop(lane), &lane->flush);
    (void)remote_leave(&store->remote);
}

void sql_lane_pump(struct sql_lane *lane) {
    connection_pump(lane, 0);
}

static void connection_on_ready(struct idem_fd *fd, int events) {
    connection_pump(idem_container_of(fd, struct sql_lane, fd), events);
}
