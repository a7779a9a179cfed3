/*
 * claim+done pairs through the library, for every store.
 */
#ifndef IDEM_BENCH_PAIRS_H
#define IDEM_BENCH_PAIRS_H

#include "idem.h"
#include "loop/poll.h"

#define PAIRS_RESULT_LEN 200

struct pairs {
    struct idem_poll poll;
    struct idem *h;
    struct idem_guard *guard;
    long begun, ended, number;
    /* Called for each claim with its duration in seconds; may be NULL. */
    void (*claimed)(struct pairs *pairs, double seconds);
    void *data;
};

double now_s(void);
/* Connects, and warms up. A failure ends the program, as in all functions here. */
void pairs_open(struct pairs *pairs, const char *url);
double pairs_run(struct pairs *pairs, unsigned callers, long number); /* seconds */
void pairs_close(struct pairs *pairs);

#endif
