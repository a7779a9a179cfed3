/*
 * `idem forget`: removes one record, so that its key runs anew. Fails if there is no such record,
 * and on a live lease without --force.
 */
#include <string.h>

#include "cli/records/audit_file.h"
#include "loop/signals.h"
#include "protocol/record_entry.h"

/* Reads the record's state for the audit. A record that cannot be read is removed all the same:
   then the entry contains its name only. Returns CLI_OK, or a status after reporting the error. */
static int command_forget_look_up(struct idem *h, const struct idem_name *name,
                                  struct idem_entry *ret) {
    struct idem_record_key key;
    struct idem_error err;
    int rc = idem_lookup(h, name, ret, &err);

    if (rc == 0) {
        idem_entry_release(ret);
        return CLI_OK;
    }
    if (rc != IDEM_E_ABSENT && rc != IDEM_E_VERSION && rc != IDEM_E_CORRUPT)
        return cli_say_error("forget", &err);
    if (idem_name_key(name, &key, &err) != 0)
        return cli_say_error("forget", &err);
    idem_entry_fill_bad(ret, &key, rc);
    if (rc == IDEM_E_ABSENT)
        ret->state = IDEM_ABSENT;
    return CLI_OK;
}

static int command_forget_record(struct idem *h, const struct cli_values *values,
                                 struct cli_audit *audit) {
    struct cli_name_hold hold;
    struct idem_entry before;
    struct idem_name name;
    struct idem_error err;
    int status = cli_name(h, values, &hold, &name), rc;

    if (status == CLI_OK)
        status = command_forget_look_up(h, &name, &before);
    if (status != CLI_OK)
        return status;
    signals_hold();
    status = cli_audit_begin(audit, &before, 1, "absent", NULL);
    if (status != CLI_OK)
        return status;
    rc = idem_forget(h, &name, values->force, &err);
    cli_audit_line(audit, &before, "absent", NULL, rc < 0 ? &err : NULL);
    if (rc < 0)
        return cli_say_error("forget", &err);
    puts("forgotten");
    return cli_flush();
}

static int command_forget_run(const struct cli_values *values) {
    struct cli_audit audit;
    int status = cli_audit_open(&audit, values, "forget"), written;
    struct idem *h;

    if (status != CLI_OK)
        return status;
    h = cli_open(values, &status);
    if (h != NULL)
        status = command_forget_record(h, values, &audit);
    written = cli_audit_close(&audit);
    idem_close(h);
    signals_let();
    return status == CLI_OK ? written : status;
}

static const char *const command_forget_options[] = {
    "prefix", "scope", "key-is-token", "hash", "force", "audit", "store", "help", NULL};

const struct cli_command cli_forget = {
    .name = "forget",
    .summary = "forget one key, so that it runs anew",
    .synopsis = "[OPTIONS] KEY | --hash HEX",
    .text = "Removes the record of a key. A run that has not ended yet is refused when it ends.\n",
    .after = "  idem forget order-4711\n"
             "  idem forget report@2026-11-15T20:00:00Z    (run with --at)\n",
    .operand = "a key",
    .options = command_forget_options,
    .run = command_forget_run,
};
