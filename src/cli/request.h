/*
 * A request from a command line, written as curl(1) takes it; and the signer that goes with it.
 */
#ifndef IDEM_CLI_REQUEST_H
#define IDEM_CLI_REQUEST_H

#include "cli/cli.h"

#define CLI_FIELDS_MAX 64

/* Borrows from the values. Released by the caller, also after a failure. */
struct cli_request {
    struct idem_request request;
    struct idem_field fields[CLI_FIELDS_MAX];
    char *held[CLI_LIST_MAX]; /* the headers' text */
    char *url, *target, *body;
};

/* URL, -X, -H, -d and --data-file. CLI_OK, or a status after saying why. */
int cli_request_read(const struct cli_values *values, const char *command, struct cli_request *ret);
void cli_request_release(struct cli_request *request);

/* --secret-file, --form, --window, --headers and --sequence. CLI_OK, or a status after saying why;
   freed with idem_signer_free(). */
int cli_signer(const struct cli_values *values, const char *command, struct idem_signer **ret);

/* A moment: seconds since 1970, or as cli_when_parse() takes it. */
int cli_moment(const char *text, const char *command, const char *flag, int64_t *ret_ms);

/* Lines that may hold anything, each behind two blanks, with what a terminal would obey written as
   \xNN. */
void cli_lines_print(const char *text, FILE *out);

#endif
