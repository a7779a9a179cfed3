/*
 * Writes the audit (core/audit.h) of the command line: to a file (--audit, $IDEM_AUDIT), else to
 * the system's log, else to stderr.
 *
 * A change has two lines. The first reports that the change begins; without it the change is not
 * made. The second reports the outcome. A process that is killed in between leaves the first line,
 * so no change lacks a line.
 */
#ifndef IDEM_CLI_AUDIT_FILE_H
#define IDEM_CLI_AUDIT_FILE_H

#include "cli/cli.h"
#include "core/audit.h"

struct cli_audit {
    bool opened;
    int fd;
    bool log; /* the file is the system's log */
    const char *path;
    const char *action;
    char store[256];
    char who[80], login[80]; /* who: the user of this process; login: the user who logged in, "":
                                the same user or not known */
    bool force;
    int fault;           /* errno of the first line that could not be written; 0: none */
    bool fault_reported; /* the fault was reported to the user */
};

/* Opens the audit; call it before any change. Returns CLI_OK, or a status after reporting the
   error: without an audit there is no action. */
int cli_audit_open(struct cli_audit *audit, const struct cli_values *values, const char *action);

/* Writes a line and fills in user, time and action. A failed write is kept in audit->fault, which
   the next two functions report. */
void cli_audit_put(struct cli_audit *audit, struct idem_audit *line);

/* Flushes all lines to the disk. Returns CLI_OK, or CLI_IO after reporting the error; then nothing
   more may be changed. */
int cli_audit_ready(struct cli_audit *audit);

/* Writes that n records, each in its present state, are about to become `after`. Returns as
   cli_audit_ready() does. */
int cli_audit_begin(struct cli_audit *audit, const struct idem_entry *before, size_t n,
                    const char *after, const char *reason);

/* Writes the outcome for a record that was `before`: its state is `after` now, or the store
   returned `err` (NULL: no error). The reason is the operator's; NULL: none. */
void cli_audit_line(struct cli_audit *audit, const struct idem_entry *before, const char *after,
                    const char *reason, const struct idem_error *err);

/* Returns CLI_OK, or CLI_IO if some lines were not written; the error is reported then. Takes an
   audit that was not opened, too. */
int cli_audit_close(struct cli_audit *audit);

#endif
