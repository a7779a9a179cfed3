/*
 * One message in the consumer's hands, the consumer that has it, and the backlog of messages for
 * which there was no memory. consumer.h has the drawing of the states.
 */
#ifndef IDEM_QUEUE_DELIVERY_H
#define IDEM_QUEUE_DELIVERY_H

#include "core/claim.h"
#include "queue/consumer.h"
#include "queue/key_lane.h"

enum delivery_state {
    DELIVERY_WAITING,
    DELIVERY_CLAIMING,
    DELIVERY_RUNNING,
    DELIVERY_BURYING,
    DELIVERY_FINISHING,
    DELIVERY_DELAYING,
    DELIVERY_HOLDING,
    DELIVERY_OVER,
};

struct delivery {
    struct queue_consumer *c;
    struct delivery *next, **link;             /* all deliveries in hand */
    struct delivery *ready_next, **ready_link; /* ready to be claimed; link NULL: is not */
    struct queue_place place;
    enum delivery_state state;
    struct queue_message *message;
    bool gone;   /* the broker has lost the message, and will deliver it anew */
    bool placed; /* in its lane */
    bool behind; /* another delivery is before it in its lane */
    bool worker; /* occupies a worker, from its claim to the handler's result */

    unsigned char *key; /* NULL: not computed yet */
    size_t key_len;
    struct idem_fingerprint fingerprint;
    char label[IDEM_LABEL_MAX + 1];
    char trace[QUEUE_TRACE_TEXT];
    char hash[65]; /* empty: not claimed yet */
    bool hidden;   /* its trace would show the key: logs use the hash instead */

    struct idem_claim *claim;
    bool unguarded;
    bool taken; /* another owner got the lease during the run */
    uint32_t attempt;
    struct idem_timer timer; /* HOLDING; BURYING, until the next try */
    unsigned holds, burials; /* in a rule */
    bool unburied;           /* no dead letter was taken: the message is to be returned */

    struct queue_run run;
    int64_t run_start;   /* on idem_loop_now() */
    int64_t run_took_ms; /* set when the run has finished */
    struct queue_outcome outcome;
    const struct queue_result_rule *rule; /* NULL: the handler was not called */
    const char *verdict, *dead_verdict;
    char reason[IDEM_REASON_MAX + 1];
};

/* Messages that wait for memory. */
struct queue_backlog {
    struct queue_message *first, **end;
    size_t n;
    struct idem_timer timer;
};

struct queue_consumer {
    struct queue_consumer_config config;
    const struct idem_policy *policy;
    struct idem_loop *loop;
    struct queue_link *link;
    struct queue_lanes lanes;
    struct queue_counts counts;
    struct delivery *all, **all_end; /* in the order of arrival */
    struct delivery *ready, **ready_end;
    struct idem_task pump;          /* claims the ready deliveries */
    struct idem_timer extend_timer; /* reports the messages in hand to the broker */
    struct idem_timer stop_timer;
    int64_t stop_by; /* on idem_loop_now(); INT64_MAX: no stop was requested */
    bool stopping, forced, stop_reported;
    bool store_down, broker_ready;
    size_t holding, behind; /* numbers of deliveries */
    size_t more;            /* so many of `behind` do not count towards prefetch */
    bool crowded;           /* the crowd was reported */
    struct queue_backlog backlog;
};

/* delivery.c */

/* Takes ownership of a message. False: there is no memory, and the message is unchanged. */
bool delivery_new(struct queue_consumer *c, struct queue_message *message);
/* To be called when it may be claimed and a worker is free. */
void delivery_claim(struct delivery *d);
void delivery_lost(struct delivery *d);
/* Returns the message if its handling has not begun, or if it is a dead letter that the broker
   does not take. A delivery that is being claimed is returned when the claim has its verdict. */
void delivery_stop(struct delivery *d);
/* The deadline of the stop has passed: cancels the handler. */
void delivery_cancel(struct delivery *d);
/* Frees the delivery in any state; reports nothing to the broker. */
void delivery_free(struct delivery *d);

/* Pauses for messages that are kept in hand and retried. */
#define DELIVERY_HOLD_MIN_MS 100
#define DELIVERY_HOLD_MAX_MS 5000
#define DELIVERY_UNBEGUN_MIN_MS 1000
#define DELIVERY_UNBEGUN_MAX_MS 30000

void backlog_init(struct queue_consumer *c);
void backlog_put(struct queue_consumer *c, struct queue_message *message);
/* Removes the message and returns it to the broker, if it is in the backlog. */
bool backlog_remove(struct queue_consumer *c, struct queue_message *message);
/* Returns all messages of the backlog to the broker. */
void backlog_stop(struct queue_consumer *c);

/* consumer.c */

void queue_consumer_ready(struct queue_consumer *c, struct delivery *d);
void queue_consumer_remove(struct queue_consumer *c, struct delivery *d);
void queue_consumer_store_state(struct queue_consumer *c, const struct idem_error *err);
/* Called when the messages that wait for others have changed: adapts prefetch to them. */
void queue_consumer_update_crowd(struct queue_consumer *c);

#endif
