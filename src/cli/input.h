/*
 * Reads standard input or a file, with a limit on its length.
 */
#ifndef IDEM_CLI_INPUT_H
#define IDEM_CLI_INPUT_H

#include <stdio.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "cli/options.h"

/* The longest input, or line of it, in bytes. */
#define CLI_INPUT_MAX ((size_t)64 << 20)

/* Reads everything; *ret is owned by the caller, and ends in a NUL that is not counted. CLI_OK, or
   an exit status after a message with the input's name. */
int cli_input_all(FILE *in, const char *name, char **ret, size_t *ret_len);

/* Reads a line without its end into *line, instead of what it holds. Returns its length, -1 at the
   end of the input, or -2 if the line is longer than CLI_INPUT_MAX or memory is missing; the rest
   of the line is then not read. */
ssize_t cli_input_line(FILE *in, struct idem_buffer *line);

/*
 * The variables of expressions: --vars JSON, or --vars-file FILE.
 */

/* Reads the text of the object, owned by the caller; NULL if neither flag is set. CLI_OK, or an
   exit status after a message. */
int cli_input_variables(const struct cli_values *values, const char *command, char **ret,
                        size_t *ret_len);

/* Checks that expressions can read the text: an object of at most `max` bytes. CLI_OK, or an exit
   status after a message that names the flag. */
int cli_input_variables_check(const struct cli_values *values, const char *text, size_t len,
                              int64_t max);

#endif
