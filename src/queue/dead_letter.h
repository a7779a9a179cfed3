/*
 * Dead letters, for the operator's commands: a small table beside broker.h, which each broker
 * implements. Every function blocks the caller's thread for at most timeout_ms; a command that
 * uses them does nothing else.
 *
 * Letters are read one after the other, oldest first. Reading removes nothing: letters that
 * are not removed before the place is closed, or the program dies, stay there in their order.
 * While letters are read here, other readers may not see them.
 *
 * Requeueing is two steps, so that no letter is lost: requeue(), which returns when the copy
 * is confirmed, and then remove(). Before the first step, the command takes care of the record
 * of the message's key (a record in state `dead` would bury the message again). If the program
 * dies between the two steps, the message is in both places, and its key prevents a second
 * run.
 */
#ifndef IDEM_QUEUE_DEAD_LETTER_H
#define IDEM_QUEUE_DEAD_LETTER_H

#include "queue/message.h"

/* The headers of a dead letter, as `bury` writes them. All are texts; unknown ones are left
   out. requeue() drops them all, except the message's origin, since its key may depend on that.
   For amqp the origin appears as the properties exchange and routing_key instead of as headers. */
#define QUEUE_DEAD_PREFIX "idem-"
#define QUEUE_DEAD_VERDICT "idem-verdict"
#define QUEUE_DEAD_REASON "idem-reason"
#define QUEUE_DEAD_ATTEMPTS "idem-attempts"
#define QUEUE_DEAD_STATUS "idem-status"
#define QUEUE_DEAD_RECORD_PREFIX "idem-prefix"
#define QUEUE_DEAD_HASH "idem-hash"
#define QUEUE_DEAD_QUEUE "idem-queue"                    /* the queue or stream it was taken from */
#define QUEUE_DEAD_EXCHANGE "idem-origin-exchange"       /* amqp */
#define QUEUE_DEAD_ROUTING_KEY "idem-origin-routing-key" /* amqp */
#define QUEUE_DEAD_AT "idem-dead-at"                     /* 2026-01-31T12:34:56Z */

struct queue_dead; /* a place with dead letters, open */

struct queue_dead_config {
    const char *url;
    const char *queue;      /* the place itself: the name of a queue or stream ("orders.dead") */
    const char *body_field; /* stream: the field with the body; NULL: "body" */
    int64_t timeout_ms;     /* for each call; 0: 10 s */
};

#define QUEUE_RECEIPT_TEXT 64
struct queue_letter {
    const struct queue_message *message; /* borrowed until the next next(), or close() */
    char
        receipt[QUEUE_RECEIPT_TEXT]; /* names the letter until close(); for a stream, permanently */
    bool claimed; /* its idem-* headers are not proven to be written by this program */
};

struct queue_dead_broker {
    /* IDEM_E_ABSENT: the place does not exist, so there are no letters. */
    int (*open)(const struct queue_dead_config *config, struct queue_dead **ret,
                struct idem_error *err);
    /* The next letter. Returns 0 with ret->message NULL at the end. */
    int (*next)(struct queue_dead *dead, struct queue_letter *ret, struct idem_error *err);
    /*
     * Sends a copy of the letter that next() returned last, without its idem-* headers, to the
     * queue it names as its origin, or to `to`. Returns when the copy is durable there.
     * IDEM_E_UNKNOWN: the copy may be there. With every other code, it is not.
     */
    int (*requeue)(struct queue_dead *dead, const char *to, struct idem_error *err);
    /* Removes the letter for good. Returns 0 when the broker has done so. */
    int (*remove)(struct queue_dead *dead, const char *receipt, struct idem_error *err);
    /* Takes NULL. */
    void (*close)(struct queue_dead *dead);
};

/* Finds the broker by the URL's scheme. NULL with IDEM_E_INVALID, which lists the known schemes. */
const struct queue_dead_broker *queue_dead_find(const char *url, struct idem_error *err);

#endif
