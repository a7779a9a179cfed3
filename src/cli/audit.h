/*
 * Where the audit (core/audit.h) goes from the command line: to a file (--audit, $IDEM_AUDIT), else
 * to the system's log, else to stderr.
 */
#ifndef IDEM_CLI_AUDIT_H
#define IDEM_CLI_AUDIT_H

#include "cli/cli.h"
#include "core/audit.h"

struct cli_audit {
    FILE *file; /* NULL: the system's log, or stderr */
    const char *path;
    const char *action;
    char store[256];
    char who[80], login[80]; /* who runs this; and who had logged in, "": the same, or not known */
    bool force;
    bool syslog;
    bool failed; /* a line could not be written */
};

/* Before anything is changed. CLI_OK, or a status after saying why: where there is no audit, there
   is no action. */
int cli_audit_open(struct cli_audit *audit, const struct cli_values *values, const char *action);

/* Writes a line: who, when and what are filled in. */
void cli_audit_put(struct cli_audit *audit, struct idem_audit *line);

/* What was done to a record that was `before`: it is `after` now, or the store has said `err`
   (else NULL). The reason is the operator's own; NULL: none. */
void cli_audit_line(struct cli_audit *audit, const struct idem_entry *before, const char *after,
                    const char *reason, const struct idem_error *err);

/* CLI_OK, or CLI_IO after saying that not all of it was written. Takes one that was not opened. */
int cli_audit_close(struct cli_audit *audit);

#endif
