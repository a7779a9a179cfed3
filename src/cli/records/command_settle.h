/*
 * The parts of `idem settle` that its two files share.
 */
#ifndef IDEM_CLI_RECORDS_COMMAND_SETTLE_H
#define IDEM_CLI_RECORDS_COMMAND_SETTLE_H

#include "cli/records/audit_file.h"
#include "cli/records/record_list.h"

/* Returns the settlement that the flags request. */
struct idem_settlement cli_settlement(const struct cli_values *values);

/* Settles all records that --state, --prefix, --since and --only select. Returns the exit
   status. */
int cli_settle_many(struct idem *h, const struct cli_values *values, struct cli_only *only,
                    struct cli_audit *audit);

#endif
