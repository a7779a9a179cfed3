/*
 * A consumer for tests of the Redis Streams broker: it has a loop of its own,
 * collects what it is told, and gives messages back when the test says so. Every
 * call-back is checked against what broker.h promises of all of them.
 */
#ifndef IDEM_TEST_QUEUE_STREAM_TAKER_H
#define IDEM_TEST_QUEUE_STREAM_TAKER_H

#include "../../contract/host.h"
#include "queue/stream/stream.h"
#include "store/redis/proxied_server.h"

#define TAKER_MAX 4096
#define TAKER_TEXT 65536

struct taker {
    struct host host;
    struct idem_loop loop;
    struct queue_link *link;
    unsigned prefetch;
    bool calling; /* inside a call of the broker's table */

    struct queue_message *got[TAKER_MAX]; /* as they came; NULL: given back */
    char ids[TAKER_MAX][STREAM_ID_TEXT];
    size_t n, out, gone;
    unsigned told;         /* how often */
    bool taken;            /* the last time */
    char why[200];         /* the last time */
    bool ready;            /* as `state` said last */
    unsigned states;       /* how often it did */
    char text[TAKER_TEXT]; /* all its lines */

    void (*on_message)(struct taker *taker, size_t i); /* from inside; may be NULL */
    void (*on_told)(struct taker *taker);
    void (*on_state)(struct taker *taker);
    void (*on_gone)(struct taker *taker);
};

/* On the server of behind.h; what the config does not say: stream q, lease 1 s (min-idle 3 s),
   prefetch 16, and times that do not run out. Waits until it is ready, and fetches. When it is
   closed it waits for the server. */
void taker_open(struct taker *taker, const struct queue_config *config);
void taker_open_as(struct taker *taker, const char *consumer);
/* Only that. */
void taker_begin(struct taker *taker, const struct queue_config *config);
/* By the socket of the proxy instead. */
void taker_open_proxied(struct taker *taker, const char *consumer, const char *options,
                        int64_t lease_ms);
void taker_close(struct taker *taker);
/* What is done at intervals is done sooner: the tests that wait for it take less time. */
void taker_hurry(struct taker *taker);
/* From the next one on, reads block for so long. */
void taker_block(struct taker *taker, int64_t ms);

void taker_turn(struct taker *taker, int64_t ms); /* once, for at most so long */
void taker_idle(struct taker *taker, int64_t ms); /* for so long */
void taker_until(struct taker *taker, size_t n);  /* until so many came in all */
void taker_until_text(struct taker *taker, const char *text);
void taker_until_gone(struct taker *taker, size_t n);
void taker_sync(struct taker *taker); /* until all that it has asked is answered, but for a read */
void taker_due(struct taker *taker);  /* the time of all that is delayed has come */

void taker_ack(struct taker *taker, size_t i);
void taker_give(struct taker *taker, size_t i);
void taker_extend(struct taker *taker, size_t i);
/* Wait until it is told; whether it was taken. */
bool taker_delay(struct taker *taker, size_t i, int64_t ms);
bool taker_bury(struct taker *taker, size_t i, const struct queue_epitaph *epitaph);
/* The same in two steps: it is asked; and it is told, after what the first has returned. */
unsigned taker_bury_begin(struct taker *taker, size_t i, const struct queue_epitaph *epitaph);
bool taker_told(struct taker *taker, unsigned before);

const char *body_of(const struct taker *taker, size_t i);                       /* as a text */
const char *property_of(const struct taker *taker, size_t i, const char *name); /* NULL: none */
const char *header_of(const struct taker *taker, size_t i, const char *name);

/* The server. */

/* A command of texts; the beginning of what came back, until the next one. */
const char *say(const char *first, ...) __attribute__((sentinel));
/* The same of bytes, which it frees. */
const char *say_bytes(struct redis_buffer *command);
void add(const char *body); /* to q */
void add_n(unsigned n, unsigned from);
/* How many are pending in group idem of q, under that name ("": any). */
long pending(const char *consumer);
/* Turns until so many reads block. */
void blocked_until(struct taker *taker, long n);
/* How often the server was asked this, by scripts as well: "xautoclaim", "client|unblock". */
long calls_of(const char *command);
/* Turns until it was asked so many times more. */
void calls_until(struct taker *taker, const char *command, long more);
/* Turns until so many are. */
void pending_until(struct taker *taker, const char *consumer, long n);

/* A server that keeps nothing, for what is large; and one whose time of day is the test's. */
void server_begin_light(void);
void server_begin_timed(void);
void time_pass(int64_t ms);

#endif
