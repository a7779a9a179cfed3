/*
 * Load while a server fails over: processes that claim key after key, and in the end each key once
 * more. What became of every key is in a log, and is judged afterwards.
 */
#ifndef IDEM_TEST_STORE_REDIS_FAILOVER_LOAD_H
#define IDEM_TEST_STORE_REDIS_FAILOVER_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The outcomes that a test allows. */
struct load_allowed {
    bool refused;     /* claims: there was no master, or no replica, for a while */
    bool twice;       /* any key may have run twice: the caller judges how many did */
    int64_t from, to; /* one that was asked for in this time may, too; by history_now() */
};

void load_start(const char *url);
/* Waits for so many more calls. */
void load_calls_wait(unsigned long n);
/* Fails the test if a worker has ended. */
void load_check_alive(void);
/* Has every key asked for again, and waits for the workers. */
void load_end(void);
/* Fails the test if anything else happened; how many keys ran twice. */
size_t load_check(const struct load_allowed *allowed);

#endif
