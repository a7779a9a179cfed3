/*
 * The consuming thread. It finds the queue, takes deliveries, and sends acknowledgements.
 *
 *     connect ──► find the queue ──► found ──► consume ──► deliveries
 *        ▲           │     ▲                       │
 *        │           └─404─┘                       │
 *        └── the connection is lost, or the queue ─┘
 *
 * Before each move back there is a pause, which grows. Deliveries of a lost connection can no
 * longer be acknowledged, since tags belong to the channel. If the queue is deleted, or its
 * node is down, we close the connection too: its messages cannot be settled, and a second
 * subscription beside the messages that are out would deliver `prefetch` once more.
 *
 * With rabbit_out_bytes in hand nothing is read, so that the server stops sending;
 * acknowledgements and heartbeats go on. Messages in the socket, or behind it, are not ours
 * yet.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"
#include "queue/amqp/rabbit.h"

/*
 * Makes one allocation of a message that arrives as a method, a header and frames of its body.
 *
 * A body of more than RABBIT_BODY_MAX is kept in a file; if that fails, the message has no
 * readable body: `large`, and no spool. Without memory for the message itself, its frames are
 * skipped. Frames in another order mean a broken server.
 */

/* Drops an unfinished message. */
static void rabbit_arrival_reset(struct rabbit_arrival *a) {
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
static amqp_bytes_t receive_copy_name(amqp_bytes_t name, char *at) {
    size_t len = name.len > RABBIT_NAME_MAX ? RABBIT_NAME_MAX : name.len;

    if (len > 0)
        memcpy(at, name.bytes, len);
    return (amqp_bytes_t){.bytes = at, .len = len};
}

void rabbit_arrival_begin(struct rabbit_arrival *a, const struct rabbit_envelope *envelope) {
    rabbit_arrival_reset(a);
    a->envelope = *envelope;
    a->envelope.exchange = receive_copy_name(envelope->exchange, a->names);
    a->envelope.routing_key = receive_copy_name(envelope->routing_key, a->names + RABBIT_NAME_MAX);
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

static const char *arrival_read_header(struct rabbit_arrival *a, const amqp_frame_t *frame,
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

static const char *arrival_read_body(struct rabbit_arrival *a, const amqp_frame_t *frame) {
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

bool rabbit_arrival_read(struct rabbit_arrival *a, const amqp_frame_t *frame, const char *queue,
                         const char *user, struct rabbit_message **ret, const char **broken) {
    *broken = a->state == RABBIT_IDLE     ? "a message that was not announced"
              : a->state == RABBIT_HEADER ? arrival_read_header(a, frame, queue, user)
                                          : arrival_read_body(a, frame);
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

#define BATCH_MAX 64
#define FRAMES_MAX 4096 /* per turn, so that acknowledgements are not delayed */
#define STEADY_MS 10000 /* a session that lives longer resets the pauses */
#define NEVER_MS 3600000
#define OTHERS_LOOK_MS 50

size_t rabbit_out_bytes = QUEUE_OUT_BYTES;
_Atomic int64_t rabbit_ghost_ms = 3000, rabbit_calm_ms = 1000;

struct consumer {
    struct rabbit_thread *thread;
    struct rabbit_session s;
    struct rabbit_arrival arrival;
    uint64_t session;
    unsigned host, tries, looks;
    int64_t retry_at, since;
    int64_t look_since; /* time of the first look for other consumers; 0: there was none */
    bool looking;       /* subscribed without credit */
    bool found, consuming;
    char tag[RABBIT_NAME_MAX];
    size_t tag_len;
    struct rabbit_message *oldest, **newest_end; /* messages to be settled, by tag */
    size_t bytes;                                /* their memory */
    size_t stranded;                             /* number of those without a body */
    unsigned stranded_tries;
    int64_t stranded_at;                    /* time of the next look for room */
    struct rabbit_mail *batch, **batch_end; /* mail for the link */
    size_t batch_n;
};

/* Unsettled messages. */

/* True if the body is too large for memory, and the disk had no room for it. */
static bool message_is_stranded(const struct rabbit_message *m) {
    return m->large && m->spool == NULL;
}

static void consumer_add_unsettled(struct consumer *c, struct rabbit_message *m) {
    c->bytes += m->bytes;
    c->stranded += message_is_stranded(m);
    idem_link_append_in(newer_, &c->newest_end, m);
}

static void consumer_remove_unsettled(struct consumer *c, struct rabbit_message *m) {
    c->bytes -= m->bytes;
    c->stranded -= message_is_stranded(m);
    idem_link_remove_end_in(newer_, &c->newest_end, m);
    rabbit_message_leave(m);
}

static void consumer_flush_batch(struct consumer *c) {
    rabbit_thread_post(c->thread, c->batch, c->batch_end);
    c->batch = NULL;
    c->batch_end = &c->batch;
    c->batch_n = 0;
}

/* To be called after the session was closed. */
static void consumer_session_lost(struct consumer *c) {
    int64_t now = idem_loop_now();

    consumer_flush_batch(c);
    rabbit_arrival_reset(&c->arrival);
    while (c->oldest != NULL)
        consumer_remove_unsettled(c, c->oldest);
    rabbit_thread_set_socket(c->thread, -1);
    rabbit_thread_lost(c->thread, c->session);
    if (now - c->since > STEADY_MS)
        c->tries = 0;
    c->found = c->consuming = false;
    c->retry_at = now + rabbit_session_pause_ms(&c->tries);
    c->host++;
    rabbit_thread_report(c->thread, false, "the connection to %s is lost: %s; it is made again",
                         c->s.place, c->s.why);
}

/* True if there is a session. Handles the loss of a session, once. */
static bool consumer_has_session(struct consumer *c) {
    if (c->s.conn != NULL)
        return true;
    if (c->since != 0)
        consumer_session_lost(c);
    c->since = 0;
    return false;
}

/* Acknowledgements. */

/* If everything older than a message is to be acknowledged too, one frame does it. */
static void consumer_ack_oldest(struct consumer *c) {
    struct rabbit_message *m = c->oldest, *last = NULL, *next;
    size_t n = 0;

    for (; m != NULL && m->settled; m = m->newer_next, n++)
        last = m;
    if (last == NULL || !rabbit_session_sent(&c->s, amqp_basic_ack(c->s.conn, 1, last->tag, n > 1),
                                             "acknowledging"))
        return;
    for (m = c->oldest; n > 0; m = next, n--) {
        next = m->newer_next;
        consumer_remove_unsettled(c, m);
    }
}

static bool consumer_may_settle(const struct consumer *c, const struct rabbit_message *m) {
    return c->s.conn != NULL && m->newer_link != NULL;
}

/* A quorum queue puts a returned message behind the others. With an order, a stop therefore
   sends nothing for it: the end of the connection returns all messages in their order. */
static bool consumer_leaves_unsettled(const struct consumer *c, const struct rabbit_mail *mail,
                                      bool fetch) {
    return mail->kind != RABBIT_MAIL_ACK && c->thread->ordered && !fetch;
}

static void consumer_settle(struct consumer *c, struct rabbit_mail *mail, bool fetch) {
    struct rabbit_mail *next;

    for (struct rabbit_mail *at = mail; at != NULL; at = at->next) {
        struct rabbit_message *m = idem_container_of(at, struct rabbit_message, mail);

        if (at->kind == RABBIT_MAIL_ACK && consumer_may_settle(c, m))
            m->settled = true;
    }
    if (c->s.conn != NULL)
        consumer_ack_oldest(c);
    for (; mail != NULL; mail = next) {
        struct rabbit_message *m = idem_container_of(mail, struct rabbit_message, mail);

        next = mail->next;
        if (consumer_may_settle(c, m) && !consumer_leaves_unsettled(c, mail, fetch) &&
            rabbit_session_sent(&c->s,
                                mail->kind == RABBIT_MAIL_ACK
                                    ? amqp_basic_ack(c->s.conn, 1, m->tag, 0)
                                    : amqp_basic_nack(c->s.conn, 1, m->tag, 0, 1),
                                "acknowledging"))
            consumer_remove_unsettled(c, m);
        rabbit_message_leave(m);
    }
}

/* Connecting. */

static void consumer_begin_session(struct consumer *c) {
    struct rabbit_thread *t = c->thread;
    int64_t pause;

    if (rabbit_session_open(&c->s, &t->config, c->host, "consuming")) {
        c->session++;
        c->looks = 0;
        c->look_since = 0;
        c->looking = false;
        c->since = idem_loop_now();
        c->retry_at = 0;
        rabbit_thread_set_socket(t, amqp_get_sockfd(c->s.conn));
        return;
    }
    pause = rabbit_session_pause_ms(&c->tries);
    c->host++;
    c->retry_at = idem_loop_now() + pause;
    rabbit_thread_report(t, false, "no connection to %s: %s; the next try is in %lld ms",
                         c->s.place, c->s.why, (long long)pause);
}

/* True if no other consumer exists. After a crash of the server, a queue without a leader may
   report old numbers. A leader that has replied to our own subscription counts us. */
static bool consumer_is_alone(const struct consumer *c, int64_t waited) {
    if (c->looking)
        return c->s.consumers == 1;
    return c->s.consumers == 0 && c->s.messages != 0 && waited >= rabbit_calm_ms;
}

/* With an order only: a consumer in the server's list may be our own lost connection, after a
   crash of ours or of the server. Its messages would arrive behind those that we would get now.
   We wait for its end, but not for long. */
static bool consumer_waits_for_others(struct consumer *c) {
    int64_t now = idem_loop_now();

    if (!c->thread->ordered)
        return false;
    if (c->look_since == 0) {
        c->looking = rabbit_session_look(&c->s, c->thread->topology.queue);
        c->look_since = idem_loop_now();
        c->retry_at = now;
        return true;
    }
    if (consumer_is_alone(c, now - c->look_since) || now - c->look_since >= rabbit_ghost_ms) {
        rabbit_session_look_end(&c->s);
        return c->s.conn == NULL;
    }
    c->retry_at = now + OTHERS_LOOK_MS;
    return true;
}

static void consumer_find_queue(struct consumer *c) {
    struct rabbit_thread *t = c->thread;
    const char *queue = t->topology.queue;
    int code = rabbit_session_declare(&c->s, queue, true, NULL);

    if (code == 0 && !consumer_waits_for_others(c)) {
        c->found = true;
        rabbit_thread_report(t, true, "connected to %s; the queue %s is there", c->s.place, queue);
    } else if (code > 0) {
        c->look_since = 0; /* the refusal has closed the subscription too */
        if (c->looks == 0)
            rabbit_thread_report(t, false,
                                 "the queue %s on %s: %s; messages are fetched when it is there",
                                 queue, c->s.place, c->s.why);
        c->retry_at = idem_loop_now() + rabbit_session_pause_ms(&c->looks);
    }
}

static void consume_begin(struct consumer *c) {
    amqp_basic_consume_ok_t *ok;

    (void)amqp_basic_qos(c->s.conn, 1, 0, (uint16_t)c->thread->prefetch, 0);
    if (!rabbit_session_ok(&c->s, amqp_get_rpc_reply(c->s.conn), 1, "prefetch"))
        return;
    ok = amqp_basic_consume(c->s.conn, 1, amqp_cstring_bytes(c->thread->topology.queue),
                            amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    if (!rabbit_session_ok(&c->s, amqp_get_rpc_reply(c->s.conn), 1, "consuming"))
        return;
    c->tag_len = ok->consumer_tag.len < sizeof(c->tag) ? ok->consumer_tag.len : sizeof(c->tag);
    memcpy(c->tag, ok->consumer_tag.bytes, c->tag_len);
    c->consuming = true;
}

/* Without waiting for the reply, which would need reading all messages on their way first. */
static void consume_end(struct consumer *c) {
    amqp_basic_cancel_t cancel = {.consumer_tag = {.bytes = c->tag, .len = c->tag_len},
                                  .nowait = 1};

    (void)rabbit_session_sent(
        &c->s, amqp_send_method(c->s.conn, 1, AMQP_BASIC_CANCEL_METHOD, &cancel), "cancelling");
    c->consuming = false;
}

static void consumer_advance(struct consumer *c, bool fetch) {
    if (!consumer_has_session(c) && idem_loop_now() >= c->retry_at)
        consumer_begin_session(c);
    if (c->s.conn != NULL && !c->found && idem_loop_now() >= c->retry_at)
        consumer_find_queue(c);
    if (c->s.conn != NULL && c->found && fetch && !c->consuming)
        consume_begin(c);
}

/* Stranded messages. */

static void consumer_pause_stranded(struct consumer *c) {
    c->stranded_at = idem_loop_now() + rabbit_session_pause_ms(&c->stranded_tries);
}

/* Returns one stranded message, to get it again, if there is room for it now. Otherwise it
   stays unsettled: a queue may count deliveries of a message, and drop it at a limit. */
static void consumer_retry_stranded(struct consumer *c) {
    struct rabbit_message *m = c->oldest;

    if (c->s.conn == NULL || c->stranded == 0 || idem_loop_now() < c->stranded_at)
        return;
    while (m != NULL && !(message_is_stranded(m) && rabbit_spool_room(m->base.body.len)))
        m = m->newer_next;
    if (m != NULL &&
        rabbit_session_sent(&c->s, amqp_basic_nack(c->s.conn, 1, m->tag, 0, 1), "giving back"))
        consumer_remove_unsettled(c, m);
    consumer_pause_stranded(c);
}

/* Deliveries. */

static void consumer_on_message(struct consumer *c, struct rabbit_message *m) {
    if (m == NULL) {
        rabbit_session_fail(&c->s, "no memory for a message");
        rabbit_session_close(&c->s, false);
        return;
    }
    m->session = c->session;
    consumer_add_unsettled(c, m);
    if (message_is_stranded(m)) {
        if (c->stranded == 1)
            consumer_pause_stranded(c);
        rabbit_thread_report(
            c->thread, true,
            "a message of %zu bytes is too large, and there is no room for it in the "
            "directory of temporary files: it waits with the server until there is",
            m->base.body.len);
        return;
    }
    if (m->large)
        c->stranded_tries = 0;
    atomic_fetch_add(&m->holders, 1); /* the link's reference */
    m->mail.kind = RABBIT_MAIL_MESSAGE;
    m->mail.next = NULL;
    *c->batch_end = &m->mail;
    c->batch_end = &m->mail.next;
    if (++c->batch_n >= BATCH_MAX)
        consumer_flush_batch(c);
}

static void consumer_on_method(struct consumer *c, const amqp_method_t *method) {
    const amqp_basic_deliver_t *deliver = method->decoded;

    if (method->id == AMQP_BASIC_DELIVER_METHOD) {
        rabbit_arrival_begin(&c->arrival, &(struct rabbit_envelope){
                                              .exchange = deliver->exchange,
                                              .routing_key = deliver->routing_key,
                                              .redelivered = deliver->redelivered != 0,
                                              .tag = deliver->delivery_tag,
                                          });
    } else if (method->id == AMQP_BASIC_CANCEL_METHOD) {
        rabbit_session_fail(&c->s, "the queue %s was deleted, or its node is down",
                            c->thread->topology.queue);
        rabbit_session_close(&c->s, true);
    }
}

static bool consumer_is_full(const struct consumer *c) {
    return c->s.conn != NULL && c->bytes >= rabbit_out_bytes && c->arrival.state == RABBIT_IDLE;
}

static void consumer_read_frames(struct consumer *c) {
    struct rabbit_message *m;
    const char *broken;
    amqp_frame_t frame;

    for (size_t n = 0;
         n < FRAMES_MAX && !consumer_is_full(c) && rabbit_session_next(&c->s, &frame) == RABBIT_GOT;
         n++) {
        if (frame.frame_type == AMQP_FRAME_METHOD) {
            consumer_on_method(c, &frame.payload.method);
            continue;
        }
        if (rabbit_arrival_read(&c->arrival, &frame, c->thread->topology.queue,
                                c->thread->config.user, &m, &broken)) {
            consumer_on_message(c, m);
        } else if (broken != NULL) {
            rabbit_session_fail(&c->s, "the server sent %s", broken);
            rabbit_session_close(&c->s, false);
        }
    }
}

static void consumer_sleep(struct consumer *c) {
    int64_t until = consumer_has_session(c) && c->found ? idem_loop_now() + NEVER_MS : c->retry_at;

    if (c->stranded > 0 && c->stranded_at < until)
        until = c->stranded_at;
    if (consumer_is_full(c))
        rabbit_session_rest(&c->s, c->thread->in_event);
    else
        rabbit_session_wait(&c->s, c->thread->in_event, until);
}

void rabbit_consume_main(struct rabbit_thread *t) {
    struct consumer c = {.thread = t};
    struct rabbit_orders orders;

    c.newest_end = &c.oldest;
    c.batch_end = &c.batch;
    rabbit_arrival_init(&c.arrival);
    for (;;) {
        orders = rabbit_thread_orders(t);
        /* Unsubscribe first: returned messages would arrive again at once. With an order
           nothing is returned, and a quorum queue would put messages on their way behind the
           rest. */
        if (c.s.conn != NULL && c.consuming && !orders.fetch && !t->ordered)
            consume_end(&c);
        consumer_settle(&c, orders.mail, orders.fetch);
        if (orders.stop)
            break;
        consumer_advance(&c, orders.fetch);
        if (c.s.conn != NULL)
            consumer_read_frames(&c);
        consumer_retry_stranded(&c);
        consumer_flush_batch(&c);
        consumer_sleep(&c);
    }
    rabbit_session_close(&c.s, true);
    rabbit_thread_set_socket(t, -1);
    while (c.oldest != NULL)
        consumer_remove_unsettled(&c, c.oldest);
    consumer_flush_batch(&c);
    rabbit_arrival_release(&c.arrival);
}
