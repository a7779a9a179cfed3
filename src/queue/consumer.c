/*
 * The consumer as a whole: the choice of the next claim, reports to the broker, and the stop.
 * delivery.c handles each single message. Fails if the broker cannot be opened, or without
 * memory.
 */
#include "queue/consumer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/list.h"
#include "queue/delivery.h"

/* Limit for messages beyond prefetch that wait behind others. */
#define MORE_MAX ((size_t)10000)

/* Grace for cancelled runs; afterwards they are left to their leases. */
#define FORCE_MS 30000
#define EXTEND_LEAST_MS 100

/* Lanes. */

/* Reports once, until there is room again. */
static void consumer_report_crowd(struct queue_consumer *c) {
    const struct queue_consumer_events *events = &c->config.events;
    size_t limit = c->config.queue.prefetch + c->more;
    char text[320];

    if (c->counts.in_hand <= limit / 2)
        c->crowded = false;
    if (c->crowded || c->behind == 0 || c->behind + c->holding < limit)
        return;
    c->crowded = true;
    snprintf(text, sizeof(text),
             "nothing more is fetched: %zu messages in hand are to be tried again later, and %zu "
             "wait behind them in their order (--order-by); it goes on when one of them is done or "
             "dead; a larger --prefetch leaves more room for others",
             c->holding, c->behind);
    if (events->state != NULL)
        events->state(events->data, c->broker_ready, text);
}

/* Messages that wait behind others must not keep out messages that need not wait. Without
   --order-by they make room themselves. */
void queue_consumer_update_crowd(struct queue_consumer *c) {
    const struct queue_broker *broker = c->config.broker;
    size_t more = c->behind < MORE_MAX ? c->behind : MORE_MAX;

    if (c->config.keying.order == NULL || c->link == NULL || c->stopping)
        return;
    if (broker->widen != NULL && more != c->more) {
        c->more = more;
        broker->widen(c->link, more);
    }
    consumer_report_crowd(c);
}

/* The delivery is now the first in its lane. */
static void consumer_delivery_first(struct queue_consumer *c, struct delivery *d) {
    if (!d->behind)
        return;
    d->behind = false;
    c->behind--;
    queue_consumer_update_crowd(c);
}

void queue_consumer_ready(struct queue_consumer *c, struct delivery *d) {
    consumer_delivery_first(c, d);
    idem_link_append_in(ready_, &c->ready_end, d);
    idem_task_post(c->loop, &c->pump);
}

static void consumer_ready_remove(struct queue_consumer *c, struct delivery *d) {
    if (d->ready_link != NULL)
        idem_link_remove_end_in(ready_, &c->ready_end, d);
}

static void consumer_report_stopped(struct queue_consumer *c) {
    if (c->stop_reported)
        return;
    c->stop_reported = true;
    c->config.events.stopped(c->config.events.data);
}

static void consumer_pump(struct idem_task *task) {
    struct queue_consumer *c = idem_container_of(task, struct queue_consumer, pump);

    while (c->ready != NULL && c->counts.working < c->config.handler.workers) {
        struct delivery *d = c->ready;

        consumer_ready_remove(c, d);
        delivery_claim(d);
    }
    if (c->stopping && c->all == NULL)
        consumer_report_stopped(c);
}

void queue_consumer_remove(struct queue_consumer *c, struct delivery *d) {
    struct queue_place *next;

    consumer_ready_remove(c, d);
    consumer_delivery_first(c, d);
    idem_link_remove_end(&c->all_end, d);
    c->counts.in_hand--;
    if (d->placed) {
        next = queue_lane_leave(&c->lanes, &d->place);
        if (next != NULL)
            queue_consumer_ready(c, idem_container_of(next, struct delivery, place));
    }
    idem_task_post(c->loop, &c->pump);
}

/* Reports once when the store begins to fail, and once when it is back. */
void queue_consumer_store_state(struct queue_consumer *c, const struct idem_error *err) {
    const struct queue_consumer_events *events = &c->config.events;
    bool down = err != NULL;
    char text[640];

    if (down == c->store_down)
        return;
    c->store_down = down;
    if (events->state == NULL)
        return;
    snprintf(text, sizeof(text), "%s%s", down ? "the store: " : "the store answers again",
             down ? err->text : "");
    events->state(events->data, c->broker_ready, text);
}

/* Events from the broker. */

static void consumer_message(void *data, struct queue_message *message) {
    struct queue_consumer *c = data;

    c->counts.fetched++;
    if (c->stopping)
        c->config.broker->nack(c->link, message);
    else if (c->backlog.first != NULL || !delivery_new(c, message))
        backlog_put(c, message);
}

static void consumer_message_lost(void *data, struct queue_message *message) {
    if (message->owner != NULL)
        delivery_lost(message->owner);
    else
        (void)backlog_remove(data, message);
}

static void consumer_broker_state(void *data, bool ready, const char *text) {
    struct queue_consumer *c = data;

    c->broker_ready = ready;
    if (c->config.events.state != NULL)
        c->config.events.state(c->config.events.data, ready, text);
}

/* Reports to the broker. */

static int64_t consumer_extend_interval(const struct queue_consumer *c) {
    int64_t ms = c->policy->lease_ms / 3;

    return ms < EXTEND_LEAST_MS ? EXTEND_LEAST_MS : ms;
}

static void consumer_extend(struct idem_timer *timer) {
    struct queue_consumer *c = idem_container_of(timer, struct queue_consumer, extend_timer);
    struct queue_message **messages =
        malloc((c->counts.in_hand + c->backlog.n + 1) * sizeof(struct queue_message *));
    size_t n = 0;

    for (const struct delivery *d = c->all; d != NULL && messages != NULL; d = d->next)
        if (!d->gone)
            messages[n++] = d->message;
    for (struct queue_message *m = c->backlog.first; m != NULL && messages != NULL; m = m->next)
        messages[n++] = m;
    if (n != 0)
        c->config.broker->extend(c->link, messages, n);
    free(messages);
    idem_timer_set(c->loop, timer, consumer_extend_interval(c));
}

/* Stopping. */

static void consumer_stop_force(struct idem_timer *timer) {
    struct queue_consumer *c = idem_container_of(timer, struct queue_consumer, stop_timer);
    struct delivery *next;

    if (c->forced) { /* the grace is over too: the rest is left to leases and the broker */
        consumer_report_stopped(c);
        return;
    }
    c->forced = true;
    for (struct delivery *d = c->all; d != NULL; d = next) {
        next = d->next;
        delivery_cancel(d);
    }
    idem_timer_set(c->loop, timer, FORCE_MS);
}

void queue_consumer_stop(struct queue_consumer *c, int64_t drain_ms) {
    int64_t by = idem_loop_now() + drain_ms;
    struct delivery *next;

    if (!c->stopping) {
        c->stopping = true;
        c->config.broker->fetch(c->link, false);
        for (struct delivery *d = c->all; d != NULL; d = next) {
            next = d->next;
            delivery_stop(d);
        }
        backlog_stop(c);
        idem_task_post(c->loop, &c->pump);
    }
    if (c->forced) { /* the second request: the rest is left to leases and the broker */
        consumer_report_stopped(c);
    } else if (by < c->stop_by) {
        c->stop_by = by;
        idem_timer_set(c->loop, &c->stop_timer, drain_ms);
    }
}

/* Creation and release. */

void queue_consumer_counts(const struct queue_consumer *consumer, struct queue_counts *ret) {
    *ret = consumer->counts;
}

void queue_consumer_free(struct queue_consumer *c) {
    if (c == NULL)
        return;
    c->stopping = c->stop_reported = true;
    if (c->link != NULL) /* first: it could still call back for pending requests */
        c->config.broker->close(c->link);
    c->link = NULL;
    while (c->all != NULL)
        delivery_free(c->all);
    idem_timer_clear(c->loop, &c->extend_timer);
    idem_timer_clear(c->loop, &c->stop_timer);
    idem_timer_clear(c->loop, &c->backlog.timer);
    idem_task_drop(c->loop, &c->pump);
    queue_lanes_release(&c->lanes);
    free(c);
}

int queue_consumer_new(const struct queue_consumer_config *config, struct queue_consumer **ret,
                       struct idem_error *err) {
    struct queue_consumer *c = calloc(1, sizeof(*c));
    struct queue_events events = {c, consumer_message, consumer_message_lost,
                                  consumer_broker_state};
    int rc;

    if (c == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a consumer");
    *c = (struct queue_consumer){
        .config = *config,
        .policy = idem_guard_policy(config->guard),
        .loop = &config->h->loop,
        .pump.run = consumer_pump,
        .extend_timer.fire = consumer_extend,
        .stop_timer.fire = consumer_stop_force,
        .stop_by = INT64_MAX,
    };
    c->ready_end = &c->ready;
    c->all_end = &c->all;
    backlog_init(c);
    if (queue_lanes_init(&c->lanes, config->queue.prefetch) != 0)
        rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for a consumer");
    else
        rc = config->broker->open(&config->queue, c->loop, &events, &c->link, err);
    if (rc != 0) {
        c->link = NULL;
        queue_consumer_free(c);
        return rc;
    }
    if (config->broker->extend != NULL)
        idem_timer_set(c->loop, &c->extend_timer, consumer_extend_interval(c));
    config->broker->fetch(c->link, true);
    *ret = c;
    return 0;
}

int64_t queue_redelivery_ms(const struct idem_policy *policy, const struct queue_broker *broker,
                            const struct queue_config *config) {
    int64_t attempts = policy->attempts == IDEM_NONE ? 1 : policy->attempts;
    int64_t own = broker->redelivery_ms == NULL ? 0 : broker->redelivery_ms(config);

    return own + attempts * (policy->backoff_max_ms + policy->lease_ms);
}
