/*
 * The consumer: each message handled once, whatever the broker. It fetches, claims
 * the key, has the message handled, stores what came of it, and only then lets
 * the broker forget it. One loop, no thread.
 *
 *                        first in its lane,
 *      fetched           and a worker is free        run
 *     ─────────► WAITING ───────────────────► CLAIMING ─────► WORKING
 *                 ▲   ▲                          │ │ │           │ result
 *                 │   │          busy, no store  │ │ │           ├──── last, refused ──┐
 *                 │   └──── HOLDING ◄────────────┘ │ │           ▼                     ▼
 *                 │           ▲ ▲   not due        │ │        FINISHING ◄──buried── BURYING
 *                 │           │ └──── DELAYING ◄───┘ │           │ done: ack           │ ▲
 *                 │           │          │           └───────────┼── dead, mismatch ───┼─┘
 *                 │           │          │ taken                 │ retry: DELAYING     │ buried:
 *                 │           │          ▼                       │ lost: HOLDING       │ ack
 *                 │           │        OVER ◄────────────────────┴─────────────────────┘
 *                 └───────────┴── when its time is over
 *
 * A message is acknowledged only when what became of it is stored. What cannot be
 * stored, or buried, stays in hand and is tried again: nothing is lost, and nothing
 * is spun on. Messages of one lane (--order-by, else of one key) are handled one
 * after the other; where an order was asked for, one that is to be tried again
 * holds its lane up, and else it makes room.
 *
 * A stop gives back what was not begun, waits for what was, and at the deadline
 * cancels it: its record says "unknown" then, never "failed".
 */
#ifndef IDEM_QUEUE_CONSUMER_H
#define IDEM_QUEUE_CONSUMER_H

#include "queue/broker.h"
#include "queue/decide.h"
#include "queue/handler.h"
#include "queue/key.h"

struct queue_counts {
    uint64_t fetched;
    uint64_t done;
    uint64_t duplicates;
    uint64_t retries;          /* to be tried again, after a failure */
    uint64_t dead;             /* among the dead letters */
    uint64_t held;             /* how often one was kept back, since somebody else was at it */
    uint64_t lost;             /* runs whose lease went to somebody else */
    uint64_t cancelled;        /* runs that were ended: their lease was lost, or run_max over */
    uint64_t unknown;          /* runs of which nobody knows what came of them */
    uint64_t store_errors;     /* claims and finishes that the store did not take */
    uint64_t unburied;         /* how often a dead letter was not taken */
    uint64_t in_hand, working; /* now */
};

/* One message that was dealt with, for logs. Borrowed. */
struct queue_report {
    const char *hash;  /* of the record; NULL: it has no key */
    const char *label; /* NULL: none */
    const char *trace;
    const char *verdict; /* run, duplicate, busy, ... */
    const char *result;  /* of the handler: done, retry, ...; NULL: it was not asked */
    const char *then;    /* ack, hold, delay, bury */
    const char *reason;  /* NULL: none */
    uint32_t attempt;
    int64_t took_ms;  /* the handler */
    int64_t again_ms; /* hold, delay: so long */
};

struct queue_consumer_events {
    void *data;
    void (*report)(void *data, const struct queue_report *report); /* may be NULL */
    /* The broker's state, or the store's, in words. */
    void (*state)(void *data, bool ready, const char *text); /* may be NULL */
    /* After queue_consumer_stop(), once, when nothing is in hand any more. */
    void (*stopped)(void *data);
};

struct queue_consumer_config {
    struct idem *h;                 /* on a loop */
    const struct idem_guard *guard; /* of the claims: a literal key */
    struct queue_keying keying;
    const struct queue_broker *broker;
    struct queue_config queue;
    struct queue_handler handler; /* its data outlives the consumer */
    struct queue_consumer_events events;
};

struct queue_consumer;

/* Opens the broker and begins to fetch. Everything is borrowed and must stay. */
int queue_consumer_new(const struct queue_consumer_config *config, struct queue_consumer **ret,
                       struct idem_error *err);
void queue_consumer_counts(const struct queue_consumer *consumer, struct queue_counts *ret);

/* Fetches no more, gives back what was not begun, and waits for the rest, at most so long; said
   again, the shorter time counts. */
void queue_consumer_stop(struct queue_consumer *consumer, int64_t drain_ms);

/* Not inside one of its call-backs; its handler tells nothing any more. What is in hand is left to
   leases and the broker. */
void queue_consumer_free(struct queue_consumer *consumer);

/*
 * The longest time after its end for which a message can still come again, with this policy and
 * broker: what `ttl` must not be below.
 */
int64_t queue_redelivery_ms(const struct idem_policy *policy, const struct queue_broker *broker,
                            const struct queue_config *config);

#endif
