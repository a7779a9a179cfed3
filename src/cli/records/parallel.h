/*
 * Runs one job in several threads: a store serves many requests at once faster than one after the
 * other.
 */
#ifndef IDEM_CLI_RECORDS_PARALLEL_H
#define IDEM_CLI_RECORDS_PARALLEL_H

#include <stddef.h>

#define CLI_PARALLEL_MAX 64

/* Calls `each` once for every i below n, in as many threads as there are jobs, at most
   CLI_PARALLEL_MAX, and returns when all calls have returned. If no thread can be started, the
   calling thread does the work alone. */
void cli_parallel(size_t n, void (*each)(void *data, size_t i), void *data);

#endif
