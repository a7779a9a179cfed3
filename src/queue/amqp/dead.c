/*
 * Dead letters, for the operator's commands: got one by one and not acknowledged, so that the
 * server puts back what was not removed when the connection ends. Blocks.
 *
 * A classic queue puts each back to its place. A quorum queue puts them behind those that were put
 * back before, so that these are read to their end first, and all keep their order.
 *
 * Fails where the server does; a copy of which nothing was heard is IDEM_E_UNKNOWN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "queue/amqp/amqp.h"

#define TIMEOUT_MS 10000
#define REST_MAX 100000 /* letters that are read only to keep their order */

struct queue_dead {
    struct rabbit_config config;
    struct rabbit_session s;
    struct rabbit_arrival arrival;
    struct rabbit_message *letter; /* the one that was told last */
    char *queue;
    int64_t timeout_ms;
    uint64_t seq;
    bool again; /* the last one was put back before */
    bool counted;
    uint64_t left; /* of those that were there at the first look */
};

static int refuse(const struct queue_dead *d, int code, struct idem_error *err) {
    return idem_error_set(err, code, "amqp: %s: %s", d->s.place, d->s.why);
}

/* The next frame of channel 1, which is waited for; false: see d->s.why. */
static bool frame_wait(struct queue_dead *d, int64_t until, amqp_frame_t *ret) {
    enum rabbit_got got;

    while ((got = rabbit_session_next(&d->s, ret)) == RABBIT_NONE && idem_loop_now() < until)
        rabbit_session_wait(&d->s, -1, until);
    if (got == RABBIT_NONE) {
        rabbit_session_fail(&d->s, "no answer within %lld ms", (long long)d->timeout_ms);
        rabbit_session_close(&d->s, false);
    }
    return got == RABBIT_GOT;
}

/* Opening. */

static void dead_free(struct queue_dead *d) {
    rabbit_session_close(&d->s, true);
    rabbit_arrival_release(&d->arrival);
    rabbit_message_leave(d->letter);
    rabbit_config_release(&d->config);
    free(d->queue);
    free(d);
}

static int place_find(struct queue_dead *d, struct idem_error *err) {
    int code;

    if (!rabbit_session_open(&d->s, &d->config, 0, "dead letters"))
        return refuse(d, IDEM_E_REFUSED, err);
    code = rabbit_session_declare(&d->s, d->queue, true, NULL);
    if (code != 0)
        return refuse(d, code == AMQP_NOT_FOUND ? IDEM_E_ABSENT : IDEM_E_REFUSED, err);
    (void)amqp_confirm_select(d->s.conn, 1);
    if (!rabbit_session_ok(&d->s, amqp_get_rpc_reply(d->s.conn), 1, "confirms"))
        return refuse(d, IDEM_E_REFUSED, err);
    return 0;
}

static int dead_open(const struct queue_dead_config *config, struct queue_dead **ret,
                     struct idem_error *err) {
    struct queue_dead *d;
    int rc = rabbit_name_check(config->queue, "a queue", err);

    if (rc != 0)
        return rc;
    d = calloc(1, sizeof(*d));
    if (d != NULL) {
        rabbit_arrival_init(&d->arrival);
        d->queue = strdup(config->queue);
    }
    if (d == NULL || d->queue == NULL) {
        free(d);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker");
    }
    rc = rabbit_config_read(config->url, &d->config, err);
    if (rc == 0) {
        d->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : TIMEOUT_MS;
        if (d->config.connect_timeout_ms > d->timeout_ms)
            d->config.connect_timeout_ms = d->timeout_ms;
        rc = place_find(d, err);
    }
    if (rc != 0) {
        dead_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

/* Letters. */

static int letter_take(struct queue_dead *d, struct idem_error *err) {
    int64_t until = idem_loop_now() + d->timeout_ms;
    struct rabbit_message *m = NULL;
    const char *broken = NULL;
    amqp_frame_t frame;
    bool whole = false;

    while (!whole && broken == NULL) {
        if (!frame_wait(d, until, &frame))
            return refuse(d, IDEM_E_REFUSED, err);
        whole = rabbit_arrival_take(&d->arrival, &frame, d->queue, d->config.user, &m, &broken);
    }
    if (broken != NULL)
        return idem_error_set(err, IDEM_E_REFUSED, "amqp: %s sent %s", d->s.place, broken);
    if (m == NULL || (m->large && m->spool == NULL)) {
        rabbit_message_leave(m);
        return idem_error_set(err, IDEM_E_NOMEM, "amqp: no room for a dead letter of %zu bytes",
                              d->arrival.want);
    }
    d->letter = m;
    return 0;
}

static void letter_count(struct queue_dead *d, uint32_t behind) {
    if (!d->counted)
        d->left = (uint64_t)behind + 1;
    d->counted = true;
    d->left -= d->left > 0;
}

static int letter_get(struct queue_dead *d, struct queue_letter *ret, struct idem_error *err) {
    const amqp_basic_get_ok_t *ok;
    amqp_rpc_reply_t reply;
    int rc;

    rabbit_message_leave(d->letter);
    d->letter = NULL;
    d->again = false;
    if (d->s.conn == NULL)
        return refuse(d, IDEM_E_REFUSED, err);
    reply = amqp_basic_get(d->s.conn, 1, amqp_cstring_bytes(d->queue), 0);
    if (!rabbit_session_ok(&d->s, reply, 1, "a letter"))
        return refuse(d, IDEM_E_REFUSED, err);
    if (reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD) {
        *ret = (struct queue_letter){.message = NULL};
        return 0;
    }
    ok = reply.reply.decoded;
    letter_count(d, ok->message_count);
    rabbit_arrival_begin(&d->arrival, &(struct rabbit_envelope){
                                          .exchange = ok->exchange,
                                          .routing_key = ok->routing_key,
                                          .redelivered = ok->redelivered != 0,
                                          .tag = ok->delivery_tag,
                                      });
    rc = letter_take(d, err);
    if (rc != 0)
        return rc;
    d->again = d->letter->base.redelivered;
    ret->message = &d->letter->base;
    ret->claimed = d->letter->whose != RABBIT_OURS;
    snprintf(ret->receipt, sizeof(ret->receipt), "%llu", (unsigned long long)d->letter->tag);
    return 0;
}

/* What is buried meanwhile is not told: who requeues all would meet what he has requeued. */
static int dead_next(struct queue_dead *d, struct queue_letter *ret, struct idem_error *err) {
    if (!d->counted || d->left > 0)
        return letter_get(d, ret, err);
    rabbit_message_leave(d->letter);
    d->letter = NULL;
    *ret = (struct queue_letter){.message = NULL};
    return 0;
}

static void dead_close(struct queue_dead *d) {
    int64_t until;
    struct queue_letter letter;

    if (d == NULL)
        return;
    until = idem_loop_now() + d->timeout_ms;
    for (int i = 0; d->again && i < REST_MAX && idem_loop_now() < until; i++)
        if (letter_get(d, &letter, NULL) != 0)
            break;
    dead_free(d);
}

/* Acknowledgements have no answer, but what is asked behind one is answered after it. */
static int dead_remove(struct queue_dead *d, const char *receipt, struct idem_error *err) {
    unsigned long long tag = strtoull(receipt, NULL, 10);

    if (tag == 0)
        return idem_error_set(err, IDEM_E_INVALID, "amqp: this is no receipt of a dead letter");
    if (d->s.conn == NULL ||
        !rabbit_session_sent(&d->s, amqp_basic_ack(d->s.conn, 1, tag, 0), "acknowledging"))
        return refuse(d, IDEM_E_REFUSED, err);
    (void)amqp_basic_qos(d->s.conn, 1, 0, 1, 0);
    if (!rabbit_session_ok(&d->s, amqp_get_rpc_reply(d->s.conn), 1, "acknowledging"))
        return refuse(d, IDEM_E_REFUSED, err);
    return 0;
}

/* Requeueing. */

/* The server's word on the copy: a return, if there is one, comes before the ack. */
static int confirm_wait(struct queue_dead *d, const char *queue, struct idem_error *err) {
    int64_t until = idem_loop_now() + d->timeout_ms;
    bool returned = false;
    amqp_frame_t frame;

    for (;;) {
        if (!frame_wait(d, until, &frame))
            return refuse(d, IDEM_E_UNKNOWN, err);
        if (frame.frame_type != AMQP_FRAME_METHOD)
            continue;
        if (frame.payload.method.id == AMQP_BASIC_RETURN_METHOD)
            returned = true;
        if (frame.payload.method.id == AMQP_BASIC_NACK_METHOD)
            return idem_error_set(err, IDEM_E_REFUSED,
                                  "amqp: the queue %.200s refuses it: is it full?", queue);
        if (frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            continue;
        return returned
                   ? idem_error_set(err, IDEM_E_ABSENT, "amqp: there is no queue %.200s", queue)
                   : 0;
    }
}

/* By whom it is sent: the consumer believes a copy of its own user's only. A server that knew the
   consumer by another name has letters without one, and would refuse it here, too. */
static const char *letter_user(const struct queue_dead *d) {
    bool said = queue_property(&d->letter->base, "user_id") != NULL;

    return said || d->letter->whose == RABBIT_OURS ? d->config.user : NULL;
}

static int letter_send(struct queue_dead *d, const char *queue, struct idem_error *err) {
    struct rabbit_copy copy;
    bool refused = true;
    int rc = 0;

    if (!rabbit_copy_make(&copy, d->letter, RABBIT_FOR_QUEUE, NULL, letter_user(d), ++d->seq))
        rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for a copy");
    else if (!rabbit_copy_send(&d->s, &copy, queue, d->letter->base.body, &refused))
        rc = refuse(d, refused ? IDEM_E_REFUSED : IDEM_E_UNKNOWN, err);
    rabbit_copy_release(&copy);
    return rc == 0 ? confirm_wait(d, queue, err) : rc;
}

static int dead_requeue(struct queue_dead *d, const char *to, struct idem_error *err) {
    const struct queue_field *from;
    char queue[RABBIT_NAME_MAX + 1];
    int rc;

    if (d->letter == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "amqp: no letter was read");
    if (d->s.conn == NULL)
        return refuse(d, IDEM_E_REFUSED, err);
    if (d->letter->of_other)
        return idem_error_set(err, IDEM_E_INVALID,
                              "amqp: the letter says who has sent it, by the word of the user who "
                              "has buried it: connect as that one, or it would be lost on its way");
    from = queue_header(&d->letter->base, QUEUE_DEAD_QUEUE);
    if (to == NULL && (from == NULL || from->json || from->value.len >= sizeof(queue)))
        return idem_error_set(err, IDEM_E_INVALID,
                              "amqp: the letter does not say where it came from (%s): say where "
                              "it is to go",
                              QUEUE_DEAD_QUEUE);
    if (to != NULL)
        snprintf(queue, sizeof(queue), "%s", to);
    else
        snprintf(queue, sizeof(queue), "%.*s", (int)from->value.len, (const char *)from->value.at);
    rc = rabbit_name_check(to != NULL ? to : queue, "a queue", err);
    return rc == 0 ? letter_send(d, queue, err) : rc;
}

static const char *const schemes[] = {"amqp", "amqps", NULL};

const struct queue_dead_broker queue_dead_broker_amqp = {
    .name = "amqp",
    .schemes = schemes,
    .open = dead_open,
    .next = dead_next,
    .requeue = dead_requeue,
    .remove = dead_remove,
    .close = dead_close,
};
