/*
 * The call of an operation of the store: its deadline, its tries, and the kinds of errors.
 */
#include "core/store_call.h"

#include "base/error.h"

/* A record that is absent, live or settled is a result, not a failure of the store. */
static bool store_call_is_failure(int rc) {
    return rc != 0 && rc != IDEM_E_ABSENT && rc != IDEM_E_LIVE && rc != IDEM_E_SETTLED;
}

bool idem_ask_is_permanent(int rc) {
    return rc == IDEM_E_INVALID || rc == IDEM_E_CORRUPT || rc == IDEM_E_VERSION ||
           rc == IDEM_E_FORK;
}

/* Callers call this last: the callback may free `ask`, so the error is a copy. */
static void store_call_end(struct idem_ask *ask, int rc) {
    struct idem_error err;

    if (rc == 0) {
        ask->answered(ask, 0, NULL);
        return;
    }
    err = ask->op.error;
    if (store_call_is_failure(rc) && !ask->quiet)
        idem_handle_tally(ask->h, IDEM_EVENT_STORE_ERROR);
    ask->answered(ask, rc, &err);
}

static void store_call_complete(struct idem_op *op, int rc) {
    struct idem_ask *ask = op->data;

    idem_timer_clear(&ask->h->loop, &ask->timer);
    store_call_end(ask, rc);
}

/* Between two tries the error is that of the last one. */
static void store_call_fire(struct idem_timer *timer) {
    struct idem_ask *ask = idem_container_of(timer, struct idem_ask, timer);

    if (idem_ask_is_pending(ask)) {
        idem_store_cancel(ask->h->store, &ask->op);
        ask->timed_out = true;
        idem_error_set(&ask->op.error, IDEM_E_UNKNOWN, "the store did not answer in time");
    } else if (idem_loop_now() < ask->until) {
        idem_ask_send(ask);
        return;
    }
    store_call_end(ask, IDEM_E_UNKNOWN);
}

static void store_call_run(struct idem_task *task) {
    idem_ask_send(idem_container_of(task, struct idem_ask, task));
}

void idem_ask_init(struct idem *h, struct idem_ask *ask,
                   void (*answered)(struct idem_ask *ask, int rc, const struct idem_error *err)) {
    ask->h = h;
    ask->timer.fire = store_call_fire;
    ask->task.run = store_call_run;
    ask->answered = answered;
}

/* The first try is sent even if there is no time left. */
void idem_ask_send(struct idem_ask *ask) {
    int64_t left = ask->until - idem_loop_now();
    int64_t ms = ask->timeout_ms == 0 ? ask->h->op_timeout_ms : ask->timeout_ms;
    int rc;

    ask->op.complete = store_call_complete;
    ask->op.data = ask;
    rc = idem_store_submit(ask->h->store, &ask->op);
    if (rc != 0)
        store_call_end(ask, rc);
    else if (ms > 0)
        idem_timer_set(&ask->h->loop, &ask->timer, left > 0 && left < ms ? left : ms);
}

void idem_ask_post(struct idem_ask *ask) {
    idem_task_post(&ask->h->loop, &ask->task);
}

bool idem_ask_again(struct idem_ask *ask, int rc) {
    int64_t left = ask->until - idem_loop_now(), ms = ask->pause_ms;

    if (left <= 0 || idem_ask_is_permanent(rc))
        return false;
    if (ask->timed_out)
        ms = 0;
    else
        ask->pause_ms = 2 * ms < ask->pause_max_ms ? 2 * ms : ask->pause_max_ms;
    ask->timed_out = false;
    idem_timer_set(&ask->h->loop, &ask->timer, ms < left ? ms : left);
    return true;
}

void idem_ask_start(struct idem *h, struct idem_ask *ask) {
    idem_ask_init(h, ask, ask->answered);
    ask->next = h->asks;
    ask->link = &h->asks;
    if (ask->next != NULL)
        ask->next->link = &ask->next;
    h->asks = ask;
    idem_ask_post(ask);
}

static void store_call_detach(struct idem_ask *ask) {
    idem_timer_clear(&ask->h->loop, &ask->timer);
    idem_task_drop(&ask->h->loop, &ask->task);
    idem_store_cancel(ask->h->store, &ask->op);
    if (ask->link != NULL) {
        *ask->link = ask->next;
        if (ask->next != NULL)
            ask->next->link = ask->link;
        ask->link = NULL;
    }
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
