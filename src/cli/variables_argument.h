/*
 * The variables of expressions: --vars JSON, or --vars-file FILE.
 */
#ifndef IDEM_CLI_VARIABLES_ARGUMENT_H
#define IDEM_CLI_VARIABLES_ARGUMENT_H

#include "cli/options.h"

/* Reads the text of the object, owned by the caller; NULL if neither flag is set. CLI_OK, or an
   exit status after a message. */
int cli_vars(const struct cli_values *values, const char *command, char **ret, size_t *ret_len);

/* Checks that expressions can read the text: an object of at most `max` bytes. CLI_OK, or an exit
   status after a message that names the flag. */
int cli_vars_check(const struct cli_values *values, const char *text, size_t len, int64_t max);

#endif
