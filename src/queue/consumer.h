/*
 * The consumer: handles each message once, with any broker. It fetches a message, claims its
 * key, passes it to the handler, stores the outcome, and only then acknowledges it. One loop,
 * no thread.
 *
 *                        first in its lane,
 *      fetched           and a worker is free        run
 *     ─────────► WAITING ───────────────────► CLAIMING ─────► RUNNING
 *                 ▲   ▲                          │ │ │           │ result
 *                 │   │          busy, no store  │ │ │           ├──── last, refused ──┐
 *                 │   └──── HOLDING ◄────────────┘ │ │           ▼                     ▼
 *                 │           ▲ ▲   not due        │ │        FINISHING ◄──buried── BURYING
 *                 │           │ └──── DELAYING ◄───┘ │           │ done: ack           │ ▲
 *                 │           │          │           └───────────┼── dead, mismatch ───┼─┘
 *                 │           │          │ taken                 │ retry: DELAYING     │ buried:
 *                 │           │          ▼                       │ lost: HOLDING       │ ack
 *                 │           │        OVER ◄────────────────────┴─────────────────────┘
 *                 └───────────┴── when its pause is over
 *
 * A message is acknowledged only after its outcome is stored. If the outcome cannot be stored,
 * or the dead letter cannot be buried, the consumer keeps the message and tries again after a
 * pause: nothing is lost, and nothing spins. Messages of one lane (--order-by, else of one
 * key) are handled one after the other. With --order-by, a message that is to be retried
 * blocks its lane; without, it makes room.
 *
 * A stop returns the messages whose handling has not begun and waits for the rest. At the
 * deadline it cancels them: their records then state "unknown", never "failed".
 */
#ifndef IDEM_QUEUE_CONSUMER_H
#define IDEM_QUEUE_CONSUMER_H

#include "queue/broker.h"
#include "queue/decide.h"
#include "queue/handler.h"
#include "queue/message_key.h"

struct queue_counts {
    uint64_t fetched;
    uint64_t done;
    uint64_t duplicates;
    uint64_t retries;      /* failed, and to be tried again */
    uint64_t dead;         /* sent to the dead letters */
    uint64_t held;         /* times a message was kept back because another owner runs its key */
    uint64_t lost;         /* runs that lost their lease to another owner */
    uint64_t cancelled;    /* runs that were ended: their lease was lost, or run_max was over */
    uint64_t unknown;      /* runs whose outcome is unknown */
    uint64_t store_errors; /* claims and finishes that the store did not take */
    uint64_t unburied;     /* times the broker did not take a dead letter */
    uint64_t in_hand, working; /* at this moment */
};

/* One message and its outcome, for logs. Borrowed. */
struct queue_report {
    const char *hash;  /* of the record; NULL: the message has no key */
    const char *label; /* NULL: none */
    const char *trace;
    const char *verdict; /* run, duplicate, busy, ... */
    const char *result;  /* of the handler: done, retry, ...; NULL: the handler was not called */
    const char *then;    /* ack, hold, delay, bury */
    const char *reason;  /* NULL: none */
    uint32_t attempt;
    int64_t took_ms;  /* the handler's time */
    int64_t again_ms; /* hold, delay: time until the next try */
};

struct queue_consumer_events {
    void *data;
    void (*report)(void *data, const struct queue_report *report); /* may be NULL */
    /* The state of the broker or of the store, as a line for people. */
    void (*state)(void *data, bool ready, const char *text); /* may be NULL */
    /* After queue_consumer_stop(), once, when no message is in hand any more. */
    void (*stopped)(void *data);
};

struct queue_consumer_config {
    struct idem *h;                 /* on a loop */
    const struct idem_guard *guard; /* of the claims: a literal key */
    struct queue_keying keying;
    const struct queue_broker *broker;
    struct queue_config queue;
    struct queue_handler handler; /* `data` must outlive the consumer */
    struct queue_consumer_events events;
};

struct queue_consumer;

/* Opens the broker and starts to fetch. Everything in `config` is borrowed and must stay valid. */
int queue_consumer_new(const struct queue_consumer_config *config, struct queue_consumer **ret,
                       struct idem_error *err);
void queue_consumer_counts(const struct queue_consumer *consumer, struct queue_counts *ret);

/* Stops fetching, returns the messages whose handling has not begun, and waits for the rest, at
   most `drain_ms`. If it is called again, the earlier deadline counts. */
void queue_consumer_stop(struct queue_consumer *consumer, int64_t drain_ms);

/* Not to be called inside one of its callbacks. Its handler must report nothing afterwards.
   Messages in hand are left to their leases and the broker. */
void queue_consumer_free(struct queue_consumer *consumer);

/*
 * The longest time after the end of a run in which its message can still arrive again, with
 * this policy and broker: the lower limit for `ttl`.
 */
int64_t queue_redelivery_ms(const struct idem_policy *policy, const struct queue_broker *broker,
                            const struct queue_config *config);

#endif
