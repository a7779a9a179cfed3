/*
 * A small consumer for tests: it keeps the broker's messages, and gives them
 * back when the test wants that.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_TEST_CONSUMER_H
#define IDEM_TEST_QUEUE_AMQP_TEST_CONSUMER_H

#include "../../wait.h"
#include "loop/poll.h"
#include "queue/amqp/rabbit.h"

#define TEST_CONSUMER_MAX 4096

struct test_consumer {
    struct idem_poll poll;
    struct idem_loop loop;
    struct queue_link *link;
    struct {
        struct queue_message *message; /* NULL: given back */
        bool gone;
    } got[TEST_CONSUMER_MAX]; /* in the order of arrival */
    size_t got_n, gone_n;
    size_t out, out_most; /* how many are out, and the maximum */
    size_t told_n;        /* counts the results of delay and bury */
    bool taken;
    char why[800];
    bool close_in; /* the link is closed in the next callback */
    bool ready;
    char log[16384]; /* the lines for people */
};

/* The defaults of most tests: topology, a prefetch of 10, delays from 250 ms to 4 s. */
struct queue_config test_consumer_config(const char *url, const char *queue);
void test_consumer_open(struct test_consumer *h, const struct queue_config *config);
/* The same, and starts fetching. */
void test_consumer_start(struct test_consumer *h, const char *url, const char *queue);
void test_consumer_close(struct test_consumer *h);
/* Turns the loop for this long, to show that nothing comes. */
void test_consumer_idle(struct test_consumer *h, int64_t ms);
/* Turns the loop until the condition is true. */
#define TEST_CONSUMER_UNTIL(h, condition) WAIT_BY(test_consumer_idle(h, 10), condition)
/* Turns the loop until `n` messages have arrived in all. */
void test_consumer_wait(struct test_consumer *h, size_t n);
void test_consumer_wait_gone(struct test_consumer *h, size_t n);
/* Turns the loop until a line for people contains these words. */
void test_consumer_wait_line(struct test_consumer *h, const char *words);

void test_consumer_ack(struct test_consumer *h, size_t i);
void test_consumer_giveback(struct test_consumer *h, size_t i);
/* Both wait for the result and return it; the reason is in `why`. */
bool test_consumer_delay(struct test_consumer *h, size_t i, int64_t ms);
bool test_consumer_bury(struct test_consumer *h, size_t i,
                        const struct queue_dead_fields *dead_fields);
/* The same without waiting. */
void test_consumer_delay_begin(struct test_consumer *h, size_t i, int64_t ms);
queue_done_fn test_consumer_told; /* the callback for both; data: the consumer */
void test_consumer_wait_told(struct test_consumer *h, size_t n);

/* The body as text, in one of four buffers. */
const char *test_consumer_body(const struct test_consumer *h, size_t i);
/* A header or property as text; "(none)". JSON has a '=' before it. */
const char *test_consumer_header(const struct test_consumer *h, size_t i, const char *name);
const char *test_consumer_property(const struct test_consumer *h, size_t i, const char *name);

#endif
