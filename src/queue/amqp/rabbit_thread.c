/*
 * An I/O thread, and the part that it shares with the loop: a mailbox each way, with an
 * eventfd that signals mail. Nothing here allocates in operation: mail is embedded in what it
 * carries, and lines for people have a ring.
 *
 * The last holder releases the shared part. So a thread that hangs in the resolver or in a
 * connection delays the end of its link by no more than a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "queue/amqp/rabbit.h"

/* librabbitmq recurses into tables as deep as a frame allows: some 26,000 levels. */
#define STACK_SIZE ((size_t)16 << 20)

/* Creation. */

static int thread_init_condition(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    if (rc != 0)
        return rc;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc;
}

static void thread_free(struct rabbit_thread *t) {
    if (t->in_event >= 0)
        close(t->in_event);
    if (t->out_event >= 0)
        close(t->out_event);
    if (t->line >= 0)
        close(t->line);
    rabbit_config_release(&t->config);
    rabbit_topology_release(&t->topology);
    (void)pthread_mutex_destroy(&t->lock);
    (void)pthread_cond_destroy(&t->over_cond);
    free(t);
}

struct rabbit_thread *rabbit_thread_new(const struct queue_config *config, struct idem_error *err) {
    struct rabbit_thread *t = calloc(1, sizeof(*t));

    if (t == NULL || pthread_mutex_init(&t->lock, NULL) != 0 ||
        thread_init_condition(&t->over_cond) != 0) {
        free(t);
        (void)idem_error_set(err, IDEM_E_NOMEM, "no memory for a thread");
        return NULL;
    }
    atomic_init(&t->holders, 1);
    t->in_end = &t->in;
    t->out_end = &t->out;
    t->line = -1;
    t->over = true; /* until it is started */
    t->ordered = config->ordered;
    t->prefetch = config->prefetch > RABBIT_PREFETCH_MAX ? RABBIT_PREFETCH_MAX : config->prefetch;
    t->in_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->out_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->in_event < 0 || t->out_event < 0)
        (void)idem_error_set(err, IDEM_E_REFUSED, "no descriptor for a thread: %s",
                             strerror(errno));
    else if (rabbit_config_read(config->url, &t->config, err) == 0 &&
             rabbit_topology_make(&t->topology, config, err) == 0)
        return t;
    thread_free(t);
    return NULL;
}

static void mail_free(struct rabbit_mail *mail) {
    struct rabbit_mail *next;

    for (; mail != NULL; mail = next) {
        next = mail->next;
        if (mail->kind == RABBIT_MAIL_JOB)
            rabbit_message_leave(idem_container_of(mail, struct rabbit_job, mail)->message);
        else
            rabbit_message_leave(idem_container_of(mail, struct rabbit_message, mail));
    }
}

void rabbit_thread_release(struct rabbit_thread *t) {
    if (t == NULL || atomic_fetch_sub(&t->holders, 1) != 1)
        return;
    mail_free(t->in);
    mail_free(t->out);
    thread_free(t);
}

/* Running. */

struct start {
    struct rabbit_thread *thread;
    rabbit_main_fn *main;
};

static void *thread_main(void *data) {
    struct start start = *(struct start *)data;
    struct rabbit_thread *t = start.thread;

    free(data);
    start.main(t);
    pthread_mutex_lock(&t->lock);
    t->over = true;
    pthread_cond_signal(&t->over_cond);
    pthread_mutex_unlock(&t->lock);
    rabbit_thread_release(t);
    return NULL;
}

/* OpenSSL must not clean up at exit while a thread still uses it. */
static int thread_create(struct start *start) {
    pthread_attr_t attr;
    pthread_t thread;
    int rc = pthread_attr_init(&attr);

    if (rc != 0)
        return rc;
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, STACK_SIZE);
    rc = idem_thread_start(&thread, &attr, thread_main, start);
    (void)pthread_attr_destroy(&attr);
    return rc;
}

int rabbit_thread_start(struct rabbit_thread *t, rabbit_main_fn *main, struct idem_error *err) {
    struct start *start = malloc(sizeof(*start));
    int rc = ENOMEM;

    if (start != NULL) {
        *start = (struct start){.thread = t, .main = main};
        atomic_fetch_add(&t->holders, 1);
        t->over = false;
        rc = thread_create(start);
    }
    if (rc == 0)
        return 0;
    if (start != NULL)
        atomic_fetch_sub(&t->holders, 1);
    t->over = true;
    free(start);
    return idem_error_set(err, IDEM_E_REFUSED, "no thread for a connection: %s", strerror(rc));
}

void rabbit_thread_stop(struct rabbit_thread *t) {
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_mutex_unlock(&t->lock);
    (void)eventfd_write(t->in_event, 1);
}

void rabbit_thread_end(struct rabbit_thread *t, int64_t until) {
    int64_t ms = until - idem_loop_now();
    struct timespec limit;

    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_nsec += ms > 0 ? ms % 1000 * 1000000 : 0;
    limit.tv_sec += (ms > 0 ? ms / 1000 : 0) + limit.tv_nsec / 1000000000;
    limit.tv_nsec %= 1000000000;
    pthread_mutex_lock(&t->lock);
    while (!t->over && pthread_cond_timedwait(&t->over_cond, &t->lock, &limit) == 0)
        ;
    if (!t->over && t->line >= 0)
        (void)shutdown(t->line, SHUT_RDWR); /* the thread goes on alone, but not for long */
    pthread_mutex_unlock(&t->lock);
}

/* The link's side. */

void rabbit_thread_send(struct rabbit_thread *t, struct rabbit_mail *mail) {
    bool first;

    mail->next = NULL;
    pthread_mutex_lock(&t->lock);
    first = t->in == NULL;
    *t->in_end = mail;
    t->in_end = &mail->next;
    pthread_mutex_unlock(&t->lock);
    if (first)
        (void)eventfd_write(t->in_event, 1);
}

void rabbit_thread_fetch(struct rabbit_thread *t, bool on) {
    pthread_mutex_lock(&t->lock);
    t->fetch = on;
    pthread_mutex_unlock(&t->lock);
    (void)eventfd_write(t->in_event, 1);
}

struct rabbit_mail *rabbit_thread_collect(struct rabbit_thread *t, uint64_t *ret_lost,
                                          struct rabbit_line lines[RABBIT_LINES],
                                          size_t *ret_lines_n) {
    struct rabbit_mail *mail;
    eventfd_t count;

    (void)eventfd_read(t->out_event, &count);
    pthread_mutex_lock(&t->lock);
    mail = t->out;
    t->out = NULL;
    t->out_end = &t->out;
    *ret_lost = t->lost;
    for (size_t i = 0; i < t->lines_n; i++)
        lines[i] = t->lines[(t->lines_first + i) % RABBIT_LINES];
    *ret_lines_n = t->lines_n;
    t->lines_n = 0;
    pthread_mutex_unlock(&t->lock);
    return mail;
}

/* The thread's side. */

struct rabbit_orders rabbit_thread_orders(struct rabbit_thread *t) {
    struct rabbit_orders orders;

    pthread_mutex_lock(&t->lock);
    orders = (struct rabbit_orders){.mail = t->in, .fetch = t->fetch, .stop = t->stop};
    t->in = NULL;
    t->in_end = &t->in;
    pthread_mutex_unlock(&t->lock);
    return orders;
}

void rabbit_thread_post(struct rabbit_thread *t, struct rabbit_mail *first,
                        struct rabbit_mail **end) {
    bool wake;

    if (first == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    wake = t->out == NULL;
    *t->out_end = first;
    t->out_end = end;
    pthread_mutex_unlock(&t->lock);
    if (wake)
        (void)eventfd_write(t->out_event, 1);
}

void rabbit_thread_report(struct rabbit_thread *t, bool ready, const char *fmt, ...) {
    struct rabbit_line *line;
    va_list args;

    va_start(args, fmt);
    pthread_mutex_lock(&t->lock);
    if (t->lines_n == RABBIT_LINES)
        t->lines_first++;
    else
        t->lines_n++;
    line = &t->lines[(t->lines_first + t->lines_n - 1) % RABBIT_LINES];
    line->ready = ready;
    vsnprintf(line->text, sizeof(line->text), fmt, args);
    pthread_mutex_unlock(&t->lock);
    va_end(args);
    (void)eventfd_write(t->out_event, 1);
}

void rabbit_thread_lost(struct rabbit_thread *t, uint64_t session) {
    pthread_mutex_lock(&t->lock);
    t->lost = session;
    pthread_mutex_unlock(&t->lock);
    (void)eventfd_write(t->out_event, 1);
}

/* A duplicate is needed: librabbitmq closes its own descriptor at any time, and the number may
   be reused. */
void rabbit_thread_set_socket(struct rabbit_thread *t, int socket) {
    pthread_mutex_lock(&t->lock);
    if (t->line >= 0)
        close(t->line);
    t->line = socket < 0 ? -1 : fcntl(socket, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&t->lock);
}

/* Messages, which both threads and the loop hold. */

void rabbit_message_leave(struct rabbit_message *message) {
    if (message == NULL || atomic_fetch_sub(&message->holders, 1) != 1)
        return;
    if (message->spool != NULL)
        (void)munmap(message->spool, message->base.body.len);
    free(message->job.dead_fields_text);
    free(message);
}
