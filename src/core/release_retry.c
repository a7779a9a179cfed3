/*
 * Releases in the background: a claim that was given up before its response arrived may have been
 * granted all the same, and must not block its key until the lease is over. A release is sent
 * again for a bounded time, then left to the lease; the last attempt stays with the store, which
 * may still execute it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/handle.h"

#define RETRY_FIRST_MS 100
#define RETRY_MAX_MS 5000
#define RETRY_TOTAL_MS 60000

struct idem_errand {
    struct idem *h;
    struct idem_errand *next, **link;
    struct idem_op op;
    struct idem_timer timer;
    int64_t delay_ms, until;
};

static void release_retry_free(struct idem_errand *retry) {
    idem_timer_clear(&retry->h->loop, &retry->timer);
    *retry->link = retry->next;
    if (retry->next != NULL)
        retry->next->link = retry->link;
    free(retry);
}

static void release_retry_send(struct idem_errand *retry);

static void release_retry_schedule(struct idem_errand *retry) {
    if (idem_loop_now() >= retry->until) {
        release_retry_free(retry);
        return;
    }
    idem_timer_set(&retry->h->loop, &retry->timer, retry->delay_ms);
    retry->delay_ms = 2 * retry->delay_ms < RETRY_MAX_MS ? 2 * retry->delay_ms : RETRY_MAX_MS;
}

static void release_retry_complete(struct idem_op *op, int rc) {
    struct idem_errand *retry = op->data;

    if (rc == 0)
        release_retry_free(retry);
    else
        release_retry_schedule(retry);
}

static void release_retry_fire(struct idem_timer *timer) {
    struct idem_errand *retry = idem_container_of(timer, struct idem_errand, timer);

    if (retry->op.driver != NULL && idem_loop_now() >= retry->until)
        return;
    idem_store_cancel(retry->h->store, &retry->op);
    release_retry_send(retry);
}

static void release_retry_send(struct idem_errand *retry) {
    if (idem_store_submit(retry->h->store, &retry->op) != 0)
        release_retry_schedule(retry);
    else
        idem_timer_set(&retry->h->loop, &retry->timer, retry->h->op_timeout_ms);
}

void idem_errand_release(struct idem *h, const struct idem_record_key *key,
                         const unsigned char owner[IDEM_OWNER_LEN], int64_t ttl_ms) {
    struct idem_errand *retry = calloc(1, sizeof(*retry));

    if (retry == NULL)
        return; /* the end of the lease will free the key */
    retry->h = h;
    retry->delay_ms = RETRY_FIRST_MS;
    retry->until = idem_loop_now() + RETRY_TOTAL_MS;
    retry->timer.fire = release_retry_fire;
    retry->op.kind = IDEM_OP_FINISH;
    retry->op.key = *key;
    retry->op.in.finish.said = IDEM_SAID_RELEASE;
    retry->op.in.finish.ttl_ms = ttl_ms;
    memcpy(retry->op.in.finish.owner, owner, IDEM_OWNER_LEN);
    retry->op.complete = release_retry_complete;
    retry->op.data = retry;
    retry->next = h->errands;
    retry->link = &h->errands;
    if (retry->next != NULL)
        retry->next->link = &retry->next;
    h->errands = retry;
    release_retry_send(retry);
}

void idem_errands_drop(struct idem *h) {
    struct idem_errand *retry, *next;

    for (retry = h->errands; retry != NULL; retry = next) {
        next = retry->next;
        release_retry_free(retry);
    }
}
