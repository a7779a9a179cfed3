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
    bool hidden;   /* what its trace would show is the key: logs call it by the hash */

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

/* backlog.c: what waits for memory. */
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
    struct delivery *all, **all_end; /* as they came */
    struct delivery *ready, **ready_end;
    struct idem_task pump;          /* claims what is ready */
    struct idem_timer extend_timer; /* tells the broker what we are still at */
    struct idem_timer stop_timer;
    int64_t stop_by; /* on idem_loop_now(); INT64_MAX: not asked to stop */
    bool stopping, forced, told_stopped;
    bool store_down, broker_ready;
    size_t holding, behind; /* how many of them */
    size_t more;            /* of those behind: they do not count for prefetch */
    bool crowded;           /* that was told */
    struct queue_backlog backlog;
};

/* Takes a message over. False: there is no memory for it, and it is as it was. */
bool queue_delivery_new(struct queue_consumer *c, struct queue_message *message);
/* It may be claimed, and a worker is free. */
void queue_delivery_claim(struct delivery *d);
void queue_delivery_gone(struct delivery *d);
/* Gives it back if it was not begun, or is a dead letter that nobody takes; one that is being
   claimed, as soon as that is answered. */
void queue_delivery_stop(struct delivery *d);
/* The time for it is over: what is handled is cancelled. */
void queue_delivery_force(struct delivery *d);
/* Lets go of it, whatever becomes of it; nothing is said to the broker. */
void queue_delivery_free(struct delivery *d);

/* What delivery.c and finish.c have of each other. */

/* Pauses of what is kept in hand and tried again. */
#define DELIVERY_HOLD_MIN_MS 100
#define DELIVERY_HOLD_MAX_MS 5000
#define DELIVERY_UNBEGUN_MIN_MS 1000
#define DELIVERY_UNBEGUN_MAX_MS 30000

void queue_delivery_set(struct delivery *d, enum delivery_state state);
void queue_delivery_report(const struct delivery *d, const char *then, int64_t again_ms);
void queue_delivery_ack(struct delivery *d, const char *then);
void queue_delivery_giveback(struct delivery *d);
/* Kept in hand and asked about again, after a pause that grows. */
void queue_delivery_hold(struct delivery *d, int64_t min, int64_t max);
void queue_delivery_hold_over(struct idem_timer *timer);
void queue_delivery_delay(struct delivery *d, int64_t ms);

/* With a claim, its record is finished when it is buried; without, there is nothing to finish. */
void queue_delivery_bury(struct delivery *d, const char *epitaph);
/* No dead letter was taken. It comes again; what the handler has said is stored before: then it is
   dead, and buried. */
void queue_delivery_unbury(struct delivery *d);
/* Stores what the handler said. */
void queue_delivery_finish(struct delivery *d);
/* Somebody else has its lease. */
void queue_delivery_taken(struct delivery *d);
/* What is said to a claim of it. */
void queue_finish_watch(struct delivery *d);

/* backlog.c. */
void queue_backlog_init(struct queue_consumer *c);
void queue_backlog_put(struct queue_consumer *c, struct queue_message *message);
/* Gives it back, if it is one of them. */
bool queue_backlog_gone(struct queue_consumer *c, struct queue_message *message);
/* Gives all of them back. */
void queue_backlog_stop(struct queue_consumer *c);

/* consumer.c. */
void queue_consumer_ready(struct queue_consumer *c, struct delivery *d);
void queue_consumer_let_go(struct queue_consumer *c, struct delivery *d);
void queue_consumer_store(struct queue_consumer *c, const struct idem_error *err);
/* Who waits, and for whom, has changed. */
void queue_consumer_crowd(struct queue_consumer *c);

#endif
