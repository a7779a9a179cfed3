/*
 * The blocking call: claims, runs the caller's function in the caller's thread while the service
 * thread renews the lease, then finishes. The function's own failures differ: a retryable failure
 * follows on_failure, a final failure is kept, an unknown outcome is left to `recover`.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/claim.h"

struct idem_run {
    struct idem_claim *claim;
    void *data;
    uint32_t attempt;
    bool probing;
    _Atomic bool cancelled;
    void *result;
    size_t result_len;
    int32_t status;
    int64_t delay_ms;
    char *reason;
};

/* Results that the callbacks leave for the caller's thread. */
struct call {
    struct idem_waiter waiter;
    int64_t lease_until; /* as it was when this thread last left the handle */
    struct idem_outcome out;
    struct idem_error err;
    int rc;
    struct idem_run run;
};

const void *idem_run_key(const struct idem_run *run, size_t *ret_len) {
    return idem_claim_key(run->claim, ret_len);
}

uint32_t idem_run_attempt(const struct idem_run *run) {
    return run->attempt;
}

void *idem_run_data(const struct idem_run *run) {
    return run->data;
}

bool idem_run_probing(const struct idem_run *run) {
    return run->probing;
}

bool idem_run_cancelled(const struct idem_run *run) {
    return run->cancelled;
}

int idem_run_set_result(struct idem_run *run, const void *bytes, size_t len) {
    void *copy;

    if (run == NULL || (bytes == NULL && len != 0))
        return IDEM_E_INVALID;
    copy = malloc(len + 1);
    if (copy == NULL)
        return IDEM_E_NOMEM;
    if (len != 0)
        memcpy(copy, bytes, len);
    free(run->result);
    run->result = copy;
    run->result_len = len;
    return 0;
}

void idem_run_set_status(struct idem_run *run, int32_t status) {
    run->status = status;
}

/* If memory is short, the reason is lost, but not the run. */
void idem_run_set_reason(struct idem_run *run, const char *reason) {
    free(run->reason);
    run->reason = reason == NULL ? NULL : strndup(reason, IDEM_REASON_MAX);
}

void idem_run_set_delay(struct idem_run *run, int64_t ms) {
    run->delay_ms = ms > 0 ? ms : 0;
}

void idem_outcome_release(struct idem_outcome *outcome) {
    if (outcome == NULL)
        return;
    free(outcome->result);
    free(outcome->reason);
    outcome->result = NULL;
    outcome->reason = NULL;
    outcome->result_len = 0;
    outcome->has_result = false;
}

/* The claim's answer is borrowed, so the caller gets a copy. */
static int call_copy_answer(struct call *call, const struct idem_answer *answer) {
    struct idem_outcome *out = &call->out;

    out->verdict = answer->verdict;
    out->unguarded = answer->unguarded;
    out->status = answer->status;
    out->attempt = answer->attempt;
    out->retry_after_ms = answer->retry_after_ms;
    if (answer->verdict == IDEM_RUN || answer->verdict == IDEM_PROBE)
        return 0;
    if (answer->reason_len != 0 &&
        (out->reason = strndup(answer->reason, answer->reason_len)) == NULL)
        return IDEM_E_NOMEM;
    if (!answer->has_result)
        return 0;
    out->result = malloc(answer->result_len + 1);
    if (out->result == NULL)
        return IDEM_E_NOMEM;
    if (answer->result_len != 0)
        memcpy(out->result, answer->result, answer->result_len);
    out->result_len = answer->result_len;
    out->has_result = true;
    return 0;
}

static void call_answered(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                          const struct idem_error *err, void *data) {
    struct call *call = data;

    call->rc = rc;
    if (rc == 0 && answer->unguarded)
        idem_lease_bound(claim);
    if (rc != 0)
        call->err = *err;
    else if ((call->rc = call_copy_answer(call, answer)) != 0)
        idem_error_set(&call->err, call->rc, "no memory for a result of %zu bytes",
                       answer->result_len);
    idem_waiter_notify(&call->waiter);
}

static void call_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    struct call *call = data;

    (void)claim;
    (void)why;
    call->run.cancelled = true;
}

static void call_finished(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                          void *data) {
    struct call *call = data;

    (void)err;
    call->out.result_kept = rc == 0 && !lost && idem_claim_result_kept(claim);
    call->out.finish = rc != 0 ? IDEM_FINISH_UNKNOWN : lost ? IDEM_FINISH_LOST : IDEM_FINISH_STORED;
    idem_waiter_notify(&call->waiter);
}

/* A retryable failure follows the policy's on_failure. */
static int call_finish_retryable(struct call *call, const struct idem_policy *policy) {
    struct idem_run *run = &call->run;

    if (policy->on_failure == IDEM_ON_FAILURE_RELEASE)
        return idem_claim_release(run->claim, call_finished, call);
    idem_claim_set_delay(run->claim, run->delay_ms);
    return idem_claim_fail(run->claim, run->status, run->reason, run->result, run->result_len,
                           policy->on_failure == IDEM_ON_FAILURE_KEEP, call_finished, call);
}

static int call_finish(struct call *call) {
    struct idem_run *run = &call->run;

    switch (call->out.said) {
    case IDEM_RESULT_DONE:
        /* A function that sets no result has an empty result, which is replayed. */
        return idem_claim_done(run->claim, run->status, run->result == NULL ? "" : run->result,
                               run->result_len, call_finished, call);
    case IDEM_RESULT_RETRY:
        return call_finish_retryable(call, &run->claim->policy);
    case IDEM_RESULT_FINAL:
        return idem_claim_fail(run->claim, run->status, run->reason, run->result, run->result_len,
                               true, call_finished, call);
    case IDEM_RESULT_UNKNOWN:
        break;
    }
    return idem_claim_unknown(run->claim, run->reason, call_finished, call);
}

static void call_run(struct idem *h, struct call *call, idem_fn *fn, void *data) {
    struct idem_run *run = &call->run;
    struct idem_outcome *out = &call->out;

    run->attempt = out->attempt;
    run->probing = out->verdict == IDEM_PROBE;
    out->last = idem_claim_is_last(run->claim);
    out->said = fn(run, data);
    if (out->unguarded || idem_handle_check(h, NULL) != 0) {
        out->finish = IDEM_FINISH_UNKNOWN;
    } else {
        idem_handle_enter(h);
        call->waiter.ready = false;
        if (call_finish(call) == 0)
            idem_waiter_wait(h, &call->waiter);
        else
            out->finish = IDEM_FINISH_UNKNOWN; /* no memory: the lease ends the run */
        if (out->said == IDEM_RESULT_RETRY || out->said == IDEM_RESULT_UNKNOWN)
            out->retry_after_ms = idem_claim_delay(run->claim);
        idem_handle_leave(h);
    }
    out->status = run->status;
    out->has_result = run->result != NULL;
    out->result = run->result;
    out->result_len = run->result_len;
    out->reason = run->reason;
}

/* Waits for the claim's answer. Called with the handle entered; leaves it. */
static void call_wait(struct idem *h, struct call *call) {
    idem_waiter_wait(h, &call->waiter);
    call->lease_until = call->run.claim->lease_until;
    idem_handle_leave(h);
}

static bool call_granted(const struct call *call) {
    return call->rc == 0 && (call->out.verdict == IDEM_RUN || call->out.verdict == IDEM_PROBE);
}

static bool call_late(const struct call *call) {
    return call->run.cancelled || idem_loop_now() >= call->lease_until;
}

/* This thread, or the machine, may have slept since the claim was granted. A run that would
   begin after its lease is claimed anew, unless the service thread renewed the lease meanwhile. */
static void call_freshen(struct idem *h, struct call *call) {
    while (call_granted(call) && !call->out.unguarded && call_late(call)) {
        idem_handle_enter(h);
        call->lease_until = call->run.claim->lease_until;
        if (call_late(call)) {
            call->run.cancelled = false;
            call->waiter.ready = false;
            idem_claim_again(call->run.claim);
        }
        call_wait(h, call);
    }
}

/* The function may have forked. In the child, a thread that does not exist there may hold the
   lock, and everything that could be freed belongs to the parent. */
static void call_end(struct idem *h, struct call *call) {
    memcpy(call->out.key_hash, idem_claim_hash(call->run.claim), sizeof(call->out.key_hash));
    if (idem_handle_check(h, NULL) == 0) {
        idem_handle_enter(h);
        idem_claim_free(call->run.claim);
        idem_handle_leave(h);
    }
    idem_waiter_release(&call->waiter);
}

int idem_call(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
              idem_fn *fn, void *data, struct idem_outcome *ret, struct idem_error *err) {
    struct call call = {0};
    int rc = idem_need(h, err) ?: idem_need(guard, err) ?: idem_need(args, err);

    if (rc == 0)
        rc = idem_need(fn, err) ?: idem_need(ret, err) ?: idem_handle_check_blocking(h, err);
    if (rc == 0)
        rc = idem_claim_make(guard, args, call_answered, &call, &call.run.claim, err);
    if (rc != 0)
        return rc;
    call.run.data = args->data;
    idem_claim_on_lost(call.run.claim, call_lost, &call);
    idem_waiter_init(&call.waiter);
    idem_handle_enter(h);
    idem_claim_start(h, call.run.claim);
    call_wait(h, &call);
    call_freshen(h, &call);
    if (call.rc != 0) {
        idem_error_copy(err, &call.err);
        idem_outcome_release(&call.out);
    } else if (call_granted(&call)) {
        call_run(h, &call, fn, data);
    }
    call_end(h, &call);
    if (call.rc == 0)
        *ret = call.out;
    return call.rc;
}
