/*
 * What is read from standard input, within bounds.
 */
#ifndef IDEM_CLI_INPUT_H
#define IDEM_CLI_INPUT_H

#include <stdio.h>

/* The most that is read. */
#define CLI_INPUT_MAX ((size_t)64 << 20)

/* All there is; owned by the caller. CLI_OK, or a status after saying why. */
int cli_input_all(FILE *in, char **ret, size_t *ret_len);

#endif
