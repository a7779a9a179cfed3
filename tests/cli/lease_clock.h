/*
 * The contents of the file that lease_clock.c reads.
 */
#ifndef IDEM_TESTS_CLI_LEASE_CLOCK_H
#define IDEM_TESTS_CLI_LEASE_CLOCK_H

#include <stdint.h>

struct lease_clock {
    int64_t ahead_s;
    int64_t stopped_s; /* the clock stops at this time; 0: it runs */
};

#endif
