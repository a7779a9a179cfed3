/*
 * One claim on a loop, from the request to the verdict: policy, key, claim, wait. After a RUN,
 * lease.c and finish.c take over. Every front door goes through here.
 *
 *      ASKING ──RUN, PROBE──> RUNNING ──done, fail, ...──> FINISHING ──> OVER
 *       ^  │ ^                   │ (renews at a third of the lease)
 *       │  │ └──late, not begun──┘
 *       │  ├──BUSY, wait left──> PARKED
 *       │  └──anything else────> OVER
 *       └──woken, lease over, slow poll── PARKED
 *
 * Failure modes: the store refuses or does not respond (an error for the caller, or an unguarded
 * run under on_store_error=open). A callback may free the claim, so a function calls it last.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "core/claim.h"
#include "protocol/owner.h"
#include "protocol/record_key.h"

/* The safety net behind wake-ups: the longest pause between two polls of a parked claim. */
#define POLL_MAX_MS 2000

/* How often a claim may be late, i.e. its lease ends before the run can begin. */
#define LATE_MAX 3

static void claim_ask(struct idem_claim *c);
static void claim_park(struct idem_claim *c, int64_t left_ms);

/* State. */

static bool claim_state_is_running(enum idem_claim_state state) {
    return state == IDEM_CLAIM_RUNNING || state == IDEM_CLAIM_FINISHING;
}

/* Reports changes in parked and running claims to the meter. */
static void claim_measure(const struct idem_claim *c, enum idem_claim_state next) {
    const struct idem_meter *meter = c->h->store->meter;
    int parked = (next == IDEM_CLAIM_PARKED) - (c->state == IDEM_CLAIM_PARKED);
    int running = claim_state_is_running(next) - claim_state_is_running(c->state);

    if (meter != NULL && (parked != 0 || running != 0))
        meter->claims(meter->data, parked, running);
}

/* The only function that changes a claim's state. */
void idem_claim_set(struct idem_claim *c, enum idem_claim_state state) {
    static const unsigned allowed[] = {
        [IDEM_CLAIM_ASKING] =
            1u << IDEM_CLAIM_PARKED | 1u << IDEM_CLAIM_RUNNING | 1u << IDEM_CLAIM_OVER,
        [IDEM_CLAIM_PARKED] = 1u << IDEM_CLAIM_ASKING | 1u << IDEM_CLAIM_OVER,
        [IDEM_CLAIM_RUNNING] =
            1u << IDEM_CLAIM_ASKING | 1u << IDEM_CLAIM_FINISHING | 1u << IDEM_CLAIM_OVER,
        [IDEM_CLAIM_FINISHING] = 1u << IDEM_CLAIM_OVER,
        [IDEM_CLAIM_OVER] = 0,
    };

    if ((allowed[c->state] & 1u << state) == 0)
        abort();
    claim_measure(c, state);
    c->state = state;
}

static void claim_unwatch(struct idem_claim *c) {
    if (!c->watching)
        return;
    c->watching = false;
    c->h->store->driver->unwatch(c->h->store, &c->watch);
}

/* Stops every pending callback. When the handle closes, a finish under way is left to the
   store: the store closes next and still writes it. */
static void claim_stop_callbacks(struct idem_claim *c, bool closing) {
    struct idem_loop *loop = &c->h->loop;

    idem_timer_clear(loop, &c->timer);
    idem_task_drop(loop, &c->task);
    claim_unwatch(c);
    if (closing && c->state == IDEM_CLAIM_FINISHING) {
        idem_timer_clear(loop, &c->store_call.timer);
        idem_task_drop(loop, &c->store_call.task);
    } else {
        idem_store_call_stop(&c->store_call);
    }
    idem_lease_stop(c);
}

/* Verdicts. */

static enum idem_event claim_verdict_event(enum idem_verdict verdict) {
    static const enum idem_event events[] = {
        [IDEM_RUN] = IDEM_EVENT_RUN,
        [IDEM_REPLAY] = IDEM_EVENT_REPLAY,
        [IDEM_DUPLICATE] = IDEM_EVENT_DUPLICATE,
        [IDEM_BUSY] = IDEM_EVENT_BUSY,
        [IDEM_MISMATCH] = IDEM_EVENT_MISMATCH,
        [IDEM_UNCERTAIN] = IDEM_EVENT_UNCERTAIN,
        [IDEM_DEAD] = IDEM_EVENT_DEAD,
        [IDEM_NO_TOKEN] = IDEM_EVENT_NO_TOKEN,
        [IDEM_PROBE] = IDEM_EVENT_PROBE,
    };

    return events[verdict];
}

static void claim_begin_run(struct idem_claim *c, const struct idem_record *record) {
    idem_claim_set(c, IDEM_CLAIM_RUNNING);
    c->attempt = record->attempt;
    c->tries = record->tries;
    idem_lease_begin(c);
}

static void claim_answer(struct idem_claim *c, const struct idem_op *op, enum idem_verdict verdict,
                         int64_t left_ms) {
    /* A mismatch, or a token that belongs to another client, reveals nothing about the record. */
    static const struct idem_record nothing;
    const struct idem_record *record =
        verdict == IDEM_MISMATCH || verdict == IDEM_NO_TOKEN ? &nothing : &op->out.claim.record;
    struct idem_answer answer = {
        .verdict = verdict,
        .state = record->state,
        .has_result = record->kept && (verdict == IDEM_REPLAY || verdict == IDEM_DEAD),
        .status = record->status,
        .attempt = record->attempt,
        .retry_after_ms = left_ms,
        .reason = (const char *)record->reason.at,
        .reason_len = record->reason.len,
    };

    if (answer.has_result) {
        answer.result = record->result.at;
        answer.result_len = record->result.len;
    }
    claim_unwatch(c);
    if (verdict == IDEM_RUN || verdict == IDEM_PROBE)
        claim_begin_run(c, record);
    else
        idem_claim_set(c, IDEM_CLAIM_OVER);
    if (verdict != c->granted) /* a claim that was late and is granted again counts as one run */
        idem_handle_tally(c->h, claim_verdict_event(verdict));
    if (c->state == IDEM_CLAIM_RUNNING)
        c->granted = verdict;
    c->cb(c, 0, &answer, NULL, c->data);
}

static void claim_end(struct idem_claim *c) {
    claim_unwatch(c);
    idem_claim_set(c, IDEM_CLAIM_OVER);
}

/* The wait is over and the last verdict was BUSY: the claim ends as BUSY. */
static void claim_answer_busy(struct idem_claim *c) {
    struct idem_answer answer = {
        .verdict = IDEM_BUSY, .state = c->busy_state, .attempt = c->busy_attempt};
    int64_t left = c->busy_until - idem_loop_now();

    answer.retry_after_ms = left > 0 ? left : 1;
    claim_end(c);
    idem_handle_tally(c->h, IDEM_EVENT_BUSY);
    c->cb(c, 0, &answer, NULL, c->data);
}

/* The store works, but nothing can be run; on_store_error does not apply. */
static void claim_refuse(struct idem_claim *c, int rc, const struct idem_error *err) {
    claim_end(c);
    idem_handle_tally(c->h, IDEM_EVENT_STORE_ERROR);
    c->cb(c, rc, NULL, err, c->data);
}

/* The store gave no verdict. A token is never run without one. */
static void claim_error(struct idem_claim *c, int rc, const struct idem_error *err) {
    bool open = c->policy.on_store_error == IDEM_ON_STORE_ERROR_OPEN && !c->in.token &&
                rc != IDEM_E_INVALID && rc != IDEM_E_FORK;
    struct idem_answer answer = {.verdict = IDEM_RUN, .unguarded = true};

    claim_end(c);
    if (rc == IDEM_E_UNKNOWN)
        idem_release_retry_start(c->h, &c->key, c->in.owner, c->policy.ttl_s * 1000);
    if (!open) {
        c->cb(c, rc, NULL, err, c->data);
        return;
    }
    idem_handle_tally(c->h, IDEM_EVENT_UNGUARDED);
    c->cb(c, 0, &answer, NULL, c->data);
}

/* Asking and waiting. */

/* The release must arrive: under recover=hold a lease that expires leaves an uncertain record,
   though nothing was run. claim_error() handles a release whose outcome is unknown. */
static void claim_late_failed(struct idem_claim *c, int rc, const struct idem_error *err) {
    if (rc != IDEM_E_UNKNOWN)
        idem_release_retry_start(c->h, &c->key, c->in.owner, c->policy.ttl_s * 1000);
    claim_error(c, rc, err);
}

static void claim_late_released(struct idem_store_call *store_call, int rc,
                                const struct idem_error *cause) {
    struct idem_claim *c = idem_container_of(store_call, struct idem_claim, store_call);
    struct idem_error err;

    if (rc != 0) {
        claim_late_failed(c, rc, cause);
        return;
    }
    if (store_call->op.out.finish.ack == IDEM_LOST)
        idem_handle_tally(c->h, IDEM_EVENT_SUPERSEDED);
    if (c->late == LATE_MAX)
        rc = idem_error_set(&err, IDEM_E_REFUSED,
                            "a lease of %lld ms was over before the run could begin, %d times: "
                            "store or machine are too slow for it; nothing was run",
                            (long long)c->policy.lease_ms, LATE_MAX);
    else if (idem_owner_make(c->in.owner) != 0)
        rc = idem_error_set(&err, IDEM_E_REFUSED, "the system gives no random bits");
    if (rc != 0)
        claim_refuse(c, rc, &err);
    else
        claim_ask(c);
}

/* The claim was granted, but its lease is over by our clock before the run could begin. Another
   owner may be running, or a prober may have found that nothing had happened and done the work.
   So the claim is released and made anew under another owner id, at most LATE_MAX times. */
static void claim_late(struct idem_claim *c) {
    c->late++;
    c->store_call.op.kind = IDEM_OP_FINISH;
    c->store_call.op.in.finish =
        (struct idem_finish_in){.action = IDEM_OWNER_RELEASE, .ttl_ms = c->policy.ttl_s * 1000};
    memcpy(c->store_call.op.in.finish.owner, c->in.owner, IDEM_OWNER_LEN);
    c->store_call.answered = claim_late_released;
    idem_store_call_send(&c->store_call);
}

void idem_claim_again(struct idem_claim *c) {
    idem_lease_stop(c);
    c->lost_notified = false;
    idem_claim_set(c, IDEM_CLAIM_ASKING);
    claim_late(c);
}

static void claim_answered(struct idem_store_call *store_call, int rc,
                           const struct idem_error *err) {
    struct idem_claim *c = idem_container_of(store_call, struct idem_claim, store_call);
    const struct idem_op *op = &store_call->op;

    if (rc != 0) {
        claim_error(c, rc, err);
        return;
    }
    if ((op->out.claim.verdict == IDEM_RUN || op->out.claim.verdict == IDEM_PROBE) &&
        idem_loop_now() >= c->sent + c->policy.lease_ms) {
        claim_late(c);
        return;
    }
    if (op->out.claim.verdict == IDEM_BUSY) {
        c->busy_until = idem_loop_now() + op->out.claim.left_ms;
        c->busy_attempt = op->out.claim.record.attempt;
        c->busy_state = op->out.claim.record.state;
        if (idem_loop_now() < c->wait_until) {
            claim_park(c, op->out.claim.left_ms);
            return;
        }
    }
    claim_answer(c, op, op->out.claim.verdict, op->out.claim.left_ms);
}

static void claim_ask(struct idem_claim *c) {
    c->store_call.op.kind = IDEM_OP_CLAIM;
    c->store_call.op.key = c->key;
    c->store_call.op.in.claim = c->in;
    c->store_call.answered = claim_answered;
    c->sent = idem_loop_now();
    idem_store_call_send(&c->store_call);
}

static void claim_ask_again(struct idem_claim *c) {
    idem_timer_clear(&c->h->loop, &c->timer);
    idem_claim_set(c, IDEM_CLAIM_ASKING);
    claim_ask(c);
}

static void watch_wake(struct idem_watch *watch) {
    struct idem_claim *c = idem_container_of(watch, struct idem_claim, watch);

    if (c->state == IDEM_CLAIM_PARKED)
        claim_ask_again(c);
    else
        c->woken = true; /* it is asking: ask once more after this response */
}

/* Sleeps until a wake-up, until the lease or back-off in the way is over, or until the slow
   poll. Holds no thread. */
static void claim_park(struct idem_claim *c, int64_t left_ms) {
    int64_t pause = c->wait_until - idem_loop_now();

    idem_claim_set(c, IDEM_CLAIM_PARKED);
    if (!c->watching && !c->unwatchable) {
        c->watch.key = c->key;
        c->watch.wake = watch_wake;
        c->watching = c->h->store->driver->watch(c->h->store, &c->watch) == 0;
        c->unwatchable = !c->watching;
    }
    if (c->woken) {
        c->woken = false;
        pause = 0;
    }
    if (left_ms + 1 < pause)
        pause = left_ms + 1;
    if (c->poll_ms < pause)
        pause = c->poll_ms;
    c->poll_ms = 2 * c->poll_ms < POLL_MAX_MS ? 2 * c->poll_ms : POLL_MAX_MS;
    idem_timer_set(&c->h->loop, &c->timer, pause);
}

/* The pause of a parked claim is over. */
static void claim_park_fire(struct idem_timer *timer) {
    struct idem_claim *c = idem_container_of(timer, struct idem_claim, timer);

    if (idem_loop_now() >= c->wait_until)
        claim_answer_busy(c);
    else
        claim_ask_again(c);
}

/* Creation and release. */

/* `h` is the handle whose free list keeps the memory for the next claim, or NULL. */
static void claim_release(struct idem *h, struct idem_claim *c) {
    OPENSSL_cleanse(c->key_bytes, c->key_len);
    if (c->key_bytes != c->key_room)
        free(c->key_bytes);
    idem_shared_bytes_release(c->shared);
    free(c->reason);
    if (h != NULL && h->service == NULL)
        idem_freelist_put(&h->freelist, c);
    else
        free(c);
}

static struct idem_claim *claim_new(struct idem *h) {
    bool reuse = h != NULL && h->service == NULL;
    struct idem_claim *c =
        reuse ? idem_freelist_take(&h->freelist, sizeof(*c)) : malloc(sizeof(*c));

    if (c != NULL) {
        memset(c, 0, sizeof(*c));
        c->key_bytes = c->key_room;
    }
    return c;
}

static void claim_ask_first(struct idem_task *task) {
    claim_ask(idem_container_of(task, struct idem_claim, task));
}

static void claim_ready(struct idem_claim *c, idem_claim_cb *cb, void *data) {
    c->cb = cb;
    c->data = data;
    c->timer.fire = claim_park_fire;
    idem_lease_init(c);
}

int idem_claim_make_fingerprinted(struct idem *h, const struct idem_guard *guard,
                                  const struct idem_args *args,
                                  const struct idem_fingerprint *fingerprint, idem_claim_cb *cb,
                                  void *data, struct idem_claim **ret, struct idem_error *err) {
    struct idem_claim *c = claim_new(h);
    int rc;

    if (c == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a claim");
    rc = idem_claim_prepare(c, guard, args, fingerprint, err);
    if (rc != 0) {
        claim_release(h, c);
        return rc;
    }
    claim_ready(c, cb, data);
    *ret = c;
    return 0;
}

int idem_claim_make_named(const struct idem_guard *guard, const struct idem_record_key *key,
                          idem_claim_cb *cb, void *data, struct idem_claim **ret,
                          struct idem_error *err) {
    struct idem_claim *c = claim_new(NULL);
    int rc;

    if (c == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a claim");
    c->policy = guard->resolved;
    c->key = *key;
    idem_record_key_hex(&c->key, c->hash);
    rc = idem_claim_prepare_policy(c, true, err);
    if (rc != 0) {
        claim_release(NULL, c);
        return rc;
    }
    c->wait_until = 0; /* a prober does not wait */
    claim_ready(c, cb, data);
    *ret = c;
    return 0;
}

int idem_claim_make(const struct idem_guard *guard, const struct idem_args *args, idem_claim_cb *cb,
                    void *data, struct idem_claim **ret, struct idem_error *err) {
    return idem_claim_make_fingerprinted(NULL, guard, args, NULL, cb, data, ret, err);
}

void idem_claim_set_ttl(struct idem_claim *c, int64_t ttl_s) {
    c->policy.ttl_s = ttl_s;
}

void idem_claim_set_finish_timeout(struct idem_claim *c, int64_t ms) {
    c->policy.finish_timeout_ms = ms;
}

void idem_claim_set_result_max(struct idem_claim *c, int64_t bytes) {
    c->policy.result_max = bytes;
}

struct idem_shared_bytes *idem_claim_answer_ref(const struct idem_claim *c) {
    return c->store_call.op.kind == IDEM_OP_CLAIM
               ? idem_shared_bytes_ref(c->store_call.op.out.claim.shared)
               : NULL;
}

void idem_claim_start(struct idem *h, struct idem_claim *c) {
    c->h = h;
    idem_link_insert(&h->claims, c);
    idem_store_call_init(h, &c->store_call, claim_answered);
    /* Posted to the loop, because a failed submit runs the callback at once. */
    c->task.run = claim_ask_first;
    idem_task_post(&h->loop, &c->task);
}

int idem_claim_new(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
                   idem_claim_cb *cb, void *data, struct idem_claim **ret, struct idem_error *err) {
    struct idem_claim *c;
    int rc = idem_need(h, err) ?: idem_need(guard, err) ?: idem_need(args, err);

    if (rc == 0)
        rc = idem_need(cb, err) ?: idem_need(ret, err) ?: idem_handle_check_loop(h, err);
    if (rc == 0)
        rc = idem_claim_make_fingerprinted(h, guard, args, NULL, cb, data, &c, err);
    if (rc != 0)
        return rc;
    idem_claim_start(h, c);
    *ret = c;
    return 0;
}

void idem_claim_on_lost(struct idem_claim *claim, idem_lost_cb *lost, void *data) {
    claim->lost = lost;
    claim->lost_data = data;
}

const char *idem_claim_hash(const struct idem_claim *claim) {
    return claim->hash;
}

const void *idem_claim_key(const struct idem_claim *claim, size_t *ret_len) {
    *ret_len = claim->key_len;
    return claim->key_bytes;
}

/* A claim without a response may have been granted, so a release is sent behind it. */
static void claim_detach(struct idem_claim *c, bool closing) {
    bool asked = c->state == IDEM_CLAIM_ASKING && idem_store_call_is_pending(&c->store_call);
    struct idem *h = c->h;

    claim_stop_callbacks(c, closing);
    claim_measure(c, IDEM_CLAIM_OVER);
    idem_link_remove(c);
    c->h = NULL;
    if (asked)
        idem_release_retry_start(h, &c->key, c->in.owner, c->policy.ttl_s * 1000);
}

void idem_claims_detach(struct idem *h) {
    while (h->claims != NULL)
        claim_detach(h->claims, true);
}

void idem_claim_free(struct idem_claim *claim) {
    struct idem *h;

    if (claim == NULL)
        return;
    h = claim->h;
    if (claim->gone != NULL)
        *claim->gone = true;
    /* In a forked child the host's timer still belongs to the parent. */
    if (h != NULL && idem_handle_check(h, NULL) != 0)
        h->loop.stopped = true;
    if (h != NULL)
        claim_detach(claim, false);
    claim_release(h, claim);
}
