/*
 * What is read from standard input or a file, within bounds.
 */
#ifndef IDEM_CLI_INPUT_H
#define IDEM_CLI_INPUT_H

#include <stdio.h>
#include <sys/types.h>

/* The most that is read. */
#define CLI_INPUT_MAX ((size_t)64 << 20)

/* All there is; owned by the caller, and not NULL. CLI_OK, or a status after saying why, with the
   input's name. */
int cli_input_all(FILE *in, const char *name, char **ret, size_t *ret_len);

/* A line without its end, in *line, which is grown as getline() does; its length, -1 at the end of
   the input, or -2 if it is longer than CLI_INPUT_MAX (which is then as far as was read). */
ssize_t cli_input_line(FILE *in, char **line, size_t *size);

#endif
