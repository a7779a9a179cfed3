/*
 * Releases in the background: a claim that was given up before its answer came
 * may have been granted all the same, and must not block its key until the
 * lease is over. Sent again for a bounded time, then left to the lease; the
 * last one stays with the store, which may yet come to it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/handle.h"

#define ERRAND_FIRST_MS 100
#define ERRAND_MAX_MS 5000
#define ERRAND_TOTAL_MS 60000

struct idem_errand {
    struct idem *h;
    struct idem_errand *next, **link;
    struct idem_op op;
    struct idem_timer timer;
    int64_t delay_ms, until;
};

static void errand_free(struct idem_errand *errand) {
    idem_timer_clear(&errand->h->loop, &errand->timer);
    *errand->link = errand->next;
    if (errand->next != NULL)
        errand->next->link = errand->link;
    free(errand);
}

static void errand_send(struct idem_errand *errand);

static void errand_again(struct idem_errand *errand) {
    if (idem_loop_now() >= errand->until) {
        errand_free(errand);
        return;
    }
    idem_timer_set(&errand->h->loop, &errand->timer, errand->delay_ms);
    errand->delay_ms = 2 * errand->delay_ms < ERRAND_MAX_MS ? 2 * errand->delay_ms : ERRAND_MAX_MS;
}

static void errand_complete(struct idem_op *op, int rc) {
    struct idem_errand *errand = op->data;

    if (rc == 0)
        errand_free(errand);
    else
        errand_again(errand);
}

static void errand_fire(struct idem_timer *timer) {
    struct idem_errand *errand = idem_container_of(timer, struct idem_errand, timer);

    if (errand->op.driver != NULL && idem_loop_now() >= errand->until)
        return;
    idem_store_cancel(errand->h->store, &errand->op);
    errand_send(errand);
}

static void errand_send(struct idem_errand *errand) {
    if (idem_store_submit(errand->h->store, &errand->op) != 0)
        errand_again(errand);
    else
        idem_timer_set(&errand->h->loop, &errand->timer, errand->h->op_timeout_ms);
}

void idem_errand_release(struct idem *h, const struct idem_record_key *key,
                         const unsigned char owner[IDEM_OWNER_LEN], int64_t ttl_ms) {
    struct idem_errand *errand = calloc(1, sizeof(*errand));

    if (errand == NULL)
        return; /* the lease will end it */
    errand->h = h;
    errand->delay_ms = ERRAND_FIRST_MS;
    errand->until = idem_loop_now() + ERRAND_TOTAL_MS;
    errand->timer.fire = errand_fire;
    errand->op.kind = IDEM_OP_FINISH;
    errand->op.key = *key;
    errand->op.in.finish.said = IDEM_SAID_RELEASE;
    errand->op.in.finish.ttl_ms = ttl_ms;
    memcpy(errand->op.in.finish.owner, owner, IDEM_OWNER_LEN);
    errand->op.complete = errand_complete;
    errand->op.data = errand;
    errand->next = h->errands;
    errand->link = &h->errands;
    if (errand->next != NULL)
        errand->next->link = &errand->next;
    h->errands = errand;
    errand_send(errand);
}

void idem_errands_drop(struct idem *h) {
    struct idem_errand *errand, *next;

    for (errand = h->errands; errand != NULL; errand = next) {
        next = errand->next;
        errand_free(errand);
    }
}
