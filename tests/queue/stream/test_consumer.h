/*
 * A consumer for tests of the Redis Streams broker: it has a loop of its own,
 * collects its reports, and gives messages back when the test says so. Every
 * call-back is checked against what broker.h promises of all of them.
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

    struct queue_message *got[TEST_CONSUMER_MAX]; /* as they came; NULL: given back */
    char ids[TEST_CONSUMER_MAX][STREAM_ID_TEXT];
    size_t n, out, gone;
    unsigned told;                 /* how often */
    bool taken;                    /* the last time */
    char why[200];                 /* the last time */
    bool ready;                    /* as `state` said last */
    unsigned states;               /* how often it did */
    char text[TEST_CONSUMER_TEXT]; /* all its lines */

    void (*on_message)(struct test_consumer *consumer, size_t i); /* from inside; may be NULL */
    void (*on_told)(struct test_consumer *consumer);
    void (*on_state)(struct test_consumer *consumer);
    void (*on_gone)(struct test_consumer *consumer);
};

/* On the server of behind.h; what the config does not say: stream q, lease 1 s (min-idle 3 s),
   prefetch 16, and times that do not run out. Waits until it is ready, and fetches. When it is
   closed it waits for the server. */
void test_consumer_open(struct test_consumer *consumer, const struct queue_config *config);
void test_consumer_open_as(struct test_consumer *consumer, const char *name);
/* Only that. */
void test_consumer_begin(struct test_consumer *consumer, const struct queue_config *config);
/* By the socket of the proxy instead. */
void test_consumer_open_proxied(struct test_consumer *consumer, const char *name,
                                const char *options, int64_t lease_ms);
void test_consumer_close(struct test_consumer *consumer);
/* Periodic work comes sooner, so that tests that wait for it take less time. */
void test_consumer_hurry(struct test_consumer *consumer);
/* From the next one on, reads block for so long. */
void test_consumer_block(struct test_consumer *consumer, int64_t ms);

void test_consumer_turn(struct test_consumer *consumer, int64_t ms); /* once, for at most so long */
void test_consumer_idle(struct test_consumer *consumer, int64_t ms); /* for so long */
void test_consumer_until(struct test_consumer *consumer, size_t n);  /* until so many came in all */
void test_consumer_until_text(struct test_consumer *consumer, const char *text);
void test_consumer_until_gone(struct test_consumer *consumer, size_t n);
/* Until all that it has asked is answered, but for a read. */
void test_consumer_sync(struct test_consumer *consumer);
/* The time of all that is delayed has come. */
void test_consumer_due(struct test_consumer *consumer);

void test_consumer_ack(struct test_consumer *consumer, size_t i);
void test_consumer_give(struct test_consumer *consumer, size_t i);
void test_consumer_extend(struct test_consumer *consumer, size_t i);
/* Waits for the result: true if it was taken. */
bool test_consumer_delay(struct test_consumer *consumer, size_t i, int64_t ms);
bool test_consumer_bury(struct test_consumer *consumer, size_t i,
                        const struct queue_epitaph *epitaph);
/* The same in two steps: the request, and the wait for its result, which takes what the first
 * returned. */
unsigned test_consumer_bury_begin(struct test_consumer *consumer, size_t i,
                                  const struct queue_epitaph *epitaph);
bool test_consumer_told(struct test_consumer *consumer, unsigned before);

const char *body_of(const struct test_consumer *consumer, size_t i); /* as a text */
/* NULL: none. */
const char *property_of(const struct test_consumer *consumer, size_t i, const char *name);
const char *header_of(const struct test_consumer *consumer, size_t i, const char *name);

/* The server. */

/* A command of texts; the beginning of what came back, until the next one. */
const char *say(const char *first, ...) __attribute__((sentinel));
/* The same of bytes, which it frees. */
const char *say_bytes(struct idem_buffer *command);
void add(const char *body); /* to q */
void add_n(unsigned n, unsigned from);
/* How many are pending in group idem of q, under that name ("": any). */
long pending(const char *name);
/* Turns until so many reads block. */
void blocked_until(struct test_consumer *consumer, long n);
/* How often the server was asked this, by scripts as well: "xautoclaim", "client|unblock". */
long calls_of(const char *command);
/* Turns until it was asked so many times more. */
void calls_until(struct test_consumer *consumer, const char *command, long more);
/* Turns until so many are. */
void pending_until(struct test_consumer *consumer, const char *name, long n);

/* A server that keeps nothing, for what is large; and one whose time of day is the test's. */
void server_begin_light(void);
void server_begin_timed(void);
void time_pass(int64_t ms);

#endif
