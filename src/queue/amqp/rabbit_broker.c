/*
 * The loop's side of the broker: messages that are out, events, and the mail to and from the
 * two threads. Everything here runs in the loop's thread.
 *
 * The link holds a message that is out until it is returned. When its connection is lost, it
 * is marked as `gone`, and later commands for it end here. A message whose body is too large
 * for memory is not reported: it is buried from here, with pauses between tries, and then
 * acknowledged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "queue/amqp/rabbit.h"

#define CLOSE_MS 1000
#define CONSUMER_TIMEOUT_MS ((int64_t)30 * 60 * 1000) /* the server's default */
#define REASON_MAX 1000
#define WORD_MAX 600  /* for a prefix or a hash */
#define LARGE_TRIES 4 /* pauses for large messages start at a few seconds */

struct queue_link {
    struct idem_loop *loop;
    struct queue_events events;
    struct rabbit_thread *consume, *publish;
    struct idem_fd consume_fd, publish_fd;
    struct idem_task soon_task;
    struct rabbit_job *soon,
        **soon_end; /* results that need no thread, to be reported from the loop */
    struct idem_timer large_timer;
    struct rabbit_message *out; /* reported, and not returned */
    uint64_t lost;              /* sessions up to this one are lost */
    unsigned large_tries;
    bool ready;
    unsigned busy; /* number of callbacks that run */
    bool closed;
};

/* Callbacks: each may close the link. */

static void link_free(struct queue_link *link) {
    rabbit_thread_release(link->consume);
    rabbit_thread_release(link->publish);
    free(link);
}

static void link_end_callback(struct queue_link *link) {
    if (--link->busy == 0 && link->closed)
        link_free(link);
}

static void link_report_state(struct queue_link *link, bool ready, const char *text) {
    if (link->closed)
        return;
    link->ready = ready;
    link->events.state(link->events.data, ready, text);
}

/* Messages that are out. */

/* Gives the message back, and drops the link's reference. */
static void link_return_message(struct queue_link *link, struct rabbit_message *m,
                                enum rabbit_mail_kind kind) {
    if (m->out_link == NULL) /* it was returned while its copy was under way */
        return;
    idem_link_remove_in(out_, m);
    if (m->gone) {
        rabbit_message_leave(m);
        return;
    }
    m->mail.kind = kind;
    rabbit_thread_send(link->consume, &m->mail);
}

/* Jobs. */

/* A message has one job at a time. */
static void message_begin_job(struct rabbit_message *m, int delay, queue_done_fn *done,
                              void *data) {
    free(m->job.dead_fields_text);
    m->job = (struct rabbit_job){.message = m, .delay = delay, .done = done, .data = data};
    m->job.mail.kind = RABBIT_MAIL_JOB;
    atomic_fetch_add(&m->holders, 1);
}

/* Reports the result from the loop. */
static void link_post_job(struct queue_link *link, struct rabbit_job *job, bool taken,
                          const char *why) {
    job->taken = taken;
    snprintf(job->why, sizeof(job->why), "%s", why);
    idem_link_append(&link->soon_end, job);
    idem_task_post(link->loop, &link->soon_task);
}

/* A delayed message is returned first; it stays readable until the callback returns. */
static void link_finish_job(struct queue_link *link, struct rabbit_job *job) {
    struct rabbit_message *m = job->message;

    if (!link->closed) {
        if (job->delay >= 0 && job->taken)
            link_return_message(link, m, RABBIT_MAIL_ACK);
        job->done(job->data, job->taken, job->taken ? NULL : job->why);
    }
    rabbit_message_leave(m);
}

static void broker_run_jobs(struct idem_task *task) {
    struct queue_link *link = idem_container_of(task, struct queue_link, soon_task);
    struct rabbit_job *job = link->soon, *next;

    link->soon = NULL;
    link->soon_end = &link->soon;
    link->busy++;
    for (; job != NULL; job = next) {
        next = job->next;
        link_finish_job(link, job);
    }
    link_end_callback(link);
}

/* Dead letters. */

static const char *broker_place_word(char **at, const char *word, size_t max) {
    amqp_bytes_t bytes;
    const char *placed = *at;

    if (word == NULL)
        return NULL;
    bytes = amqp_cstring_bytes(word);
    rabbit_session_clean(bytes, *at, max + 1);
    *at += strlen(*at) + 1;
    return placed;
}

static bool job_copy_dead_fields(struct rabbit_job *job,
                                 const struct queue_dead_fields *dead_fields) {
    char *at = malloc(REASON_MAX + 3 * WORD_MAX + 4);

    if (at == NULL)
        return false;
    job->dead_fields_text = at;
    job->dead_fields = *dead_fields;
    job->dead_fields.verdict = broker_place_word(&at, dead_fields->verdict, WORD_MAX);
    job->dead_fields.reason = broker_place_word(&at, dead_fields->reason, REASON_MAX);
    job->dead_fields.prefix = broker_place_word(&at, dead_fields->prefix, WORD_MAX);
    job->dead_fields.hash = broker_place_word(&at, dead_fields->hash, WORD_MAX);
    return true;
}

static void link_bury(struct queue_link *link, struct queue_message *message,
                      const struct queue_dead_fields *dead_fields, queue_done_fn *done,
                      void *data) {
    struct rabbit_message *m = rabbit_message_of(message);

    message_begin_job(m, -1, done, data);
    if (job_copy_dead_fields(&m->job, dead_fields))
        rabbit_thread_send(link->publish, &m->job.mail);
    else
        link_post_job(link, &m->job, false, "no memory for a copy");
}

/* Large messages. */

static void broker_large_buried(void *data, bool taken, const char *why) {
    struct rabbit_message *m = data;
    struct queue_link *link = m->link;
    char text[RABBIT_WHY + 200];

    m->burying = false;
    if (m->gone) {
        link_return_message(link, m, RABBIT_MAIL_ACK);
        return;
    }
    if (taken) {
        snprintf(text, sizeof(text), "a message of %zu bytes is among the dead letters now",
                 m->base.body.len);
        link_return_message(link, m, RABBIT_MAIL_ACK);
        link_report_state(link, link->ready, text);
        return;
    }
    snprintf(text, sizeof(text), "a message of %zu bytes is too large, and cannot be buried: %s",
             m->base.body.len, why);
    idem_timer_set(link->loop, &link->large_timer, rabbit_session_pause_ms(&link->large_tries));
    link_report_state(link, link->ready, text);
}

static void link_bury_large(struct queue_link *link, struct rabbit_message *m) {
    char reason[100];
    struct queue_dead_fields dead_fields = {.verdict = "refused", .reason = reason};

    snprintf(reason, sizeof(reason), "its body of %zu bytes is larger than %zu", m->base.body.len,
             RABBIT_BODY_MAX);
    m->burying = true;
    link_bury(link, &m->base, &dead_fields, broker_large_buried, m);
}

static void broker_retry_large(struct idem_timer *timer) {
    struct queue_link *link = idem_container_of(timer, struct queue_link, large_timer);

    for (struct rabbit_message *m = link->out; m != NULL; m = m->out_next)
        if (m->large && !m->burying && !m->gone)
            link_bury_large(link, m);
}

static void link_on_large(struct queue_link *link, struct rabbit_message *m) {
    char text[200];

    link->large_tries = LARGE_TRIES;
    link_bury_large(link, m);
    snprintf(text, sizeof(text), "a message of %zu bytes is too large: it goes to the dead letters",
             m->base.body.len);
    link_report_state(link, link->ready, text);
}

/* Mail. */

static void link_on_message(struct queue_link *link, struct rabbit_message *m) {
    if (link->closed || m->session <= link->lost) {
        rabbit_message_leave(m);
        return;
    }
    m->link = link;
    idem_link_insert_in(out_, &link->out, m);
    if (m->large)
        link_on_large(link, m);
    else
        link->events.message(link->events.data, &m->base);
}

/* Each callback may change the list, so the search restarts at its beginning. */
static void link_report_lost(struct queue_link *link) {
    struct rabbit_message *m = link->out;

    while (m != NULL && !link->closed) {
        if (m->gone || m->session > link->lost) {
            m = m->out_next;
            continue;
        }
        m->gone = true;
        if (!m->large)
            link->events.gone(link->events.data, &m->base);
        else if (!m->burying)
            link_return_message(link, m, RABBIT_MAIL_ACK);
        m = link->out;
    }
}

static void link_collect(struct queue_link *link, struct rabbit_thread *t, bool consuming) {
    struct rabbit_line lines[RABBIT_LINES];
    struct rabbit_mail *mail, *next;
    size_t lines_n;
    uint64_t lost;

    mail = rabbit_thread_collect(t, &lost, lines, &lines_n);
    link->busy++;
    if (consuming && lost > link->lost) {
        link->lost = lost;
        link_report_lost(link);
    }
    for (size_t i = 0; i < lines_n; i++)
        link_report_state(link, consuming ? lines[i].ready : link->ready, lines[i].text);
    for (; mail != NULL; mail = next) {
        next = mail->next;
        if (mail->kind == RABBIT_MAIL_JOB)
            link_finish_job(link, idem_container_of(mail, struct rabbit_job, mail));
        else
            link_on_message(link, idem_container_of(mail, struct rabbit_message, mail));
    }
    link_end_callback(link);
}

static void broker_consume_ready(struct idem_fd *fd, int events) {
    struct queue_link *link = idem_container_of(fd, struct queue_link, consume_fd);

    (void)events;
    link_collect(link, link->consume, true);
}

static void broker_publish_ready(struct idem_fd *fd, int events) {
    struct queue_link *link = idem_container_of(fd, struct queue_link, publish_fd);

    (void)events;
    link_collect(link, link->publish, false);
}

/* The table. */

static int broker_check_names(const struct queue_config *config, struct idem_error *err) {
    int rc = rabbit_url_check_name(config->queue, "a queue", err);

    if (rc == 0 && config->dead_letter != NULL)
        rc = rabbit_url_check_name(config->dead_letter, "the queue of dead letters", err);
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

static int link_watch(struct queue_link *link, struct idem_fd *fd, int event,
                      void (*ready)(struct idem_fd *, int), struct idem_error *err) {
    fd->fd = event;
    fd->ready = ready;
    if (idem_loop_watch(link->loop, fd, IDEM_READ) == 0)
        return 0;
    fd->fd = -1;
    return idem_error_set(err, IDEM_E_REFUSED, "the loop cannot watch a descriptor");
}

static int link_start_threads(struct queue_link *link, struct idem_error *err) {
    struct rabbit_thread *consume = link->consume, *publish = link->publish;
    int rc = link_watch(link, &link->consume_fd, consume->out_event, broker_consume_ready, err);

    if (rc == 0)
        rc = link_watch(link, &link->publish_fd, publish->out_event, broker_publish_ready, err);
    if (rc == 0)
        rc = rabbit_thread_start(consume, rabbit_consume_main, err);
    return rc == 0 ? rabbit_thread_start(publish, rabbit_publish_main, err) : rc;
}

static void link_close(struct queue_link *link);

static int broker_open(const struct queue_config *config, struct idem_loop *loop,
                       const struct queue_events *events, struct queue_link **ret,
                       struct idem_error *err) {
    struct idem_error why = {0};
    struct queue_link *link;
    int rc = broker_check_names(config, err);

    if (rc != 0)
        return rc;
    link = calloc(1, sizeof(*link));
    if (link == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker");
    link->loop = loop;
    link->events = *events;
    link->consume_fd.fd = link->publish_fd.fd = -1;
    link->soon_task.run = broker_run_jobs;
    link->soon_end = &link->soon;
    link->large_timer.fire = broker_retry_large;
    link->consume = rabbit_thread_new(config, &why);
    link->publish = link->consume == NULL ? NULL : rabbit_thread_new(config, &why);
    if (link->publish == NULL || link_start_threads(link, &why) != 0) {
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
    link_return_message(link, rabbit_message_of(message), RABBIT_MAIL_ACK);
}

static void link_nack(struct queue_link *link, struct queue_message *message) {
    link_return_message(link, rabbit_message_of(message), RABBIT_MAIL_NACK);
}

static void link_delay(struct queue_link *link, struct queue_message *message, int64_t ms,
                       queue_done_fn *done, void *data) {
    const struct rabbit_topology *topology = &link->publish->topology;
    struct rabbit_message *m = rabbit_message_of(message);

    message_begin_job(m, rabbit_topology_delay(topology, ms), done, data);
    if (m->gone)
        link_post_job(link, &m->job, true, ""); /* the broker delivers it again anyway */
    else if (!topology->allowed)
        link_post_job(link, &m->job, false, "no queues for delays are declared here");
    else
        rabbit_thread_send(link->publish, &m->job.mail);
}

static void link_end_threads(struct queue_link *link) {
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
    link_end_threads(link);
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

        idem_link_remove_in(out_, m);
        rabbit_message_leave(m);
    }
    if (link->busy == 0)
        link_free(link);
}

static int64_t broker_redelivery_ms(const struct queue_config *config) {
    (void)config;
    return CONSUMER_TIMEOUT_MS;
}

static const char *const schemes[] = {"amqp", "amqps", NULL};

const struct queue_broker queue_broker_amqp = {
    .name = "amqp",
    .schemes = schemes,
    .open = broker_open,
    .fetch = link_fetch,
    .ack = link_ack,
    .delay = link_delay,
    .bury = link_bury,
    .nack = link_nack,
    .close = link_close,
    .redelivery_ms = broker_redelivery_ms,
};
