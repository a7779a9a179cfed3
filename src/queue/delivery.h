/*
 * One message in the consumer's hands, and the consumer that has it. The states are
 * drawn in consumer.h.
 */
#ifndef IDEM_QUEUE_DELIVERY_H
#define IDEM_QUEUE_DELIVERY_H

#include "core/claim.h"
#include "queue/consumer.h"
#include "queue/lane.h"

enum delivery_state {
    DELIVERY_WAITING,
    DELIVERY_CLAIMING,
    DELIVERY_WORKING,
    DELIVERY_BURYING,
    DELIVERY_FINISHING,
    DELIVERY_DELAYING,
    DELIVERY_HOLDING,
    DELIVERY_OVER,
};

struct delivery {
    struct queue_consumer *c;
    struct delivery *next, **link;             /* all that are in hand */
    struct delivery *ready_next, **ready_link; /* those that may be claimed now; NULL: it may not */
    struct queue_place place;
    enum delivery_state state;
    struct queue_message *message;
    bool gone;   /* the broker has lost it, and will deliver it anew */
    bool placed; /* in its lane */
    bool behind; /* somebody else in it */
    bool worker; /* has one of them, from its claim to the handler's result */

    unsigned char *key; /* NULL: not made yet */
    size_t key_len;
    struct idem_fingerprint print;
    char label[IDEM_LABEL_MAX + 1];
    char trace[QUEUE_TRACE_TEXT];
    char hash[65]; /* empty: it was not claimed yet */

    struct idem_claim *claim;
    bool unguarded;
    bool taken; /* the lease went to somebody else while it was handled */
    uint32_t attempt;
    struct idem_timer timer; /* HOLDING; BURYING, until the next try */
    unsigned holds, burials; /* in a row */
    bool unburied;           /* it is to be given back: no dead letter was taken */

    struct queue_work work;
    int64_t begun;
    struct queue_said said;
    const struct queue_result_row *row; /* NULL: the handler has not been asked */
    const char *verdict, *epitaph;
    char reason[IDEM_REASON_MAX + 1];
};

struct queue_consumer {
    struct queue_consumer_config config;
    const struct idem_policy *policy;
    struct idem_loop *loop;
    struct queue_link *link;
    struct queue_lanes lanes;
    struct queue_counts counts;
    struct delivery *all, **all_end; /* as they came */
    struct delivery *ready, **ready_end;
    struct idem_task pump;          /* claims what is ready */
    struct idem_timer extend_timer; /* tells the broker what we are still at */
    struct idem_timer stop_timer;
    int64_t stop_by; /* on idem_loop_now(); INT64_MAX: not asked to stop */
    bool stopping, forced, told_stopped;
    bool store_down, broker_ready;
    size_t holding, behind; /* how many of them */
};

/* Takes a message over. Without memory it is given back. */
void queue_delivery_new(struct queue_consumer *c, struct queue_message *message);
/* It may be claimed, and a worker is free. */
void queue_delivery_claim(struct delivery *d);
void queue_delivery_gone(struct delivery *d);
/* Gives it back if it was not begun; one that is being claimed, as soon as that is answered. */
void queue_delivery_stop(struct delivery *d);
/* The time for it is over: what is handled is cancelled. */
void queue_delivery_force(struct delivery *d);
/* Lets go of it, whatever becomes of it; nothing is said to the broker. */
void queue_delivery_free(struct delivery *d);

/* consumer.c. */
void queue_consumer_ready(struct queue_consumer *c, struct delivery *d);
void queue_consumer_let_go(struct queue_consumer *c, struct delivery *d);
void queue_consumer_store(struct queue_consumer *c, const struct idem_error *err);

#endif
