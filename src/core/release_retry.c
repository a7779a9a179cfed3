/*
 * Releases in the background: a claim that was given up before its response arrived may have been
 * granted all the same, and must not block its key until the lease is over. A release is sent
 * again for a bounded time, then left to the lease; the last attempt stays with the store, which
 * may still execute it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/store_call.h"

#define RETRY_FIRST_MS 100
#define RETRY_MAX_MS 5000
#define RETRY_TOTAL_MS 60000

struct idem_errand {
    struct idem_errand *next, **link;
    struct idem_ask ask;
};

static void release_retry_free(struct idem_errand *retry) {
    idem_ask_stop(&retry->ask);
    *retry->link = retry->next;
    if (retry->next != NULL)
        retry->next->link = retry->link;
    free(retry);
}

static void release_retry_answered(struct idem_ask *ask, int rc, const struct idem_error *err) {
    struct idem_errand *retry = idem_container_of(ask, struct idem_errand, ask);

    (void)err;
    if (idem_loop_now() + ask->pause_ms + ask->h->op_timeout_ms >= ask->until)
        ask->timeout_ms = -1; /* the last attempt */
    if (rc == 0 || !idem_ask_again(ask, rc))
        release_retry_free(retry);
}

void idem_errand_release(struct idem *h, const struct idem_record_key *key,
                         const unsigned char owner[IDEM_OWNER_LEN], int64_t ttl_ms) {
    struct idem_errand *retry = calloc(1, sizeof(*retry));

    if (retry == NULL)
        return; /* the end of the lease will free the key */
    retry->ask.op.kind = IDEM_OP_FINISH;
    retry->ask.op.key = *key;
    retry->ask.op.in.finish.said = IDEM_SAID_RELEASE;
    retry->ask.op.in.finish.ttl_ms = ttl_ms;
    memcpy(retry->ask.op.in.finish.owner, owner, IDEM_OWNER_LEN);
    retry->ask.until = idem_loop_now() + RETRY_TOTAL_MS;
    retry->ask.pause_ms = RETRY_FIRST_MS;
    retry->ask.pause_max_ms = RETRY_MAX_MS;
    retry->ask.quiet = true; /* the claim's own failure was counted */
    idem_ask_init(h, &retry->ask, release_retry_answered);
    retry->next = h->errands;
    retry->link = &h->errands;
    if (retry->next != NULL)
        retry->next->link = &retry->next;
    h->errands = retry;
    idem_ask_send(&retry->ask);
}

void idem_errands_drop(struct idem *h) {
    struct idem_errand *retry, *next;

    for (retry = h->errands; retry != NULL; retry = next) {
        next = retry->next;
        release_retry_free(retry);
    }
}
