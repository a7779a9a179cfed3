/*
 * Two tables that decide the fate of a message, shared by the consumer and idem_consume(). The
 * first goes by the verdict of the store on its key, the second by the result of the handler.
 *
 *     verdict         the message            because
 *     run             is handled
 *     replay          ack                    it was done: a duplicate
 *     duplicate       ack                    the same
 *     busy, running   hold                   another owner runs it
 *     busy, failed    delay                  it is not due yet
 *     mismatch        bury, then ack         two messages, one key
 *     uncertain       bury, then ack         recover=hold: an operator must decide
 *     dead            bury, then ack         no attempts are left
 *
 *     result          the record             the message
 *     done            done                   ack
 *     retry           failed, due later      delay
 *     retry, last     bury, then failed      ack
 *     retry, release  released               delay
 *     refused         bury, then failed      ack
 *     unknown         unknown                delay (hold: it is uncertain then, and buried)
 *     unbegun         released               hold
 *
 * A message is acknowledged only when its outcome is durable: the record is stored, and the
 * broker has confirmed the delayed copy or the dead letter.
 */
#ifndef IDEM_QUEUE_DECIDE_H
#define IDEM_QUEUE_DECIDE_H

#include "queue/handler.h"

enum queue_step {
    QUEUE_STEP_RUN = 1,
    QUEUE_STEP_ACK,
    QUEUE_STEP_HOLD,  /* keep it, and claim it again */
    QUEUE_STEP_DELAY, /* have it delivered again, later */
    QUEUE_STEP_BURY,
};

/* Maps the verdict of a claim to a step. */
struct queue_verdict_rule {
    enum idem_verdict verdict;
    enum idem_state state; /* BUSY: running or failed; IDEM_ABSENT: any */
    enum queue_step step;
    const char *dead_verdict; /* BURY: the verdict in the dead letter */
};
const struct queue_verdict_rule *queue_decide_verdict(enum idem_verdict verdict,
                                                      enum idem_state state);

/* The attempts that are left after a failed run. */
enum queue_room {
    QUEUE_ROOM_ANY,
    QUEUE_ROOM_LEFT,    /* attempts are left */
    QUEUE_ROOM_NONE,    /* no attempts are left, or failures are final */
    QUEUE_ROOM_RELEASE, /* on_failure=release: attempts are not counted */
};
/* `last`: no run follows one that fails now. */
enum queue_room queue_room(const struct idem_policy *policy, bool last);

/* Maps the result of the handler to the record's finish and the message's step. */
struct queue_result_rule {
    enum queue_result result;
    enum queue_room room;
    enum idem_result finish; /* of the record; RETRY under ROOM_RELEASE and UNBEGUN release it */
    bool release;
    enum queue_step step; /* BURY: before the finish; the message is acknowledged after it */
    const char *dead_verdict;
};
const struct queue_result_rule *queue_decide_result(enum queue_result result, enum queue_room room);

/* The meaning of a dead verdict, for people, for messages without a reason of their own. */
const char *queue_dead_verdict_text(const char *dead_verdict);

#endif
