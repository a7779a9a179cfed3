/*
 * The end of a message: stores the handler's result, buries a dead letter. Failure modes: the
 * store does not take the finish (retried until it does; the message stays in hand), another
 * owner has the lease (claimed again), the broker does not take the dead letter (retried, and
 * the message is returned at the end).
 */
#include <stdio.h>

#include "base/error.h"
#include "queue/delivery.h"

#define BURY_MIN_MS 1000
#define BURY_MAX_MS 60000

/* A finished run must be recorded. Its message stays in hand until it is, and the key cannot be
   taken over while no other consumer has the message. */
#define FINISH_MS ((int64_t)365 * 24 * 3600 * 1000)

/* Dead letters. */

static void delivery_bury_send(struct delivery *d);

static void delivery_finish_bury_retry(struct idem_timer *timer) {
    delivery_bury_send(idem_container_of(timer, struct delivery, timer));
}

void delivery_bury_abandon(struct delivery *d) {
    idem_timer_clear(d->c->loop, &d->timer);
    d->unburied = true;
    if (d->claim != NULL)
        delivery_finish(d);
    else
        delivery_give_back(d);
}

static void delivery_finish_buried(void *data, bool taken, const char *why) {
    struct delivery *d = data;
    const struct queue_consumer_events *events = &d->c->config.events;
    char text[400];

    if (taken) {
        d->c->counts.dead++;
        if (d->claim != NULL)
            delivery_finish(d);
        else
            delivery_ack(d, "bury");
        return;
    }
    d->c->counts.unburied++;
    if (d->burials == 0 && events->state != NULL) {
        snprintf(text, sizeof(text),
                 "a dead letter is not taken: %.300s; it is kept and tried again", why);
        events->state(events->data, d->c->broker_ready, text);
    }
    if (d->gone || d->c->stopping) { /* the message arrives again, and its record is dead then */
        delivery_bury_abandon(d);
        return;
    }
    idem_timer_set(d->c->loop, &d->timer, idem_backoff(BURY_MIN_MS, BURY_MAX_MS, ++d->burials));
    d->timer.fire = delivery_finish_bury_retry;
}

static void delivery_bury_send(struct delivery *d) {
    struct queue_epitaph epitaph = {
        .verdict = d->epitaph,
        .reason = d->reason[0] == '\0' ? NULL : d->reason,
        .attempts = d->attempt,
        .status = d->said.status,
        .prefix = d->hash[0] == '\0' ? NULL : d->c->policy->prefix,
        .hash = d->hash[0] == '\0' ? NULL : d->hash,
    };

    d->timer.fire = delivery_hold_end;
    d->c->config.broker->bury(d->c->link, d->message, &epitaph, delivery_finish_buried, d);
}

void delivery_bury(struct delivery *d, const char *epitaph) {
    d->epitaph = epitaph;
    d->burials = 0;
    if (d->reason[0] == '\0')
        snprintf(d->reason, sizeof(d->reason), "%s", queue_epitaph_text(epitaph));
    delivery_set_state(d, DELIVERY_BURYING);
    delivery_bury_send(d);
}

/* Storing the handler's result. */

/* A released record has no due time in the store, so the pause is computed here. */
static int64_t delivery_release_pause(struct delivery *d) {
    const struct idem_policy *policy = d->c->policy;

    if (d->said.delay_ms != 0)
        return d->said.delay_ms;
    return idem_backoff(policy->backoff_min_ms, policy->backoff_max_ms, ++d->holds);
}

static void delivery_finished(struct delivery *d, int64_t delay_ms) {
    if (d->unburied) {
        delivery_report(d, "giveback", 0);
        delivery_give_back(d);
        return;
    }
    switch (d->row->step) {
    case QUEUE_STEP_DELAY:
        d->c->counts.retries++;
        delay_ms = d->row->release ? delivery_release_pause(d) : delay_ms;
        /* Runs without a record count no attempts: without a minimum pause they would spin. */
        if (d->unguarded && delay_ms < DELIVERY_UNBEGUN_MIN_MS)
            delay_ms = DELIVERY_UNBEGUN_MIN_MS;
        delivery_delay(d, delay_ms);
        return;
    case QUEUE_STEP_HOLD:
        delivery_hold_backoff(d, DELIVERY_UNBEGUN_MIN_MS, DELIVERY_UNBEGUN_MAX_MS);
        return;
    default:
        d->c->counts.done += d->said.result == QUEUE_DONE;
        delivery_ack(d, d->row->step == QUEUE_STEP_BURY ? "bury" : "ack");
    }
}

/* The result is not stored, so the verdict of the next claim is open: claims again after a
   pause. */
static void delivery_finish_lost(struct delivery *d, const char *why) {
    snprintf(d->reason, sizeof(d->reason), "%s", why);
    delivery_hold_backoff(d, DELIVERY_HOLD_MIN_MS, DELIVERY_HOLD_MAX_MS);
}

void delivery_lease_taken(struct delivery *d) {
    d->c->counts.lost++;
    delivery_finish_lost(d, "another consumer took it over meanwhile");
}

static void delivery_finish_stored(struct idem_claim *claim, int rc, bool lost,
                                   const struct idem_error *err, void *data) {
    struct delivery *d = data;

    if (rc != 0) {
        d->c->counts.store_errors++;
        queue_consumer_store_state(d->c, err);
        delivery_finish_lost(d, "its outcome could not be stored");
        return;
    }
    queue_consumer_store_state(d->c, NULL);
    if (lost)
        delivery_lease_taken(d);
    else
        delivery_finished(d, idem_claim_delay(claim));
}

/* The store did not take the finish and is asked again. This may go on for a long time without
   any other event, so it is reported here. */
static void delivery_finish_tried(struct idem_claim *claim, const struct idem_error *err,
                                  void *data) {
    struct delivery *d = data;

    (void)claim;
    d->c->counts.store_errors++;
    queue_consumer_store_state(d->c, err);
}

void delivery_finish_watch(struct delivery *d) {
    idem_claim_set_finish_timeout(d->claim, FINISH_MS);
    idem_claim_on_finish_tried(d->claim, delivery_finish_tried, d);
}

static int delivery_finish_store(struct delivery *d) {
    const char *reason = d->reason[0] == '\0' ? NULL : d->reason;
    int32_t status = d->said.status;

    if (d->said.delay_ms != 0)
        idem_claim_set_delay(d->claim, d->said.delay_ms);
    if (d->row->release)
        return idem_claim_release(d->claim, delivery_finish_stored, d);
    switch (d->row->finish) {
    case IDEM_RESULT_DONE:
        return idem_claim_done(d->claim, status, NULL, 0, delivery_finish_stored, d);
    case IDEM_RESULT_RETRY:
        return idem_claim_fail(d->claim, status, reason, NULL, 0, false, delivery_finish_stored, d);
    case IDEM_RESULT_FINAL:
        return idem_claim_fail(d->claim, status, reason, NULL, 0, true, delivery_finish_stored, d);
    case IDEM_RESULT_UNKNOWN:
        break;
    }
    return idem_claim_unknown(d->claim, reason, delivery_finish_stored, d);
}

void delivery_finish(struct delivery *d) {
    delivery_set_state(d, DELIVERY_FINISHING);
    if (d->unguarded) /* there is no record: only the message keeps the state */
        delivery_finished(d,
                          d->said.delay_ms != 0 ? d->said.delay_ms : d->c->policy->backoff_min_ms);
    else if (delivery_finish_store(d) < 0)
        delivery_finish_lost(d, "there was no memory to store its outcome");
}
