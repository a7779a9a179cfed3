/*
 * Dead letters, for the operator's commands: a small table beside broker.h, which
 * each broker fills in. Everything blocks, in the caller's thread, for at most
 * timeout_ms each; the command that uses it does nothing else.
 *
 * Letters are read one after the other from the oldest. Reading takes nothing
 * away: what was not removed when the place is closed, or when the program dies,
 * stays where it was, in its order. While it is read here, others may not see it.
 *
 * Requeueing is two steps, so that none is lost: requeue(), which returns when the
 * copy is confirmed, and then remove(). What has to happen to the record of its
 * key (a record that says `dead` would bury the message again) is the command's,
 * before the first. A death in between leaves it in both places: its key decides.
 */
#ifndef IDEM_QUEUE_DEAD_H
#define IDEM_QUEUE_DEAD_H

#include "queue/message.h"

/* The headers of a dead letter, as `bury` writes them (all texts; what is not known is left out).
   None of them goes along when it is requeued, but for where it first came from, which its key may
   be made of. Of amqp that is shown as the properties exchange and routing_key, and not here. */
#define QUEUE_DEAD_PREFIX "idem-"
#define QUEUE_DEAD_VERDICT "idem-verdict"
#define QUEUE_DEAD_REASON "idem-reason"
#define QUEUE_DEAD_ATTEMPTS "idem-attempts"
#define QUEUE_DEAD_STATUS "idem-status"
#define QUEUE_DEAD_RECORD_PREFIX "idem-prefix"
#define QUEUE_DEAD_HASH "idem-hash"
#define QUEUE_DEAD_QUEUE "idem-queue"              /* which queue or stream it was taken from */
#define QUEUE_DEAD_EXCHANGE "idem-origin-exchange" /* amqp */
#define QUEUE_DEAD_ROUTING_KEY "idem-origin-routing-key" /* amqp */
#define QUEUE_DEAD_AT "idem-dead-at"                     /* 2026-01-31T12:34:56Z */

struct queue_dead; /* a place with dead letters, open */

struct queue_dead_config {
    const char *url;
    const char *queue;      /* the place itself: a queue's or a stream's name ("orders.dead") */
    const char *body_field; /* stream: which field is the body; NULL: "body" */
    int64_t timeout_ms;     /* of each call; 0: 10 s */
};

#define QUEUE_RECEIPT_TEXT 64
struct queue_letter {
    const struct queue_message *message; /* borrowed until the next next(), or close() */
    char receipt[QUEUE_RECEIPT_TEXT];    /* names it until close(); a stream's does for ever */
    bool claimed; /* nobody vouches that we have written its idem-* headers */
};

struct queue_dead_broker {
    const char *name;
    const char *const *schemes; /* NULL-terminated */

    /* IDEM_E_ABSENT: there is no such place, so there are no letters. */
    int (*open)(const struct queue_dead_config *config, struct queue_dead **ret,
                struct idem_error *err);
    /* The next letter. 0, with ret->message NULL at the end of what was there. */
    int (*next)(struct queue_dead *dead, struct queue_letter *ret, struct idem_error *err);
    /*
     * Sends a copy of the letter that next() told last, without the headers of its death, back to
     * the queue that it says it came from, or to another; returns when the copy is durable there.
     * IDEM_E_UNKNOWN: it may be there. Every other code: it is not.
     */
    int (*requeue)(struct queue_dead *dead, const char *to, struct idem_error *err);
    /* Takes it away for good. 0 when the broker has done so. */
    int (*remove)(struct queue_dead *dead, const char *receipt, struct idem_error *err);
    /* Takes NULL. */
    void (*close)(struct queue_dead *dead);
};

/* By the URL's scheme; NULL with IDEM_E_INVALID, which says those there are. */
const struct queue_dead_broker *queue_dead_find(const char *url, struct idem_error *err);

#endif
