/*
 * A consumer for tests of the Redis Streams broker: it has a loop of its own,
 * collects its reports, and gives messages back when the test wants that. Every
 * callback is checked against the promises of broker.h.
 */
#ifndef IDEM_TEST_QUEUE_STREAM_TEST_CONSUMER_H
#define IDEM_TEST_QUEUE_STREAM_TEST_CONSUMER_H

#include "../../contract/host.h"
#include "queue/stream/stream.h"
#include "store/redis/proxied_server.h"

#define TEST_CONSUMER_MAX 4096
#define TEST_CONSUMER_TEXT 65536

struct test_consumer {
    struct host host;
    struct idem_loop loop;
    struct queue_link *link;
    unsigned prefetch;
    bool calling; /* inside a call of the broker's table */

    struct queue_message *got[TEST_CONSUMER_MAX]; /* in the order of arrival; NULL: given back */
    char ids[TEST_CONSUMER_MAX][STREAM_ID_TEXT];
    size_t n, out, gone;
    unsigned told;                 /* the number of results */
    bool taken;                    /* the last result */
    char why[200];                 /* the last reason */
    bool ready;                    /* of the last `state` */
    unsigned states;               /* the number of them */
    char text[TEST_CONSUMER_TEXT]; /* all lines for people */

    void (*on_message)(struct test_consumer *consumer, size_t i); /* called inside; may be NULL */
    void (*on_told)(struct test_consumer *consumer);
    void (*on_state)(struct test_consumer *consumer);
    void (*on_gone)(struct test_consumer *consumer);
};

/* Opens a consumer on the server. Defaults: stream q, lease 1 s (min-idle 3 s), prefetch 16, and
 * timeouts that do not end. Waits until it is ready, and fetches. Closing it waits for the
 * server. */
void test_consumer_open(struct test_consumer *consumer, const struct queue_config *config);
void test_consumer_open_as(struct test_consumer *consumer, const char *name);
/* Only opens the consumer. */
void test_consumer_begin(struct test_consumer *consumer, const struct queue_config *config);
/* Opens it through the proxy instead. */
void test_consumer_open_proxied(struct test_consumer *consumer, const char *name,
                                const char *options, int64_t lease_ms);
void test_consumer_close(struct test_consumer *consumer);
/* Periodic work comes sooner, so that tests that wait for it take less time. */
void test_consumer_hurry(struct test_consumer *consumer);
/* The next reads block for this long. */
void test_consumer_block(struct test_consumer *consumer, int64_t ms);

void test_consumer_turn(struct test_consumer *consumer,
                        int64_t ms); /* once, for at most this long */
void test_consumer_idle(struct test_consumer *consumer, int64_t ms); /* for this long */
void test_consumer_until(struct test_consumer *consumer,
                         size_t n); /* until `n` messages have arrived */
void test_consumer_until_text(struct test_consumer *consumer, const char *text);
void test_consumer_until_gone(struct test_consumer *consumer, size_t n);
/* Turns the loop until all commands but a read have their replies. */
void test_consumer_sync(struct test_consumer *consumer);
/* Lets the time of all delayed messages come. */
void test_consumer_due(struct test_consumer *consumer);

void test_consumer_ack(struct test_consumer *consumer, size_t i);
void test_consumer_give(struct test_consumer *consumer, size_t i);
void test_consumer_extend(struct test_consumer *consumer, size_t i);
/* Waits for the result: true if the broker accepted. */
bool test_consumer_delay(struct test_consumer *consumer, size_t i, int64_t ms);
bool test_consumer_bury(struct test_consumer *consumer, size_t i,
                        const struct queue_dead_fields *dead_fields);
/* The same in two steps: the request, and the wait for its result; pass the return value of the
 * first to the second. */
unsigned test_consumer_bury_begin(struct test_consumer *consumer, size_t i,
                                  const struct queue_dead_fields *dead_fields);
bool test_consumer_told(struct test_consumer *consumer, unsigned before);

const char *body_of(const struct test_consumer *consumer, size_t i); /* as a text */
/* NULL: there is none. */
const char *property_of(const struct test_consumer *consumer, size_t i, const char *name);
const char *header_of(const struct test_consumer *consumer, size_t i, const char *name);

/* The server. */

/* Sends a command of texts; returns the beginning of the reply, which is valid until the next
 * one. */
const char *say(const char *first, ...) __attribute__((sentinel));
/* The same for bytes; frees them. */
const char *say_bytes(struct idem_buffer *command);
void add(const char *body); /* to q */
void add_n(unsigned n, unsigned from);
/* The number of entries pending in group idem of q, under that consumer's name ("": any). */
long pending(const char *name);
/* Turns the loop until `n` reads block. */
void blocked_until(struct test_consumer *consumer, long n);
/* How often the server got this command, from scripts as well: "xautoclaim", "client|unblock". */
long calls_of(const char *command);
/* Turns the loop until the server got it `n` times more. */
void calls_until(struct test_consumer *consumer, const char *command, long more);
/* Turns the loop until `n` entries are pending. */
void pending_until(struct test_consumer *consumer, const char *name, long n);

/* A server that stores nothing, for large data; and one whose time of day is the test's. */
void server_begin_light(void);
void server_begin_timed(void);
void time_pass(int64_t ms);

#endif
