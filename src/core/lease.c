/*
 * The lease of a claim that runs: renewed at a third of it, by our own clock from
 * before the claim was sent. Whoever runs is told once if it is lost: somebody
 * took over, it is over by our clock under recover=rerun, or run_max is over. While
 * the store is down, a run under hold goes on and renewing is tried again.
 */
#include <string.h>

#include "core/claim.h"
#include "core/error.h"

#define RETRY_MAX_MS 1000

void idem_lease_stop(struct idem_claim *c) {
    idem_timer_clear(&c->h->loop, &c->lease_timer);
    idem_timer_clear(&c->h->loop, &c->max_timer);
    idem_store_cancel(c->h->store, &c->renew_op);
}

/* Renews at a third of the lease, counted from when it was asked for; at once, if that is past. */
static void lease_arm(struct idem_claim *c, int64_t sent) {
    idem_timer_set(&c->h->loop, &c->lease_timer, sent + c->policy.lease_ms / 3 - idem_loop_now());
}

/* Tells who asked for the renewal. False if that ended the run, or the claim. */
static bool renew_told(struct idem_claim *c, int rc, bool lost, const struct idem_error *err) {
    idem_finish_cb *cb = c->renew_cb;
    bool gone = false;

    if (cb == NULL)
        return true;
    c->renew_cb = NULL;
    c->gone = &gone;
    cb(c, rc, lost, err, c->renew_data);
    if (gone)
        return false;
    c->gone = NULL;
    return c->h != NULL && c->state == IDEM_CLAIM_RUNNING;
}

static void lease_lost(struct idem_claim *c, enum idem_end why) {
    idem_lease_stop(c);
    if (c->lost_told)
        return;
    c->lost_told = true;
    idem_handle_tally(c->h, IDEM_EVENT_LEASE_LOST);
    if (renew_told(c, 0, true, NULL) && c->lost != NULL)
        c->lost(c, why, c->lost_data);
}

/* When to try again after a renewal that failed: soon, and not past the lease. */
static void renew_later(struct idem_claim *c) {
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

static void renew_failed(struct idem_claim *c, int rc, const struct idem_error *cause) {
    struct idem_error err = *cause; /* not in the claim: the call-back may free it */

    idem_handle_tally(c->h, IDEM_EVENT_STORE_ERROR);
    if (renew_told(c, rc, false, &err))
        renew_later(c);
}

static void renew_complete(struct idem_op *op, int rc) {
    struct idem_claim *c = op->data;
    bool lost = rc == 0 && op->out.finish.ack == IDEM_LOST;

    if (rc != 0) {
        renew_failed(c, rc, &op->error);
        return;
    }
    if (lost) {
        idem_handle_tally(c->h, IDEM_EVENT_SUPERSEDED);
    } else {
        c->lease_until = c->renew_sent + c->policy.lease_ms;
        lease_arm(c, c->renew_sent);
        if (idem_claim_reruns(c) && idem_loop_now() >= c->lease_until) {
            lease_lost(c, IDEM_END_LEASE); /* the answer was on its way for too long */
            return;
        }
    }
    if (renew_told(c, 0, lost, NULL) && lost)
        lease_lost(c, IDEM_END_TAKEN);
}

/* How long a renewal may take: under rerun not past the lease, which ends the run. */
static int64_t renew_patience(const struct idem_claim *c) {
    int64_t patience = c->policy.lease_ms / 3, left = c->lease_until - c->renew_sent;

    if (patience > c->h->op_timeout_ms)
        patience = c->h->op_timeout_ms;
    patience++;
    return idem_claim_reruns(c) && left < patience ? left : patience;
}

static void renew_send(struct idem_claim *c) {
    int rc;

    c->renew_op.kind = IDEM_OP_FINISH;
    c->renew_op.key = c->key;
    c->renew_op.in.finish = (struct idem_finish_in){
        .said = IDEM_SAID_RENEW,
        .attempt = c->attempt,
        .lease_ms = c->policy.lease_ms,
        .hold_ttl_ms = c->policy.hold_ttl_s * 1000,
    };
    memcpy(c->renew_op.in.finish.owner, c->in.owner, IDEM_OWNER_LEN);
    c->renew_op.complete = renew_complete;
    c->renew_op.data = c;
    c->renew_sent = idem_loop_now();
    rc = idem_store_submit(c->h->store, &c->renew_op);
    if (rc != 0) {
        renew_failed(c, rc, &c->renew_op.error);
        return;
    }
    /* The timer now bounds the answer. */
    idem_timer_set(&c->h->loop, &c->lease_timer, renew_patience(c));
}

static void lease_fire(struct idem_timer *timer) {
    struct idem_claim *c = idem_container_of(timer, struct idem_claim, lease_timer);
    struct idem_error err;

    if (c->renew_op.driver != NULL) {
        idem_store_cancel(c->h->store, &c->renew_op);
        idem_error_set(&err, IDEM_E_UNKNOWN, "the store did not answer a renewal in time");
        renew_failed(c, IDEM_E_UNKNOWN, &err);
        return;
    }
    if (idem_claim_reruns(c) && idem_loop_now() >= c->lease_until) {
        lease_lost(c, IDEM_END_LEASE);
        return;
    }
    renew_send(c);
}

/* run_max is over: the lease is given up, so that `recover` can do its work. */
static void max_fire(struct idem_timer *timer) {
    lease_lost(idem_container_of(timer, struct idem_claim, max_timer), IDEM_END_RUN_MAX);
}

int idem_claim_renew(struct idem_claim *claim, idem_finish_cb *cb, void *data) {
    if (claim == NULL || claim->h == NULL || claim->state != IDEM_CLAIM_RUNNING ||
        claim->renew_cb != NULL || claim->lost_told)
        return IDEM_E_INVALID;
    if (idem_handle_check(claim->h, NULL) != 0)
        return IDEM_E_FORK;
    claim->renew_cb = cb;
    claim->renew_data = data;
    if (claim->renew_op.driver == NULL)
        idem_timer_set(&claim->h->loop, &claim->lease_timer, 0);
    return 0;
}

void idem_lease_init(struct idem_claim *c) {
    c->lease_timer.fire = lease_fire;
    c->max_timer.fire = max_fire;
}

void idem_lease_bound(struct idem_claim *c) {
    if (c->policy.run_max_ms > 0)
        idem_timer_set(&c->h->loop, &c->max_timer, c->policy.run_max_ms);
}

int64_t idem_claim_lease_until(const struct idem_claim *c) {
    return c->lease_until;
}

void idem_lease_begin(struct idem_claim *c) {
    c->lease_until = c->sent + c->policy.lease_ms;
    lease_arm(c, c->sent);
    idem_lease_bound(c);
}
