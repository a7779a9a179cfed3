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
    idem_timer_clear(&c->h->loop, &c->timer);
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

/* Another try cannot help against these codes. */
static bool finish_is_permanent(int rc) {
    return rc == IDEM_E_INVALID || rc == IDEM_E_CORRUPT || rc == IDEM_E_VERSION ||
           rc == IDEM_E_FORK;
}

/* Leaves the result out if the store has no room for it: the run is done, and must not become
   uncertain for lack of room. */
static void finish_shrink(struct idem_claim *c, int rc) {
    if (rc != IDEM_E_FULL || c->op.in.finish.result.len == 0)
        return;
    c->op.in.finish.keep_result = false;
    c->op.in.finish.result.len = 0;
    c->finish_shrunk = true;
}

bool idem_claim_result_kept(const struct idem_claim *c) {
    return (c->state == IDEM_CLAIM_FINISHING || c->state == IDEM_CLAIM_OVER) &&
           c->op.kind == IDEM_OP_FINISH && c->op.in.finish.keep_result;
}

static void finish_report_try(struct idem_claim *c, const struct idem_error *err) {
    if (c->finish_tried != NULL)
        c->finish_tried(c, err, c->finish_tried_data);
}

void idem_claim_on_finish_tried(struct idem_claim *c, idem_tried_cb *tried, void *data) {
    c->finish_tried = tried;
    c->finish_tried_data = data;
}

static void finish_retry(struct idem_claim *c, int rc, const struct idem_error *cause) {
    int64_t left = c->finish_until - idem_loop_now();
    struct idem_error err = *cause; /* a copy, because the callback may free the claim */

    idem_handle_tally(c->h, IDEM_EVENT_STORE_ERROR);
    c->finish_doubted |= rc == IDEM_E_UNKNOWN;
    if (finish_is_permanent(rc)) {
        finish_end(c, rc, false, &err);
        return;
    }
    if (left <= 0) {
        idem_error_set(&err, IDEM_E_UNKNOWN, "the store did not acknowledge the finish: %.400s",
                       cause->text);
        finish_end(c, IDEM_E_UNKNOWN, false, &err);
        return;
    }
    c->finish_error = err;
    finish_report_try(c, &err);
    finish_shrink(c, rc);
    idem_timer_set(&c->h->loop, &c->timer, c->retry_ms < left ? c->retry_ms : left);
    c->retry_ms = 2 * c->retry_ms < RETRY_MAX_MS ? 2 * c->retry_ms : RETRY_MAX_MS;
}

/* True if a stored `done` may have expired by now. Half of the ttl, because the store has a clock
   of its own. */
static bool finish_may_have_expired(const struct idem_claim *c) {
    return idem_loop_now() - c->finish_since >= c->op.in.finish.ttl_ms / 2;
}

/* True if an earlier try may have been stored before another owner took the key over. A stored
   `done` excludes a takeover while the store has it, except in mode lock, where it frees the key.
   If an earlier try was stored with the result and this one has none, the two differ, and the store
   does not recognize this one. */
static bool finish_is_unclear(const struct idem_claim *c) {
    return c->finish_doubted &&
           (c->op.in.finish.said != IDEM_SAID_DONE || c->policy.mode == IDEM_MODE_LOCK ||
            c->finish_shrunk || finish_may_have_expired(c));
}

static void finish_end_unclear(struct idem_claim *c) {
    struct idem_error err;

    idem_error_set(&err, IDEM_E_UNKNOWN,
                   "the store did not answer the first time, and then another owner had the key: "
                   "the finish may have been stored before");
    finish_end(c, IDEM_E_UNKNOWN, false, &err);
}

static void finish_complete(struct idem_op *op, int rc) {
    struct idem_claim *c = op->data;
    bool lost = rc == 0 && op->out.finish.ack == IDEM_LOST;

    if (rc != 0)
        finish_retry(c, rc, &op->error);
    else if (lost && finish_is_unclear(c))
        finish_end_unclear(c);
    else
        finish_end(c, 0, lost, NULL);
}

void idem_finish_send(struct idem_claim *c) {
    int64_t left = c->finish_until - idem_loop_now();
    int rc;

    if (left <= 0 && c->finish_sent) {
        struct idem_error err = c->finish_error;

        if (err.code == 0)
            idem_error_set(&err, IDEM_E_UNKNOWN, "it did not answer in time");
        finish_retry(c, IDEM_E_UNKNOWN, &err);
        return;
    }
    c->finish_sent = true;
    rc = idem_store_submit(c->h->store, &c->op);
    if (rc != 0) {
        finish_retry(c, rc, &c->op.error);
        return;
    }
    /* The timer bounds the response; another try under the same owner id is safe. */
    if (left <= 0 || left > c->h->op_timeout_ms)
        left = c->h->op_timeout_ms;
    idem_timer_set(&c->h->loop, &c->timer, left);
}

/* Tries again after the pause, or because no response arrived in time. */
void idem_finish_resend(struct idem_claim *c) {
    struct idem_error err;

    if (c->op.driver != NULL) {
        c->finish_doubted = true;
        idem_error_set(&err, IDEM_E_UNKNOWN, "the store did not answer a finish in time");
        finish_report_try(c, &err);
    }
    idem_store_cancel(c->h->store, &c->op);
    idem_finish_send(c);
}

static void finish_send_first(struct idem_task *task) {
    idem_finish_send(idem_container_of(task, struct idem_claim, task));
}

/* Copies result and reason, because a finish may be sent again after the caller's buffers are
   freed. */
static int finish_copy(struct idem_claim *c, const void *result, size_t len, const char *reason) {
    size_t reason_len = reason == NULL ? 0 : strnlen(reason, IDEM_REASON_MAX);
    unsigned char *copy = malloc(len + reason_len + 1);

    if (copy == NULL)
        return IDEM_E_NOMEM;
    if (len != 0)
        memcpy(copy, result, len);
    if (reason_len != 0)
        memcpy(copy + len, reason, reason_len);
    c->kept = copy;
    c->op.in.finish.result = (struct idem_bytes){copy, len};
    c->op.in.finish.reason = (struct idem_bytes){copy + len, reason_len};
    return 0;
}

static int finish_begin(struct idem_claim *c, const struct idem_finish_in *in, const void *result,
                        size_t len, const char *reason, idem_finish_cb *cb, void *data) {
    int rc;

    if (c->h == NULL || c->state != IDEM_CLAIM_RUNNING)
        return IDEM_E_INVALID;
    if (idem_handle_check(c->h, NULL) != 0)
        return IDEM_E_FORK;
    c->op.in.finish = *in;
    rc = finish_copy(c, in->keep_result ? result : NULL, in->keep_result ? len : 0, reason);
    if (rc != 0)
        return rc;
    idem_lease_stop(c);
    idem_claim_set(c, IDEM_CLAIM_FINISHING);
    c->op.kind = IDEM_OP_FINISH;
    c->op.key = c->key;
    memcpy(c->op.in.finish.owner, c->in.owner, IDEM_OWNER_LEN);
    c->op.in.finish.attempt = c->attempt;
    c->op.in.finish.ttl_ms = c->policy.ttl_s * 1000;
    c->op.in.finish.hold_ttl_ms = c->policy.hold_ttl_s * 1000;
    c->op.complete = finish_complete;
    c->op.data = c;
    c->finish_cb = cb;
    c->finish_data = data;
    c->retry_ms = RETRY_FIRST_MS;
    c->finish_since = idem_loop_now();
    c->finish_until = c->finish_since + c->policy.finish_timeout_ms;
    /* From the loop, because a failed submit calls the callback. */
    c->task.run = finish_send_first;
    idem_task_post(&c->h->loop, &c->task);
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
    return c->op.in.finish.delay_ms;
}

int idem_claim_done(struct idem_claim *claim, int32_t status, const void *result, size_t len,
                    idem_finish_cb *cb, void *data) {
    struct idem_finish_in in = {.said = IDEM_SAID_DONE, .status = status};

    if (claim == NULL)
        return IDEM_E_INVALID;
    in.keep_result = claim_keeps_result(claim, result, len);
    return finish_begin(claim, &in, result, len, NULL, cb, data);
}

int idem_claim_fail(struct idem_claim *claim, int32_t status, const char *reason,
                    const void *result, size_t len, bool final, idem_finish_cb *cb, void *data) {
    struct idem_finish_in in = {.said = IDEM_SAID_FAIL, .status = status, .final = final};

    if (claim == NULL)
        return IDEM_E_INVALID;
    in.delay_ms = final ? 0 : claim_backoff(claim);
    in.keep_result = claim_keeps_result(claim, result, len);
    return finish_begin(claim, &in, result, len, reason, cb, data);
}

int idem_claim_release(struct idem_claim *claim, idem_finish_cb *cb, void *data) {
    struct idem_finish_in in = {.said = IDEM_SAID_RELEASE};

    return claim == NULL ? IDEM_E_INVALID : finish_begin(claim, &in, NULL, 0, NULL, cb, data);
}

int idem_claim_unknown(struct idem_claim *claim, const char *reason, idem_finish_cb *cb,
                       void *data) {
    struct idem_finish_in in = {.said = IDEM_SAID_UNKNOWN};

    if (claim == NULL)
        return IDEM_E_INVALID;
    in.delay_ms = idem_claim_reruns(claim) ? claim_backoff(claim) : 0;
    return finish_begin(claim, &in, NULL, 0, reason, cb, data);
}
