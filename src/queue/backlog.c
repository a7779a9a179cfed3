/*
 * Messages that arrived when there was no memory. They wait unchanged, in the order of their
 * arrival, and all later messages wait behind them: if they were returned, the broker would
 * send them again at once, for as long as memory is short. The first is tried again after a
 * pause. Nothing here needs memory, or fails.
 */
#include "queue/delivery.h"

#define AGAIN_MS 1000

static void backlog_retry(struct idem_timer *timer) {
    struct queue_consumer *c = idem_container_of(timer, struct queue_consumer, backlog.timer);
    struct queue_backlog *backlog = &c->backlog;

    while (backlog->first != NULL) {
        struct queue_message *next = backlog->first->next;

        if (!delivery_new(c, backlog->first)) {
            idem_timer_set(c->loop, timer, AGAIN_MS);
            return;
        }
        backlog->first = next;
        backlog->n--;
    }
    backlog->end = &backlog->first;
}

void backlog_init(struct queue_consumer *c) {
    c->backlog.end = &c->backlog.first;
    c->backlog.timer.fire = backlog_retry;
}

void backlog_put(struct queue_consumer *c, struct queue_message *message) {
    struct queue_backlog *backlog = &c->backlog;
    const struct queue_consumer_events *events = &c->config.events;

    message->next = NULL;
    *backlog->end = message;
    backlog->end = &message->next;
    if (backlog->n++ != 0)
        return;
    idem_timer_set(c->loop, &backlog->timer, AGAIN_MS);
    if (events->state != NULL)
        events->state(events->data, c->broker_ready,
                      "there is no memory for a message: it waits, with all that come behind it, "
                      "and is tried again");
}

bool backlog_remove(struct queue_consumer *c, struct queue_message *message) {
    struct queue_backlog *backlog = &c->backlog;
    struct queue_message **at = &backlog->first;

    while (*at != NULL && *at != message)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = message->next;
    if (*at == NULL)
        backlog->end = at;
    backlog->n--;
    c->config.broker->giveback(c->link, message);
    return true;
}

void backlog_stop(struct queue_consumer *c) {
    while (c->backlog.first != NULL)
        (void)backlog_remove(c, c->backlog.first);
    idem_timer_clear(c->loop, &c->backlog.timer);
}
