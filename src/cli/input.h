/*
 * Reads standard input or a file, with a limit on its length.
 */
#ifndef IDEM_CLI_INPUT_H
#define IDEM_CLI_INPUT_H

#include <stdio.h>
#include <sys/types.h>

/* The longest input, or line of it, in bytes. */
#define CLI_INPUT_MAX ((size_t)64 << 20)

/* Reads everything; *ret is owned by the caller, and not NULL. CLI_OK, or an exit status after a
   message with the input's name. */
int cli_input_all(FILE *in, const char *name, char **ret, size_t *ret_len);

/* Reads a line without its end into *line, which grows as with getline(). Returns its length, -1 at
   the end of the input, or -2 if the line is longer than CLI_INPUT_MAX or memory is missing; the
   rest of the line is then not read. */
ssize_t cli_input_line(FILE *in, char **line, size_t *size);

#endif
