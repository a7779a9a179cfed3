/*
 * One message from its arrival to the handler's result; delivery_finish.c has the rest.
 * Failure modes: the store does not respond (kept and retried), the broker does not take a
 * copy (kept and retried), the lease is lost (the handler is cancelled; the new owner
 * decides), the message has no key (buried), there is no memory (put into the backlog).
 */
#include "queue/delivery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "protocol/record_key.h"

/* A shorter delay is not worth a round trip through the broker. */
#define DELAY_LEAST_MS 250

static const struct queue_broker *delivery_broker(const struct delivery *d) {
    return d->c->config.broker;
}

/* Every change of state passes here. */
void delivery_set_state(struct delivery *d, enum delivery_state state) {
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

void delivery_report(const struct delivery *d, const char *then, int64_t again_ms) {
    const struct queue_consumer_events *events = &d->c->config.events;
    struct queue_report report = {
        .hash = d->hash[0] == '\0' ? NULL : d->hash,
        .trace = d->hidden ? d->hash : d->trace,
        .label = d->label[0] == '\0' ? NULL : d->label,
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

void delivery_ack(struct delivery *d, const char *then) {
    delivery_report(d, then, 0);
    delivery_broker(d)->ack(d->c->link, d->message);
    delivery_free(d);
}

void delivery_give_back(struct delivery *d) {
    delivery_broker(d)->giveback(d->c->link, d->message);
    delivery_free(d);
}

/* Retries. */

static void delivery_set_behind(struct delivery *d) {
    d->behind = true;
    d->c->behind++;
    queue_consumer_update_crowd(d->c);
}

/* A delivery that had left its lane goes to the lane's end. */
void delivery_hold_end(struct idem_timer *timer) {
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
        delivery_give_back(d);
        return;
    }
    d->row = NULL;
    idem_timer_set(d->c->loop, &d->timer, ms);
    queue_consumer_update_crowd(d->c);
}

void delivery_hold_backoff(struct delivery *d, int64_t min, int64_t max) {
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
void delivery_delay(struct delivery *d, int64_t ms) {
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

/* If the record expired before its message is due, its attempts would be counted anew. */
static int64_t delivery_limit_delay(const struct idem_policy *policy, int64_t ms) {
    int64_t most = policy->ttl_s * 1000 / 2;

    return ms < most ? ms : most;
}

/* A run that was forced to stop has not failed: its result is unknown. */
static enum queue_result delivery_result(const struct delivery *d, enum queue_result said) {
    return d->c->forced && said != QUEUE_DONE && said != QUEUE_UNBEGUN ? QUEUE_UNKNOWN : said;
}

static void work_result(struct queue_work *work, const struct queue_said *said) {
    struct delivery *d = idem_container_of(work, struct delivery, work);
    struct queue_consumer *c = d->c;

    d->said = *said;
    d->said.result = delivery_result(d, said->result);
    d->said.delay_ms = delivery_limit_delay(c->policy, said->delay_ms);
    snprintf(d->reason, sizeof(d->reason), "%s", said->reason == NULL ? "" : said->reason);
    d->said.reason = NULL;
    d->begun = idem_loop_now() - d->begun;
    d->row = queue_result_row(d->said.result, queue_room(c->policy, idem_claim_is_last(d->claim)));
    d->worker = false;
    c->counts.working--;
    c->counts.unknown += d->said.result == QUEUE_UNKNOWN;
    idem_task_post(c->loop, &c->pump);
    if (d->said.result != QUEUE_UNBEGUN && !d->row->release)
        d->holds = 0;
    if (d->taken)
        delivery_lease_taken(d);
    else if (d->row->step == QUEUE_STEP_BURY)
        delivery_bury(d, d->row->epitaph);
    else
        delivery_finish(d);
}

static void delivery_begin_work(struct delivery *d) {
    const struct queue_handler *handler = &d->c->config.handler;

    delivery_set_state(d, DELIVERY_WORKING);
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
        .told = work_result,
    };
    handler->begin(handler->data, &d->work);
}

/* The claim was granted while the consumer stops: releases it, and no attempt is counted. */
static void delivery_decline_work(struct delivery *d) {
    d->said = (struct queue_said){.result = QUEUE_UNBEGUN};
    d->row = queue_result_row(QUEUE_UNBEGUN, QUEUE_ROOM_ANY);
    d->begun = 0;
    delivery_finish(d);
}

/* The claim. */

static void claim_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    struct delivery *d = data;
    const struct queue_handler *handler = &d->c->config.handler;

    (void)claim;
    d->taken |= why == IDEM_END_TAKEN;
    if (d->state != DELIVERY_WORKING)
        return;
    d->c->counts.cancelled++;
    handler->cancel(handler->data, &d->work);
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
    const struct queue_verdict_row *row;

    memcpy(d->hash, idem_claim_hash(claim), sizeof(d->hash));
    if (rc != 0) {
        delivery_claim_failed(d, rc, err);
        return;
    }
    queue_consumer_store_state(d->c, NULL);
    row = queue_verdict_row(answer->verdict, answer->state);
    d->verdict = idem_verdict_name(answer->verdict);
    d->attempt = answer->attempt;
    d->unguarded = answer->unguarded;
    d->said = (struct queue_said){.status = answer->status};
    snprintf(d->reason, sizeof(d->reason), "%.*s", (int)answer->reason_len,
             answer->reason_len == 0 ? "" : answer->reason);
    if (row->step == QUEUE_STEP_WORK && !d->c->stopping) {
        delivery_begin_work(d);
        return;
    }
    delivery_worker_release(d);
    if (row->step == QUEUE_STEP_WORK) {
        delivery_decline_work(d);
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

void delivery_claim(struct delivery *d) {
    struct queue_consumer *c = d->c;
    struct idem_args args = {
        .key = d->key, .key_len = d->key_len, .label = d->label[0] == '\0' ? NULL : d->label};
    struct idem_error err;
    int rc;

    d->reason[0] = '\0';
    d->row = NULL;
    d->worker = true;
    c->counts.working++;
    delivery_set_state(d, DELIVERY_CLAIMING);
    rc = idem_claim_make_printed(c->config.h, c->config.guard, &args, &d->print, claim_decided, d,
                                 &d->claim, &err);
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
    int rc = idem_fill_name(d->c->policy, &(struct idem_args){0}, key, &name, err);

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
    d->print = identity.call.fingerprint;
    memcpy(d->label, identity.label, sizeof(d->label));
    memcpy(d->place.lane, identity.lane, sizeof(d->place.lane));
    if (queue_trace_is_key(d->message, (struct idem_bytes){d->key, d->key_len}))
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
    *d = (struct delivery){
        .c = c, .message = message, .timer.fire = delivery_hold_end, .link = c->all_end};
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

void delivery_lost(struct delivery *d) {
    d->gone = true;
    if (d->state == DELIVERY_WAITING || d->state == DELIVERY_HOLDING) {
        delivery_give_back(d);
    } else if (d->state == DELIVERY_CLAIMING) {
        delivery_worker_release(d);
        delivery_give_back(d);
    }
}

void delivery_stop(struct delivery *d) {
    if (d->state == DELIVERY_WAITING || d->state == DELIVERY_HOLDING)
        delivery_give_back(d);
    else if (d->state == DELIVERY_BURYING && d->timer.link != NULL)
        delivery_bury_abandon(d);
}

void delivery_cancel(struct delivery *d) {
    const struct queue_handler *handler = &d->c->config.handler;

    if (d->state == DELIVERY_WORKING)
        handler->cancel(handler->data, &d->work);
}
