/*
 * One connection to the server.
 *
 *     OFF ──asked for──> DIALLING ──> READY
 *                         ^   │         │ lost
 *                         │   v         v
 *                         └── PAUSING <─┘
 *
 * Dialling is done in a thread, so that neither names nor handshakes hold the loop up. When a
 * connection is lost while statements are under way, its session is ended at the server before
 * another takes its place: nothing that it had been told may be done after what is said again.
 *
 * A connection on which the server does nothing any more (it is read only now) is left once all
 * that was sent is answered, so that what was refused is not taken for what was lost.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/store.h"

#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 1000

static void lane_timer(struct idem_timer *timer);
static void lane_ready(struct idem_fd *fd, int events);
static void lane_pump(struct sql_lane *lane, int events);

static struct idem_loop *loop_of(const struct sql_lane *lane) {
    return lane->store->base.loop;
}

void sql_lane_init(struct sql_lane *lane, struct sql_store *store) {
    *lane = (struct sql_lane){.store = store};
    lane->fd.fd = -1;
    lane->fd.ready = lane_ready;
    lane->timer.fire = lane_timer;
    lane->flush.run = sql_lane_flush_run;
    lane->turn_end = &lane->turn;
    lane->held_end = &lane->held;
    lane->asks_end = &lane->asks;
}

struct sql_lane *sql_lane_of(struct sql_store *store, const struct idem_record_key *key) {
    return &store->lanes[key->at[key->prefix_len + IDEM_HASH_LEN - 1] % store->config.lanes_n];
}

/* Wants. */

static size_t wants_size(const struct sql_lane *lane) {
    return SQL_RING(lane->store->engine->depth);
}

static struct sql_want want_take(struct sql_lane *lane) {
    struct sql_want want = lane->wants[lane->wants_first];

    lane->wants_first = (lane->wants_first + 1) % wants_size(lane);
    lane->wants_n--;
    return want;
}

/* All that was sent is told that no answer comes. */
static void wants_lose(struct sql_lane *lane) {
    struct sql_store *store = lane->store;

    sql_store_enter(store);
    for (size_t n = lane->wants_n; n > 0 && !store->closing; n--) {
        struct sql_want want = want_take(lane);

        want.take(lane, want.data, NULL);
    }
    (void)sql_store_leave(store);
}

bool sql_lane_has_beside(const struct sql_lane *lane) {
    return lane->wants_n - lane->operations_n < SQL_BESIDE(lane->store->engine->depth);
}

bool sql_lane_has_room(const struct sql_lane *lane) {
    return lane->operations_n < lane->store->engine->depth;
}

/* Losing it. */

static void link_drop(struct sql_lane *lane) {
    for (struct sql_telling *at = lane->telling; at != NULL; at = at->outer)
        at->gone = true;
    lane->telling = NULL;
    if (lane->fd.fd >= 0)
        idem_loop_unwatch(loop_of(lane), &lane->fd);
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
    link_drop(lane);
    idem_timer_clear(loop_of(lane), &lane->timer);
    idem_task_drop(loop_of(lane), &lane->flush);
    free(lane->wants);
    free(lane->busy);
    lane->wants = NULL;
    lane->busy = NULL;
    lane->wants_n = lane->operations_n = 0;
    lane->state = SQL_LANE_OFF;
}

static void lane_pause(struct sql_lane *lane) {
    int64_t ms = PAUSE_MIN_MS << (lane->tries < 6 ? lane->tries : 6);

    if (ms > PAUSE_MAX_MS)
        ms = PAUSE_MAX_MS;
    lane->tries++;
    lane->state = SQL_LANE_PAUSING;
    idem_timer_set(loop_of(lane), &lane->timer, ms / 2 + rand() % (ms / 2 + 1));
}

static void lane_fail(struct sql_lane *lane, int code, bool for_good, const char *text) {
    if (lane->wants_n > 0 && lane->session.id != 0)
        lane->past = lane->session;
    lane->session = (struct sql_session){0};
    link_drop(lane);
    lane_pause(lane);
    if (lane->turn != NULL) /* they wait for an answer that will not come */
        idem_task_post(loop_of(lane), &lane->flush);
    sql_wake_lost(lane);
    sql_store_trouble(lane->store, code, for_good, text);
    wants_lose(lane);
}

void sql_lane_fail(struct sql_lane *lane, int code, const char *fmt, ...) {
    char text[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    lane_fail(lane, code, false, text);
}

/* Making it. */

static void lane_dialled(void *data, const struct sql_dialled *dialled) {
    struct sql_lane *lane = data;
    struct sql_store *store = lane->store;

    sql_dial_free(lane->dial);
    lane->dial = NULL;
    if (dialled->link == NULL) {
        lane_fail(lane, dialled->code, dialled->for_good, dialled->text);
        return;
    }
    lane->link = dialled->link;
    lane->fd.fd = store->engine->fd(lane->link);
    if (idem_loop_watch(loop_of(lane), &lane->fd, IDEM_READ) != 0) {
        lane->fd.fd = -1;
        lane_fail(lane, IDEM_E_REFUSED, false, "the loop cannot watch the connection");
        return;
    }
    lane->events = IDEM_READ;
    lane->session = dialled->session;
    lane->past = (struct sql_session){0};
    lane->tries = 0;
    lane->state = SQL_LANE_READY;
    idem_store_connected(&store->base, &lane->met);
    idem_timer_clear(loop_of(lane), &lane->timer);
    store->pooled |= dialled->pooled;
    if (dialled->text[0] != '\0')
        sql_store_notice(store, dialled->text);
    sql_store_ready(store);
    if (!store->closing && lane->turn != NULL) /* since before it was lost */
        idem_task_post(loop_of(lane), &lane->flush);
}

void sql_lane_open(struct sql_lane *lane) {
    struct sql_store *store = lane->store;

    if (lane->state != SQL_LANE_OFF)
        return;
    if (lane->wants == NULL)
        lane->wants = calloc(wants_size(lane), sizeof(*lane->wants));
    if (lane->busy == NULL)
        lane->busy = calloc(SQL_SLOTS, 1);
    lane->state = SQL_LANE_DIALLING;
    lane->dial = lane->wants == NULL || lane->busy == NULL
                     ? NULL
                     : sql_dial_new(loop_of(lane), &store->config, &lane->past, lane_dialled, lane);
    if (lane->dial == NULL)
        lane_fail(lane, IDEM_E_NOMEM, false, "no memory or no thread for a connection");
    else
        idem_timer_set(loop_of(lane), &lane->timer, store->config.connect_timeout_ms);
}

/* Using it. */

static void timer_arm(struct sql_lane *lane) {
    int64_t left;

    if (lane->wants_n == 0 || lane->timer.link != NULL)
        return;
    left = lane->heard + lane->store->config.timeout_ms - idem_loop_now();
    idem_timer_set(loop_of(lane), &lane->timer, left > 0 ? left : 0);
}

/* Silence while an answer is due: the server, or the way to it, is not there. */
static void silence_check(struct sql_lane *lane) {
    lane_pump(lane, IDEM_READ | IDEM_WRITE); /* the host may have been away */
    if (lane->state != SQL_LANE_READY || lane->wants_n == 0)
        return;
    if (lane->heard + lane->store->config.timeout_ms > idem_loop_now())
        timer_arm(lane);
    else
        sql_lane_fail(lane, IDEM_E_REFUSED, "the server did not answer in time");
}

static void lane_timer(struct idem_timer *timer) {
    struct sql_lane *lane = idem_container_of(timer, struct sql_lane, timer);
    struct sql_store *store = lane->store;

    sql_store_enter(store);
    switch (lane->state) {
    case SQL_LANE_PAUSING:
        lane->state = SQL_LANE_OFF;
        if (store->jobs_n > 0 || store->watches_n > 0) /* others will ask for it */
            sql_lane_open(lane);
        break;
    case SQL_LANE_DIALLING:
        sql_lane_fail(lane, IDEM_E_REFUSED, "no connection within %lld ms",
                      (long long)store->config.connect_timeout_ms);
        break;
    case SQL_LANE_READY:
        silence_check(lane);
        break;
    default:
        break;
    }
    (void)sql_store_leave(store);
}

bool sql_lane_send(struct sql_lane *lane, enum sql_statement statement,
                   const struct sql_value *values, size_t n, sql_take_fn *take, void *data) {
    size_t at = (lane->wants_first + lane->wants_n) % wants_size(lane);

    if (lane->state != SQL_LANE_READY || lane->leaving[0] != '\0' ||
        lane->wants_n == wants_size(lane) ||
        !lane->store->engine->send(lane->link, statement, values, n))
        return false;
    if (lane->wants_n == 0)
        lane->heard = idem_loop_now();
    lane->wants[at] = (struct sql_want){take, data};
    lane->wants_n++;
    timer_arm(lane);
    return true;
}

struct sql_answer *sql_lane_keep(struct sql_lane *lane) {
    struct sql_answer *answer = lane->telling->answer;

    lane->telling->answer = NULL;
    return answer;
}

/* Tells one answer; false: the link is gone, or the store. Inside, others may be told. */
static bool answer_tell(struct sql_lane *lane, struct sql_answer *answer) {
    const struct sql_engine *engine = lane->store->engine;
    struct sql_telling telling = {.answer = answer, .outer = lane->telling};
    struct sql_want want = want_take(lane);
    bool broken = answer->trouble == SQL_BROKEN;

    /* No answer is the library's own word: the server may still be at it. */
    if (broken && lane->session.id != 0)
        lane->past = lane->session;
    if (answer->trouble == SQL_ELSEWHERE)
        snprintf(lane->leaving, sizeof(lane->leaving), "%s", answer->text);
    lane->heard = idem_loop_now();
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

static bool answers_tell(struct sql_lane *lane) {
    const struct sql_engine *engine = lane->store->engine;
    struct sql_answer *answer;
    const char *hex;

    while ((answer = engine->next(lane->link)) != NULL) {
        if (lane->wants_n == 0) { /* nobody asked */
            engine->answer_free(answer);
            continue;
        }
        if (!answer_tell(lane, answer))
            return false;
    }
    while (engine->notifies && (hex = engine->notified(lane->link)) != NULL)
        sql_wake_notified(lane, hex);
    return true;
}

static void lane_leave(struct sql_lane *lane) {
    char why[sizeof(lane->leaving)];

    memcpy(why, lane->leaving, sizeof(why));
    lane_fail(lane, IDEM_E_REFUSED, false, why);
}

static void lane_pump(struct sql_lane *lane, int events) {
    struct sql_store *store = lane->store;
    const char *why = NULL;
    int wanted;

    if (lane->state != SQL_LANE_READY)
        return;
    sql_store_enter(store);
    wanted = store->engine->pump(lane->link, events, &why);
    /* What came before the end is told first. */
    if (answers_tell(lane) && lane->state == SQL_LANE_READY) {
        if (wanted < 0)
            sql_lane_fail(lane, IDEM_E_REFUSED, "the connection was lost: %.200s", why);
        else if (lane->leaving[0] != '\0' && lane->wants_n == 0)
            lane_leave(lane);
        else if (wanted != lane->events && idem_loop_watch(loop_of(lane), &lane->fd, wanted) == 0)
            lane->events = wanted;
    }
    if (!store->closing)
        sql_wake_room(lane);
    /* Without room they wait for an answer, not for the loop, which would do nothing else. */
    if (!store->closing && lane->turn != NULL && lane->state == SQL_LANE_READY &&
        sql_lane_has_room(lane))
        idem_task_post(loop_of(lane), &lane->flush);
    (void)sql_store_leave(store);
}

void sql_lane_pump(struct sql_lane *lane) {
    lane_pump(lane, 0);
}

static void lane_ready(struct idem_fd *fd, int events) {
    lane_pump(idem_container_of(fd, struct sql_lane, fd), events);
}
