/*
 * Runs a scenario with its first allocation failing, then with its second,
 * until it goes through without meeting one that fails; each time it must end
 * cleanly and leave nothing behind.
 *
 * What libraries allocate once and keep (tables, a thread's error state) is not
 * a leak: blocks that remain count only if the same failure leaves more behind
 * each time.
 */
#ifndef IDEM_CONTRACT_ALLOC_EACH_H
#define IDEM_CONTRACT_ALLOC_EACH_H

#include "alloc_fault.h"
#include "idem.h"

#define ALLOC_TURNS_MAX 5000

/* Returns the code it got, with its error; releases all it has. */
typedef int alloc_scenario(struct idem_error *err);

/* One run with the n-th allocation failing (0: none); false if none failed. */
bool alloc_run(alloc_scenario *scenario, long n, enum alloc_fault how);

/* `at_least`: how many allocations it has, so that it is seen to be tested. */
void alloc_fail_each(alloc_scenario *scenario, enum alloc_fault how, long at_least);
void alloc_fail_each_both(alloc_scenario *scenario, long at_least);

#endif
