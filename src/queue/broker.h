/*
 * The broker table: what the consumer needs of a message broker, and what it is
 * told. One folder per broker (amqp, stream) fills it in.
 *
 * Everything here is called from the loop's thread, and every call-back runs from
 * the loop: never inside the call that caused it, never after close(). A broker
 * that has threads of its own keeps them to itself.
 *
 * A message is out from the moment it is told (`message`) until it is given back
 * by ack, delay (once that was confirmed) or giveback; it is freed by the broker
 * then. At most `prefetch` of them are out (and more after `widen`), and QUEUE_OUT_BYTES and one
 * more. A connection that is lost takes what is out with it: `gone` is told for each, the message
 * stays readable until it is given back in whichever way, and all ways of giving it back do nothing
 * but free it; the broker will deliver it again. Connections are made anew, with growing pauses,
 * for ever; `state` tells people about it.
 */
#ifndef IDEM_QUEUE_BROKER_H
#define IDEM_QUEUE_BROKER_H

#include "loop/loop.h"
#include "queue/message.h"
#include "store/store.h"

struct queue_link;

/* Of what is out; with more in hand, nothing more is taken from the broker. */
#define QUEUE_OUT_BYTES ((size_t)256 << 20)

/* What a dead letter says of itself, in headers idem-reason, idem-attempts, ... */
struct queue_epitaph {
    const char *verdict; /* dead, mismatch, uncertain, refused, key; trimmed */
    const char *reason;  /* for people; may be NULL */
    uint32_t attempts;
    int32_t status;
    const char *prefix; /* of its record, for `idem dead requeue`; NULL: it has none */
    const char *hash;
};

struct queue_events {
    void *data;
    void (*message)(void *data, struct queue_message *message);
    void (*gone)(void *data, struct queue_message *message);
    /* A line for people: connected, lost and why, the queue is not there, ... `ready` says whether
       messages can come now. */
    void (*state)(void *data, bool ready, const char *text);
};

struct queue_config {
    const char *url;
    const char *queue;
    const char *dead_letter; /* NULL: the queue's name and ".dead" */
    const char *group;       /* stream: the consumer group; NULL: "idem" */
    const char *consumer;    /* stream: this consumer's name, the same over restarts; NULL: the
                                machine's name */
    const char *body_field;  /* stream: which field is the body; NULL: "body" */
    unsigned prefetch;
    int64_t lease_ms;     /* of the policy: stream: pending entries idle for longer are taken */
    int64_t delay_max_ms; /* the back-off's longest: a longer delay may come early */
    bool ordered;         /* what is given back keeps its order, if it takes longer */
    bool topology;        /* amqp: declare queues for delays and dead letters */
};

/* Whether it was taken, and why not. */
typedef void queue_told_fn(void *data, bool taken, const char *why);

struct queue_broker {
    const char *name;
    const char *const *schemes; /* NULL-terminated */

    /* Required. Checks the URL and the names; connecting goes on in the background, and no message
       is fetched before `fetch`. */
    int (*open)(const struct queue_config *config, struct idem_loop *loop,
                const struct queue_events *events, struct queue_link **ret, struct idem_error *err);
    /* Begins to fetch, or stops to: a message that is on its way may still come after that. */
    void (*fetch)(struct queue_link *link, bool on);
    /* It is dealt with. Without an answer: one that is lost comes again. */
    void (*ack)(struct queue_link *link, struct queue_message *message);
    /*
     * Has it delivered again after so long, by a copy that was confirmed or however the broker can;
     * when `told` says that it was taken, it is not ours any more. One that was not is still out.
     */
    void (*delay)(struct queue_link *link, struct queue_message *message, int64_t ms,
                  queue_told_fn *told, void *data);
    /* Puts a copy where the dead letters are, and tells when that is sure. It is still out. */
    void (*bury)(struct queue_link *link, struct queue_message *message,
                 const struct queue_epitaph *epitaph, queue_told_fn *told, void *data);
    /* Delivers it again at once, to whomever: it was not begun. */
    void (*giveback)(struct queue_link *link, struct queue_message *message);
    /* Frees the link and all that is out. What was said before (acks) is sent first, for at most a
       second; blocks that long. */
    void (*close)(struct queue_link *link);

    /* Optional. */
    /* We are still at these: called every third of the lease. */
    void (*extend)(struct queue_link *link, struct queue_message *const *messages, size_t n);
    /* So many more than prefetch may be out, from now on: so many of those that are wait for others
       of them. Without it, they count. */
    void (*widen)(struct queue_link *link, size_t more);
    /* How long after a run has ended its message may still be delivered, whatever the policy says:
       the broker's own time-outs. */
    int64_t (*redelivery_ms)(const struct queue_config *config);
};

/* By the URL's scheme; NULL with IDEM_E_INVALID, which says those there are. */
const struct queue_broker *queue_broker_find(const char *url, struct idem_error *err);

#endif
