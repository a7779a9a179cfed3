/*
 * Releases in the background: a claim that was given up before its response arrived may have been
 * granted all the same, and must not block its key until the lease is over. A release is sent
 * again for a bounded time, then left to the lease; the last attempt stays with the store, which
 * may still execute it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "core/store_call.h"

#define RETRY_FIRST_MS 100
#define RETRY_MAX_MS 5000
#define RETRY_TOTAL_MS 60000

struct idem_release_retry {
    struct idem_release_retry *next, **link;
    struct idem_store_call store_call;
};

static void release_retry_free(struct idem_release_retry *retry) {
    idem_store_call_stop(&retry->store_call);
    idem_link_remove(retry);
    free(retry);
}

static void release_retry_answered(struct idem_store_call *store_call, int rc,
                                   const struct idem_error *err) {
    struct idem_release_retry *retry =
        idem_container_of(store_call, struct idem_release_retry, store_call);

    (void)err;
    if (idem_loop_now() + store_call->pause_ms + store_call->h->op_timeout_ms >= store_call->until)
        store_call->timeout_ms = -1; /* the last attempt */
    if (rc == 0 || !idem_store_call_again(store_call, rc))
        release_retry_free(retry);
}

void idem_release_retry_start(struct idem *h, const struct idem_record_key *key,
                              const unsigned char owner[IDEM_OWNER_LEN], int64_t ttl_ms) {
    struct idem_release_retry *retry = calloc(1, sizeof(*retry));

    if (retry == NULL)
        return; /* the end of the lease will free the key */
    retry->store_call.op.kind = IDEM_OP_FINISH;
    retry->store_call.op.key = *key;
    retry->store_call.op.in.finish.action = IDEM_OWNER_RELEASE;
    retry->store_call.op.in.finish.ttl_ms = ttl_ms;
    memcpy(retry->store_call.op.in.finish.owner, owner, IDEM_OWNER_LEN);
    retry->store_call.until = idem_loop_now() + RETRY_TOTAL_MS;
    retry->store_call.pause_ms = RETRY_FIRST_MS;
    retry->store_call.pause_max_ms = RETRY_MAX_MS;
    retry->store_call.quiet = true; /* the claim's own failure was counted */
    idem_store_call_init(h, &retry->store_call, release_retry_answered);
    idem_link_insert(&h->release_retries, retry);
    idem_store_call_send(&retry->store_call);
}

void idem_release_retries_drop(struct idem *h) {
    struct idem_release_retry *retry, *next;

    for (retry = h->release_retries; retry != NULL; retry = next) {
        next = retry->next;
        release_retry_free(retry);
    }
}
