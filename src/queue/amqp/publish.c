/*
 * The thread that publishes copies: to a queue of delays, or to the dead letters. Its connection is
 * made when there is something to publish.
 *
 * Each copy is persistent and mandatory, and many may wait for the server's word at a time. The
 * server counts them: basic.ack says that a copy is safe; basic.nack that its queue does not take
 * it; basic.return, before an ack, that there is no such queue, which is then declared, once, and
 * the copy sent again. What returned is known by the number that it carries in a header. A
 * connection that is lost leaves it open which copies are there, and so does a queue that has lost
 * its leader, of which nothing is ever heard.
 *
 * A server that is killed forgets quorum queues that are younger than a second, with what is in
 * them, confirmed or not (its register of them is written that late). No copy is sent to one
 * before; and as nobody tells its age, to none that was not in use for so long on this connection.
 */
#include <stdio.h>
#include <string.h>

#include "queue/amqp/amqp.h"

#define SENT_MAX 1000 /* copies that may wait for the server's word */
#define TURN_MAX 64   /* sent between two looks at what has come */
#define STEADY_MS 10000
#define REFUSED_MS 60000 /* until a queue that could not be declared is tried again */
#define HEARTBEATS 3     /* in which a copy must be confirmed */
#define NEVER_MS 3600000

int64_t rabbit_settle_ms = 4000;

/* What is known of a queue. */
struct place {
    bool declared; /* on this connection */
    int64_t usable_at, refused_until;
};

struct job_list {
    struct rabbit_job *first, **end;
    size_t n;
};

struct publisher {
    struct rabbit_thread *thread;
    struct rabbit_session s;
    unsigned host, tries;
    int64_t retry_at, since;
    struct job_list todo, sent;
    struct rabbit_mail *done, **done_end;
    uint64_t seq;
    struct place places[RABBIT_DELAYS_MAX + 1]; /* the last one is of the dead letters */
    char refused_why[RABBIT_WHY];
    bool anonymous; /* the server knows us by another name than we said */
    bool weak_said, blocked_said;
    bool returning; /* the header of what returned is next */
};

/* Lists. */

static void list_init(struct job_list *list) {
    *list = (struct job_list){.end = &list->first};
}

static void list_put(struct job_list *list, struct rabbit_job *job) {
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
    list->n++;
}

static struct rabbit_job *list_take(struct job_list *list, struct rabbit_job **at) {
    struct rabbit_job *job = *at;

    *at = job->next;
    if (job->next == NULL)
        list->end = at;
    list->n--;
    return job;
}

static void job_tell(struct publisher *p, struct rabbit_job *job, bool taken) {
    job->taken = taken;
    job->mail.next = NULL;
    *p->done_end = &job->mail;
    p->done_end = &job->mail.next;
}

static const char *job_queue(const struct publisher *p, const struct rabbit_job *job,
                             char buf[RABBIT_QUEUE_TEXT]) {
    return rabbit_topology_name(&p->thread->topology, job->delay, buf);
}

/* `why` may be NULL; the queue's name is told before it. */
static void job_refuse(struct publisher *p, struct rabbit_job *job, const char *what,
                       const char *why) {
    char name[RABBIT_QUEUE_TEXT];

    snprintf(job->why, sizeof(job->why), "the queue %.100s: %s%s%s", job_queue(p, job, name), what,
             why == NULL ? "" : ": ", why == NULL ? "" : why);
    job_tell(p, job, false);
}

static void done_flush(struct publisher *p) {
    rabbit_thread_post(p->thread, p->done, p->done_end);
    p->done = NULL;
    p->done_end = &p->done;
}

/* The session. */

/* After whatever closed it. */
static void session_lost(struct publisher *p) {
    int64_t now = idem_loop_now();
    bool renamed = p->s.code == AMQP_PRECONDITION_FAILED && strstr(p->s.why, "user_id") != NULL;

    if (now - p->since > STEADY_MS)
        p->tries = 0;
    p->since = 0;
    p->host++;
    p->retry_at = renamed && !p->anonymous ? now : now + rabbit_pause_ms(p->tries);
    p->tries += p->tries < 16;
    p->anonymous |= renamed;
    p->returning = false;
    rabbit_thread_line(p->thread, -1);
    while (p->sent.first != NULL)
        job_refuse(p, list_take(&p->sent, &p->sent.first),
                   "the connection was lost before it was confirmed, and it may be there",
                   p->s.why);
}

static bool session_alive(struct publisher *p) {
    if (p->s.conn == NULL && p->since != 0)
        session_lost(p);
    return p->s.conn != NULL;
}

static void session_begin(struct publisher *p) {
    if (rabbit_session_open(&p->s, &p->thread->config, p->host, "publishing")) {
        (void)amqp_confirm_select(p->s.conn, 1);
        (void)rabbit_session_ok(&p->s, amqp_get_rpc_reply(p->s.conn), 1, "confirms");
    }
    if (p->s.conn == NULL) {
        p->retry_at = idem_loop_now() + rabbit_pause_ms(p->tries);
        p->tries += p->tries < 16;
        p->host++;
        return;
    }
    p->since = idem_loop_now();
    p->seq = 0;
    for (size_t i = 0; i <= RABBIT_DELAYS_MAX; i++)
        p->places[i].declared = false;
    rabbit_thread_line(p->thread, amqp_get_sockfd(p->s.conn));
}

/* Nobody waits for a connection here: who asked has a better place for the message. */
static void session_need(struct publisher *p) {
    if (session_alive(p) || p->todo.first == NULL)
        return;
    if (idem_loop_now() >= p->retry_at)
        session_begin(p);
    while (p->s.conn == NULL && p->todo.first != NULL)
        job_refuse(p, list_take(&p->todo, &p->todo.first), "there is no connection", p->s.why);
}

/* Queues. */

static struct place *place_of(struct publisher *p, const struct rabbit_job *job) {
    return &p->places[job->delay < 0 ? RABBIT_DELAYS_MAX : job->delay];
}

/* Each new one puts off the writing of those that are not settled yet. */
static void place_made(struct publisher *p, struct place *place) {
    int64_t now = idem_loop_now();

    place->usable_at = now + rabbit_settle_ms;
    for (size_t i = 0; i <= RABBIT_DELAYS_MAX; i++)
        if (p->places[i].usable_at > now)
            p->places[i].usable_at = now + rabbit_settle_ms;
}

static void place_refuse(struct publisher *p, struct place *place, const char *why) {
    place->refused_until = idem_loop_now() + REFUSED_MS;
    snprintf(p->refused_why, sizeof(p->refused_why), "%s", why);
}

/* Declares the job's queue: 0, a code, or -1. One that is there must be as we would make it. */
static int queue_declare(struct publisher *p, const struct rabbit_job *job) {
    const struct rabbit_topology *topology = &p->thread->topology;
    char name[RABBIT_QUEUE_TEXT];
    bool weak = false;
    int there = rabbit_session_declare(&p->s, job_queue(p, job, name), true, NULL);
    int code = there < 0 ? there : rabbit_topology_declare(topology, &p->s, job->delay, &weak);

    if (code == 0 && there != 0)
        place_made(p, place_of(p, job));
    else if (code == 0) /* another consumer may have made it just now */
        place_of(p, job)->usable_at = idem_loop_now() + rabbit_settle_ms;
    if (weak && !p->weak_said) {
        p->weak_said = true;
        rabbit_thread_say(p->thread, true,
                          "%s has no quorum queues for delays: a message that waits in a classic "
                          "one is lost if the server dies at the moment it goes back",
                          p->s.place);
    }
    return code;
}

/* Whether the job's queue is there, as far as we know. Otherwise the job is dealt with. */
static bool delay_need(struct publisher *p, struct rabbit_job *job) {
    struct place *place = place_of(p, job);
    int code;

    if (place->declared)
        return true;
    code = queue_declare(p, job);
    place->declared = code == 0;
    if (code > 0) {
        place_refuse(p, place, p->s.why);
        job_refuse(p, job, "it cannot be declared", p->s.why);
    } else if (code < 0 || idem_loop_now() < place->usable_at) {
        list_put(&p->todo, job); /* later, or with the next connection: nothing was sent */
        return false;
    }
    return code == 0;
}

/* There was no such queue. */
static void job_returned(struct publisher *p, struct rabbit_job *job) {
    int code;

    place_of(p, job)->declared = false;
    if (!p->thread->topology.allowed || job->declared) {
        job_refuse(p, job, "there is no such queue", NULL);
        return;
    }
    job->declared = true;
    job->returned = false;
    code = queue_declare(p, job);
    place_of(p, job)->declared = code == 0;
    if (code > 0)
        job_refuse(p, job, "it cannot be declared", p->s.why);
    else
        list_put(&p->todo, job);
}

/* Sending. */

static void job_send(struct publisher *p, struct rabbit_job *job) {
    struct rabbit_thread *t = p->thread;
    char name[RABBIT_QUEUE_TEXT];
    struct rabbit_copy copy;
    bool refused;

    if (idem_loop_now() < place_of(p, job)->refused_until) {
        job_refuse(p, job, "it is not used for a while", p->refused_why);
        return;
    }
    if (job->delay >= 0 && !delay_need(p, job))
        return;
    job->seq = p->seq + 1;
    if (!rabbit_copy_make(&copy, job->message, job->delay >= 0 ? RABBIT_FOR_LATER : RABBIT_FOR_DEAD,
                          &job->said, p->anonymous ? NULL : t->config.user, job->seq)) {
        job_refuse(p, job, "no memory for a copy", NULL);
    } else if (rabbit_copy_send(&p->s, &copy, job_queue(p, job, name), job->message->base.body,
                                &refused) ||
               !refused) {
        p->seq++;
        job->sent_at = idem_loop_now();
        list_put(&p->sent, job);
    } else {
        job_refuse(p, job, "it cannot be sent", p->s.why);
    }
    rabbit_copy_release(&copy);
}

/* Whether the job's queue may be used yet. That of dead letters may be somebody else's, and just
   made, when it is first needed; if it is not there, what is sent comes back. */
static bool place_is_usable(struct publisher *p, const struct rabbit_job *job, int64_t now) {
    struct place *place = place_of(p, job);

    if (job->delay < 0 && !place->declared) {
        place->declared = true;
        place->usable_at = now + rabbit_settle_ms;
    }
    return place->usable_at <= now;
}

/* Those whose queue is not settled yet stay where they are, in their order. */
static void send_some(struct publisher *p) {
    struct rabbit_job **at = &p->todo.first;
    int64_t now = idem_loop_now();
    size_t todo = p->todo.n; /* what is put back is not looked at again */

    for (size_t n = 0; todo > 0 && *at != NULL && p->s.conn != NULL && !p->s.blocked; todo--) {
        if (!place_is_usable(p, *at, now))
            at = &(*at)->next;
        else if (n++ < TURN_MAX && p->sent.n < SENT_MAX)
            job_send(p, list_take(&p->todo, at));
        else
            return;
    }
}

/* When the next one may go. */
static int64_t send_next(struct publisher *p) {
    int64_t now = idem_loop_now(), next = now + NEVER_MS, usable_at;

    if (p->s.conn == NULL)
        return p->todo.first == NULL ? next : now;
    if (p->s.blocked || p->sent.n >= SENT_MAX)
        return next;
    for (struct rabbit_job *job = p->todo.first; job != NULL; job = job->next) {
        usable_at = place_of(p, job)->usable_at;
        next = usable_at < next ? usable_at : next;
    }
    return next;
}

/* What the server says of them. */

static void job_answered(struct publisher *p, struct rabbit_job *job, bool ack) {
    if (!ack)
        job_refuse(p, job, "it was refused: is the queue full?", NULL);
    else if (job->returned)
        job_returned(p, job);
    else
        job_tell(p, job, true);
}

static void answer_take(struct publisher *p, uint64_t tag, bool multiple, bool ack) {
    struct rabbit_job **at = &p->sent.first;

    while (*at != NULL && (*at)->seq <= tag) {
        if (multiple || (*at)->seq == tag)
            job_answered(p, list_take(&p->sent, at), ack);
        else
            at = &(*at)->next;
    }
}

static void return_take(struct publisher *p, const amqp_basic_properties_t *properties) {
    const amqp_field_value_t *seq = NULL;

    p->returning = false;
    if ((properties->_flags & AMQP_BASIC_HEADERS_FLAG) != 0)
        seq = rabbit_header_find(&properties->headers, RABBIT_COPY);
    if (seq == NULL || seq->kind != AMQP_FIELD_KIND_I64)
        return;
    for (struct rabbit_job *job = p->sent.first; job != NULL; job = job->next)
        job->returned |= job->seq == (uint64_t)seq->value.i64;
}

static void frame_take(struct publisher *p, const amqp_frame_t *frame) {
    const amqp_method_t *method = &frame->payload.method;

    if (frame->frame_type == AMQP_FRAME_HEADER && p->returning) {
        return_take(p, frame->payload.properties.decoded);
    } else if (frame->frame_type != AMQP_FRAME_METHOD) {
        return; /* the body of what returned */
    } else if (method->id == AMQP_BASIC_ACK_METHOD) {
        const amqp_basic_ack_t *ack = method->decoded;

        answer_take(p, ack->delivery_tag, ack->multiple != 0, true);
    } else if (method->id == AMQP_BASIC_NACK_METHOD) {
        const amqp_basic_nack_t *nack = method->decoded;

        answer_take(p, nack->delivery_tag, nack->multiple != 0, false);
    } else if (method->id == AMQP_BASIC_RETURN_METHOD) {
        p->returning = true;
    }
}

/* While it is blocked, no copy is late. */
static void blocked_say(struct publisher *p) {
    for (struct rabbit_job *job = p->sent.first; job != NULL && p->s.blocked; job = job->next)
        job->sent_at = idem_loop_now();
    if (p->s.blocked == p->blocked_said)
        return;
    p->blocked_said = p->s.blocked;
    if (p->s.blocked)
        rabbit_thread_say(p->thread, true, "%s takes no messages now (%s): copies wait", p->s.place,
                          p->s.why);
    else
        rabbit_thread_say(p->thread, true, "%s takes messages again", p->s.place);
}

static void pump(struct publisher *p) {
    amqp_frame_t frame;

    while (rabbit_session_next(&p->s, &frame) == RABBIT_GOT)
        frame_take(p, &frame);
    blocked_say(p);
}

/* The server may have stopped to read what comes behind it, too: the connection is given up, and
   that queue is left alone for a while. Returns when the next copy is late. */
static int64_t late_check(struct publisher *p) {
    int64_t limit = HEARTBEATS * p->thread->config.heartbeat_ms, now = idem_loop_now();
    const struct rabbit_job *oldest = p->sent.first;

    if (oldest == NULL || p->s.conn == NULL)
        return now + NEVER_MS;
    if (now - oldest->sent_at < limit)
        return oldest->sent_at + limit;
    rabbit_session_fail(&p->s, "no word within three heartbeats: has the queue a leader?");
    p->s.code = 0;
    place_refuse(p, place_of(p, oldest), p->s.why);
    rabbit_session_close(&p->s, false);
    return now;
}

static void orders_take(struct publisher *p, struct rabbit_mail *mail) {
    struct rabbit_mail *next;

    for (; mail != NULL; mail = next) {
        next = mail->next;
        list_put(&p->todo, idem_container_of(mail, struct rabbit_job, mail));
    }
}

static void publisher_release(struct publisher *p) {
    rabbit_session_close(&p->s, true);
    rabbit_thread_line(p->thread, -1);
    done_flush(p);
    while (p->sent.first != NULL)
        rabbit_message_leave(list_take(&p->sent, &p->sent.first)->message);
    while (p->todo.first != NULL)
        rabbit_message_leave(list_take(&p->todo, &p->todo.first)->message);
}

void rabbit_publish_main(struct rabbit_thread *t) {
    struct publisher p = {.thread = t};
    struct rabbit_orders orders;
    int64_t until, late_at;

    p.done_end = &p.done;
    list_init(&p.todo);
    list_init(&p.sent);
    for (;;) {
        orders = rabbit_thread_orders(t);
        orders_take(&p, orders.mail);
        if (orders.stop)
            break;
        session_need(&p);
        send_some(&p);
        if (p.s.conn != NULL)
            pump(&p);
        late_at = late_check(&p);
        (void)session_alive(&p);
        until = send_next(&p);
        done_flush(&p);
        rabbit_session_wait(&p.s, t->in_event, late_at < until ? late_at : until);
    }
    publisher_release(&p);
}
