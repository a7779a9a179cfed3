/*
 * The end of a message: what the handler said is stored, a dead letter is buried.
 * Failure modes: the store does not take the finish (tried again until it does: the
 * message is in hand meanwhile), somebody else has the lease (asked about again),
 * the dead letter is not taken (tried again, and given back at the end).
 */
#include <stdio.h>

#include "core/error.h"
#include "queue/delivery.h"

#define BURY_MIN_MS 1000
#define BURY_MAX_MS 60000

/* What was handled must be remembered: its message is in hand until it is, and nobody takes the key
   over as long as nobody else has the message. */
#define FINISH_MS ((int64_t)365 * 24 * 3600 * 1000)

/* Dead letters. */

static void bury_say(struct delivery *d);

static void bury_again(struct idem_timer *timer) {
    bury_say(idem_container_of(timer, struct delivery, timer));
}

void queue_delivery_unbury(struct delivery *d) {
    idem_timer_clear(d->c->loop, &d->timer);
    d->unburied = true;
    if (d->claim != NULL)
        queue_delivery_finish(d);
    else
        queue_delivery_giveback(d);
}

static void buried(void *data, bool taken, const char *why) {
    struct delivery *d = data;
    const struct queue_consumer_events *events = &d->c->config.events;
    char text[400];

    if (taken) {
        d->c->counts.dead++;
        if (d->claim != NULL)
            queue_delivery_finish(d);
        else
            queue_delivery_ack(d, "bury");
        return;
    }
    d->c->counts.unburied++;
    if (d->burials == 0 && events->state != NULL) {
        snprintf(text, sizeof(text),
                 "a dead letter is not taken: %.300s; it is kept and tried again", why);
        events->state(events->data, d->c->broker_ready, text);
    }
    if (d->gone || d->c->stopping) { /* it comes again, and is dead then, too */
        queue_delivery_unbury(d);
        return;
    }
    idem_timer_set(d->c->loop, &d->timer, idem_backoff(BURY_MIN_MS, BURY_MAX_MS, ++d->burials));
    d->timer.fire = bury_again;
}

static void bury_say(struct delivery *d) {
    struct queue_epitaph epitaph = {
        .verdict = d->epitaph,
        .reason = d->reason[0] == '\0' ? NULL : d->reason,
        .attempts = d->attempt,
        .status = d->said.status,
        .prefix = d->hash[0] == '\0' ? NULL : d->c->policy->prefix,
        .hash = d->hash[0] == '\0' ? NULL : d->hash,
    };

    d->timer.fire = queue_delivery_hold_over;
    d->c->config.broker->bury(d->c->link, d->message, &epitaph, buried, d);
}

void queue_delivery_bury(struct delivery *d, const char *epitaph) {
    d->epitaph = epitaph;
    d->burials = 0;
    if (d->reason[0] == '\0')
        snprintf(d->reason, sizeof(d->reason), "%s", queue_epitaph_text(epitaph));
    queue_delivery_set(d, DELIVERY_BURYING);
    bury_say(d);
}

/* What the handler said. */

/* One that was released has no time of its own in the store. */
static int64_t release_ms(struct delivery *d) {
    const struct idem_policy *policy = d->c->policy;

    if (d->said.delay_ms != 0)
        return d->said.delay_ms;
    return idem_backoff(policy->backoff_min_ms, policy->backoff_max_ms, ++d->holds);
}

static void finished(struct delivery *d, int64_t delay_ms) {
    if (d->unburied) {
        queue_delivery_report(d, "giveback", 0);
        queue_delivery_giveback(d);
        return;
    }
    switch (d->row->step) {
    case QUEUE_STEP_DELAY:
        d->c->counts.retries++;
        delay_ms = d->row->release ? release_ms(d) : delay_ms;
        /* No attempts of those are counted: they must not go round all the faster for it. */
        if (d->unguarded && delay_ms < DELIVERY_UNBEGUN_MIN_MS)
            delay_ms = DELIVERY_UNBEGUN_MIN_MS;
        queue_delivery_delay(d, delay_ms);
        return;
    case QUEUE_STEP_HOLD:
        queue_delivery_hold(d, DELIVERY_UNBEGUN_MIN_MS, DELIVERY_UNBEGUN_MAX_MS);
        return;
    default:
        d->c->counts.done += d->said.result == QUEUE_DONE;
        queue_delivery_ack(d, d->row->step == QUEUE_STEP_BURY ? "bury" : "ack");
    }
}

/* Not stored: nobody knows yet what will be said of it, and it is asked again. */
static void finish_lost(struct delivery *d, const char *why) {
    snprintf(d->reason, sizeof(d->reason), "%s", why);
    queue_delivery_hold(d, DELIVERY_HOLD_MIN_MS, DELIVERY_HOLD_MAX_MS);
}

void queue_delivery_taken(struct delivery *d) {
    d->c->counts.lost++;
    finish_lost(d, "somebody else took it over meanwhile");
}

static void finish_told(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                        void *data) {
    struct delivery *d = data;

    if (rc != 0) {
        d->c->counts.store_errors++;
        queue_consumer_store(d->c, err);
        finish_lost(d, "what came of it could not be stored");
        return;
    }
    queue_consumer_store(d->c, NULL);
    if (lost)
        queue_delivery_taken(d);
    else
        finished(d, idem_claim_delay(claim));
}

/* The store did not take it, and is asked again: that may be all that goes on for a long time. */
static void finish_tried(struct idem_claim *claim, const struct idem_error *err, void *data) {
    struct delivery *d = data;

    (void)claim;
    d->c->counts.store_errors++;
    queue_consumer_store(d->c, err);
}

void queue_finish_watch(struct delivery *d) {
    idem_claim_set_finish_timeout(d->claim, FINISH_MS);
    idem_claim_on_finish_tried(d->claim, finish_tried, d);
}

static int finish_say(struct delivery *d) {
    const char *reason = d->reason[0] == '\0' ? NULL : d->reason;
    int32_t status = d->said.status;

    if (d->said.delay_ms != 0)
        idem_claim_set_delay(d->claim, d->said.delay_ms);
    if (d->row->release)
        return idem_claim_release(d->claim, finish_told, d);
    switch (d->row->finish) {
    case IDEM_RESULT_DONE:
        return idem_claim_done(d->claim, status, NULL, 0, finish_told, d);
    case IDEM_RESULT_RETRY:
        return idem_claim_fail(d->claim, status, reason, NULL, 0, false, finish_told, d);
    case IDEM_RESULT_FINAL:
        return idem_claim_fail(d->claim, status, reason, NULL, 0, true, finish_told, d);
    case IDEM_RESULT_UNKNOWN:
        break;
    }
    return idem_claim_unknown(d->claim, reason, finish_told, d);
}

void queue_delivery_finish(struct delivery *d) {
    queue_delivery_set(d, DELIVERY_FINISHING);
    if (d->unguarded) /* there is no record: the message alone remembers */
        finished(d, d->said.delay_ms != 0 ? d->said.delay_ms : d->c->policy->backoff_min_ms);
    else if (finish_say(d) < 0)
        finish_lost(d, "there was no memory to store what came of it");
}
