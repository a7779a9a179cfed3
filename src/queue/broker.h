/*
 * The broker table: the functions that a message broker offers to the consumer, and the events
 * that it reports. One directory per broker (amqp, stream) implements it.
 *
 * The consumer calls everything here from the loop's thread. Every callback runs from the
 * loop: never inside the call that caused it, and never after close(). A broker that has
 * threads of its own hides them.
 *
 * A message is out from the `message` event until the consumer returns it by ack, delay (once
 * that is confirmed) or nack; then the broker frees it. At most `prefetch` messages are
 * out (more after `widen`), and their bodies take at most QUEUE_OUT_BYTES, exceeded by no more
 * than one message. When a connection is lost, the messages that are out are lost with it: the
 * broker reports `gone` for each. Such a message stays readable until the consumer returns it,
 * and every way to return it then only frees it; the broker delivers it again. The broker
 * reconnects for ever, with growing pauses; `state` reports that for logs.
 */
#ifndef IDEM_QUEUE_BROKER_H
#define IDEM_QUEUE_BROKER_H

#include "loop/loop.h"
#include "queue/message.h"
#include "store/store.h"

struct queue_link;

/* Limit for the messages that are out: above it, the broker fetches nothing more. */
#define QUEUE_OUT_BYTES ((size_t)256 << 20)

/* The description of a dead letter, sent in its headers idem-reason, idem-attempts, ... */
struct queue_dead_fields {
    const char *verdict; /* dead, mismatch, uncertain, refused, key; trimmed */
    const char *reason;  /* for people; may be NULL */
    uint32_t attempts;
    int32_t status;
    const char *prefix; /* of the record, for `idem dead requeue`; NULL: there is no record */
    const char *hash;
};

struct queue_events {
    void *data;
    void (*message)(void *data, struct queue_message *message);
    void (*gone)(void *data, struct queue_message *message);
    /* A line for people: connected, connection lost and why, queue missing, ... `ready` is true
       if messages can arrive now. */
    void (*state)(void *data, bool ready, const char *text);
};

struct queue_config {
    const char *url;
    const char *queue;
    const char *dead_letter; /* NULL: the queue's name and ".dead" */
    const char *group;       /* stream: the consumer group; NULL: "idem" */
    const char *consumer;    /* stream: this consumer's name, the same over restarts; NULL: the
                                machine's name */
    const char *body_field;  /* stream: the field with the body; NULL: "body" */
    unsigned prefetch;
    int64_t
        lease_ms; /* of the policy; stream: takes over pending entries that are idle for longer */
    int64_t delay_max_ms; /* the longest back-off: a message with a longer delay may arrive early */
    bool ordered;         /* returned messages keep their order, even if that takes longer */
    bool topology;        /* amqp: declare queues for delays and dead letters */
};

/* `taken` is true if the broker took the message; else `why` has the reason. */
typedef void queue_done_fn(void *data, bool taken, const char *why);

struct queue_broker {
    const char *name;
    const char *const *schemes; /* NULL-terminated */

    /* Required. Checks the URL and the names. The broker connects in the background, and
       fetches no message before `fetch`. */
    int (*open)(const struct queue_config *config, struct idem_loop *loop,
                const struct queue_events *events, struct queue_link **ret, struct idem_error *err);
    /* Starts or stops fetching. A message that is on its way may still arrive after a stop. */
    void (*fetch)(struct queue_link *link, bool on);
    /* The message is finished. There is no confirmation: if the ack is lost, the broker
       delivers the message again. */
    void (*ack)(struct queue_link *link, struct queue_message *message);
    /*
     * Has the message delivered again after `ms`, by a confirmed copy or by the broker's own means.
     * Once the callback reports that it was taken, the consumer no longer owns the message. If it
     * was not taken, the message is still out.
     */
    void (*delay)(struct queue_link *link, struct queue_message *message, int64_t ms,
                  queue_done_fn *done, void *data);
    /* Puts a copy among the dead letters and runs the callback when the copy is durable. The
       message is still out. */
    void (*bury)(struct queue_link *link, struct queue_message *message,
                 const struct queue_dead_fields *dead_fields, queue_done_fn *done, void *data);
    /* Delivers the message again at once, to any consumer: its handling has not begun. */
    void (*nack)(struct queue_link *link, struct queue_message *message);
    /* Frees the link and all messages that are out. Sends pending acks first, and blocks for
       that for at most a second. */
    void (*close)(struct queue_link *link);

    /* Optional. */
    /* These messages are still being handled. Called every third of the lease. */
    void (*extend)(struct queue_link *link, struct queue_message *const *messages, size_t n);
    /* From now on, `more` messages may be out beyond prefetch: that many of those that are out
       wait for others of them. Without this function, they count towards prefetch. */
    void (*widen)(struct queue_link *link, size_t more);
    /* The longest time after the end of a run in which its message may still be delivered,
       whatever the policy sets: the broker's own timeouts. */
    int64_t (*redelivery_ms)(const struct queue_config *config);
};

/* Finds the broker by the URL's scheme. NULL with IDEM_E_INVALID, which lists the known schemes. */
const struct queue_broker *queue_broker_find(const char *url, struct idem_error *err);

#endif
