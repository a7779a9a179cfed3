/*
 * A small consumer for tests: it takes what the broker tells, keeps it, and gives
 * it back as the test says.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_HAND_H
#define IDEM_TEST_QUEUE_AMQP_HAND_H

#include "../../wait.h"
#include "loop/poll.h"
#include "queue/amqp/rabbit.h"

#define HAND_MAX 4096

struct hand {
    struct idem_poll poll;
    struct idem_loop loop;
    struct queue_link *link;
    struct {
        struct queue_message *message; /* NULL: given back */
        bool gone;
    } got[HAND_MAX]; /* in their order */
    size_t got_n, gone_n;
    size_t out, out_most; /* how many are out, and were at a time */
    size_t told_n;        /* of the last delay or bury; */
    bool taken;
    char why[800];
    bool close_in; /* the link is closed in the next call-back */
    bool ready;
    char log[16384]; /* what was told to people, a line each */
};

/* What most tests want: topology, a prefetch of 10, delays from 250 ms to 4 s. */
struct queue_config hand_config(const char *url, const char *queue);
void hand_open(struct hand *h, const struct queue_config *config);
/* With fetch. */
void hand_start(struct hand *h, const char *url, const char *queue);
void hand_close(struct hand *h);
/* Turns the loop for so long: to show that nothing comes. */
void hand_idle(struct hand *h, int64_t ms);
/* Turns the loop until the condition is true. */
#define HAND_UNTIL(h, condition) WAIT_BY(hand_idle(h, 10), condition)
/* Until there were so many messages in all. */
void hand_wait(struct hand *h, size_t n);
void hand_wait_gone(struct hand *h, size_t n);
/* Until people were told something with these words. */
void hand_wait_line(struct hand *h, const char *words);

void hand_ack(struct hand *h, size_t i);
void hand_giveback(struct hand *h, size_t i);
/* Both wait for the answer, which they return; see `why`. */
bool hand_delay(struct hand *h, size_t i, int64_t ms);
bool hand_bury(struct hand *h, size_t i, const struct queue_epitaph *epitaph);
/* The same without waiting. */
void hand_delay_begin(struct hand *h, size_t i, int64_t ms);
queue_done_fn hand_told; /* data: the hand */
void hand_wait_told(struct hand *h, size_t n);

/* Its body as text, in one of four buffers. */
const char *hand_body(const struct hand *h, size_t i);
/* A header or property as text; "(none)". JSON is told by a '=' before it. */
const char *hand_header(const struct hand *h, size_t i, const char *name);
const char *hand_property(const struct hand *h, size_t i, const char *name);

#endif
