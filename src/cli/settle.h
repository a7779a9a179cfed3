/*
 * `idem settle`, inside.
 */
#ifndef IDEM_CLI_SETTLE_H
#define IDEM_CLI_SETTLE_H

#include "cli/audit.h"

/* What the flags say came of it. */
struct idem_settlement cli_settlement(const struct cli_values *values);

/* All that --state, --prefix, --since and --only name. The exit status. */
int cli_settle_many(struct idem *h, const struct cli_values *values, struct cli_audit *audit);

#endif
