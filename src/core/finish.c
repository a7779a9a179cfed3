/*
 * Sends the owner's finish (done, fail, release or unknown) until the store acknowledges it or
 * finish_timeout is over; then the outcome is reported as unknown. A repeated finish is safe: the
 * store acknowledges the same finish of the same owner again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "core/claim.h"

#define RETRY_FIRST_MS 20
#define RETRY_MAX_MS 1000

static void finish_end(struct idem_claim *c, int rc, bool lost, const struct idem_error *err) {
    idem_claim_set(c, IDEM_CLAIM_OVER);
    if (rc != 0)
        idem_handle_tally(c->h, IDEM_EVENT_UNSTORED);
    else if (lost)
        idem_handle_tally(c->h, IDEM_EVENT_SUPERSEDED);
    else if (c->finish_shrunk)
        idem_handle_tally(c->h, IDEM_EVENT_RESULT_DROPPED);
    if (c->finish_cb != NULL)
        c->finish_cb(c, rc, lost, err, c->finish_data);
}

/* Leaves the result out if the store has no room for it: the run is done, and must not become
   uncertain for lack of room. */
static void finish_shrink(struct idem_claim *c, int rc) {
    if (rc != IDEM_E_FULL || c->store_call.op.in.finish.result.len == 0)
        return;
    c->store_call.op.in.finish.keep_result = false;
    c->store_call.op.in.finish.result.len = 0;
    c->finish_shrunk = true;
}

bool idem_claim_result_kept(const struct idem_claim *c) {
    return (c->state == IDEM_CLAIM_FINISHING || c->state == IDEM_CLAIM_OVER) &&
           c->store_call.op.kind == IDEM_OP_FINISH && c->store_call.op.in.finish.keep_result;
}

static void finish_report_try(struct idem_claim *c, const struct idem_error *err) {
    if (c->finish_tried != NULL)
        c->finish_tried(c, err, c->finish_tried_data);
}

void idem_claim_on_finish_tried(struct idem_claim *c, idem_tried_cb *tried, void *data) {
    c->finish_tried = tried;
    c->finish_tried_data = data;
}

static void finish_failed(struct idem_claim *c, int rc, const struct idem_error *cause) {
    struct idem_error err;

    c->finish_doubted |= rc == IDEM_E_UNKNOWN;
    if (idem_store_call_again(&c->store_call, rc)) {
        finish_report_try(c, cause);
        finish_shrink(c, rc);
        return;
    }
    if (!idem_store_call_is_permanent(rc)) {
        rc = idem_error_set(&err, IDEM_E_UNKNOWN,
                            "the store did not acknowledge the finish: %.400s", cause->text);
        cause = &err;
    }
    finish_end(c, rc, false, cause);
}

/* True if a stored `done` may have expired by now. Half of the ttl, because the store has a clock
   of its own. */
static bool finish_may_have_expired(const struct idem_claim *c) {
    return idem_loop_now() - c->finish_since >= c->store_call.op.in.finish.ttl_ms / 2;
}

/* True if an earlier try may have been stored before another owner took the key over. A stored
   `done` excludes a takeover while the store has it, except in mode lock, where it frees the key.
   If an earlier try was stored with the result and this one has none, the two differ, and the store
   does not recognize this one. */
static bool finish_is_unclear(const struct idem_claim *c) {
    return c->finish_doubted &&
           (c->store_call.op.in.finish.action != IDEM_OWNER_DONE ||
            c->policy.mode == IDEM_MODE_LOCK || c->finish_shrunk || finish_may_have_expired(c));
}

static void finish_end_unclear(struct idem_claim *c) {
    struct idem_error err;

    idem_error_set(&err, IDEM_E_UNKNOWN,
                   "the store did not answer the first time, and then another owner had the key: "
                   "the finish may have been stored before");
    finish_end(c, IDEM_E_UNKNOWN, false, &err);
}

static void finish_answered(struct idem_store_call *store_call, int rc,
                            const struct idem_error *err) {
    struct idem_claim *c = idem_container_of(store_call, struct idem_claim, store_call);
    bool lost = rc == 0 && store_call->op.out.finish.ack == IDEM_LOST;

    if (rc != 0)
        finish_failed(c, rc, err);
    else if (lost && finish_is_unclear(c))
        finish_end_unclear(c);
    else
        finish_end(c, 0, lost, NULL);
}

void idem_claim_share_result(struct idem_claim *c, struct idem_shared_bytes *bytes) {
    idem_shared_bytes_release(c->shared);
    c->shared = idem_shared_bytes_ref(bytes);
}

/* The bytes in which the result outlives the caller's: those that were shared with the claim, or a
   copy. */
static int finish_hold_result(struct idem_claim *c, const void *result, size_t len) {
    struct idem_finish_in *in = &c->store_call.op.in.finish;
    struct idem_shared_bytes *copy;

    in->result = (struct idem_bytes){result, len};
    if (len == 0)
        return 0;
    if (!idem_shared_bytes_hold(c->shared, result, len)) {
        copy = idem_shared_bytes_new(len);
        if (copy == NULL)
            return IDEM_E_NOMEM;
        memcpy(copy->at, result, len);
        idem_claim_share_result(c, copy);
        idem_shared_bytes_release(copy);
        in->result.at = copy->at;
    }
    in->shared = c->shared;
    return 0;
}

static int finish_copy_reason(struct idem_claim *c, const char *reason) {
    size_t len = reason == NULL ? 0 : strnlen(reason, IDEM_REASON_MAX);

    free(c->reason);
    c->reason = len == 0 ? NULL : strndup(reason, len);
    c->store_call.op.in.finish.reason = (struct idem_bytes){(unsigned char *)c->reason, len};
    return len != 0 && c->reason == NULL ? IDEM_E_NOMEM : 0;
}

static int finish_begin(struct idem_claim *c, const struct idem_finish_in *in, const void *result,
                        size_t len, const char *reason, idem_finish_cb *cb, void *data) {
    int rc;

    if (c->h == NULL || c->state != IDEM_CLAIM_RUNNING)
        return IDEM_E_INVALID;
    if (idem_handle_check(c->h, NULL) != 0)
        return IDEM_E_FORK;
    c->store_call.op.in.finish = *in;
    /* Both outlive the caller's buffers, because a finish may be sent again. */
    rc = finish_hold_result(c, in->keep_result ? result : NULL, in->keep_result ? len : 0);
    if (rc == 0)
        rc = finish_copy_reason(c, reason);
    if (rc != 0)
        return rc;
    idem_lease_stop(c);
    idem_claim_set(c, IDEM_CLAIM_FINISHING);
    c->store_call.op.kind = IDEM_OP_FINISH;
    c->store_call.op.key = c->key;
    memcpy(c->store_call.op.in.finish.owner, c->in.owner, IDEM_OWNER_LEN);
    c->store_call.op.in.finish.attempt = c->attempt;
    c->store_call.op.in.finish.ttl_ms = c->policy.ttl_s * 1000;
    c->store_call.op.in.finish.hold_ttl_ms = c->policy.hold_ttl_s * 1000;
    c->finish_cb = cb;
    c->finish_data = data;
    c->finish_since = idem_loop_now();
    c->store_call.answered = finish_answered;
    c->store_call.until = c->finish_since + c->policy.finish_timeout_ms;
    c->store_call.pause_ms = RETRY_FIRST_MS;
    c->store_call.pause_max_ms = RETRY_MAX_MS;
    idem_store_call_post(&c->store_call); /* from the loop, because a failure calls the callback */
    return 0;
}

static bool claim_keeps_result(const struct idem_claim *c, const void *result, size_t len) {
    return c->policy.mode == IDEM_MODE_REPLAY && result != NULL &&
           len <= (size_t)c->policy.result_max;
}

/* Doubles the delay with each try and adds up to half of it by chance, so that many callers that
   failed together do not retry together. The delay is never below min and never above max; the last
   step leaves room for the chance below max. */
int64_t idem_backoff(int64_t min, int64_t max, uint32_t tries) {
    int64_t delay = min, top = max - max / 3, spread;
    uint32_t random = 0;

    for (uint32_t i = 1; i < tries && delay < top; i++)
        delay *= 2;
    if (delay > top)
        delay = top > min ? top : min;
    spread = delay / 2 < max - delay ? delay / 2 : max - delay;
    (void)idem_random(&random, sizeof(random));
    return delay + (int64_t)((uint64_t)random * (uint64_t)(spread + 1) >> 32);
}

static int64_t claim_backoff(const struct idem_claim *c) {
    if (c->delay_ms != 0)
        return c->delay_ms;
    return idem_backoff(c->policy.backoff_min_ms, c->policy.backoff_max_ms, c->tries);
}

void idem_claim_set_delay(struct idem_claim *c, int64_t ms) {
    c->delay_ms = ms;
}

bool idem_claim_is_last(const struct idem_claim *c) {
    return c->policy.on_failure == IDEM_ON_FAILURE_KEEP ||
           (c->policy.on_failure == IDEM_ON_FAILURE_RETRY && c->policy.attempts != IDEM_NONE &&
            c->tries >= (uint32_t)c->policy.attempts);
}

int64_t idem_claim_delay(const struct idem_claim *c) {
    return c->store_call.op.in.finish.delay_ms;
}

int idem_claim_done(struct idem_claim *claim, int32_t status, const void *result, size_t len,
                    idem_finish_cb *cb, void *data) {
    struct idem_finish_in in = {.action = IDEM_OWNER_DONE, .status = status};

    if (claim == NULL)
        return IDEM_E_INVALID;
    in.keep_result = claim_keeps_result(claim, result, len);
    return finish_begin(claim, &in, result, len, NULL, cb, data);
}

int idem_claim_fail(struct idem_claim *claim, int32_t status, const char *reason,
                    const void *result, size_t len, bool final, idem_finish_cb *cb, void *data) {
    struct idem_finish_in in = {.action = IDEM_OWNER_FAIL, .status = status, .final = final};

    if (claim == NULL)
        return IDEM_E_INVALID;
    in.delay_ms = final ? 0 : claim_backoff(claim);
    in.keep_result = claim_keeps_result(claim, result, len);
    return finish_begin(claim, &in, result, len, reason, cb, data);
}

int idem_claim_release(struct idem_claim *claim, idem_finish_cb *cb, void *data) {
    struct idem_finish_in in = {.action = IDEM_OWNER_RELEASE};

    return claim == NULL ? IDEM_E_INVALID : finish_begin(claim, &in, NULL, 0, NULL, cb, data);
}

int idem_claim_unknown(struct idem_claim *claim, const char *reason, idem_finish_cb *cb,
                       void *data) {
    struct idem_finish_in in = {.action = IDEM_OWNER_UNKNOWN};

    if (claim == NULL)
        return IDEM_E_INVALID;
    in.delay_ms = idem_claim_reruns(claim) ? claim_backoff(claim) : 0;
    return finish_begin(claim, &in, NULL, 0, reason, cb, data);
}
