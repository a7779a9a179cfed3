/*
 * One message from its arrival to its end. Failure modes: the store does not
 * answer, or not the finish (kept and tried again), the broker does not take a copy
 * (kept and tried again), the lease is lost (the handler is cancelled; whoever has
 * it now decides), the message has no key (buried), there is no memory (kept back).
 */
#include "queue/delivery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

/* Pauses of what is kept in hand and tried again. */
#define HOLD_MIN_MS 100
#define HOLD_MAX_MS 5000
#define UNBEGUN_MIN_MS 1000
#define UNBEGUN_MAX_MS 30000
#define BURY_MIN_MS 1000
#define BURY_MAX_MS 60000

/* Less than that is not worth a way through the broker. */
#define DELAY_LEAST_MS 250

/* What was handled must be remembered: its message is in hand until it is, and nobody takes the key
   over as long as nobody else has the message. */
#define FINISH_MS ((int64_t)365 * 24 * 3600 * 1000)

static const struct queue_broker *broker_of(const struct delivery *d) {
    return d->c->config.broker;
}

/* The one place where a delivery changes its state. */
static void delivery_set(struct delivery *d, enum delivery_state state) {
#define TO(state) (1u << DELIVERY_##state)
    static const unsigned allowed[] = {
        [DELIVERY_WAITING] = TO(CLAIMING) | TO(BURYING) | TO(HOLDING) | TO(DELAYING) | TO(OVER),
        [DELIVERY_CLAIMING] = TO(WORKING) | TO(BURYING) | TO(FINISHING) | TO(HOLDING) |
                              TO(DELAYING) | TO(WAITING) | TO(OVER),
        [DELIVERY_WORKING] = TO(BURYING) | TO(FINISHING) | TO(HOLDING) | TO(OVER),
        [DELIVERY_BURYING] = TO(FINISHING) | TO(HOLDING) | TO(OVER),
        [DELIVERY_FINISHING] = TO(DELAYING) | TO(HOLDING) | TO(OVER),
        [DELIVERY_DELAYING] = TO(HOLDING) | TO(OVER),
        [DELIVERY_HOLDING] = TO(WAITING) | TO(BURYING) | TO(HOLDING) | TO(OVER),
        [DELIVERY_OVER] = 0,
    };
#undef TO

    if ((allowed[d->state] & 1u << state) == 0)
        abort();
    d->c->holding += (state == DELIVERY_HOLDING) - (size_t)(d->state == DELIVERY_HOLDING);
    d->state = state;
}

static void report(const struct delivery *d, const char *then, int64_t again_ms) {
    const struct queue_consumer_events *events = &d->c->config.events;
    struct queue_report report = {
        .hash = d->hash[0] == '\0' ? NULL : d->hash,
        .trace = d->trace,
        .verdict = d->verdict,
        .result = d->row == NULL ? NULL : queue_result_name(d->said.result),
        .then = then,
        .reason = d->reason[0] == '\0' ? NULL : d->reason,
        .attempt = d->attempt,
        .took_ms = d->row == NULL ? 0 : d->begun,
        .again_ms = again_ms,
    };

    if (events->report != NULL)
        events->report(events->data, &report);
}

/* Its end. */

void queue_delivery_free(struct delivery *d) {
    struct idem_loop *loop = d->c->loop;

    idem_timer_clear(loop, &d->timer);
    idem_claim_free(d->claim);
    if (d->state != DELIVERY_OVER)
        delivery_set(d, DELIVERY_OVER);
    queue_consumer_let_go(d->c, d);
    free(d->key);
    free(d);
}

static void delivery_ack(struct delivery *d, const char *then) {
    report(d, then, 0);
    broker_of(d)->ack(d->c->link, d->message);
    queue_delivery_free(d);
}

static void delivery_giveback(struct delivery *d) {
    broker_of(d)->giveback(d->c->link, d->message);
    queue_delivery_free(d);
}

/* Again, later. */

static void hold_over(struct idem_timer *timer) {
    struct delivery *d = idem_container_of(timer, struct delivery, timer);

    delivery_set(d, DELIVERY_WAITING);
    queue_consumer_ready(d->c, d);
}

/* Kept in hand: nothing else is told to the broker, and the lane waits. */
static void delivery_hold(struct delivery *d, int64_t ms) {
    idem_claim_free(d->claim);
    d->claim = NULL;
    delivery_set(d, DELIVERY_HOLDING);
    if (d->gone || d->c->stopping) {
        delivery_giveback(d);
        return;
    }
    d->row = NULL;
    idem_timer_set(d->c->loop, &d->timer, ms);
}

static void hold_growing(struct delivery *d, int64_t min, int64_t max) {
    int64_t ms = idem_backoff(min, max, ++d->holds);

    report(d, "hold", ms);
    d->c->counts.held++;
    delivery_hold(d, ms);
}

static void delayed(void *data, bool taken, const char *why) {
    struct delivery *d = data;

    if (taken) {
        d->message = NULL;
        queue_delivery_free(d);
        return;
    }
    snprintf(d->reason, sizeof(d->reason), "cannot be delayed by the broker: %s", why);
    hold_growing(d, UNBEGUN_MIN_MS, UNBEGUN_MAX_MS);
}

/* Where an order was asked for, who is behind it must not pass it meanwhile. */
static void delivery_delay(struct delivery *d, int64_t ms) {
    if (ms < DELAY_LEAST_MS || d->c->config.keying.order != NULL) {
        report(d, "hold", ms);
        delivery_hold(d, ms < 1 ? 1 : ms);
        return;
    }
    report(d, "delay", ms);
    idem_claim_free(d->claim);
    d->claim = NULL;
    delivery_set(d, DELIVERY_DELAYING);
    broker_of(d)->delay(d->c->link, d->message, ms, delayed, d);
}

/* Somebody else is at it. Many that are held would leave no room for others: those go by way of the
   broker. */
static void delivery_busy(struct delivery *d, int64_t left_ms) {
    int64_t ms = idem_backoff(HOLD_MIN_MS, HOLD_MAX_MS, ++d->holds);

    if (d->c->holding > d->c->config.queue.prefetch / 2) {
        delivery_delay(d, left_ms);
        return;
    }
    ms = ms < left_ms ? ms : left_ms;
    d->c->counts.held++;
    report(d, "hold", ms);
    delivery_hold(d, ms);
}

/* Dead letters. */

static void finish_begin(struct delivery *d);
static void bury_say(struct delivery *d);

static void bury_again(struct idem_timer *timer) {
    bury_say(idem_container_of(timer, struct delivery, timer));
}

/* It comes again. What the handler has said is stored before: then it is dead, and buried. */
static void bury_give_up(struct delivery *d) {
    idem_timer_clear(d->c->loop, &d->timer);
    d->unburied = true;
    if (d->claim != NULL)
        finish_begin(d);
    else
        delivery_giveback(d);
}

static void buried(void *data, bool taken, const char *why) {
    struct delivery *d = data;
    const struct queue_consumer_events *events = &d->c->config.events;
    char text[256];

    if (taken) {
        d->c->counts.dead++;
        if (d->claim != NULL)
            finish_begin(d);
        else
            delivery_ack(d, "bury");
        return;
    }
    d->c->counts.unburied++;
    if (d->burials == 0 && events->state != NULL) {
        snprintf(text, sizeof(text),
                 "a dead letter is not taken: %.160s; it is kept and tried again", why);
        events->state(events->data, d->c->broker_ready, text);
    }
    if (d->gone || d->c->forced) {
        bury_give_up(d);
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

    d->timer.fire = hold_over;
    broker_of(d)->bury(d->c->link, d->message, &epitaph, buried, d);
}

/* With a claim, its record is finished when it is buried; without, there is nothing to finish. */
static void delivery_bury(struct delivery *d, const char *epitaph) {
    d->epitaph = epitaph;
    d->burials = 0;
    if (d->reason[0] == '\0')
        snprintf(d->reason, sizeof(d->reason), "%s", queue_epitaph_text(epitaph));
    delivery_set(d, DELIVERY_BURYING);
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
        report(d, "giveback", 0);
        delivery_giveback(d);
        return;
    }
    switch (d->row->step) {
    case QUEUE_STEP_DELAY:
        d->c->counts.retries++;
        delivery_delay(d, d->row->release ? release_ms(d) : delay_ms);
        return;
    case QUEUE_STEP_HOLD:
        hold_growing(d, UNBEGUN_MIN_MS, UNBEGUN_MAX_MS);
        return;
    default:
        d->c->counts.done += d->said.result == QUEUE_DONE;
        delivery_ack(d, d->row->step == QUEUE_STEP_BURY ? "bury" : "ack");
    }
}

/* Not stored: nobody knows yet what will be said of it, and it is asked again. */
static void finish_lost(struct delivery *d, const char *why) {
    snprintf(d->reason, sizeof(d->reason), "%s", why);
    hold_growing(d, HOLD_MIN_MS, HOLD_MAX_MS);
}

static void finish_taken(struct delivery *d) {
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
        finish_taken(d);
    else
        finished(d, idem_claim_delay(claim));
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

static void finish_begin(struct delivery *d) {
    delivery_set(d, DELIVERY_FINISHING);
    if (d->unguarded) /* there is no record: the message alone remembers */
        finished(d, d->said.delay_ms != 0 ? d->said.delay_ms : d->c->policy->backoff_min_ms);
    else if (finish_say(d) < 0)
        finish_lost(d, "there was no memory to store what came of it");
}

/* A record that is forgotten before its message is due would have its attempts counted anew. */
static int64_t delay_of(const struct idem_policy *policy, int64_t ms) {
    int64_t most = policy->ttl_s * 1000 / 2;

    return ms < most ? ms : most;
}

/* Who was made to stop has not failed. */
static enum queue_result result_of(const struct delivery *d, enum queue_result said) {
    return d->c->forced && said != QUEUE_DONE && said != QUEUE_UNBEGUN ? QUEUE_UNKNOWN : said;
}

static void work_told(struct queue_work *work, const struct queue_said *said) {
    struct delivery *d = idem_container_of(work, struct delivery, work);
    struct queue_consumer *c = d->c;

    d->said = *said;
    d->said.result = result_of(d, said->result);
    d->said.delay_ms = delay_of(c->policy, said->delay_ms);
    snprintf(d->reason, sizeof(d->reason), "%s", said->reason == NULL ? "" : said->reason);
    d->said.reason = NULL;
    d->begun = idem_loop_now() - d->begun;
    d->row = queue_result_row(d->said.result, queue_room(c->policy, idem_claim_is_last(d->claim)));
    d->worker = false;
    c->counts.working--;
    idem_task_post(c->loop, &c->pump);
    if (d->said.result != QUEUE_UNBEGUN && !d->row->release)
        d->holds = 0;
    if (d->taken)
        finish_taken(d);
    else if (d->row->step == QUEUE_STEP_BURY)
        delivery_bury(d, d->row->epitaph);
    else
        finish_begin(d);
}

static void work_begin(struct delivery *d) {
    const struct queue_handler *handler = &d->c->config.handler;

    delivery_set(d, DELIVERY_WORKING);
    d->begun = idem_loop_now();
    d->taken = false;
    d->work = (struct queue_work){
        .message = d->message,
        .key = d->key,
        .key_len = d->key_len,
        .hash = d->hash,
        .trace = d->trace,
        .attempt = d->attempt,
        .not_after = d->unguarded ? INT64_MAX : idem_claim_lease_until(d->claim),
        .told = work_told,
    };
    handler->begin(handler->data, &d->work);
}

/* Granted while the consumer stops: given back, and no attempt is counted. */
static void work_decline(struct delivery *d) {
    d->said = (struct queue_said){.result = QUEUE_UNBEGUN};
    d->row = queue_result_row(QUEUE_UNBEGUN, QUEUE_ROOM_ANY);
    d->begun = 0;
    finish_begin(d);
}

/* The claim. */

static void claim_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    struct delivery *d = data;
    const struct queue_handler *handler = &d->c->config.handler;

    (void)claim;
    d->taken |= why == IDEM_END_TAKEN;
    if (d->state == DELIVERY_WORKING)
        handler->cancel(handler->data, &d->work);
}

static void worker_free(struct delivery *d) {
    d->worker = false;
    d->c->counts.working--;
    idem_task_post(d->c->loop, &d->c->pump);
}

static void claim_failed(struct delivery *d, int rc, const struct idem_error *err) {
    worker_free(d);
    snprintf(d->reason, sizeof(d->reason), "%s", err->text);
    if (rc == IDEM_E_INVALID) {
        idem_claim_free(d->claim);
        d->claim = NULL;
        d->verdict = "key";
        delivery_bury(d, "key");
        return;
    }
    d->verdict = "store";
    d->c->counts.store_errors++;
    queue_consumer_store(d->c, err);
    hold_growing(d, HOLD_MIN_MS, HOLD_MAX_MS);
}

static void claim_answered(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                           const struct idem_error *err, void *data) {
    struct delivery *d = data;
    const struct queue_verdict_row *row;

    memcpy(d->hash, idem_claim_hash(claim), sizeof(d->hash));
    if (rc != 0) {
        claim_failed(d, rc, err);
        return;
    }
    queue_consumer_store(d->c, NULL);
    row = queue_verdict_row(answer->verdict, answer->state);
    d->verdict = idem_verdict_name(answer->verdict);
    d->attempt = answer->attempt;
    d->unguarded = answer->unguarded;
    d->said = (struct queue_said){.status = answer->status};
    snprintf(d->reason, sizeof(d->reason), "%.*s", (int)answer->reason_len,
             answer->reason_len == 0 ? "" : answer->reason);
    if (row->step == QUEUE_STEP_WORK && !d->c->stopping) {
        work_begin(d);
        return;
    }
    worker_free(d);
    if (row->step == QUEUE_STEP_WORK) {
        work_decline(d);
        return;
    }
    if (row->step == QUEUE_STEP_ACK) {
        d->c->counts.duplicates++;
        delivery_ack(d, "ack");
    } else if (row->step == QUEUE_STEP_HOLD) {
        delivery_busy(d, answer->retry_after_ms);
    } else if (row->step == QUEUE_STEP_DELAY) {
        delivery_delay(d, answer->retry_after_ms);
    } else {
        idem_claim_free(d->claim);
        d->claim = NULL;
        delivery_bury(d, row->epitaph);
    }
}

void queue_delivery_claim(struct delivery *d) {
    struct queue_consumer *c = d->c;
    struct idem_args args = {
        .key = d->key, .key_len = d->key_len, .label = d->label[0] == '\0' ? NULL : d->label};
    struct idem_error err;
    int rc;

    d->reason[0] = '\0';
    d->row = NULL;
    d->worker = true;
    c->counts.working++;
    delivery_set(d, DELIVERY_CLAIMING);
    rc = idem_claim_make_printed(c->config.h, c->config.guard, &args, &d->print, claim_answered, d,
                                 &d->claim, &err);
    if (rc != 0) {
        d->claim = NULL;
        claim_failed(d, rc, &err);
        return;
    }
    idem_claim_on_lost(d->claim, claim_lost, d);
    idem_claim_set_finish_timeout(d->claim, FINISH_MS);
    idem_claim_start(c->config.h, d->claim);
}

/* Its beginning. */

static int delivery_identify(struct delivery *d, struct idem_error *err) {
    struct queue_identity identity;
    int rc = queue_identity_make(&d->c->config.keying, d->message, &identity, err);

    if (rc != 0)
        return rc;
    d->key = malloc(identity.call.key_len);
    if (d->key == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a key");
    memcpy(d->key, identity.call.key, identity.call.key_len);
    d->key_len = identity.call.key_len;
    d->print = identity.call.fingerprint;
    memcpy(d->label, identity.label, sizeof(d->label));
    memcpy(d->place.lane, identity.lane, sizeof(d->place.lane));
    return 0;
}

/* Behind somebody else. Many duplicates of one that is in hand must not leave others without room.
 */
static void delivery_wait(struct delivery *d) {
    d->behind = true;
    d->verdict = "busy";
    if (++d->c->behind > d->c->config.queue.prefetch / 2 && d->c->config.keying.order == NULL)
        delivery_delay(d, HOLD_MAX_MS);
}

void queue_delivery_new(struct queue_consumer *c, struct queue_message *message) {
    struct delivery *d = calloc(1, sizeof(*d));
    struct idem_error err;
    int rc;

    if (d == NULL) {
        c->config.broker->giveback(c->link, message);
        return;
    }
    *d = (struct delivery){.c = c, .message = message, .timer.fire = hold_over, .link = c->all_end};
    message->owner = d;
    *c->all_end = d;
    c->all_end = &d->next;
    c->counts.in_hand++;
    (void)queue_trace(message, d->trace);
    rc = delivery_identify(d, &err);
    if (rc == 0) {
        d->placed = true;
        if (queue_lane_enter(&c->lanes, &d->place))
            queue_consumer_ready(c, d);
        else
            delivery_wait(d);
        return;
    }
    snprintf(d->reason, sizeof(d->reason), "%.*s", (int)strcspn(err.text, "\n"), err.text);
    d->verdict = "key";
    if (rc == IDEM_E_INVALID)
        delivery_bury(d, "key");
    else
        delivery_giveback(d);
}

void queue_delivery_gone(struct delivery *d) {
    d->gone = true;
    if (d->state == DELIVERY_WAITING || d->state == DELIVERY_HOLDING) {
        delivery_giveback(d);
    } else if (d->state == DELIVERY_CLAIMING) {
        worker_free(d);
        delivery_giveback(d);
    }
}

void queue_delivery_stop(struct delivery *d) {
    if (d->state == DELIVERY_WAITING || d->state == DELIVERY_HOLDING)
        delivery_giveback(d);
}

void queue_delivery_force(struct delivery *d) {
    const struct queue_handler *handler = &d->c->config.handler;

    if (d->state == DELIVERY_WORKING)
        handler->cancel(handler->data, &d->work);
    else if (d->state == DELIVERY_BURYING && d->timer.link != NULL)
        bury_give_up(d);
}
