/*
 * Makes one allocation of a message that arrives as a method, a header and frames of its body.
 *
 * A body of more than RABBIT_BODY_MAX is kept in a file; if that fails, the message has no
 * readable body: `large`, and no spool. Without memory for the message itself, its frames are
 * skipped. Frames in another order mean a broken server.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "queue/amqp/rabbit.h"

void rabbit_message_leave(struct rabbit_message *message) {
    if (message == NULL || atomic_fetch_sub(&message->holders, 1) != 1)
        return;
    if (message->spool != NULL)
        (void)munmap(message->spool, message->base.body.len);
    free(message->job.epitaph);
    free(message);
}

void rabbit_arrival_reset(struct rabbit_arrival *a) {
    rabbit_message_leave(a->message);
    a->message = NULL;
    if (a->spool >= 0)
        close(a->spool);
    a->spool = -1;
    a->state = RABBIT_IDLE;
}

void rabbit_arrival_init(struct rabbit_arrival *a) {
    *a = (struct rabbit_arrival){.spool = -1};
}

void rabbit_arrival_release(struct rabbit_arrival *a) {
    rabbit_arrival_reset(a);
    rabbit_fields_release(&a->fields);
}

/* Copies the name into the arrival; the protocol limits it to 255 bytes. */
static amqp_bytes_t receive_keep_name(amqp_bytes_t name, char *at) {
    size_t len = name.len > RABBIT_NAME_MAX ? RABBIT_NAME_MAX : name.len;

    if (len > 0)
        memcpy(at, name.bytes, len);
    return (amqp_bytes_t){.bytes = at, .len = len};
}

void rabbit_arrival_begin(struct rabbit_arrival *a, const struct rabbit_envelope *envelope) {
    rabbit_arrival_reset(a);
    a->envelope = *envelope;
    a->envelope.exchange = receive_keep_name(envelope->exchange, a->names);
    a->envelope.routing_key = receive_keep_name(envelope->routing_key, a->names + RABBIT_NAME_MAX);
    a->state = RABBIT_HEADER;
}

/* One allocation. */

struct layout {
    unsigned char *at;
};

static struct idem_bytes layout_place(struct layout *l, const void *bytes, size_t len) {
    struct idem_bytes placed = {.at = l->at, .len = len};

    if (len > 0)
        memcpy(l->at, bytes, len);
    l->at += len;
    return placed;
}

static void fields_place(const struct rabbit_fields *fields, const unsigned char *text,
                         struct queue_field *out) {
    for (size_t i = 0; i < fields->n; i++) {
        const struct rabbit_field *from = &fields->at[i];

        out[i] = (struct queue_field){
            .name = {.at = text + from->name, .len = from->name_len},
            .value = {.at = text + from->value, .len = from->value_len},
            .json = from->json,
        };
    }
}

static struct rabbit_message *arrival_make_message(struct rabbit_arrival *a, size_t headers_n,
                                                   amqp_bytes_t raw,
                                                   const amqp_basic_properties_t *shown,
                                                   const char *queue, const char *user) {
    const struct rabbit_fields *fields = &a->fields;
    size_t size = sizeof(struct rabbit_message) + fields->n * sizeof(struct queue_field) +
                  fields->text.len + raw.len + 2 * RABBIT_NAME_MAX + strlen(queue) + 1 +
                  (a->want > RABBIT_BODY_MAX ? 0 : a->want);
    struct rabbit_message *m = malloc(size);
    struct queue_field *list = (struct queue_field *)(void *)(m + 1);
    amqp_bytes_t exchange, routing_key;
    struct layout l;

    if (m == NULL)
        return NULL;
    *m = (struct rabbit_message){.tag = a->envelope.tag,
                                 .bytes = size,
                                 .whose = rabbit_author(shown, user),
                                 .of_other = rabbit_headers_is_of_other(shown, user)};
    atomic_init(&m->holders, 1);
    l.at = (unsigned char *)(list + fields->n);
    fields_place(fields, layout_place(&l, fields->text.at, fields->text.len).at, list);
    m->properties = layout_place(&l, raw.bytes, raw.len);
    if (rabbit_headers_origin(&a->envelope, shown, user, &exchange, &routing_key)) {
        m->exchange = layout_place(&l, exchange.bytes, exchange.len);
        m->routing_key = layout_place(&l, routing_key.bytes, routing_key.len);
    }
    m->base = (struct queue_message){
        .headers = list,
        .headers_n = headers_n,
        .properties = list + headers_n,
        .properties_n = fields->n - headers_n,
        .redelivered = a->envelope.redelivered,
        .queue = (const char *)layout_place(&l, queue, strlen(queue) + 1).at,
    };
    m->base.body = (struct idem_bytes){.at = l.at, .len = a->want};
    m->large = a->want > RABBIT_BODY_MAX;
    return m;
}

/* Frames. */

static const char *arrival_take_header(struct rabbit_arrival *a, const amqp_frame_t *frame,
                                       const char *queue, const char *user) {
    const amqp_basic_properties_t *p = frame->payload.properties.decoded;
    amqp_basic_properties_t shown;
    size_t headers_n;

    if (frame->frame_type != AMQP_FRAME_HEADER ||
        frame->payload.properties.class_id != AMQP_BASIC_CLASS)
        return "a message without its header";
    if (frame->payload.properties.body_size > SIZE_MAX / 2)
        return "a message of an impossible size";
    shown = *p;
    if ((p->_flags & AMQP_BASIC_HEADERS_FLAG) == 0)
        shown.headers = amqp_empty_table;
    a->want = (size_t)frame->payload.properties.body_size;
    a->got = 0;
    rabbit_fields_reset(&a->fields);
    rabbit_fields_headers(&a->fields, &shown.headers);
    headers_n = a->fields.n;
    rabbit_fields_properties(&a->fields, &a->envelope, &shown, user);
    if (!rabbit_fields_failed(&a->fields))
        a->message =
            arrival_make_message(a, headers_n, frame->payload.properties.raw, &shown, queue, user);
    if (a->message != NULL && a->message->large)
        a->spool = rabbit_spool_open(a->want);
    a->state = RABBIT_BODY;
    return NULL;
}

static const char *arrival_take_body(struct rabbit_arrival *a, const amqp_frame_t *frame) {
    amqp_bytes_t part = frame->payload.body_fragment;

    if (frame->frame_type != AMQP_FRAME_BODY || part.len > a->want - a->got)
        return "a message with more or less than its body";
    if (a->message != NULL && !a->message->large) {
        memcpy((unsigned char *)(uintptr_t)a->message->base.body.at + a->got, part.bytes, part.len);
    } else if (a->spool >= 0 && !rabbit_spool_write(a->spool, part.bytes, part.len, a->got)) {
        close(a->spool);
        a->spool = -1;
    }
    a->got += part.len;
    return NULL;
}

bool rabbit_arrival_take(struct rabbit_arrival *a, const amqp_frame_t *frame, const char *queue,
                         const char *user, struct rabbit_message **ret, const char **broken) {
    *broken = a->state == RABBIT_IDLE     ? "a message that was not announced"
              : a->state == RABBIT_HEADER ? arrival_take_header(a, frame, queue, user)
                                          : arrival_take_body(a, frame);
    if (*broken != NULL || a->got < a->want)
        return false;
    if (a->message != NULL && a->message->large) {
        a->message->base.body.at = NULL;
        if (a->spool >= 0)
            a->message->spool = rabbit_spool_map(a->spool, a->want);
        a->message->base.body.at = a->message->spool;
        a->spool = -1;
    }
    *ret = a->message;
    a->message = NULL;
    a->state = RABBIT_IDLE;
    return true;
}
