/*
 * The call of an operation of the store: its deadline, its tries, and the kinds of errors.
 */
#include "core/store_call.h"

#include "base/error.h"
#include "base/list.h"

/* A record that is absent, live or settled is a result, not a failure of the store. */
static bool store_call_is_failure(int rc) {
    return rc != 0 && rc != IDEM_E_ABSENT && rc != IDEM_E_LIVE && rc != IDEM_E_SETTLED;
}

bool idem_store_call_is_permanent(int rc) {
    return rc == IDEM_E_INVALID || rc == IDEM_E_CORRUPT || rc == IDEM_E_VERSION ||
           rc == IDEM_E_FORK;
}

/* Callers call this last: the callback may free `store_call`, so the error is a copy. */
static void store_call_end(struct idem_store_call *store_call, int rc) {
    struct idem_error err;

    if (rc == 0) {
        store_call->answered(store_call, 0, NULL);
        return;
    }
    err = store_call->op.error;
    if (store_call_is_failure(rc) && !store_call->quiet)
        idem_handle_tally(store_call->h, IDEM_EVENT_STORE_ERROR);
    store_call->answered(store_call, rc, &err);
}

static void store_call_complete(struct idem_op *op, int rc) {
    struct idem_store_call *store_call = op->data;

    idem_timer_clear(&store_call->h->loop, &store_call->timer);
    store_call_end(store_call, rc);
}

/* A try has taken too long, or the pause before the next try is over. If no time is left after a
   pause, the error is that of the last try. */
static void store_call_fire(struct idem_timer *timer) {
    struct idem_store_call *store_call = idem_container_of(timer, struct idem_store_call, timer);

    if (idem_store_call_is_pending(store_call)) {
        idem_store_cancel(store_call->h->store, &store_call->op);
        store_call->timed_out = true;
        idem_error_set(&store_call->op.error, IDEM_E_UNKNOWN, "the store did not answer in time");
    } else if (idem_loop_now() < store_call->until) {
        idem_store_call_send(store_call);
        return;
    }
    store_call_end(store_call, IDEM_E_UNKNOWN);
}

static void store_call_run(struct idem_task *task) {
    idem_store_call_send(idem_container_of(task, struct idem_store_call, task));
}

void idem_store_call_init(struct idem *h, struct idem_store_call *store_call,
                          void (*answered)(struct idem_store_call *store_call, int rc,
                                           const struct idem_error *err)) {
    store_call->h = h;
    store_call->timer.fire = store_call_fire;
    store_call->task.run = store_call_run;
    store_call->answered = answered;
}

/* The first try is sent even if there is no time left. */
void idem_store_call_send(struct idem_store_call *store_call) {
    int64_t left = store_call->until - idem_loop_now();
    int64_t ms =
        store_call->timeout_ms == 0 ? store_call->h->op_timeout_ms : store_call->timeout_ms;
    int rc;

    store_call->op.complete = store_call_complete;
    store_call->op.data = store_call;
    rc = idem_store_submit(store_call->h->store, &store_call->op);
    if (rc != 0)
        store_call_end(store_call, rc);
    else if (ms > 0)
        idem_timer_set(&store_call->h->loop, &store_call->timer, left > 0 && left < ms ? left : ms);
}

void idem_store_call_post(struct idem_store_call *store_call) {
    idem_task_post(&store_call->h->loop, &store_call->task);
}

bool idem_store_call_again(struct idem_store_call *store_call, int rc) {
    int64_t left = store_call->until - idem_loop_now(), ms = store_call->pause_ms;

    if (left <= 0 || idem_store_call_is_permanent(rc))
        return false;
    if (store_call->timed_out)
        ms = 0;
    else
        store_call->pause_ms =
            2 * ms < store_call->pause_max_ms ? 2 * ms : store_call->pause_max_ms;
    store_call->timed_out = false;
    idem_timer_set(&store_call->h->loop, &store_call->timer, ms < left ? ms : left);
    return true;
}

void idem_store_call_start(struct idem *h, struct idem_store_call *store_call) {
    idem_store_call_init(h, store_call, store_call->answered);
    idem_link_insert(&h->store_calls, store_call);
    idem_store_call_post(store_call);
}

static void store_call_detach(struct idem_store_call *store_call) {
    idem_timer_clear(&store_call->h->loop, &store_call->timer);
    idem_task_drop(&store_call->h->loop, &store_call->task);
    idem_store_cancel(store_call->h->store, &store_call->op);
    if (store_call->link != NULL) {
        idem_link_remove(store_call);
    }
    store_call->h = NULL;
}

void idem_store_calls_detach(struct idem *h) {
    while (h->store_calls != NULL)
        store_call_detach(h->store_calls);
}

void idem_store_call_stop(struct idem_store_call *store_call) {
    if (store_call->h == NULL)
        return;
    /* In a forked child the host's timer still belongs to the parent. */
    if (idem_handle_check(store_call->h, NULL) != 0)
        store_call->h->loop.stopped = true;
    store_call_detach(store_call);
}
