/*
 * The publishing thread: sends copies to a queue of delays, or to the dead letters. It
 * connects when there is something to publish.
 *
 * Each copy is persistent and mandatory, and many may wait for their confirm at a time. The
 * server counts them: basic.ack means that a copy is safe; basic.nack that its queue refuses
 * it; basic.return, before an ack, that the queue does not exist. Such a queue is declared,
 * once, and the copy sent again. A header with the copy's number identifies a return. If a
 * connection is lost, it is unknown which copies arrived. The same holds for a queue without a
 * leader, which never confirms.
 *
 * A server that is killed forgets quorum queues younger than a second, with their messages,
 * confirmed or not (it writes its register of queues that late). No copy is sent to a younger
 * queue. As the age of a queue is unknown, none is used before it was known for that long on
 * this connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"
#include "queue/amqp/rabbit.h"

/*
 * A body that is too large for memory waits in a file until it is among the dead letters. The
 * file has no name, so that nothing of it can be left behind. It is filled by writing: a full
 * disk is then an error, and not a signal.
 */

int rabbit_spool_open(size_t size) {
    const char *folder = getenv("TMPDIR");
    int fd = open(folder == NULL || folder[0] == '\0' ? "/tmp" : folder,
                  O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)size) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool rabbit_spool_room(size_t size) {
    int fd = rabbit_spool_open(size);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

bool rabbit_spool_write(int fd, const void *bytes, size_t len, size_t at) {
    const char *from = bytes;
    ssize_t n;

    while (len > 0) {
        n = pwrite(fd, from, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        at += (size_t)n;
        len -= (size_t)n;
    }
    return true;
}

void *rabbit_spool_map(int fd, size_t size) {
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

#define SENT_MAX 1000 /* limit for unconfirmed copies */
#define TURN_MAX 64   /* copies sent between two reads */
#define STEADY_MS 10000
#define REFUSED_MS 60000 /* pause before a refused declaration is retried */
#define HEARTBEATS 3     /* time limit for a confirm */
#define NEVER_MS 3600000

int64_t rabbit_settle_ms = 4000;

/* The state of a queue. */
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
    struct place places[RABBIT_DELAYS_MAX + 1]; /* the last one is for the dead letters */
    char refused_why[RABBIT_WHY];
    bool anonymous; /* the server knows us by another name than our login */
    bool weak_reported, blocked_reported;
    bool returning; /* the header of a returned copy is the next frame */
};

/* Lists. */

static void job_list_init(struct job_list *list) {
    *list = (struct job_list){.end = &list->first};
}

static void job_list_append(struct job_list *list, struct rabbit_job *job) {
    idem_link_append(&list->end, job);
    list->n++;
}

static struct rabbit_job *job_list_remove(struct job_list *list, struct rabbit_job *job) {
    idem_link_remove_end(&list->end, job);
    list->n--;
    return job;
}

static void publisher_report_job(struct publisher *p, struct rabbit_job *job, bool taken) {
    job->taken = taken;
    job->mail.next = NULL;
    *p->done_end = &job->mail;
    p->done_end = &job->mail.next;
}

static const char *publisher_job_queue(const struct publisher *p, const struct rabbit_job *job,
                                       char buf[RABBIT_QUEUE_TEXT]) {
    return rabbit_topology_name(&p->thread->topology, job->delay, buf);
}

/* `why` may be NULL; the queue's name precedes it. */
static void publisher_refuse_job(struct publisher *p, struct rabbit_job *job, const char *what,
                                 const char *why) {
    char name[RABBIT_QUEUE_TEXT];

    snprintf(job->why, sizeof(job->why), "the queue %.100s: %s%s%s",
             publisher_job_queue(p, job, name), what, why == NULL ? "" : ": ",
             why == NULL ? "" : why);
    publisher_report_job(p, job, false);
}

static void publisher_flush_done(struct publisher *p) {
    rabbit_thread_post(p->thread, p->done, p->done_end);
    p->done = NULL;
    p->done_end = &p->done;
}

/* The session. */

/* To be called after the session was closed. */
static void publisher_session_lost(struct publisher *p) {
    int64_t now = idem_loop_now();
    bool renamed = p->s.code == AMQP_PRECONDITION_FAILED && strstr(p->s.why, "user_id") != NULL;

    if (now - p->since > STEADY_MS)
        p->tries = 0;
    p->since = 0;
    p->host++;
    p->retry_at = now + rabbit_session_pause_ms(&p->tries);
    if (renamed && !p->anonymous)
        p->retry_at = now;
    p->anonymous |= renamed;
    p->returning = false;
    rabbit_thread_set_socket(p->thread, -1);
    while (p->sent.first != NULL)
        publisher_refuse_job(p, job_list_remove(&p->sent, p->sent.first),
                             "the connection was lost before it was confirmed, and it may be there",
                             p->s.why);
}

static bool publisher_has_session(struct publisher *p) {
    if (p->s.conn == NULL && p->since != 0)
        publisher_session_lost(p);
    return p->s.conn != NULL;
}

static void publisher_begin_session(struct publisher *p) {
    if (rabbit_session_open(&p->s, &p->thread->config, p->host, "publishing")) {
        (void)amqp_confirm_select(p->s.conn, 1);
        (void)rabbit_session_ok(&p->s, amqp_get_rpc_reply(p->s.conn), 1, "confirms");
    }
    if (p->s.conn == NULL) {
        p->retry_at = idem_loop_now() + rabbit_session_pause_ms(&p->tries);
        p->host++;
        return;
    }
    p->since = idem_loop_now();
    p->seq = 0;
    for (size_t i = 0; i <= RABBIT_DELAYS_MAX; i++)
        p->places[i].declared = false;
    rabbit_thread_set_socket(p->thread, amqp_get_sockfd(p->s.conn));
}

/* No job waits for a connection: the message is in safer hands with the consumer. */
static void publisher_need_session(struct publisher *p) {
    if (publisher_has_session(p) || p->todo.first == NULL)
        return;
    if (idem_loop_now() >= p->retry_at)
        publisher_begin_session(p);
    while (p->s.conn == NULL && p->todo.first != NULL)
        publisher_refuse_job(p, job_list_remove(&p->todo, p->todo.first), "there is no connection",
                             p->s.why);
}

/* Queues. */

static struct place *publisher_job_slot(struct publisher *p, const struct rabbit_job *job) {
    return &p->places[job->delay < 0 ? RABBIT_DELAYS_MAX : job->delay];
}

/* The server delays the writing of its register with each new queue, so all unsettled ones wait
   longer. */
static void publisher_place_created(struct publisher *p, struct place *place) {
    int64_t now = idem_loop_now();

    place->usable_at = now + rabbit_settle_ms;
    for (size_t i = 0; i <= RABBIT_DELAYS_MAX; i++)
        if (p->places[i].usable_at > now)
            p->places[i].usable_at = now + rabbit_settle_ms;
}

static void publisher_refuse_place(struct publisher *p, struct place *place, const char *why) {
    place->refused_until = idem_loop_now() + REFUSED_MS;
    snprintf(p->refused_why, sizeof(p->refused_why), "%s", why);
}

/* Declares the job's queue: 0, a code, or -1. An existing queue must have our arguments. */
static int publisher_declare_queue(struct publisher *p, const struct rabbit_job *job) {
    const struct rabbit_topology *topology = &p->thread->topology;
    char name[RABBIT_QUEUE_TEXT];
    bool weak = false;
    int there = rabbit_session_declare(&p->s, publisher_job_queue(p, job, name), true, NULL);
    int code = there < 0 ? there : rabbit_topology_declare(topology, &p->s, job->delay, &weak);

    if (code == 0 && there != 0)
        publisher_place_created(p, publisher_job_slot(p, job));
    else if (code == 0) /* another consumer may have created it just now */
        publisher_job_slot(p, job)->usable_at = idem_loop_now() + rabbit_settle_ms;
    if (weak && !p->weak_reported) {
        p->weak_reported = true;
        rabbit_thread_report(
            p->thread, true,
            "%s has no quorum queues for delays: a message that waits in a classic "
            "one is lost if the server dies at the moment it goes back",
            p->s.place);
    }
    return code;
}

/* True if the job's queue exists, as far as is known. Otherwise the job is refused or put back. */
static bool publisher_need_queue(struct publisher *p, struct rabbit_job *job) {
    struct place *place = publisher_job_slot(p, job);
    int code;

    if (place->declared)
        return true;
    code = publisher_declare_queue(p, job);
    place->declared = code == 0;
    if (code > 0) {
        publisher_refuse_place(p, place, p->s.why);
        publisher_refuse_job(p, job, "it cannot be declared", p->s.why);
    } else if (code < 0 || idem_loop_now() < place->usable_at) {
        job_list_append(&p->todo, job); /* later, or with the next connection: nothing was sent */
        return false;
    }
    return code == 0;
}

/* The copy's queue does not exist. */
static void publisher_job_returned(struct publisher *p, struct rabbit_job *job) {
    int code;

    publisher_job_slot(p, job)->declared = false;
    if (!p->thread->topology.allowed || job->declared) {
        publisher_refuse_job(p, job, "there is no such queue", NULL);
        return;
    }
    job->declared = true;
    job->returned = false;
    code = publisher_declare_queue(p, job);
    publisher_job_slot(p, job)->declared = code == 0;
    if (code > 0)
        publisher_refuse_job(p, job, "it cannot be declared", p->s.why);
    else
        job_list_append(&p->todo, job);
}

/* Sending. */

static void publisher_send_job(struct publisher *p, struct rabbit_job *job) {
    struct rabbit_thread *t = p->thread;
    char name[RABBIT_QUEUE_TEXT];
    struct rabbit_copy copy;
    bool refused;

    if (idem_loop_now() < publisher_job_slot(p, job)->refused_until) {
        publisher_refuse_job(p, job, "it is not used for a while", p->refused_why);
        return;
    }
    if (job->delay >= 0 && !publisher_need_queue(p, job))
        return;
    job->seq = p->seq + 1;
    if (!rabbit_copy_make(&copy, job->message, job->delay >= 0 ? RABBIT_FOR_LATER : RABBIT_FOR_DEAD,
                          &job->dead_fields, p->anonymous ? NULL : t->config.user, job->seq)) {
        publisher_refuse_job(p, job, "no memory for a copy", NULL);
    } else if (rabbit_copy_send(&p->s, &copy, publisher_job_queue(p, job, name),
                                job->message->base.body, &refused) ||
               !refused) {
        p->seq++;
        job->sent_at = idem_loop_now();
        job_list_append(&p->sent, job);
    } else {
        publisher_refuse_job(p, job, "it cannot be sent", p->s.why);
    }
    rabbit_copy_release(&copy);
}

/* True if the job's queue may be used yet. The queue of dead letters may be created by others,
   and be new when it is first needed. If it does not exist, the copy is returned. */
static bool publisher_may_use_place(struct publisher *p, const struct rabbit_job *job,
                                    int64_t now) {
    struct place *place = publisher_job_slot(p, job);

    if (job->delay < 0 && !place->declared) {
        place->declared = true;
        place->usable_at = now + rabbit_settle_ms;
    }
    return place->usable_at <= now;
}

/* Jobs whose queue may not be used yet keep their places and their order. */
static void publisher_send_some(struct publisher *p) {
    struct rabbit_job *job = p->todo.first, *next;
    int64_t now = idem_loop_now();
    size_t n = 0, todo = p->todo.n; /* jobs that are put back are not looked at again */

    for (; todo > 0 && job != NULL && p->s.conn != NULL && !p->s.blocked; job = next, todo--) {
        next = job->next;
        if (!publisher_may_use_place(p, job, now))
            continue;
        if (n++ == TURN_MAX || p->sent.n >= SENT_MAX)
            return;
        publisher_send_job(p, job_list_remove(&p->todo, job));
    }
}

/* The time of the next possible send. */
static int64_t publisher_next_send(struct publisher *p) {
    int64_t now = idem_loop_now(), next = now + NEVER_MS, usable_at;

    if (p->s.conn == NULL)
        return p->todo.first == NULL ? next : now;
    if (p->s.blocked || p->sent.n >= SENT_MAX)
        return next;
    for (struct rabbit_job *job = p->todo.first; job != NULL; job = job->next) {
        usable_at = publisher_job_slot(p, job)->usable_at;
        next = usable_at < next ? usable_at : next;
    }
    return next;
}

/* Confirms and returns. */

static void publisher_job_confirmed(struct publisher *p, struct rabbit_job *job, bool ack) {
    if (!ack)
        publisher_refuse_job(p, job, "it was refused: is the queue full?", NULL);
    else if (job->returned)
        publisher_job_returned(p, job);
    else
        publisher_report_job(p, job, true);
}

static void publisher_on_confirm(struct publisher *p, uint64_t tag, bool multiple, bool ack) {
    struct rabbit_job *job = p->sent.first, *next;

    for (; job != NULL && job->seq <= tag; job = next) {
        next = job->next;
        if (multiple || job->seq == tag)
            publisher_job_confirmed(p, job_list_remove(&p->sent, job), ack);
    }
}

static void publisher_on_return(struct publisher *p, const amqp_basic_properties_t *properties) {
    const amqp_field_value_t *seq = NULL;

    p->returning = false;
    if ((properties->_flags & AMQP_BASIC_HEADERS_FLAG) != 0)
        seq = rabbit_header_find(&properties->headers, RABBIT_COPY);
    if (seq == NULL || seq->kind != AMQP_FIELD_KIND_I64)
        return;
    for (struct rabbit_job *job = p->sent.first; job != NULL; job = job->next)
        job->returned |= job->seq == (uint64_t)seq->value.i64;
}

static void publisher_on_frame(struct publisher *p, const amqp_frame_t *frame) {
    const amqp_method_t *method = &frame->payload.method;

    if (frame->frame_type == AMQP_FRAME_HEADER && p->returning) {
        publisher_on_return(p, frame->payload.properties.decoded);
    } else if (frame->frame_type != AMQP_FRAME_METHOD) {
        return; /* the body of a returned copy */
    } else if (method->id == AMQP_BASIC_ACK_METHOD) {
        const amqp_basic_ack_t *ack = method->decoded;

        publisher_on_confirm(p, ack->delivery_tag, ack->multiple != 0, true);
    } else if (method->id == AMQP_BASIC_NACK_METHOD) {
        const amqp_basic_nack_t *nack = method->decoded;

        publisher_on_confirm(p, nack->delivery_tag, nack->multiple != 0, false);
    } else if (method->id == AMQP_BASIC_RETURN_METHOD) {
        p->returning = true;
    }
}

/* Copies cannot be late while the server blocks us. */
static void publisher_report_blocked(struct publisher *p) {
    for (struct rabbit_job *job = p->sent.first; job != NULL && p->s.blocked; job = job->next)
        job->sent_at = idem_loop_now();
    if (p->s.blocked == p->blocked_reported)
        return;
    p->blocked_reported = p->s.blocked;
    if (p->s.blocked)
        rabbit_thread_report(p->thread, true, "%s takes no messages now (%s): copies wait",
                             p->s.place, p->s.why);
    else
        rabbit_thread_report(p->thread, true, "%s takes messages again", p->s.place);
}

static void publisher_read_frames(struct publisher *p) {
    amqp_frame_t frame;

    while (rabbit_session_next(&p->s, &frame) == RABBIT_GOT)
        publisher_on_frame(p, &frame);
    publisher_report_blocked(p);
}

/* The server may have stopped reading the copies behind the late one too. So the connection is
   closed, and that queue is not used for a while. Returns the time when the next copy is late. */
static int64_t publisher_check_late(struct publisher *p) {
    int64_t limit = HEARTBEATS * p->thread->config.heartbeat_ms, now = idem_loop_now();
    const struct rabbit_job *oldest = p->sent.first;

    if (oldest == NULL || p->s.conn == NULL)
        return now + NEVER_MS;
    if (now - oldest->sent_at < limit)
        return oldest->sent_at + limit;
    rabbit_session_fail(&p->s, "no word within three heartbeats: has the queue a leader?");
    p->s.code = 0;
    publisher_refuse_place(p, publisher_job_slot(p, oldest), p->s.why);
    rabbit_session_close(&p->s, false);
    return now;
}

static void publisher_add_jobs(struct publisher *p, struct rabbit_mail *mail) {
    struct rabbit_mail *next;

    for (; mail != NULL; mail = next) {
        next = mail->next;
        job_list_append(&p->todo, idem_container_of(mail, struct rabbit_job, mail));
    }
}

static void publisher_release(struct publisher *p) {
    rabbit_session_close(&p->s, true);
    rabbit_thread_set_socket(p->thread, -1);
    publisher_flush_done(p);
    while (p->sent.first != NULL)
        rabbit_message_leave(job_list_remove(&p->sent, p->sent.first)->message);
    while (p->todo.first != NULL)
        rabbit_message_leave(job_list_remove(&p->todo, p->todo.first)->message);
}

void rabbit_publish_main(struct rabbit_thread *t) {
    struct publisher p = {.thread = t};
    struct rabbit_orders orders;
    int64_t until, late_at;

    p.done_end = &p.done;
    job_list_init(&p.todo);
    job_list_init(&p.sent);
    for (;;) {
        orders = rabbit_thread_orders(t);
        publisher_add_jobs(&p, orders.mail);
        if (orders.stop)
            break;
        publisher_need_session(&p);
        publisher_send_some(&p);
        if (p.s.conn != NULL)
            publisher_read_frames(&p);
        late_at = publisher_check_late(&p);
        (void)publisher_has_session(&p);
        until = publisher_next_send(&p);
        publisher_flush_done(&p);
        rabbit_session_wait(&p.s, t->in_event, late_at < until ? late_at : until);
    }
    publisher_release(&p);
}
