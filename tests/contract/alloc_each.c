/*
 * Makes each allocation fail in turn. A fault ends the test, and the message
 * names the allocation.
 */
#include "alloc_each.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/freelist.h"

#define SLOW_TRIES 20
#define LEAK_TRIES 24 /* libcrypto keeps the last 16 errors of a thread */

/* A failed allocation may be reported only as a lack of memory. */
static bool clean(int rc, const struct idem_error *err) {
    if (rc == 0)
        return true;
    if ((rc == IDEM_E_NOMEM || rc == IDEM_E_UNKNOWN) && err->code == rc && err->text[0] != '\0')
        return true;
    fprintf(stderr, "# code %d (%s), error %d: %s\n", rc, idem_code_name(rc), err->code, err->text);
    return false;
}

bool alloc_run(alloc_scenario *scenario, long n, enum alloc_fault how) {
    struct idem_error err;
    int rc, tries = 0;
    bool failed;

    idem_freelist_max = 0; /* blocks that are reused are not allocated, and cannot fail */
    /* If no allocation failed, the error is accepted: a disk may have been slower than the scenario
     * waits. */
    do {
        err = (struct idem_error){0};
        alloc_arm(n, how);
        rc = scenario(&err);
        failed = alloc_disarm();
    } while (rc == IDEM_E_UNKNOWN && !failed && tries++ < SLOW_TRIES);
    if (!clean(rc, &err) || (rc != 0 && !failed)) {
        fprintf(stderr, "# with allocation %ld failing%s\n", n,
                how == ALLOC_FAIL_SINCE ? ", and all after it" : "");
        exit(1);
    }
    return failed;
}

/* The same failure leaves blocks behind again and again. */
static bool leaks(alloc_scenario *scenario, long n, enum alloc_fault how, long before) {
    for (int i = 0; i < LEAK_TRIES; i++) {
        long after = alloc_live();

        if (after <= before)
            return false;
        before = after;
        (void)alloc_run(scenario, n, how);
    }
    return alloc_live() > before;
}

void alloc_fail_each(alloc_scenario *scenario, enum alloc_fault how, long at_least) {
    long n = 1;

    for (int i = 0; i < 3; i++)
        (void)alloc_run(scenario, 0, ALLOC_FAIL_ONCE);
    for (;; n++) {
        long before = alloc_live();
        bool failed = alloc_run(scenario, n, how);

        if (leaks(scenario, n, how, before)) {
            fprintf(stderr, "# allocation %ld failing leaks %ld blocks\n", n,
                    alloc_live() - before);
            exit(1);
        }
        if (!failed)
            break;
        if (n == ALLOC_TURNS_MAX) {
            fprintf(stderr, "# allocation %ld fails, and there is no end\n", n);
            exit(1);
        }
    }
    if (n <= at_least) {
        fprintf(stderr, "# only %ld allocations were made to fail\n", n - 1);
        exit(1);
    }
}

void alloc_fail_each_both(alloc_scenario *scenario, long at_least) {
    alloc_fail_each(scenario, ALLOC_FAIL_ONCE, at_least);
    alloc_fail_each(scenario, ALLOC_FAIL_SINCE, at_least);
}
