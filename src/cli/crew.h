/*
 * Several hands for one job: a store answers many at once sooner than one after the other.
 */
#ifndef IDEM_CLI_CREW_H
#define IDEM_CLI_CREW_H

#include <stddef.h>

#define CLI_CREW_MAX 64

/* Calls `each` once for every i below n, in as many threads as there are jobs, at most
   CLI_CREW_MAX, and returns when all are over. Where threads are not to be had, this one does it.
 */
void cli_crew(size_t n, void (*each)(void *data, size_t i), void *data);

#endif
