/*
 * The audit: a line for each change that an operator makes, or is refused: who, what, when, before
 * and after. To a file (--audit, $IDEM_AUDIT), else to the system's log, else to stderr. No key is
 * ever in it: a record is named by its hash, and by its label.
 */
#ifndef IDEM_CLI_AUDIT_H
#define IDEM_CLI_AUDIT_H

#include "cli/cli.h"

struct cli_audit {
    FILE *file; /* NULL: the system's log, or stderr */
    const char *path;
    const char *action;
    char store[256];
    char who[80], login[80]; /* who runs this; and who had logged in, "": the same, or not known */
    bool syslog;
    bool failed; /* a line could not be written */
};

/* Before anything is changed. CLI_OK, or a status after saying why: where there is no audit, there
   is no action. */
int cli_audit_open(struct cli_audit *audit, const struct cli_values *values, const char *action);

/* What was done to a record that was `before`; it is `after` now, or was left as it was because of
   `refused` (else NULL). The reason is the operator's own; NULL: none. */
void cli_audit_line(struct cli_audit *audit, const struct idem_entry *before, const char *after,
                    const char *reason, const char *refused);

/* CLI_OK, or CLI_IO after saying that not all of it was written. Takes one that was not opened. */
int cli_audit_close(struct cli_audit *audit);

#endif
