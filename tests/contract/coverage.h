/*
 * Records which rows of the two tables were met through a driver, by all the
 * test processes of one program together.
 */
#ifndef IDEM_CONTRACT_COVERAGE_H
#define IDEM_CONTRACT_COVERAGE_H

#include "protocol/table.h"

void coverage_share(void); /* before the first fork */
void coverage_claim(const struct idem_claim_rule *rule);
void coverage_finish(const struct idem_finish_rule *rule);

/* Returns the number of rows that were never met, and names each on stderr. */
unsigned coverage_missing(void);

#endif
