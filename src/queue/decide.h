/*
 * What becomes of a message: two tables, which the consumer and idem_consume()
 * share. The first is by what the store said of its key, the second by what the
 * handler said.
 *
 *     verdict         the message            because
 *     run             is handled
 *     replay          ack                    it was done: a duplicate
 *     duplicate       ack                    the same
 *     busy, running   hold                   somebody is at it
 *     busy, failed    delay                  it is not due yet
 *     mismatch        bury, then ack         two messages, one key
 *     uncertain       bury, then ack         recover=hold: somebody must look
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
 * A message is acknowledged only when what became of it is durable: the record is
 * stored, and a copy that is to come later, or lies among the dead, is confirmed.
 */
#ifndef IDEM_QUEUE_DECIDE_H
#define IDEM_QUEUE_DECIDE_H

#include "queue/handler.h"

enum queue_step {
    QUEUE_STEP_WORK = 1,
    QUEUE_STEP_ACK,
    QUEUE_STEP_HOLD,  /* keep it, and ask again */
    QUEUE_STEP_DELAY, /* have it delivered again, later */
    QUEUE_STEP_BURY,
};

/* What the answer to a claim makes of the message. */
struct queue_verdict_row {
    enum idem_verdict verdict;
    enum idem_state state; /* BUSY: running or failed; IDEM_ABSENT: any */
    enum queue_step step;
    const char *epitaph; /* BURY: what the dead letter says */
};
const struct queue_verdict_row *queue_verdict_row(enum idem_verdict verdict, enum idem_state state);

/* What is left of a run that fails. */
enum queue_room {
    QUEUE_ROOM_ANY,
    QUEUE_ROOM_LEFT,    /* attempts */
    QUEUE_ROOM_NONE,    /* no more of them, or failures are kept */
    QUEUE_ROOM_RELEASE, /* on_failure=release: they are not counted */
};
/* `last`: a run that fails now is not run again. */
enum queue_room queue_room(const struct idem_policy *policy, bool last);

/* What the handler's word makes of the record and of the message. */
struct queue_result_row {
    enum queue_result result;
    enum queue_room room;
    enum idem_result finish; /* of the record; RETRY under ROOM_RELEASE and UNBEGUN release it */
    bool release;
    enum queue_step step; /* BURY: before the finish; the message is acknowledged after it */
    const char *epitaph;
};
const struct queue_result_row *queue_result_row(enum queue_result result, enum queue_room room);

/* What an epitaph means, for people, where nobody has said more. */
const char *queue_epitaph_text(const char *epitaph);

#endif
