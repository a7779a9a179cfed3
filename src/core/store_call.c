/*
 * One store operation on a loop. A response that does not arrive in time is IDEM_E_UNKNOWN.
 */
#include "core/store_call.h"

#include "base/error.h"

/* A record that is absent, live or settled is a result, not a failure of the store. */
static bool store_call_is_failure(int rc) {
    return rc != 0 && rc != IDEM_E_ABSENT && rc != IDEM_E_LIVE && rc != IDEM_E_SETTLED;
}

/* Callers call this last: the callback may free `ask`. */
static void store_call_end(struct idem_ask *ask, int rc, const struct idem_error *err) {
    if (store_call_is_failure(rc))
        idem_handle_tally(ask->h, IDEM_EVENT_STORE_ERROR);
    ask->answered(ask, rc, err);
}

static void store_call_complete(struct idem_op *op, int rc) {
    struct idem_ask *ask = op->data;
    struct idem_error err = op->error;

    idem_timer_clear(&ask->h->loop, &ask->timer);
    store_call_end(ask, rc, rc == 0 ? NULL : &err);
}

static void store_call_timeout(struct idem_timer *timer) {
    struct idem_ask *ask = idem_container_of(timer, struct idem_ask, timer);
    struct idem_error err;
    int rc = idem_error_set(&err, IDEM_E_UNKNOWN, "the store did not answer in time");

    idem_store_cancel(ask->h->store, &ask->op);
    store_call_end(ask, rc, &err);
}

/* Runs from the loop, because a failed submit runs the callback at once. */
static void store_call_submit(struct idem_task *task) {
    struct idem_ask *ask = idem_container_of(task, struct idem_ask, task);

    if (idem_store_submit(ask->h->store, &ask->op) != 0) {
        struct idem_error err = ask->op.error;

        store_call_end(ask, err.code, &err);
        return;
    }
    idem_timer_set(&ask->h->loop, &ask->timer, ask->h->op_timeout_ms);
}

void idem_ask_start(struct idem *h, struct idem_ask *ask) {
    ask->h = h;
    ask->op.complete = store_call_complete;
    ask->op.data = ask;
    ask->timer.fire = store_call_timeout;
    ask->task.run = store_call_submit;
    ask->next = h->asks;
    ask->link = &h->asks;
    if (ask->next != NULL)
        ask->next->link = &ask->next;
    h->asks = ask;
    idem_task_post(&h->loop, &ask->task);
}

static void store_call_detach(struct idem_ask *ask) {
    idem_timer_clear(&ask->h->loop, &ask->timer);
    idem_task_drop(&ask->h->loop, &ask->task);
    idem_store_cancel(ask->h->store, &ask->op);
    *ask->link = ask->next;
    if (ask->next != NULL)
        ask->next->link = ask->link;
    ask->h = NULL;
}

void idem_asks_detach(struct idem *h) {
    while (h->asks != NULL)
        store_call_detach(h->asks);
}

void idem_ask_stop(struct idem_ask *ask) {
    if (ask->h == NULL)
        return;
    /* In a forked child the host's timer still belongs to the parent. */
    if (idem_handle_check(ask->h, NULL) != 0)
        ask->h->loop.stopped = true;
    store_call_detach(ask);
}
