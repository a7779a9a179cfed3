/*
 * The thread that consumes. It finds the queue, takes what it is sent, and sends acknowledgements.
 *
 *     connect ──► find the queue ──► found ──► consume ──► deliveries
 *        ▲           │     ▲                       │
 *        │           └─404─┘                       │
 *        └── the connection is lost, or the queue ─┘
 *
 * Each move back has a pause before it, which grows. What was delivered by a connection that is
 * lost cannot be acknowledged any more: tags are the channel's. A queue that is deleted, or whose
 * node is down, takes the connection with it: nothing of it can be settled, and a second
 * subscription beside what is out would deliver `prefetch` once more.
 *
 * With rabbit_out_bytes in hand nothing is read, so that the server stops to send; acknowledgements
 * and heartbeats go on. What is in the socket, or behind it, is nobody's yet.
 */
#include <string.h>

#include "queue/amqp/amqp.h"

#define BATCH_MAX 64
#define FRAMES_MAX 4096 /* per turn, so that acknowledgements are not held up */
#define STEADY_MS 10000 /* who lives that long begins with short pauses again */
#define NEVER_MS 3600000
#define GHOST_LOOK_MS 50

size_t rabbit_out_bytes = QUEUE_OUT_BYTES;
_Atomic int64_t rabbit_ghost_ms = 3000, rabbit_calm_ms = 1000;

struct consumer {
    struct rabbit_thread *thread;
    struct rabbit_session s;
    struct rabbit_arrival arrival;
    uint64_t session;
    unsigned host, tries, looks;
    int64_t retry_at, since;
    int64_t look_since; /* when the first look was, whether others consume; 0: there was none */
    bool looking;       /* as a consumer that gets nothing */
    bool found, consuming;
    char tag[RABBIT_NAME_MAX];
    size_t tag_len;
    struct rabbit_message *oldest, *newest; /* what the server waits for, by tag */
    size_t bytes;                           /* of memory, in them */
    size_t stranded;                        /* of them, those without a body */
    unsigned stranded_tries;
    int64_t stranded_at;                    /* when room for one is looked for */
    struct rabbit_mail *batch, **batch_end; /* what the link will get */
    size_t batch_n;
};

/* What the server waits for. */

/* Too large for memory, and there was no room on disk. */
static bool is_stranded(const struct rabbit_message *m) {
    return m->large && m->spool == NULL;
}

static void unsettled_put(struct consumer *c, struct rabbit_message *m) {
    c->bytes += m->bytes;
    c->stranded += is_stranded(m);
    m->older = c->newest;
    m->newer = NULL;
    m->waiting = true;
    *(c->newest == NULL ? &c->oldest : &c->newest->newer) = m;
    c->newest = m;
}

static void unsettled_take(struct consumer *c, struct rabbit_message *m) {
    c->bytes -= m->bytes;
    c->stranded -= is_stranded(m);
    *(m->older == NULL ? &c->oldest : &m->older->newer) = m->newer;
    *(m->newer == NULL ? &c->newest : &m->newer->older) = m->older;
    m->older = m->newer = NULL;
    m->waiting = false; /* whatever else is said of it comes too late */
    rabbit_message_leave(m);
}

static void batch_flush(struct consumer *c) {
    rabbit_thread_post(c->thread, c->batch, c->batch_end);
    c->batch = NULL;
    c->batch_end = &c->batch;
    c->batch_n = 0;
}

/* After whatever closed the session. */
static void session_lost(struct consumer *c) {
    int64_t now = idem_loop_now();

    batch_flush(c);
    rabbit_arrival_reset(&c->arrival);
    while (c->oldest != NULL)
        unsettled_take(c, c->oldest);
    rabbit_thread_line(c->thread, -1);
    rabbit_thread_lost(c->thread, c->session);
    if (now - c->since > STEADY_MS)
        c->tries = 0;
    c->found = c->consuming = false;
    c->retry_at = now + rabbit_pause_ms(c->tries);
    c->tries += c->tries < 16;
    c->host++;
    rabbit_thread_say(c->thread, false, "the connection to %s is lost: %s; it is made again",
                      c->s.place, c->s.why);
}

/* Whether there is a session; tells of it once if it was lost on the way. */
static bool session_alive(struct consumer *c) {
    if (c->s.conn != NULL)
        return true;
    if (c->since != 0)
        session_lost(c);
    c->since = 0;
    return false;
}

/* Acknowledgements. */

/* All that is older than one that is to be acknowledged is, too: one frame says so. */
static void ack_oldest(struct consumer *c) {
    struct rabbit_message *m = c->oldest, *last = NULL, *next;
    size_t n = 0;

    for (; m != NULL && m->settled; m = m->newer, n++)
        last = m;
    if (last == NULL || !rabbit_session_sent(&c->s, amqp_basic_ack(c->s.conn, 1, last->tag, n > 1),
                                             "acknowledging"))
        return;
    for (m = c->oldest; n > 0; m = next, n--) {
        next = m->newer;
        unsettled_take(c, m);
    }
}

static bool is_ours(const struct consumer *c, const struct rabbit_message *m) {
    return c->s.conn != NULL && m->waiting;
}

/* A quorum queue puts what is given back behind what is there. Where an order matters, at a stop
   nothing is said of it: the end of the connection gives all of it back, in its order. */
static bool is_left(const struct consumer *c, const struct rabbit_mail *mail, bool fetch) {
    return mail->kind != RABBIT_MAIL_ACK && c->thread->ordered && !fetch;
}

static void settle(struct consumer *c, struct rabbit_mail *mail, bool fetch) {
    struct rabbit_mail *next;

    for (struct rabbit_mail *at = mail; at != NULL; at = at->next) {
        struct rabbit_message *m = idem_container_of(at, struct rabbit_message, mail);

        if (at->kind == RABBIT_MAIL_ACK && is_ours(c, m))
            m->settled = true;
    }
    if (c->s.conn != NULL)
        ack_oldest(c);
    for (; mail != NULL; mail = next) {
        struct rabbit_message *m = idem_container_of(mail, struct rabbit_message, mail);

        next = mail->next;
        if (is_ours(c, m) && !is_left(c, mail, fetch) &&
            rabbit_session_sent(&c->s,
                                mail->kind == RABBIT_MAIL_ACK
                                    ? amqp_basic_ack(c->s.conn, 1, m->tag, 0)
                                    : amqp_basic_nack(c->s.conn, 1, m->tag, 0, 1),
                                "acknowledging"))
            unsettled_take(c, m);
        rabbit_message_leave(m);
    }
}

/* Getting there. */

static void session_begin(struct consumer *c) {
    struct rabbit_thread *t = c->thread;
    int64_t pause;

    if (rabbit_session_open(&c->s, &t->config, c->host, "consuming")) {
        c->session++;
        c->looks = 0;
        c->look_since = 0;
        c->looking = false;
        c->since = idem_loop_now();
        c->retry_at = 0;
        rabbit_thread_line(t, amqp_get_sockfd(c->s.conn));
        return;
    }
    pause = rabbit_pause_ms(c->tries);
    c->tries += c->tries < 16;
    c->host++;
    c->retry_at = idem_loop_now() + pause;
    rabbit_thread_say(t, false, "no connection to %s: %s; the next try is in %lld ms", c->s.place,
                      c->s.why, (long long)pause);
}

/* Whether nobody else consumes. What a queue says of itself may be of before a crash of the server,
   until it has a leader; but that leader has answered who looks as a consumer, and counts him. */
static bool is_clear(const struct consumer *c, int64_t waited) {
    if (c->looking)
        return c->s.consumers == 1;
    return c->s.consumers == 0 && c->s.messages != 0 && waited >= rabbit_calm_ms;
}

/* Where an order matters: who still seems to consume may be us, before a crash of ours or of the
   server, and what he had in hand would come behind what we would be given now. He is not waited
   for for long. */
static bool is_haunted(struct consumer *c) {
    int64_t now = idem_loop_now();

    if (!c->thread->ordered)
        return false;
    if (c->look_since == 0) {
        c->looking = rabbit_session_look(&c->s, c->thread->topology.queue);
        c->look_since = idem_loop_now();
        c->retry_at = now;
        return true;
    }
    if (is_clear(c, now - c->look_since) || now - c->look_since >= rabbit_ghost_ms) {
        rabbit_session_look_end(&c->s);
        return c->s.conn == NULL;
    }
    c->retry_at = now + GHOST_LOOK_MS;
    return true;
}

static void queue_find(struct consumer *c) {
    struct rabbit_thread *t = c->thread;
    const char *queue = t->topology.queue;
    int code = rabbit_session_declare(&c->s, queue, true, NULL);

    if (code == 0 && !is_haunted(c)) {
        c->found = true;
        rabbit_thread_say(t, true, "connected to %s; the queue %s is there", c->s.place, queue);
    } else if (code > 0) {
        c->look_since = 0; /* who looked is gone with the refusal */
        c->retry_at = idem_loop_now() + rabbit_pause_ms(c->looks);
        if (c->looks == 0)
            rabbit_thread_say(t, false,
                              "the queue %s on %s: %s; messages are fetched when it is there",
                              queue, c->s.place, c->s.why);
        c->looks += c->looks < 16;
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

/* Without an answer, for which all that is on its way would have to be read first. */
static void consume_end(struct consumer *c) {
    amqp_basic_cancel_t cancel = {.consumer_tag = {.bytes = c->tag, .len = c->tag_len},
                                  .nowait = 1};

    (void)rabbit_session_sent(
        &c->s, amqp_send_method(c->s.conn, 1, AMQP_BASIC_CANCEL_METHOD, &cancel), "cancelling");
    c->consuming = false;
}

static void advance(struct consumer *c, bool fetch) {
    if (!session_alive(c) && idem_loop_now() >= c->retry_at)
        session_begin(c);
    if (c->s.conn != NULL && !c->found && idem_loop_now() >= c->retry_at)
        queue_find(c);
    if (c->s.conn != NULL && c->found && fetch && !c->consuming)
        consume_begin(c);
}

/* What is stranded. */

static void stranded_pause(struct consumer *c) {
    c->stranded_at = idem_loop_now() + rabbit_pause_ms(c->stranded_tries);
    c->stranded_tries += c->stranded_tries < 16;
}

/* One is asked for again, if there is room for it now. Otherwise it keeps its place: a queue may
   count how often it delivers a message, and drop it. */
static void stranded_look(struct consumer *c) {
    struct rabbit_message *m = c->oldest;

    if (c->s.conn == NULL || c->stranded == 0 || idem_loop_now() < c->stranded_at)
        return;
    while (m != NULL && !(is_stranded(m) && rabbit_spool_room(m->base.body.len)))
        m = m->newer;
    if (m != NULL &&
        rabbit_session_sent(&c->s, amqp_basic_nack(c->s.conn, 1, m->tag, 0, 1), "giving back"))
        unsettled_take(c, m);
    stranded_pause(c);
}

/* Deliveries. */

static void message_arrived(struct consumer *c, struct rabbit_message *m) {
    if (m == NULL) {
        rabbit_session_fail(&c->s, "no memory for a message");
        rabbit_session_close(&c->s, false);
        return;
    }
    m->session = c->session;
    unsettled_put(c, m);
    if (is_stranded(m)) {
        if (c->stranded == 1)
            stranded_pause(c);
        rabbit_thread_say(c->thread, true,
                          "a message of %zu bytes is too large, and there is no room for it in the "
                          "folder of temporary files: it waits with the server until there is",
                          m->base.body.len);
        return;
    }
    if (m->large)
        c->stranded_tries = 0;
    atomic_fetch_add(&m->holders, 1); /* the link's */
    m->mail.kind = RABBIT_MAIL_MESSAGE;
    m->mail.next = NULL;
    *c->batch_end = &m->mail;
    c->batch_end = &m->mail.next;
    if (++c->batch_n >= BATCH_MAX)
        batch_flush(c);
}

static void method_take(struct consumer *c, const amqp_method_t *method) {
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

static bool is_full(const struct consumer *c) {
    return c->s.conn != NULL && c->bytes >= rabbit_out_bytes && c->arrival.state == RABBIT_IDLE;
}

static void pump(struct consumer *c) {
    struct rabbit_message *m;
    const char *broken;
    amqp_frame_t frame;

    for (size_t n = 0;
         n < FRAMES_MAX && !is_full(c) && rabbit_session_next(&c->s, &frame) == RABBIT_GOT; n++) {
        if (frame.frame_type == AMQP_FRAME_METHOD) {
            method_take(c, &frame.payload.method);
            continue;
        }
        if (rabbit_arrival_take(&c->arrival, &frame, c->thread->topology.queue,
                                c->thread->config.user, &m, &broken)) {
            message_arrived(c, m);
        } else if (broken != NULL) {
            rabbit_session_fail(&c->s, "the server sent %s", broken);
            rabbit_session_close(&c->s, false);
        }
    }
}

static void rest_or_wait(struct consumer *c) {
    int64_t until = session_alive(c) && c->found ? idem_loop_now() + NEVER_MS : c->retry_at;

    if (c->stranded > 0 && c->stranded_at < until)
        until = c->stranded_at;
    if (is_full(c))
        rabbit_session_rest(&c->s, c->thread->in_event);
    else
        rabbit_session_wait(&c->s, c->thread->in_event, until);
}

void rabbit_consume_main(struct rabbit_thread *t) {
    struct consumer c = {.thread = t};
    struct rabbit_orders orders;

    c.batch_end = &c.batch;
    rabbit_arrival_init(&c.arrival);
    for (;;) {
        orders = rabbit_thread_orders(t);
        /* First: what is given back would come at once. Where an order matters nothing is, and a
           quorum queue would put what is on its way to us behind the rest. */
        if (c.s.conn != NULL && c.consuming && !orders.fetch && !t->ordered)
            consume_end(&c);
        settle(&c, orders.mail, orders.fetch);
        if (orders.stop)
            break;
        advance(&c, orders.fetch);
        if (c.s.conn != NULL)
            pump(&c);
        stranded_look(&c);
        batch_flush(&c);
        rest_or_wait(&c);
    }
    rabbit_session_close(&c.s, true);
    rabbit_thread_line(t, -1);
    while (c.oldest != NULL)
        unsettled_take(&c, c.oldest);
    batch_flush(&c);
    rabbit_arrival_release(&c.arrival);
}
