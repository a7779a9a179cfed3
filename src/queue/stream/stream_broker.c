/*
 * The broker's table for Redis Streams: open, fetch and close, and the order of steps.
 *
 * Every change posts one task. It sends acks and nacks, then requests entries that were
 * delivered before, then new ones, as far as there is room. Opening fails on a malformed URL
 * or name; every later failure is reported by `state`.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hex.h"
#include "queue/stream/stream.h"

#define LEASE_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)

size_t stream_link_room(const struct stream_link *link) {
    size_t used = link->out_n + link->read_n + link->gather_n;
    size_t unconfirmed = link->lists[STREAM_ACKING].n + link->lists[STREAM_ACKED].n;

    size_t most = link->prefetch + link->more;

    if (used >= most || link->out_bytes >= QUEUE_OUT_BYTES || unconfirmed > STREAM_UNCONFIRMED_MAX)
        return 0;
    return most - used;
}

void stream_link_post(struct stream_link *link) {
    idem_task_post(link->loop, &link->next);
}

static void broker_run_next(struct idem_task *task) {
    struct stream_link *link = idem_container_of(task, struct stream_link, next);
    int64_t now = idem_loop_now();

    if (link->command.state == REDIS_CONN_READY && now >= link->ack_until)
        stream_ack_send_next(link);
    if (link->fetching && stream_link_is_ready(link) && now >= link->wait_until) {
        stream_recover_next(link);
        stream_read_next(link);
    }
    redis_conn_flush(&link->command);
    redis_conn_flush(&link->reading);
}

static void broker_pause_over(struct idem_timer *timer) {
    stream_link_post(idem_container_of(timer, struct stream_link, again));
}

void stream_link_pause(struct stream_link *link) {
    int64_t pause = redis_pause_ms(link->troubles < 16 ? 2 + link->troubles++ : 16);

    link->wait_until = idem_loop_now() + pause;
    idem_timer_set(link->loop, &link->again, pause);
}

void stream_link_report_error(struct stream_link *link, const char *what,
                              const struct redis_reply *reply) {
    char text[STREAM_ERROR_TEXT];

    stream_notify_state(link, "%s: %s: %s; it is tried again", link->queue, what,
                        stream_error_text(reply, text));
    stream_link_pause(link);
}

void stream_link_no_memory(struct stream_link *link) {
    stream_notify_state(link, "%s: no memory for a message; it is asked for again", link->queue);
    stream_recover_survey(link);
    stream_link_pause(link);
}

/* Opening. */

static int broker_check_name(const char *what, const char *name, struct idem_error *err) {
    if (name == NULL || *name == '\0')
        return idem_error_set(err, IDEM_E_INVALID, "%s has no name", what);
    if (strlen(name) > STREAM_NAME_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "the name of %s is longer than %d bytes", what,
                              STREAM_NAME_MAX);
    return 0;
}

static int link_check_names(const struct stream_link *link, struct idem_error *err) {
    int rc = broker_check_name("the stream", link->queue, err);

    if (rc == 0)
        rc = broker_check_name("the consumer group", link->group, err);
    if (rc == 0)
        rc = broker_check_name("the consumer", link->consumer, err);
    if (rc == 0)
        rc = broker_check_name("the stream of dead letters", link->dead_letter, err);
    if (rc == 0)
        rc = broker_check_name("the field of the body", link->body_field, err);
    if (rc == 0 && strcmp(link->queue, link->dead_letter) == 0)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "dead letters cannot go to the stream that they come from");
    if (rc == 0 && strcmp(link->consumer, STREAM_NOBODY) == 0)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "no consumer may be called %s: messages that are given back are there",
                            STREAM_NOBODY);
    return rc;
}

static char *broker_copy_text(const char *text, const char *otherwise) {
    return strdup(text != NULL ? text : otherwise);
}

static int link_fill_names(struct stream_link *link, const struct queue_config *config,
                           struct idem_error *err) {
    const char *queue = config->queue == NULL ? "" : config->queue;
    char host[HOST_NAME_MAX + 1] = "";

    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    link->queue = strdup(queue);
    if (config->dead_letter != NULL)
        link->dead_letter = strdup(config->dead_letter);
    else if (asprintf(&link->dead_letter, "%s.dead", queue) < 0)
        link->dead_letter = NULL;
    link->group = broker_copy_text(config->group, STREAM_GROUP);
    link->consumer = broker_copy_text(config->consumer, host);
    link->body_field = broker_copy_text(config->body_field, STREAM_BODY_FIELD);
    if (link->queue == NULL || link->dead_letter == NULL || link->group == NULL ||
        link->consumer == NULL || link->body_field == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker's link");
    link->shape = (struct stream_shape){.queue = link->queue, .body_field = link->body_field};
    return link_check_names(link, err);
}

int64_t stream_broker_min_idle(const struct queue_config *config) {
    int64_t lease = config->lease_ms <= 0             ? STREAM_LEASE_MS
                    : config->lease_ms > LEASE_MAX_MS ? LEASE_MAX_MS
                                                      : config->lease_ms;

    return 2 * lease > STREAM_MIN_IDLE_MS ? 2 * lease : STREAM_MIN_IDLE_MS;
}

/* The name of the reading connection ends in a hash of database, stream, group and consumer. */
static int link_make_mark(struct stream_link *link, struct idem_error *err) {
    unsigned char hash[IDEM_HASH_LEN];
    struct idem_sha sha;

    idem_sha_begin(&sha);
    idem_sha_add(&sha, &link->config.db, sizeof(link->config.db));
    idem_sha_add(&sha, link->queue, strlen(link->queue) + 1);
    idem_sha_add(&sha, link->group, strlen(link->group) + 1);
    idem_sha_add(&sha, link->consumer, strlen(link->consumer) + 1);
    if (idem_sha_end(&sha, hash) != 0)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker's link");
    link->mark[0] = ':';
    idem_hex_encode(hash, 8, link->mark + 1);
    if (asprintf(&link->reading_name, "%s%s", link->config.name, link->mark) < 0) {
        link->reading_name = NULL;
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker's link");
    }
    return 0;
}

int stream_broker_read_url(const char *text, struct redis_config *ret,
                           struct redis_tls_config **ret_tls, struct idem_error *err) {
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    rc = redis_config_read(&url, ret, err);
    idem_url_release(&url);
    if (rc == 0 && ret->kind != REDIS_STANDALONE)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "a stream is read from one server, named by redis://HOST or "
                            "rediss://HOST: neither through sentinels nor in a cluster");
    return rc == 0 ? redis_tls_config_new(ret, ret_tls, err) : rc;
}

static int link_read_url(struct stream_link *link, const char *text, struct idem_error *err) {
    int rc = stream_broker_read_url(text, &link->config, &link->tls, err);

    if (rc == 0)
        rc = link_make_mark(link, err);
    link->reading_config = link->config;
    link->reading_config.timeout_ms += link->block_ms;
    link->reading_config.name = link->reading_name;
    return rc;
}

static void link_free(struct stream_link *link) {
    stream_entry_table_release(link);
    redis_tls_config_free(link->tls);
    redis_config_release(&link->config);
    free(link->reading_name);
    free(link->queue);
    free(link->dead_letter);
    free(link->group);
    free(link->consumer);
    free(link->body_field);
    if (!link->notifying) /* else stream_notify_run() frees it */
        free(link);
}

static int broker_open(const struct queue_config *config, struct idem_loop *loop,
                       const struct queue_events *events, struct queue_link **ret,
                       struct idem_error *err) {
    struct stream_link *link = calloc(1, sizeof(*link));
    int rc;

    if (link == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker's link");
    link->loop = loop;
    link->events = *events;
    link->prefetch = config->prefetch;
    link->min_idle_ms = stream_broker_min_idle(config);
    link->renew_ms = link->min_idle_ms / 6;
    link->claim_ms = link->min_idle_ms / 2;
    link->block_ms = STREAM_BLOCK_MS;
    link->read_batch = 16;
    link->notify_end = &link->notify_first;
    link->next.run = broker_run_next;
    link->notify.run = stream_notify_run;
    link->again.fire = broker_pause_over;
    link->tick.fire = stream_renew_tick;
    rc = stream_entry_table_init(link)
             ? 0
             : idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker's link");
    if (rc == 0 && config->prefetch == 0)
        rc = idem_error_set(err, IDEM_E_INVALID, "a prefetch of 0 fetches nothing: use 1 or more");
    if (rc == 0)
        rc = link_fill_names(link, config, err);
    if (rc == 0)
        rc = link_read_url(link, config->url, err);
    if (rc != 0) {
        link_free(link);
        return rc;
    }
    stream_link_connect(link);
    idem_timer_set(loop, &link->tick, 0);
    *ret = (struct queue_link *)(void *)link;
    return 0;
}

static void link_fetch(struct queue_link *base, bool on) {
    struct stream_link *link = stream_link_of(base);

    link->fetching = on;
    if (!on)
        stream_read_interrupt(link);
    stream_link_post(link);
}

static void link_widen(struct queue_link *base, size_t more) {
    struct stream_link *link = stream_link_of(base);

    link->more = more;
    stream_link_post(link);
}

/* Closing. */

static bool link_has_unconfirmed(const struct stream_link *link) {
    static const enum stream_state states[] = {STREAM_ACKING, STREAM_ACKED,  STREAM_NACKING,
                                               STREAM_NACKED, STREAM_SAVING, STREAM_SAVED};
    size_t n = 0;

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        n += link->lists[states[i]].n;
    return n > 0;
}

int64_t stream_close_ms = 1000;

/* Waits until the server has replied to everything that was sent, at most for stream_close_ms.
   No callback runs meanwhile. */
static void link_drain(struct stream_link *link) {
    struct redis_conn *conn = &link->command;
    int64_t end = idem_loop_now() + stream_close_ms, left;
    struct pollfd fd;

    while (link_has_unconfirmed(link) && (left = end - idem_loop_now()) > 0) {
        if (conn->state == REDIS_CONN_READY)
            stream_ack_send_next(link);
        redis_conn_flush(conn);
        if (conn->fd.fd < 0) /* there is no connection, and a new one would be too late */
            return;
        fd = (struct pollfd){.fd = conn->fd.fd,
                             .events = (short)(POLLIN | (conn->watching_write ? POLLOUT : 0))};
        if (poll(&fd, 1, (int)left) < 0 && errno != EINTR)
            return;
        redis_conn_pump(conn);
    }
}

static void link_close(struct queue_link *base) {
    struct stream_link *link = stream_link_of(base);

    link->fetching = false;
    stream_nack_all(link);
    link_drain(link);
    link->closing = true;
    redis_conn_close(&link->command);
    redis_conn_close(&link->reading);
    while (link->messages != NULL)
        stream_notify_drop(link, link->messages);
    idem_timer_clear(link->loop, &link->again);
    idem_timer_clear(link->loop, &link->tick);
    idem_task_drop(link->loop, &link->next);
    idem_task_drop(link->loop, &link->notify);
    link_free(link);
}

static int64_t broker_redelivery(const struct queue_config *config) {
    int64_t min_idle = stream_broker_min_idle(config);

    return min_idle + min_idle / 2;
}

static const char *const schemes[] = {"redis", "rediss", NULL};

const struct queue_broker queue_broker_stream = {
    .name = "Redis Streams",
    .schemes = schemes,
    .open = broker_open,
    .fetch = link_fetch,
    .ack = stream_ack,
    .delay = stream_ack_delay,
    .bury = stream_ack_bury,
    .nack = stream_nack,
    .close = link_close,
    .extend = stream_renew_extend,
    .widen = link_widen,
    .redelivery_ms = broker_redelivery,
};
