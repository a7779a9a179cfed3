/*
 * A request from a command line, in curl(1)'s syntax, and the signer for it.
 */
#ifndef IDEM_CLI_SIGN_REQUEST_ARGUMENT_H
#define IDEM_CLI_SIGN_REQUEST_ARGUMENT_H

#include "cli/cli.h"

#define CLI_FIELDS_MAX 64

/* Borrows from the values. The caller releases it, also after a failure. */
struct cli_request {
    struct idem_request request;
    struct idem_field fields[CLI_FIELDS_MAX];
    char *held[CLI_LIST_MAX]; /* the text of the headers */
    char *url, *target, *body;
};

/* Reads URL, -X, -H, -d and --data-file. CLI_OK, or an exit status after a message. */
int cli_request_read(const struct cli_values *values, const char *command, struct cli_request *ret);
void cli_request_release(struct cli_request *request);

/* Reads --secret-file, --form, --window, --headers and --sequence. CLI_OK, or an exit status after
   a message; free with idem_signer_free(). */
int cli_request_signer(const struct cli_values *values, const char *command,
                       struct idem_signer **ret);

/* Parses a time: seconds since 1970, or any text that time_argument_parse() takes. CLI_OK, or
   CLI_USAGE after a message. */
int cli_request_time(const char *text, const char *command, const char *flag, int64_t *ret_ms);

/* Prints lines with any content, indented by two blanks; control characters are written as \xNN. */
void cli_lines_print(const char *text, FILE *out);

#endif
