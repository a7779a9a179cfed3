/*
 * Load while a server fails over: processes claim key after key, and in the end
 * each key once more. The fate of every key is logged, and checked afterwards.
 */
#ifndef IDEM_TEST_STORE_REDIS_FAILOVER_LOAD_H
#define IDEM_TEST_STORE_REDIS_FAILOVER_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The outcomes that a test allows. */
struct load_allowed {
    bool refused;     /* claims may be refused: for a while there is no master, or no replica */
    bool twice;       /* any key may run twice: the caller checks how many did */
    int64_t from, to; /* a key that was claimed in this time may run twice, too; by history_now() */
};

void load_start(const char *url);
/* Waits for `n` more calls. */
void load_calls_wait(unsigned long n);
/* Fails the test if a worker has ended. */
void load_check_alive(void);
/* Lets the workers claim every key once more, and waits for them. */
void load_end(void);
/* Fails the test on any outcome that is not allowed. Returns the number of keys that ran twice. */
size_t load_check(const struct load_allowed *allowed);

#endif
