/*
 * The variables of expressions: --vars JSON, or --vars-file FILE.
 */
#ifndef IDEM_CLI_VARS_H
#define IDEM_CLI_VARS_H

#include "cli/options.h"

/* The text of the object; owned by the caller. NULL where neither is said. CLI_OK, or a status
   after saying why. */
int cli_vars(const struct cli_values *values, const char *command, char **ret, size_t *ret_len);

/* Whether expressions can read it: an object of at most `max` bytes. CLI_OK, or a status after
   saying why, with the flag it came by. */
int cli_vars_check(const struct cli_values *values, const char *text, size_t len, int64_t max);

#endif
