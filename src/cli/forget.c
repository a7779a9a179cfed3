/*
 * `idem forget`: removes one record, so that its key runs anew. Fails where
 * there is none, and on a live lease without --force.
 */
#include <string.h>

#include "cli/audit.h"
#include "cli/signals.h"
#include "core/entry.h"

/* What it was, as far as that can be read: its name is known in any case. CLI_OK, or a status after
   saying why. */
static int look(struct idem *h, const struct idem_name *name, struct idem_entry *ret) {
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

static int forget(struct idem *h, const struct cli_values *values, struct cli_audit *audit) {
    struct cli_name_hold hold;
    struct idem_entry before;
    struct idem_name name;
    struct idem_error err;
    int status = cli_name(h, values, &hold, &name), rc;

    if (status == CLI_OK)
        status = look(h, &name, &before);
    if (status != CLI_OK)
        return status;
    cli_signals_hold();
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

static int forget_run(const struct cli_values *values) {
    struct cli_audit audit;
    int status = CLI_OK, written;
    struct idem *h = cli_open(values, &status);

    if (h == NULL)
        return status;
    status = cli_audit_open(&audit, values, "forget");
    if (status == CLI_OK) {
        status = forget(h, values, &audit);
        written = cli_audit_close(&audit);
        status = status == CLI_OK ? written : status;
    }
    idem_close(h);
    cli_signals_let();
    return status;
}

static const char *const forget_options[] = {"prefix", "scope", "key-is-token", "hash", "force",
                                             "audit",  "store", "help",         NULL};

const struct cli_command cli_forget = {
    .name = "forget",
    .summary = "forget one key, so that it runs anew",
    .synopsis = "[OPTIONS] KEY | --hash HEX",
    .text = "Removes the record of a key. Whoever is still running it is refused when it ends.\n",
    .after = "  idem forget order-4711\n"
             "  idem forget report@2026-11-15T20:00:00Z    (run with --at)\n",
    .operand = "a key",
    .options = forget_options,
    .run = forget_run,
};
