/*
 * Runs a scenario with its first allocation failing, then with its second,
 * until it goes through without meeting one that fails. Each time the scenario
 * must end cleanly and leave nothing behind.
 *
 * Memory that libraries allocate once and keep (tables, a thread's error state)
 * is not a leak: remaining blocks count only if the same failure leaves more
 * behind each time.
 */
#ifndef IDEM_CONTRACT_ALLOC_EACH_H
#define IDEM_CONTRACT_ALLOC_EACH_H

#include "alloc_fault.h"
#include "idem.h"

#define ALLOC_TURNS_MAX 5000

/* The scenario returns its code, with its error, and releases everything. */
typedef int alloc_scenario(struct idem_error *err);

/* Runs the scenario once with the n-th allocation failing (0: none). Returns false if none
 * failed. */
bool alloc_run(alloc_scenario *scenario, long n, enum alloc_fault how);

/* `at_least`: the number of allocations that the scenario has, as proof that they are tested. */
void alloc_fail_each(alloc_scenario *scenario, enum alloc_fault how, long at_least);
void alloc_fail_each_both(alloc_scenario *scenario, long at_least);

#endif
