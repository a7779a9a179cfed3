/*
 * One operation on a loop. An answer that does not come in time is IDEM_E_UNKNOWN.
 */
#include "core/ask.h"

#include "core/error.h"

/* That a record is not there, held or done already is an answer. */
static bool is_failure(int rc) {
    return rc != 0 && rc != IDEM_E_ABSENT && rc != IDEM_E_LIVE && rc != IDEM_E_SETTLED;
}

/* The last thing: the call-back may free it. */
static void ask_end(struct idem_ask *ask, int rc, const struct idem_error *err) {
    if (is_failure(rc))
        idem_handle_tally(ask->h, IDEM_EVENT_STORE_ERROR);
    ask->answered(ask, rc, err);
}

static void ask_complete(struct idem_op *op, int rc) {
    struct idem_ask *ask = op->data;
    struct idem_error err = op->error;

    idem_timer_clear(&ask->h->loop, &ask->timer);
    ask_end(ask, rc, rc == 0 ? NULL : &err);
}

static void ask_late(struct idem_timer *timer) {
    struct idem_ask *ask = idem_container_of(timer, struct idem_ask, timer);
    struct idem_error err;
    int rc = idem_error_set(&err, IDEM_E_UNKNOWN, "the store did not answer in time");

    idem_store_cancel(ask->h->store, &ask->op);
    ask_end(ask, rc, &err);
}

/* From the loop, because a failed submit calls back. */
static void ask_first(struct idem_task *task) {
    struct idem_ask *ask = idem_container_of(task, struct idem_ask, task);

    if (idem_store_submit(ask->h->store, &ask->op) != 0) {
        struct idem_error err = ask->op.error;

        ask_end(ask, err.code, &err);
        return;
    }
    idem_timer_set(&ask->h->loop, &ask->timer, ask->h->op_timeout_ms);
}

void idem_ask_start(struct idem *h, struct idem_ask *ask) {
    ask->h = h;
    ask->op.complete = ask_complete;
    ask->op.data = ask;
    ask->timer.fire = ask_late;
    ask->task.run = ask_first;
    ask->next = h->asks;
    ask->link = &h->asks;
    if (ask->next != NULL)
        ask->next->link = &ask->next;
    h->asks = ask;
    idem_task_post(&h->loop, &ask->task);
}

static void ask_detach(struct idem_ask *ask) {
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
        ask_detach(h->asks);
}

void idem_ask_stop(struct idem_ask *ask) {
    if (ask->h == NULL)
        return;
    /* In a child the host's timer is the parent's, too. */
    if (idem_handle_check(ask->h, NULL) != 0)
        ask->h->loop.stopped = true;
    ask_detach(ask);
}
