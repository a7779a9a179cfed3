/*
 * One message from its arrival to its end. Failure modes: the store does not respond (kept and
 * retried), the broker does not take a copy (kept and retried), the lease is lost (the handler is
 * cancelled; the new owner decides), the message has no key (buried), there is no memory (put into
 * the backlog).
 */
#include "queue/delivery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "protocol/record_key.h"

/* Defined under "The end of a message" below. */
static void delivery_lease_taken(struct delivery *d);
static void delivery_bury(struct delivery *d, const char *why);
static void delivery_bury_abandon(struct delivery *d);
static void delivery_finish(struct delivery *d);
static void delivery_finish_watch(struct delivery *d);

/* A shorter delay is not worth a round trip through the broker. */
#define DELAY_LEAST_MS 250

static const struct queue_broker *delivery_broker(const struct delivery *d) {
    return d->c->config.broker;
}

/* Every change of state passes here. */
static void delivery_set_state(struct delivery *d, enum delivery_state state) {
#define TO(state) (1u << DELIVERY_##state)
    static const unsigned allowed[] = {
        [DELIVERY_WAITING] = TO(CLAIMING) | TO(BURYING) | TO(HOLDING) | TO(DELAYING) | TO(OVER),
        [DELIVERY_CLAIMING] = TO(RUNNING) | TO(BURYING) | TO(FINISHING) | TO(HOLDING) |
                              TO(DELAYING) | TO(WAITING) | TO(OVER),
        [DELIVERY_RUNNING] = TO(BURYING) | TO(FINISHING) | TO(HOLDING) | TO(OVER),
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

static void delivery_report(const struct delivery *d, const char *then, int64_t again_ms) {
    const struct queue_consumer_events *events = &d->c->config.events;
    struct queue_report report = {
        .hash = d->hash[0] == '\0' ? NULL : d->hash,
        .trace = d->hidden ? d->hash : d->trace,
        .label = d->label[0] == '\0' ? NULL : d->label,
        .verdict = d->verdict,
        .result = d->rule == NULL ? NULL : queue_result_name(d->outcome.result),
        .then = then,
        .reason = d->reason[0] == '\0' ? NULL : d->reason,
        .attempt = d->attempt,
        .took_ms = d->rule == NULL ? 0 : d->run_took_ms,
        .again_ms = again_ms,
    };

    if (events->report != NULL)
        events->report(events->data, &report);
}

/* Release. */

void delivery_free(struct delivery *d) {
    struct idem_loop *loop = d->c->loop;

    idem_timer_clear(loop, &d->timer);
    idem_claim_free(d->claim);
    if (d->state != DELIVERY_OVER)
        delivery_set_state(d, DELIVERY_OVER);
    queue_consumer_remove(d->c, d);
    free(d->key);
    free(d);
}

static void delivery_ack(struct delivery *d, const char *then) {
    delivery_report(d, then, 0);
    delivery_broker(d)->ack(d->c->link, d->message);
    delivery_free(d);
}

static void delivery_nack(struct delivery *d) {
    delivery_broker(d)->nack(d->c->link, d->message);
    delivery_free(d);
}

/* Retries. */

static void delivery_set_behind(struct delivery *d) {
    d->behind = true;
    d->c->behind++;
    queue_consumer_update_crowd(d->c);
}

/* A delivery that had left its lane goes to the lane's end. */
static void delivery_hold_end(struct idem_timer *timer) {
    struct delivery *d = idem_container_of(timer, struct delivery, timer);
    bool first = d->placed || queue_lane_enter(&d->c->lanes, &d->place);

    d->placed = true;
    delivery_set_state(d, DELIVERY_WAITING);
    if (first)
        queue_consumer_ready(d->c, d);
    else
        delivery_set_behind(d);
}

/* The message stays in hand: the broker gets no command, and the lane waits. */
static void delivery_hold(struct delivery *d, int64_t ms) {
    idem_claim_free(d->claim);
    d->claim = NULL;
    delivery_set_state(d, DELIVERY_HOLDING);
    if (d->gone || d->c->stopping) {
        delivery_nack(d);
        return;
    }
    d->rule = NULL;
    idem_timer_set(d->c->loop, &d->timer, ms);
    queue_consumer_update_crowd(d->c);
}

static void delivery_hold_backoff(struct delivery *d, int64_t min, int64_t max) {
    int64_t ms = idem_backoff(min, max, ++d->holds);

    delivery_report(d, "hold", ms);
    d->c->counts.held++;
    delivery_hold(d, ms);
}

static void delivery_delayed(void *data, bool taken, const char *why) {
    struct delivery *d = data;

    if (taken) {
        d->message = NULL;
        delivery_free(d);
        return;
    }
    snprintf(d->reason, sizeof(d->reason), "cannot be delayed by the broker: %s", why);
    delivery_hold_backoff(d, DELIVERY_UNBEGUN_MIN_MS, DELIVERY_UNBEGUN_MAX_MS);
}

/* With --order-by, the messages behind it must not pass it, so it is held instead. */
static void delivery_delay(struct delivery *d, int64_t ms) {
    if (ms < DELAY_LEAST_MS || d->c->config.keying.order != NULL) {
        delivery_report(d, "hold", ms);
        delivery_hold(d, ms < 1 ? 1 : ms);
        return;
    }
    delivery_report(d, "delay", ms);
    idem_claim_free(d->claim);
    d->claim = NULL;
    delivery_set_state(d, DELIVERY_DELAYING);
    delivery_broker(d)->delay(d->c->link, d->message, ms, delivery_delayed, d);
}

/* Another owner runs the key. If too many messages are held, no room is left for others:
   further ones are delayed by the broker. */
static void delivery_busy(struct delivery *d, int64_t left_ms) {
    int64_t ms = idem_backoff(DELIVERY_HOLD_MIN_MS, DELIVERY_HOLD_MAX_MS, ++d->holds);

    if (d->c->holding > d->c->config.queue.prefetch / 2) {
        delivery_delay(d, left_ms);
        return;
    }
    ms = ms < left_ms ? ms : left_ms;
    d->c->counts.held++;
    delivery_report(d, "hold", ms);
    delivery_hold(d, ms);
}

/* The handler. */

/* If the record expired before its message is due, its attempts would be counted anew. */
static int64_t delivery_limit_delay(const struct idem_policy *policy, int64_t ms) {
    int64_t most = policy->ttl_s * 1000 / 2;

    return ms < most ? ms : most;
}

/* A run that was forced to stop has not failed: its result is unknown. */
static enum queue_result delivery_result(const struct delivery *d, enum queue_result outcome) {
    return d->c->forced && outcome != QUEUE_DONE && outcome != QUEUE_UNBEGUN ? QUEUE_UNKNOWN
                                                                             : outcome;
}

static void delivery_run_finished(struct queue_run *run, const struct queue_outcome *outcome) {
    struct delivery *d = idem_container_of(run, struct delivery, run);
    struct queue_consumer *c = d->c;

    d->outcome = *outcome;
    d->outcome.result = delivery_result(d, outcome->result);
    d->outcome.delay_ms = delivery_limit_delay(c->policy, outcome->delay_ms);
    snprintf(d->reason, sizeof(d->reason), "%s", outcome->reason == NULL ? "" : outcome->reason);
    d->outcome.reason = NULL;
    d->run_took_ms = idem_loop_now() - d->run_start;
    d->rule =
        queue_decide_result(d->outcome.result, queue_room(c->policy, idem_claim_is_last(d->claim)));
    d->worker = false;
    c->counts.working--;
    c->counts.unknown += d->outcome.result == QUEUE_UNKNOWN;
    idem_task_post(c->loop, &c->pump);
    if (d->outcome.result != QUEUE_UNBEGUN && !d->rule->release)
        d->holds = 0;
    if (d->taken)
        delivery_lease_taken(d);
    else if (d->rule->step == QUEUE_STEP_BURY)
        delivery_bury(d, d->rule->dead_verdict);
    else
        delivery_finish(d);
}

static void delivery_begin_run(struct delivery *d) {
    const struct queue_handler *handler = &d->c->config.handler;

    delivery_set_state(d, DELIVERY_RUNNING);
    d->run_start = idem_loop_now();
    d->taken = false;
    d->run = (struct queue_run){
        .message = d->message,
        .key = d->key,
        .key_len = d->key_len,
        .hash = d->hash,
        .trace = d->trace,
        .attempt = d->attempt,
        .not_after = d->unguarded ? INT64_MAX : idem_claim_lease_until(d->claim),
        .finished = delivery_run_finished,
    };
    handler->begin(handler->data, &d->run);
}

/* The claim was granted while the consumer stops: releases it, and no attempt is counted. */
static void delivery_decline_run(struct delivery *d) {
    d->outcome = (struct queue_outcome){.result = QUEUE_UNBEGUN};
    d->rule = queue_decide_result(QUEUE_UNBEGUN, QUEUE_ROOM_ANY);
    d->run_took_ms = 0;
    delivery_finish(d);
}

/* The claim. */

static void claim_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    struct delivery *d = data;
    const struct queue_handler *handler = &d->c->config.handler;

    (void)claim;
    d->taken |= why == IDEM_END_TAKEN;
    if (d->state != DELIVERY_RUNNING)
        return;
    d->c->counts.cancelled++;
    handler->cancel(handler->data, &d->run);
}

static void delivery_worker_release(struct delivery *d) {
    d->worker = false;
    d->c->counts.working--;
    idem_task_post(d->c->loop, &d->c->pump);
}

static void delivery_claim_failed(struct delivery *d, int rc, const struct idem_error *err) {
    delivery_worker_release(d);
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
    queue_consumer_store_state(d->c, err);
    delivery_hold_backoff(d, DELIVERY_HOLD_MIN_MS, DELIVERY_HOLD_MAX_MS);
}

static void claim_decided(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                          const struct idem_error *err, void *data) {
    struct delivery *d = data;
    const struct queue_verdict_rule *rule;

    memcpy(d->hash, idem_claim_hash(claim), sizeof(d->hash));
    if (rc != 0) {
        delivery_claim_failed(d, rc, err);
        return;
    }
    queue_consumer_store_state(d->c, NULL);
    rule = queue_decide_verdict(answer->verdict, answer->state);
    d->verdict = idem_verdict_name(answer->verdict);
    d->attempt = answer->attempt;
    d->unguarded = answer->unguarded;
    d->outcome = (struct queue_outcome){.status = answer->status};
    snprintf(d->reason, sizeof(d->reason), "%.*s", (int)answer->reason_len,
             answer->reason_len == 0 ? "" : answer->reason);
    if (rule->step == QUEUE_STEP_RUN && !d->c->stopping) {
        delivery_begin_run(d);
        return;
    }
    delivery_worker_release(d);
    if (rule->step == QUEUE_STEP_RUN) {
        delivery_decline_run(d);
        return;
    }
    if (rule->step == QUEUE_STEP_ACK) {
        d->c->counts.duplicates++;
        delivery_ack(d, "ack");
    } else if (rule->step == QUEUE_STEP_HOLD) {
        delivery_busy(d, answer->retry_after_ms);
    } else if (rule->step == QUEUE_STEP_DELAY) {
        delivery_delay(d, answer->retry_after_ms);
    } else {
        idem_claim_free(d->claim);
        d->claim = NULL;
        delivery_bury(d, rule->dead_verdict);
    }
}

void delivery_claim(struct delivery *d) {
    struct queue_consumer *c = d->c;
    struct idem_args args = {
        .key = d->key, .key_len = d->key_len, .label = d->label[0] == '\0' ? NULL : d->label};
    struct idem_error err;
    int rc;

    d->reason[0] = '\0';
    d->rule = NULL;
    d->worker = true;
    c->counts.working++;
    delivery_set_state(d, DELIVERY_CLAIMING);
    rc = idem_claim_make_fingerprinted(c->config.h, c->config.guard, &args, &d->fingerprint,
                                       claim_decided, d, &d->claim, &err);
    if (rc != 0) {
        d->claim = NULL;
        delivery_claim_failed(d, rc, &err);
        return;
    }
    idem_claim_on_lost(d->claim, claim_lost, d);
    delivery_finish_watch(d);
    idem_claim_start(c->config.h, d->claim);
}

/* Creation. */

/* Computes the hash of the record, before the claim does. */
static int delivery_trace_hide(struct delivery *d, struct idem_bytes key, struct idem_error *err) {
    struct idem_record_key name;
    int rc = idem_claim_prepare_name(d->c->policy, &(struct idem_args){0}, key, &name, err);

    if (rc != 0)
        return rc;
    idem_record_key_hex(&name, d->hash);
    d->hidden = true;
    return 0;
}

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
    d->fingerprint = identity.call.fingerprint;
    memcpy(d->label, identity.label, sizeof(d->label));
    memcpy(d->place.lane, identity.lane, sizeof(d->place.lane));
    if (queue_message_trace_is_key(d->message, (struct idem_bytes){d->key, d->key_len}))
        return delivery_trace_hide(d, (struct idem_bytes){d->key, d->key_len}, err);
    return 0;
}

/* Waits behind another delivery of its lane. Many duplicates of one message must not leave
   others without room. Above the limit, a duplicate leaves the lane and arrives again later:
   nothing may claim it while the broker is asked to delay it. */
static void delivery_wait(struct delivery *d) {
    struct queue_consumer *c = d->c;

    d->verdict = "busy";
    if (c->behind < c->config.queue.prefetch / 2 || c->config.keying.order != NULL) {
        delivery_set_behind(d);
        return;
    }
    (void)queue_lane_leave(&c->lanes, &d->place);
    d->placed = false;
    delivery_delay(d, DELIVERY_HOLD_MAX_MS);
}

bool delivery_new(struct queue_consumer *c, struct queue_message *message) {
    struct delivery *d = calloc(1, sizeof(*d));
    struct idem_error err;
    int rc;

    if (d == NULL)
        return false;
    *d = (struct delivery){.c = c, .message = message, .timer.fire = delivery_hold_end};
    message->owner = d;
    idem_link_append(&c->all_end, d);
    c->counts.in_hand++;
    (void)queue_message_trace(message, d->trace);
    rc = delivery_identify(d, &err);
    if (rc == 0) {
        d->placed = true;
        if (queue_lane_enter(&c->lanes, &d->place))
            queue_consumer_ready(c, d);
        else
            delivery_wait(d);
        return true;
    }
    if (rc != IDEM_E_INVALID) {
        message->owner = NULL;
        delivery_free(d);
        return false;
    }
    snprintf(d->reason, sizeof(d->reason), "%.*s", (int)strcspn(err.text, "\n"), err.text);
    d->verdict = "key";
    delivery_bury(d, "key");
    return true;
}

/* The broker has lost the message, or the consumer stops. */

void delivery_lost(struct delivery *d) {
    d->gone = true;
    if (d->state == DELIVERY_WAITING || d->state == DELIVERY_HOLDING) {
        delivery_nack(d);
    } else if (d->state == DELIVERY_CLAIMING) {
        delivery_worker_release(d);
        delivery_nack(d);
    }
}

void delivery_stop(struct delivery *d) {
    if (d->state == DELIVERY_WAITING || d->state == DELIVERY_HOLDING)
        delivery_nack(d);
    else if (d->state == DELIVERY_BURYING && d->timer.link != NULL)
        delivery_bury_abandon(d);
}

void delivery_cancel(struct delivery *d) {
    const struct queue_handler *handler = &d->c->config.handler;

    if (d->state == DELIVERY_RUNNING)
        handler->cancel(handler->data, &d->run);
}

/*
 * The end of a message: stores the handler's result, buries a dead letter. Failure modes: the
 * store does not take the finish (retried until it does; the message stays in hand), another
 * owner has the lease (claimed again), the broker does not take the dead letter (retried, and
 * the message is returned at the end).
 */

#define BURY_MIN_MS 1000
#define BURY_MAX_MS 60000

/* A finished run must be recorded. Its message stays in hand until it is, and the key cannot be
   taken over while no other consumer has the message. */
#define FINISH_MS ((int64_t)365 * 24 * 3600 * 1000)

/* Dead letters. */

static void delivery_bury_send(struct delivery *d);

static void delivery_bury_retry(struct idem_timer *timer) {
    delivery_bury_send(idem_container_of(timer, struct delivery, timer));
}

/* The broker took no dead letter. The handler's result is stored before the message is
   returned: when it arrives again, its record is dead, and it is buried then. */
static void delivery_bury_abandon(struct delivery *d) {
    idem_timer_clear(d->c->loop, &d->timer);
    d->unburied = true;
    if (d->claim != NULL)
        delivery_finish(d);
    else
        delivery_nack(d);
}

static void delivery_buried(void *data, bool taken, const char *why) {
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
    d->timer.fire = delivery_bury_retry;
}

static void delivery_bury_send(struct delivery *d) {
    struct queue_dead_fields dead_fields = {
        .verdict = d->dead_verdict,
        .reason = d->reason[0] == '\0' ? NULL : d->reason,
        .attempts = d->attempt,
        .status = d->outcome.status,
        .prefix = d->hash[0] == '\0' ? NULL : d->c->policy->prefix,
        .hash = d->hash[0] == '\0' ? NULL : d->hash,
    };

    d->timer.fire = delivery_hold_end;
    d->c->config.broker->bury(d->c->link, d->message, &dead_fields, delivery_buried, d);
}

/* With a claim, the record is finished after the burial; without, there is nothing to finish. */
static void delivery_bury(struct delivery *d, const char *dead_verdict) {
    d->dead_verdict = dead_verdict;
    d->burials = 0;
    if (d->reason[0] == '\0')
        snprintf(d->reason, sizeof(d->reason), "%s", queue_dead_verdict_text(dead_verdict));
    delivery_set_state(d, DELIVERY_BURYING);
    delivery_bury_send(d);
}

/* Storing the handler's result. */

/* A released record has no due time in the store, so the pause is computed here. */
static int64_t delivery_release_pause(struct delivery *d) {
    const struct idem_policy *policy = d->c->policy;

    if (d->outcome.delay_ms != 0)
        return d->outcome.delay_ms;
    return idem_backoff(policy->backoff_min_ms, policy->backoff_max_ms, ++d->holds);
}

/* The record has the result, or there is no record: now the message is acknowledged, delayed,
   held or returned. */
static void delivery_finished(struct delivery *d, int64_t delay_ms) {
    if (d->unburied) {
        delivery_report(d, "giveback", 0);
        delivery_nack(d);
        return;
    }
    switch (d->rule->step) {
    case QUEUE_STEP_DELAY:
        d->c->counts.retries++;
        delay_ms = d->rule->release ? delivery_release_pause(d) : delay_ms;
        /* Runs without a record count no attempts: without a minimum pause they would spin. */
        if (d->unguarded && delay_ms < DELIVERY_UNBEGUN_MIN_MS)
            delay_ms = DELIVERY_UNBEGUN_MIN_MS;
        delivery_delay(d, delay_ms);
        return;
    case QUEUE_STEP_HOLD:
        delivery_hold_backoff(d, DELIVERY_UNBEGUN_MIN_MS, DELIVERY_UNBEGUN_MAX_MS);
        return;
    default:
        d->c->counts.done += d->outcome.result == QUEUE_DONE;
        delivery_ack(d, d->rule->step == QUEUE_STEP_BURY ? "bury" : "ack");
    }
}

/* The result is not stored, so the verdict of the next claim is open: claims again after a
   pause. */
static void delivery_finish_lost(struct delivery *d, const char *why) {
    snprintf(d->reason, sizeof(d->reason), "%s", why);
    delivery_hold_backoff(d, DELIVERY_HOLD_MIN_MS, DELIVERY_HOLD_MAX_MS);
}

/* Another owner has the lease. */
static void delivery_lease_taken(struct delivery *d) {
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

/* Called before the claim starts: sets the timeout and the callback of its finish. */
static void delivery_finish_watch(struct delivery *d) {
    idem_claim_set_finish_timeout(d->claim, FINISH_MS);
    idem_claim_on_finish_tried(d->claim, delivery_finish_tried, d);
}

static int delivery_finish_store(struct delivery *d) {
    const char *reason = d->reason[0] == '\0' ? NULL : d->reason;
    int32_t status = d->outcome.status;

    if (d->outcome.delay_ms != 0)
        idem_claim_set_delay(d->claim, d->outcome.delay_ms);
    if (d->rule->release)
        return idem_claim_release(d->claim, delivery_finish_stored, d);
    switch (d->rule->finish) {
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

static void delivery_finish(struct delivery *d) {
    delivery_set_state(d, DELIVERY_FINISHING);
    if (d->unguarded) /* there is no record: only the message keeps the state */
        delivery_finished(d, d->outcome.delay_ms != 0 ? d->outcome.delay_ms
                                                      : d->c->policy->backoff_min_ms);
    else if (delivery_finish_store(d) < 0)
        delivery_finish_lost(d, "there was no memory to store its outcome");
}

/*
 * Messages that arrived when there was no memory. They wait unchanged, in the order of their
 * arrival, and all later messages wait behind them: if they were returned, the broker would
 * send them again at once, for as long as memory is short. The first is tried again after a
 * pause. Nothing here needs memory, or fails.
 */

#define AGAIN_MS 1000

static void backlog_retry(struct idem_timer *timer) {
    struct queue_consumer *c = idem_container_of(timer, struct queue_consumer, backlog.timer);
    struct queue_backlog *backlog = &c->backlog;

    while (backlog->first != NULL) {
        struct queue_message *next = backlog->first->next;

        if (!delivery_new(c, backlog->first)) {
            idem_timer_set(c->loop, timer, AGAIN_MS);
            return;
        }
        backlog->first = next;
        backlog->n--;
    }
    backlog->end = &backlog->first;
}

void backlog_init(struct queue_consumer *c) {
    c->backlog.end = &c->backlog.first;
    c->backlog.timer.fire = backlog_retry;
}

void backlog_put(struct queue_consumer *c, struct queue_message *message) {
    struct queue_backlog *backlog = &c->backlog;
    const struct queue_consumer_events *events = &c->config.events;

    message->next = NULL;
    *backlog->end = message;
    backlog->end = &message->next;
    if (backlog->n++ != 0)
        return;
    idem_timer_set(c->loop, &backlog->timer, AGAIN_MS);
    if (events->state != NULL)
        events->state(events->data, c->broker_ready,
                      "there is no memory for a message: it waits, with all that come behind it, "
                      "and is tried again");
}

bool backlog_remove(struct queue_consumer *c, struct queue_message *message) {
    struct queue_backlog *backlog = &c->backlog;
    struct queue_message **at = &backlog->first;

    while (*at != NULL && *at != message)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = message->next;
    if (*at == NULL)
        backlog->end = at;
    backlog->n--;
    c->config.broker->nack(c->link, message);
    return true;
}

void backlog_stop(struct queue_consumer *c) {
    while (c->backlog.first != NULL)
        (void)backlog_remove(c, c->backlog.first);
    idem_timer_clear(c->loop, &c->backlog.timer);
}
