/*
 * The loop's side of the broker: what is out, whom to tell, and the mail to and from the two
 * threads. Everything here runs in the loop's thread.
 *
 * A message that is out is held by the link until it is given back. When its connection is lost it
 * is marked as gone, and whatever is said of it later ends here. A message whose body is too large
 * for memory is not told: it is buried from here, with pauses between tries, and then acknowledged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "queue/amqp/amqp.h"

#define CLOSE_MS 1000
#define CONSUMER_TIMEOUT_MS ((int64_t)30 * 60 * 1000) /* the server's default */
#define REASON_MAX 1000
#define WORD_MAX 600  /* of a prefix or a hash */
#define LARGE_TRIES 4 /* pauses for what is too large begin with a few seconds */

struct queue_link {
    struct idem_loop *loop;
    struct queue_events events;
    struct rabbit_thread *consume, *publish;
    struct idem_fd consume_fd, publish_fd;
    struct idem_task soon_task;
    struct rabbit_job *soon, **soon_end; /* to be told from the loop, without a thread's doing */
    struct idem_timer large_timer;
    struct rabbit_message *out; /* told, and not given back */
    uint64_t lost;              /* sessions up to this one */
    unsigned large_tries;
    bool ready;
    unsigned busy; /* call-backs that run */
    bool closed;
};

/* Call-backs: the link may be closed in each. */

static void link_free(struct queue_link *link) {
    rabbit_thread_leave(link->consume);
    rabbit_thread_leave(link->publish);
    free(link);
}

static void busy_end(struct queue_link *link) {
    if (--link->busy == 0 && link->closed)
        link_free(link);
}

static void state_tell(struct queue_link *link, bool ready, const char *text) {
    if (link->closed)
        return;
    link->ready = ready;
    link->events.state(link->events.data, ready, text);
}

/* What is out. */

static void out_put(struct queue_link *link, struct rabbit_message *m) {
    m->link = link;
    m->out = true;
    m->next = link->out;
    m->prev = NULL;
    if (m->next != NULL)
        m->next->prev = m;
    link->out = m;
}

static void out_take(struct queue_link *link, struct rabbit_message *m) {
    if (m->next != NULL)
        m->next->prev = m->prev;
    *(m->prev == NULL ? &link->out : &m->prev->next) = m->next;
    m->prev = m->next = NULL;
    m->out = false;
}

/* Gives it back, and the link's hold with it. */
static void message_return(struct queue_link *link, struct rabbit_message *m,
                           enum rabbit_mail_kind kind) {
    if (!m->out) /* it was given back while a copy of it was under way */
        return;
    out_take(link, m);
    if (m->gone) {
        rabbit_message_leave(m);
        return;
    }
    m->mail.kind = kind;
    rabbit_thread_tell(link->consume, &m->mail);
}

/* Jobs. */

/* A message has one at a time. */
static void job_begin(struct rabbit_message *m, int delay, queue_told_fn *told, void *data) {
    free(m->job.epitaph);
    m->job = (struct rabbit_job){.message = m, .delay = delay, .told = told, .data = data};
    m->job.mail.kind = RABBIT_MAIL_JOB;
    atomic_fetch_add(&m->holders, 1);
}

/* Tells it from the loop. */
static void job_soon(struct queue_link *link, struct rabbit_job *job, bool taken, const char *why) {
    job->taken = taken;
    snprintf(job->why, sizeof(job->why), "%s", why);
    job->next = NULL;
    *link->soon_end = job;
    link->soon_end = &job->next;
    idem_task_post(link->loop, &link->soon_task);
}

/* A delayed message is given back first; it can be read until the call-back returns. */
static void job_over(struct queue_link *link, struct rabbit_job *job) {
    struct rabbit_message *m = job->message;

    if (!link->closed) {
        if (job->delay >= 0 && job->taken)
            message_return(link, m, RABBIT_MAIL_ACK);
        job->told(job->data, job->taken, job->taken ? NULL : job->why);
    }
    rabbit_message_leave(m);
}

static void soon_run(struct idem_task *task) {
    struct queue_link *link = idem_container_of(task, struct queue_link, soon_task);
    struct rabbit_job *job = link->soon, *next;

    link->soon = NULL;
    link->soon_end = &link->soon;
    link->busy++;
    for (; job != NULL; job = next) {
        next = job->next;
        job_over(link, job);
    }
    busy_end(link);
}

/* What a dead letter says. */

static const char *word_place(char **at, const char *word, size_t max) {
    amqp_bytes_t bytes;
    const char *placed = *at;

    if (word == NULL)
        return NULL;
    bytes = amqp_cstring_bytes(word);
    rabbit_clean(bytes, *at, max + 1);
    *at += strlen(*at) + 1;
    return placed;
}

static bool epitaph_keep(struct rabbit_job *job, const struct queue_epitaph *epitaph) {
    char *at = malloc(REASON_MAX + 3 * WORD_MAX + 4);

    if (at == NULL)
        return false;
    job->epitaph = at;
    job->said = *epitaph;
    job->said.verdict = word_place(&at, epitaph->verdict, WORD_MAX);
    job->said.reason = word_place(&at, epitaph->reason, REASON_MAX);
    job->said.prefix = word_place(&at, epitaph->prefix, WORD_MAX);
    job->said.hash = word_place(&at, epitaph->hash, WORD_MAX);
    return true;
}

static void bury(struct queue_link *link, struct rabbit_message *m,
                 const struct queue_epitaph *epitaph, queue_told_fn *told, void *data) {
    job_begin(m, -1, told, data);
    if (epitaph_keep(&m->job, epitaph))
        rabbit_thread_tell(link->publish, &m->job.mail);
    else
        job_soon(link, &m->job, false, "no memory for a copy");
}

/* What is too large. */

static void large_told(void *data, bool taken, const char *why) {
    struct rabbit_message *m = data;
    struct queue_link *link = m->link;
    char text[RABBIT_WHY + 200];

    m->burying = false;
    if (m->gone) {
        message_return(link, m, RABBIT_MAIL_ACK);
        return;
    }
    if (taken) {
        snprintf(text, sizeof(text), "a message of %zu bytes is among the dead letters now",
                 m->base.body.len);
        message_return(link, m, RABBIT_MAIL_ACK);
        state_tell(link, link->ready, text);
        return;
    }
    snprintf(text, sizeof(text), "a message of %zu bytes is too large, and cannot be buried: %s",
             m->base.body.len, why);
    idem_timer_set(link->loop, &link->large_timer, rabbit_pause_ms(link->large_tries));
    link->large_tries += link->large_tries < 16;
    state_tell(link, link->ready, text);
}

static void large_bury(struct queue_link *link, struct rabbit_message *m) {
    char reason[100];
    struct queue_epitaph epitaph = {.verdict = "refused", .reason = reason};

    snprintf(reason, sizeof(reason), "its body of %zu bytes is larger than %zu", m->base.body.len,
             RABBIT_BODY_MAX);
    m->burying = true;
    bury(link, m, &epitaph, large_told, m);
}

static void large_fire(struct idem_timer *timer) {
    struct queue_link *link = idem_container_of(timer, struct queue_link, large_timer);

    for (struct rabbit_message *m = link->out; m != NULL; m = m->next)
        if (m->large && !m->burying && !m->gone)
            large_bury(link, m);
}

static void large_come(struct queue_link *link, struct rabbit_message *m) {
    char text[200];

    link->large_tries = LARGE_TRIES;
    large_bury(link, m);
    snprintf(text, sizeof(text), "a message of %zu bytes is too large: it goes to the dead letters",
             m->base.body.len);
    state_tell(link, link->ready, text);
}

/* Mail. */

static void message_come(struct queue_link *link, struct rabbit_message *m) {
    if (link->closed || m->session <= link->lost) {
        rabbit_message_leave(m);
        return;
    }
    out_put(link, m);
    if (m->large)
        large_come(link, m);
    else
        link->events.message(link->events.data, &m->base);
}

/* The list changes under each call-back, so that it is looked through from its beginning. */
static void gone_tell(struct queue_link *link) {
    struct rabbit_message *m = link->out;

    while (m != NULL && !link->closed) {
        if (m->gone || m->session > link->lost) {
            m = m->next;
            continue;
        }
        m->gone = true;
        if (!m->large)
            link->events.gone(link->events.data, &m->base);
        else if (!m->burying)
            message_return(link, m, RABBIT_MAIL_ACK);
        m = link->out;
    }
}

static void collect(struct queue_link *link, struct rabbit_thread *t, bool consuming) {
    struct rabbit_line lines[RABBIT_LINES];
    struct rabbit_mail *mail, *next;
    size_t lines_n;
    uint64_t lost;

    mail = rabbit_thread_collect(t, &lost, lines, &lines_n);
    link->busy++;
    if (consuming && lost > link->lost) {
        link->lost = lost;
        gone_tell(link);
    }
    for (size_t i = 0; i < lines_n; i++)
        state_tell(link, consuming ? lines[i].ready : link->ready, lines[i].text);
    for (; mail != NULL; mail = next) {
        next = mail->next;
        if (mail->kind == RABBIT_MAIL_JOB)
            job_over(link, idem_container_of(mail, struct rabbit_job, mail));
        else
            message_come(link, idem_container_of(mail, struct rabbit_message, mail));
    }
    busy_end(link);
}

static void consume_ready(struct idem_fd *fd, int events) {
    struct queue_link *link = idem_container_of(fd, struct queue_link, consume_fd);

    (void)events;
    collect(link, link->consume, true);
}

static void publish_ready(struct idem_fd *fd, int events) {
    struct queue_link *link = idem_container_of(fd, struct queue_link, publish_fd);

    (void)events;
    collect(link, link->publish, false);
}

/* The table. */

static int names_check(const struct queue_config *config, struct idem_error *err) {
    int rc = rabbit_name_check(config->queue, "a queue", err);

    if (rc == 0 && config->dead_letter != NULL)
        rc = rabbit_name_check(config->dead_letter, "the queue of dead letters", err);
    if (rc == 0 && config->dead_letter != NULL && strcmp(config->dead_letter, config->queue) == 0)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "amqp: the queue of dead letters is the queue itself");
    if (rc == 0 && strlen(config->queue) + sizeof(".idem.retry.") + 12 > RABBIT_NAME_MAX &&
        (config->topology || config->dead_letter == NULL))
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "amqp: the name of the queue is too long for those beside it: at most "
                            "230 bytes");
    if (rc == 0 && config->prefetch == 0)
        rc = idem_error_set(err, IDEM_E_INVALID, "amqp: a prefetch of 0 would have no limit");
    return rc;
}

static int watch(struct queue_link *link, struct idem_fd *fd, int event,
                 void (*ready)(struct idem_fd *, int), struct idem_error *err) {
    fd->fd = event;
    fd->ready = ready;
    if (idem_loop_watch(link->loop, fd, IDEM_READ) == 0)
        return 0;
    fd->fd = -1;
    return idem_error_set(err, IDEM_E_REFUSED, "the loop cannot watch a descriptor");
}

static int threads_start(struct queue_link *link, struct idem_error *err) {
    struct rabbit_thread *consume = link->consume, *publish = link->publish;
    int rc = watch(link, &link->consume_fd, consume->out_event, consume_ready, err);

    if (rc == 0)
        rc = watch(link, &link->publish_fd, publish->out_event, publish_ready, err);
    if (rc == 0)
        rc = rabbit_thread_start(consume, rabbit_consume_main, err);
    return rc == 0 ? rabbit_thread_start(publish, rabbit_publish_main, err) : rc;
}

static void link_close(struct queue_link *link);

static int link_open(const struct queue_config *config, struct idem_loop *loop,
                     const struct queue_events *events, struct queue_link **ret,
                     struct idem_error *err) {
    struct idem_error why = {0};
    struct queue_link *link;
    int rc = names_check(config, err);

    if (rc != 0)
        return rc;
    link = calloc(1, sizeof(*link));
    if (link == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker");
    link->loop = loop;
    link->events = *events;
    link->consume_fd.fd = link->publish_fd.fd = -1;
    link->soon_task.run = soon_run;
    link->soon_end = &link->soon;
    link->large_timer.fire = large_fire;
    link->consume = rabbit_thread_new(config, &why);
    link->publish = link->consume == NULL ? NULL : rabbit_thread_new(config, &why);
    if (link->publish == NULL || threads_start(link, &why) != 0) {
        link_close(link);
        return idem_error_copy(err, &why);
    }
    *ret = link;
    return 0;
}

static void link_fetch(struct queue_link *link, bool on) {
    rabbit_thread_fetch(link->consume, on);
}

static void link_ack(struct queue_link *link, struct queue_message *message) {
    message_return(link, rabbit_message_of(message), RABBIT_MAIL_ACK);
}

static void link_giveback(struct queue_link *link, struct queue_message *message) {
    message_return(link, rabbit_message_of(message), RABBIT_MAIL_BACK);
}

static void link_delay(struct queue_link *link, struct queue_message *message, int64_t ms,
                       queue_told_fn *told, void *data) {
    const struct rabbit_topology *topology = &link->publish->topology;
    struct rabbit_message *m = rabbit_message_of(message);

    job_begin(m, rabbit_topology_delay(topology, ms), told, data);
    if (m->gone)
        job_soon(link, &m->job, true, ""); /* it comes again by itself */
    else if (!topology->allowed)
        job_soon(link, &m->job, false, "no queues for delays are declared here");
    else
        rabbit_thread_tell(link->publish, &m->job.mail);
}

static void link_bury(struct queue_link *link, struct queue_message *message,
                      const struct queue_epitaph *epitaph, queue_told_fn *told, void *data) {
    bury(link, rabbit_message_of(message), epitaph, told, data);
}

static void threads_end(struct queue_link *link) {
    int64_t until = idem_loop_now() + CLOSE_MS;

    if (link->consume != NULL)
        rabbit_thread_stop(link->consume);
    if (link->publish != NULL)
        rabbit_thread_stop(link->publish);
    if (link->consume != NULL)
        rabbit_thread_end(link->consume, until);
    if (link->publish != NULL)
        rabbit_thread_end(link->publish, until);
}

static void link_close(struct queue_link *link) {
    struct rabbit_job *next;

    if (link == NULL || link->closed)
        return;
    link->closed = true;
    threads_end(link);
    if (link->consume_fd.fd >= 0)
        idem_loop_unwatch(link->loop, &link->consume_fd);
    if (link->publish_fd.fd >= 0)
        idem_loop_unwatch(link->loop, &link->publish_fd);
    idem_task_drop(link->loop, &link->soon_task);
    idem_timer_clear(link->loop, &link->large_timer);
    for (struct rabbit_job *job = link->soon; job != NULL; job = next) {
        next = job->next;
        rabbit_message_leave(job->message);
    }
    while (link->out != NULL) {
        struct rabbit_message *m = link->out;

        out_take(link, m);
        rabbit_message_leave(m);
    }
    if (link->busy == 0)
        link_free(link);
}

static int64_t link_redelivery_ms(const struct queue_config *config) {
    (void)config;
    return CONSUMER_TIMEOUT_MS;
}

static const char *const schemes[] = {"amqp", "amqps", NULL};

const struct queue_broker queue_broker_amqp = {
    .name = "amqp",
    .schemes = schemes,
    .open = link_open,
    .fetch = link_fetch,
    .ack = link_ack,
    .delay = link_delay,
    .bury = link_bury,
    .giveback = link_giveback,
    .close = link_close,
    .redelivery_ms = link_redelivery_ms,
};
