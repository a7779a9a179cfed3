/*
 * Where the audit (core/audit.h) goes from the command line: to a file (--audit, $IDEM_AUDIT), else
 * to the system's log, else to stderr.
 *
 * A change has two lines: that it is begun, which must be written or it is not; and what came of
 * it. Whoever is killed between them leaves the first, and so there is none without a line.
 */
#ifndef IDEM_CLI_AUDIT_H
#define IDEM_CLI_AUDIT_H

#include "cli/cli.h"
#include "core/audit.h"

struct cli_audit {
    bool opened;
    int fd;
    bool log; /* it is the system's */
    const char *path;
    const char *action;
    char store[256];
    char who[80], login[80]; /* who runs this; and who had logged in, "": the same, or not known */
    bool force;
    int fault; /* errno of the first line that could not be written; 0: none */
    bool told; /* of that */
};

/* Before anything is changed. CLI_OK, or a status after saying why: where there is no audit, there
   is no action. */
int cli_audit_open(struct cli_audit *audit, const struct cli_values *values, const char *action);

/* Writes a line: who, when and what are filled in. Whether it could is said by the next two. */
void cli_audit_put(struct cli_audit *audit, struct idem_audit *line);

/* Whether all lines up to now are where they belong, on the disk: else nothing may be changed.
   CLI_OK, or CLI_IO after saying why. */
int cli_audit_ready(struct cli_audit *audit);

/* That n records, each as it is now, are going to become `after`; then as cli_audit_ready(). */
int cli_audit_begin(struct cli_audit *audit, const struct idem_entry *before, size_t n,
                    const char *after, const char *reason);

/* What was done to a record that was `before`: it is `after` now, or the store has said `err`
   (else NULL). The reason is the operator's own; NULL: none. */
void cli_audit_line(struct cli_audit *audit, const struct idem_entry *before, const char *after,
                    const char *reason, const struct idem_error *err);

/* CLI_OK, or CLI_IO where not all of it was written, which has been said then. Takes one that was
   not opened. */
int cli_audit_close(struct cli_audit *audit);

#endif
