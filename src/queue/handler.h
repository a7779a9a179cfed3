/*
 * The handler of messages: a program, a long-lived worker, an HTTP endpoint, a C function. The
 * consumer starts a run after it has claimed the message's key. The handler reports the
 * outcome once, from the loop.
 */
#ifndef IDEM_QUEUE_HANDLER_H
#define IDEM_QUEUE_HANDLER_H

#include "queue/message.h"

enum queue_result {
    QUEUE_DONE = 1, /* it happened */
    QUEUE_RETRY,    /* it did not happen; trying again may help */
    QUEUE_REFUSED,  /* it did not happen and never will: a dead letter */
    QUEUE_UNKNOWN,  /* it may have happened: `recover` decides */
    QUEUE_UNBEGUN,  /* nothing was begun (no connection, no process): no attempt is counted */
};
const char *queue_result_name(enum queue_result result);

struct queue_outcome {
    enum queue_result result;
    int64_t delay_ms;   /* RETRY: the handler's wish for the pause; 0: the policy's back-off */
    int32_t status;     /* exit status or HTTP status */
    const char *reason; /* for people, borrowed; may be NULL */
};

/* One call of the handler for one message. Valid until the handler has reported its outcome. */
struct queue_run {
    const struct queue_message *message;
    const void *key;
    size_t key_len;
    const char *hash; /* of the record */
    const char *trace;
    uint32_t attempt;
    /* The end of the lease as it was granted, on idem_loop_now(): the handler must not begin
       later. Renewals do not move it: a handler that has not begun by then is stuck, and
       UNBEGUN costs no attempt. */
    int64_t not_after;
    void *data; /* for the handler's own use */

    /* The handler calls this exactly once, never inside begin(). */
    void (*finished)(struct queue_run *run, const struct queue_outcome *outcome);
};

struct queue_handler {
    void *data;
    /* Limit for runs at a time; the consumer begins no more. */
    unsigned workers;
    void (*begin)(void *data, struct queue_run *run);
    /* The lease is lost, or the consumer must stop: end the run soon. The handler still
       reports its outcome. */
    void (*cancel)(void *data, struct queue_run *run);
};

#endif
