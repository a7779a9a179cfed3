/*
 * The lease of a running claim: renewed at a third of its length, by our own clock, counted from
 * before the claim was sent. The owner is notified once if the lease is lost: another owner took
 * over, the lease is over by our clock under recover=rerun, or run_max is over. While the store
 * is down, a run under hold continues and renewal is retried.
 */
#include <string.h>

#include "base/error.h"
#include "core/claim.h"

#define RETRY_MAX_MS 1000

void idem_lease_stop(struct idem_claim *c) {
    idem_timer_clear(&c->h->loop, &c->lease_timer);
    idem_timer_clear(&c->h->loop, &c->max_timer);
    idem_store_call_stop(&c->renew);
}

/* Schedules the renewal a third of the lease after the request was sent; at once if that is
   past. */
static void lease_arm(struct idem_claim *c, int64_t sent) {
    idem_timer_set(&c->h->loop, &c->lease_timer, sent + c->policy.lease_ms / 3 - idem_loop_now());
}

/* Reports to the caller of idem_claim_renew(). False if the callback ended the run or the
   claim. */
static bool lease_renew_notify(struct idem_claim *c, int rc, bool lost,
                               const struct idem_error *err) {
    idem_finish_cb *cb = c->renew_cb;
    bool freed = false;

    if (cb == NULL)
        return true;
    c->renew_cb = NULL;
    c->gone = &freed;
    cb(c, rc, lost, err, c->renew_data);
    if (freed)
        return false;
    c->gone = NULL;
    return c->h != NULL && c->state == IDEM_CLAIM_RUNNING;
}

static void lease_lost(struct idem_claim *c, enum idem_end why) {
    idem_lease_stop(c);
    if (c->lost_notified)
        return;
    c->lost_notified = true;
    idem_handle_tally(c->h, IDEM_EVENT_LEASE_LOST);
    if (lease_renew_notify(c, 0, true, NULL) && c->lost != NULL)
        c->lost(c, why, c->lost_data);
}

/* Schedules the retry after a failed renewal: soon, and not past the lease. */
static void lease_renew_retry(struct idem_claim *c) {
    int64_t left = c->lease_until - idem_loop_now();
    int64_t pause = c->policy.lease_ms / 10 + 1;

    if (left <= 0 && idem_claim_reruns(c)) {
        lease_lost(c, IDEM_END_LEASE);
        return;
    }
    if (pause > RETRY_MAX_MS)
        pause = RETRY_MAX_MS;
    idem_timer_set(&c->h->loop, &c->lease_timer, left > 0 && left < pause ? left : pause);
}

static void lease_renew_answered(struct idem_store_call *store_call, int rc,
                                 const struct idem_error *err) {
    struct idem_claim *c = idem_container_of(store_call, struct idem_claim, renew);
    bool lost = rc == 0 && store_call->op.out.finish.ack == IDEM_LOST;

    if (rc != 0) {
        if (lease_renew_notify(c, rc, false, err))
            lease_renew_retry(c);
        return;
    }
    if (lost) {
        idem_handle_tally(c->h, IDEM_EVENT_SUPERSEDED);
    } else {
        c->lease_until = c->renew_sent + c->policy.lease_ms;
        lease_arm(c, c->renew_sent);
        if (idem_claim_reruns(c) && idem_loop_now() >= c->lease_until) {
            lease_lost(c, IDEM_END_LEASE); /* the response arrived too late */
            return;
        }
    }
    if (lease_renew_notify(c, 0, lost, NULL) && lost)
        lease_lost(c, IDEM_END_TAKEN);
}

/* How long a renewal may take: under rerun not past the lease, whose end ends the run. */
static int64_t lease_renew_timeout(const struct idem_claim *c) {
    int64_t patience = c->policy.lease_ms / 3, left = c->lease_until - c->renew_sent;

    if (patience > c->h->op_timeout_ms)
        patience = c->h->op_timeout_ms;
    patience++;
    return idem_claim_reruns(c) && left < patience ? left : patience;
}

static void lease_renew_send(struct idem_claim *c) {
    struct idem_op *op = &c->renew.op;

    op->kind = IDEM_OP_FINISH;
    op->key = c->key;
    op->in.finish = (struct idem_finish_in){
        .action = IDEM_OWNER_RENEW,
        .attempt = c->attempt,
        .lease_ms = c->policy.lease_ms,
        .hold_ttl_ms = c->policy.hold_ttl_s * 1000,
    };
    memcpy(op->in.finish.owner, c->in.owner, IDEM_OWNER_LEN);
    c->renew_sent = idem_loop_now();
    c->renew.timeout_ms = lease_renew_timeout(c);
    idem_store_call_send(&c->renew);
}

static void lease_fire(struct idem_timer *timer) {
    struct idem_claim *c = idem_container_of(timer, struct idem_claim, lease_timer);

    if (idem_claim_reruns(c) && idem_loop_now() >= c->lease_until)
        lease_lost(c, IDEM_END_LEASE);
    else
        lease_renew_send(c);
}

/* run_max is over: the lease is given up, so that `recover` can do its work. */
static void lease_run_max_fire(struct idem_timer *timer) {
    lease_lost(idem_container_of(timer, struct idem_claim, max_timer), IDEM_END_RUN_MAX);
}

int idem_claim_renew(struct idem_claim *claim, idem_finish_cb *cb, void *data) {
    if (claim == NULL || claim->h == NULL || claim->state != IDEM_CLAIM_RUNNING ||
        claim->renew_cb != NULL || claim->lost_notified)
        return IDEM_E_INVALID;
    if (idem_handle_check(claim->h, NULL) != 0)
        return IDEM_E_FORK;
    claim->renew_cb = cb;
    claim->renew_data = data;
    if (!idem_store_call_is_pending(&claim->renew))
        idem_timer_set(&claim->h->loop, &claim->lease_timer, 0);
    return 0;
}

void idem_lease_init(struct idem_claim *c) {
    c->lease_timer.fire = lease_fire;
    c->max_timer.fire = lease_run_max_fire;
}

void idem_lease_bound(struct idem_claim *c) {
    if (c->policy.run_max_ms > 0)
        idem_timer_set(&c->h->loop, &c->max_timer, c->policy.run_max_ms);
}

int64_t idem_claim_lease_until(const struct idem_claim *c) {
    return c->lease_until;
}

void idem_lease_begin(struct idem_claim *c) {
    idem_store_call_init(c->h, &c->renew, lease_renew_answered);
    c->lease_until = c->sent + c->policy.lease_ms;
    lease_arm(c, c->sent);
    idem_lease_bound(c);
}
