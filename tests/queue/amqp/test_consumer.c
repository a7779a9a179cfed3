/* The small consumer. If an event does not come in time, the test fails. */
#include "test_consumer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const struct test_consumer *h, const char *what, size_t got, size_t want) {
    fprintf(stderr, "# %s: %zu, not %zu; the lines for people:\n%s", what, got, want, h->log);
    exit(1);
}

static size_t find(const struct test_consumer *h, const struct queue_message *message) {
    for (size_t i = h->got_n; i-- > 0;)
        if (h->got[i].message == message)
            return i;
    fprintf(stderr, "# a message that was not delivered is gone\n");
    exit(1);
}

static void close_if_told(struct test_consumer *h) {
    if (!h->close_in)
        return;
    queue_broker_amqp.close(h->link);
    h->link = NULL;
}

static void on_message(void *data, struct queue_message *message) {
    struct test_consumer *h = data;

    if (h->got_n == TEST_CONSUMER_MAX)
        fail(h, "messages", h->got_n, 0);
    h->got[h->got_n++].message = message;
    h->out++;
    if (h->out > h->out_most)
        h->out_most = h->out;
    close_if_told(h);
}

static void on_gone(void *data, struct queue_message *message) {
    struct test_consumer *h = data;
    size_t i = find(h, message);

    if (h->got[i].gone)
        fail(h, "gone twice", i, 0);
    h->got[i].gone = true;
    h->gone_n++;
    close_if_told(h);
}

static void on_state(void *data, bool ready, const char *text) {
    struct test_consumer *h = data;
    size_t len = strlen(h->log);

    h->ready = ready;
    snprintf(h->log + len, sizeof(h->log) - len, "# %s%s\n", ready ? "" : "(not ready) ", text);
}

struct queue_config test_consumer_config(const char *url, const char *queue) {
    return (struct queue_config){
        .url = url,
        .queue = queue,
        .prefetch = 10,
        .delay_max_ms = 4000,
        .topology = true,
    };
}

static void told_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void told_timeout(void *sink) {
    idem_loop_timeout(sink);
}

void test_consumer_open(struct test_consumer *h, const struct queue_config *config) {
    struct queue_events events = {h, on_message, on_gone, on_state};
    struct idem_error err = {0};
    struct idem_host host;

    memset(h, 0, sizeof(*h));
    idem_poll_init(&h->poll);
    host = idem_poll_host(&h->poll);
    idem_loop_init(&h->loop, &host);
    h->poll.ready = told_ready;
    h->poll.timeout = told_timeout;
    h->poll.sink = &h->loop;
    if (queue_broker_amqp.open(config, &h->loop, &events, &h->link, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}

void test_consumer_start(struct test_consumer *h, const char *url, const char *queue) {
    struct queue_config config = test_consumer_config(url, queue);

    test_consumer_open(h, &config);
    queue_broker_amqp.fetch(h->link, true);
}

void test_consumer_close(struct test_consumer *h) {
    queue_broker_amqp.close(h->link);
    idem_loop_stop(&h->loop);
    idem_poll_release(&h->poll);
}

void test_consumer_idle(struct test_consumer *h, int64_t ms) {
    int64_t until = idem_loop_now() + ms, left;

    while ((left = until - idem_loop_now()) > 0)
        (void)idem_poll_turn(&h->poll, NULL, 0, left);
}

static void wait_for(struct test_consumer *h, const size_t *count, size_t n, const char *what) {
    int64_t until = idem_loop_now() + WAIT_LIMIT_S * 1000;

    while (*count < n && idem_loop_now() < until)
        (void)idem_poll_turn(&h->poll, NULL, 0, 100);
    if (*count < n)
        fail(h, what, *count, n);
}

void test_consumer_wait(struct test_consumer *h, size_t n) {
    wait_for(h, &h->got_n, n, "messages");
}

void test_consumer_wait_gone(struct test_consumer *h, size_t n) {
    wait_for(h, &h->gone_n, n, "messages that are gone");
}

void test_consumer_wait_told(struct test_consumer *h, size_t n) {
    wait_for(h, &h->told_n, n, "answers");
}

void test_consumer_wait_line(struct test_consumer *h, const char *words) {
    int64_t until = idem_loop_now() + WAIT_LIMIT_S * 1000;

    while (strstr(h->log, words) == NULL && idem_loop_now() < until)
        (void)idem_poll_turn(&h->poll, NULL, 0, 100);
    if (strstr(h->log, words) == NULL) {
        fprintf(stderr, "# \"%s\" was not told to people, but\n%s", words, h->log);
        exit(1);
    }
}

/* Giving back. */

static struct queue_message *take(struct test_consumer *h, size_t i) {
    struct queue_message *message = h->got[i].message;

    if (message == NULL)
        fail(h, "given back twice", i, i);
    h->got[i].message = NULL;
    h->out--;
    return message;
}

void test_consumer_ack(struct test_consumer *h, size_t i) {
    queue_broker_amqp.ack(h->link, take(h, i));
}

void test_consumer_giveback(struct test_consumer *h, size_t i) {
    queue_broker_amqp.nack(h->link, take(h, i));
}

void test_consumer_told(void *data, bool taken, const char *why) {
    struct test_consumer *h = data;

    h->taken = taken;
    snprintf(h->why, sizeof(h->why), "%s", why == NULL ? "" : why);
    h->told_n++;
    close_if_told(h);
}

void test_consumer_delay_begin(struct test_consumer *h, size_t i, int64_t ms) {
    queue_broker_amqp.delay(h->link, h->got[i].message, ms, test_consumer_told, h);
}

bool test_consumer_delay(struct test_consumer *h, size_t i, int64_t ms) {
    size_t before = h->told_n;

    test_consumer_delay_begin(h, i, ms);
    test_consumer_wait_told(h, before + 1);
    if (h->taken)
        (void)take(h, i);
    return h->taken;
}

bool test_consumer_bury(struct test_consumer *h, size_t i,
                        const struct queue_dead_fields *dead_fields) {
    size_t before = h->told_n;

    queue_broker_amqp.bury(h->link, h->got[i].message, dead_fields, test_consumer_told, h);
    test_consumer_wait_told(h, before + 1);
    return h->taken;
}

/* Reading. */

static const char *text_of(struct idem_bytes bytes, const char *mark) {
    static char texts[8][1200];
    static unsigned turn;
    char *text = texts[turn++ % 8];

    snprintf(text, sizeof(texts[0]), "%s%.*s", mark, (int)bytes.len, (const char *)bytes.at);
    return text;
}

const char *test_consumer_body(const struct test_consumer *h, size_t i) {
    return text_of(h->got[i].message->body, "");
}

static const char *field_text(const struct queue_field *field) {
    return field == NULL ? "(none)" : text_of(field->value, field->json ? "=" : "");
}

const char *test_consumer_header(const struct test_consumer *h, size_t i, const char *name) {
    return field_text(queue_message_header(h->got[i].message, name));
}

const char *test_consumer_property(const struct test_consumer *h, size_t i, const char *name) {
    return field_text(queue_message_property(h->got[i].message, name));
}
