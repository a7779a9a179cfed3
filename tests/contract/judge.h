/*
 * The effect that an operation must have on a record, worked out independently
 * of the driver: the rule of the table that decides, and whether two records are
 * equal.
 *
 * The judge derives the facts of a rule a second time, from their meaning in
 * table.h, so that a slip in protocol.c does not vouch for itself.
 */
#ifndef IDEM_CONTRACT_JUDGE_H
#define IDEM_CONTRACT_JUDGE_H

#include "protocol/protocol.h"

/* `record` may be absent (state IDEM_ABSENT) or expired. */
const struct idem_claim_rule *judge_claim(const struct idem_record *record,
                                          const struct idem_claim_in *in, struct idem_time now);
const struct idem_finish_rule *judge_finish(const struct idem_record *record,
                                            const struct idem_finish_in *in, struct idem_time now);

/* Prints the first difference on stderr. Fields that do not apply are not compared, nor is the
 * end of a lease or a back-off that is over. */
bool judge_equal(const struct idem_record *got, const struct idem_record *want,
                 struct idem_time now);

bool judge_present(const struct idem_record *record, struct idem_time now);

#endif
