/*
 * Dead letters, for the operator's commands: fetched one by one and not acknowledged, so that
 * the server puts back the letters that were not removed when the connection ends. Blocks.
 *
 * A classic queue puts each letter back to its place. A quorum queue puts it behind those that
 * were put back before. So these are read to the end first, and all letters keep their order.
 *
 * Fails when the server does; a copy without a confirm is IDEM_E_UNKNOWN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "queue/amqp/rabbit.h"

#define TIMEOUT_MS 10000
#define REST_MAX 100000 /* limit for letters that are read only to keep the order */

struct queue_dead {
    struct rabbit_config config;
    struct rabbit_session s;
    struct rabbit_arrival arrival;
    struct rabbit_message *letter; /* the letter returned last */
    char *queue;
    int64_t timeout_ms;
    uint64_t seq;
    bool again; /* it was put back before */
    bool counted;
    uint64_t left; /* number of unread letters of those at the first look */
};

static int dead_refuse(const struct queue_dead *d, int code, struct idem_error *err) {
    return idem_error_set(err, code, "amqp: %s: %s", d->s.place, d->s.why);
}

/* Waits for the next frame of channel 1; false: d->s.why has the reason. */
static bool dead_wait_frame(struct queue_dead *d, int64_t until, amqp_frame_t *ret) {
    enum rabbit_got got;

    while ((got = rabbit_session_next(&d->s, ret)) == RABBIT_NONE && idem_loop_now() < until)
        rabbit_session_wait(&d->s, -1, until);
    if (got == RABBIT_NONE) {
        rabbit_session_fail(&d->s, "no response within %lld ms", (long long)d->timeout_ms);
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

static int dead_find_queue(struct queue_dead *d, struct idem_error *err) {
    int code;

    if (!rabbit_session_open(&d->s, &d->config, 0, "dead letters"))
        return dead_refuse(d, IDEM_E_REFUSED, err);
    code = rabbit_session_declare(&d->s, d->queue, true, NULL);
    if (code != 0)
        return dead_refuse(d, code == AMQP_NOT_FOUND ? IDEM_E_ABSENT : IDEM_E_REFUSED, err);
    (void)amqp_confirm_select(d->s.conn, 1);
    if (!rabbit_session_ok(&d->s, amqp_get_rpc_reply(d->s.conn), 1, "confirms"))
        return dead_refuse(d, IDEM_E_REFUSED, err);
    return 0;
}

static int dead_letter_open(const struct queue_dead_config *config, struct queue_dead **ret,
                            struct idem_error *err) {
    struct queue_dead *d;
    int rc = rabbit_url_check_name(config->queue, "a queue", err);

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
        rc = dead_find_queue(d, err);
    }
    if (rc != 0) {
        dead_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

/* Letters. */

static int dead_read_letter(struct queue_dead *d, struct idem_error *err) {
    int64_t until = idem_loop_now() + d->timeout_ms;
    struct rabbit_message *m = NULL;
    const char *broken = NULL;
    amqp_frame_t frame;
    bool whole = false;

    while (!whole && broken == NULL) {
        if (!dead_wait_frame(d, until, &frame))
            return dead_refuse(d, IDEM_E_REFUSED, err);
        whole = rabbit_arrival_read(&d->arrival, &frame, d->queue, d->config.user, &m, &broken);
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

static void dead_count_letter(struct queue_dead *d, uint32_t behind) {
    if (!d->counted)
        d->left = (uint64_t)behind + 1;
    d->counted = true;
    d->left -= d->left > 0;
}

static int dead_get_letter(struct queue_dead *d, struct queue_letter *ret, struct idem_error *err) {
    const amqp_basic_get_ok_t *ok;
    amqp_rpc_reply_t reply;
    int rc;

    rabbit_message_leave(d->letter);
    d->letter = NULL;
    d->again = false;
    if (d->s.conn == NULL)
        return dead_refuse(d, IDEM_E_REFUSED, err);
    reply = amqp_basic_get(d->s.conn, 1, amqp_cstring_bytes(d->queue), 0);
    if (!rabbit_session_ok(&d->s, reply, 1, "a letter"))
        return dead_refuse(d, IDEM_E_REFUSED, err);
    if (reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD) {
        *ret = (struct queue_letter){.message = NULL};
        return 0;
    }
    ok = reply.reply.decoded;
    dead_count_letter(d, ok->message_count);
    rabbit_arrival_begin(&d->arrival, &(struct rabbit_envelope){
                                          .exchange = ok->exchange,
                                          .routing_key = ok->routing_key,
                                          .redelivered = ok->redelivered != 0,
                                          .tag = ok->delivery_tag,
                                      });
    rc = dead_read_letter(d, err);
    if (rc != 0)
        return rc;
    d->again = d->letter->base.redelivered;
    ret->message = &d->letter->base;
    ret->claimed = d->letter->whose != RABBIT_OURS;
    snprintf(ret->receipt, sizeof(ret->receipt), "%llu", (unsigned long long)d->letter->tag);
    return 0;
}

/* Reading ends here, so that a command that requeues all letters does not meet those that are
   buried again meanwhile. */
static int dead_next(struct queue_dead *d, struct queue_letter *ret, struct idem_error *err) {
    if (!d->counted || d->left > 0)
        return dead_get_letter(d, ret, err);
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
        if (dead_get_letter(d, &letter, NULL) != 0)
            break;
    dead_free(d);
}

/* Acknowledgements have no reply, but the reply to a later request proves that they arrived. */
static int dead_remove(struct queue_dead *d, const char *receipt, struct idem_error *err) {
    unsigned long long tag = strtoull(receipt, NULL, 10);

    if (tag == 0)
        return idem_error_set(err, IDEM_E_INVALID, "amqp: this is no receipt of a dead letter");
    if (d->s.conn == NULL ||
        !rabbit_session_sent(&d->s, amqp_basic_ack(d->s.conn, 1, tag, 0), "acknowledging"))
        return dead_refuse(d, IDEM_E_REFUSED, err);
    (void)amqp_basic_qos(d->s.conn, 1, 0, 1, 0);
    if (!rabbit_session_ok(&d->s, amqp_get_rpc_reply(d->s.conn), 1, "acknowledging"))
        return dead_refuse(d, IDEM_E_REFUSED, err);
    return 0;
}

/* Requeueing. */

/* Waits for the confirm of the copy: a return, if there is one, arrives before the ack. */
static int dead_wait_confirm(struct queue_dead *d, const char *queue, struct idem_error *err) {
    int64_t until = idem_loop_now() + d->timeout_ms;
    bool returned = false;
    amqp_frame_t frame;

    for (;;) {
        if (!dead_wait_frame(d, until, &frame))
            return dead_refuse(d, IDEM_E_UNKNOWN, err);
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

/* The user that the copy names: the consumer trusts copies of its own user only. If the server
   knew the consumer by another name, the letter has no user, and the server would refuse ours
   here, too. */
static const char *dead_sender(const struct queue_dead *d) {
    bool has_user = queue_message_property(&d->letter->base, "user_id") != NULL;

    return has_user || d->letter->whose == RABBIT_OURS ? d->config.user : NULL;
}

static int dead_send_letter(struct queue_dead *d, const char *queue, struct idem_error *err) {
    struct rabbit_copy copy;
    bool refused = true;
    int rc = 0;

    if (!rabbit_copy_make(&copy, d->letter, RABBIT_FOR_QUEUE, NULL, dead_sender(d), ++d->seq))
        rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for a copy");
    else if (!rabbit_copy_send(&d->s, &copy, queue, d->letter->base.body, &refused))
        rc = dead_refuse(d, refused ? IDEM_E_REFUSED : IDEM_E_UNKNOWN, err);
    rabbit_copy_release(&copy);
    return rc == 0 ? dead_wait_confirm(d, queue, err) : rc;
}

static int dead_requeue(struct queue_dead *d, const char *to, struct idem_error *err) {
    const struct queue_field *from;
    char queue[RABBIT_NAME_MAX + 1];
    int rc;

    if (d->letter == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "amqp: no letter was read");
    if (d->s.conn == NULL)
        return dead_refuse(d, IDEM_E_REFUSED, err);
    if (d->letter->of_other)
        return idem_error_set(err, IDEM_E_INVALID,
                              "amqp: the user who buried this letter vouches for its sender: "
                              "connect as that user, or the sender's name is lost on the way");
    from = queue_message_header(&d->letter->base, QUEUE_DEAD_QUEUE);
    if (to == NULL && (from == NULL || from->json || from->value.len >= sizeof(queue)))
        return idem_error_set(err, IDEM_E_INVALID,
                              "amqp: the letter has no origin (%s): name the queue that it goes to",
                              QUEUE_DEAD_QUEUE);
    if (to != NULL)
        snprintf(queue, sizeof(queue), "%s", to);
    else
        snprintf(queue, sizeof(queue), "%.*s", (int)from->value.len, (const char *)from->value.at);
    rc = rabbit_url_check_name(to != NULL ? to : queue, "a queue", err);
    return rc == 0 ? dead_send_letter(d, queue, err) : rc;
}

const struct queue_dead_broker queue_dead_broker_amqp = {
    .open = dead_letter_open,
    .next = dead_next,
    .requeue = dead_requeue,
    .remove = dead_remove,
    .close = dead_close,
};
