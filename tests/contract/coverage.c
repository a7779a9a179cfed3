/*
 * The set of rules met: one byte per rule, in memory that the forked tests share.
 * Without coverage_share() nothing is recorded.
 */
#include "coverage.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ROWS_MAX 64

struct coverage {
    unsigned char claim[ROWS_MAX], finish[ROWS_MAX];
};
static struct coverage *coverage;

void coverage_share(void) {
    coverage =
        mmap(NULL, sizeof(*coverage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (coverage == MAP_FAILED)
        abort();
}

void coverage_claim(const struct idem_claim_rule *rule) {
    if (coverage != NULL)
        coverage->claim[rule - idem_claim_table] = 1;
}

void coverage_finish(const struct idem_finish_rule *rule) {
    if (coverage != NULL)
        coverage->finish[rule - idem_finish_table] = 1;
}

unsigned coverage_missing(void) {
    unsigned missing = 0;

    for (unsigned i = 0; idem_claim_table[i].when != NULL; i++) {
        if (!coverage->claim[i]) {
            fprintf(stderr, "# no claim met: %s\n", idem_claim_table[i].when);
            missing++;
        }
    }
    for (unsigned i = 0; idem_finish_table[i].when != NULL; i++) {
        if (!coverage->finish[i]) {
            fprintf(stderr, "# no finish met: %s\n", idem_finish_table[i].when);
            missing++;
        }
    }
    return missing;
}
