/*
 * `idem settle`: an operator reports the outcome of a record, or of all records that a filter
 * selects (settle_many.c). --dry-run changes nothing. Fails if there is no such record, if it is
 * done already, and on a live lease without --force.
 */
#include "cli/records/command_settle.h"

#include <string.h>

#include "cli/records/record_print.h"
#include "loop/signals.h"

#define TTL_DEFAULT_S 86400

struct idem_settlement cli_settlement(const struct cli_values *values) {
    int64_t ttl_s = values->layer.said.ttl_s;

    return (struct idem_settlement){
        .to = values->done ? IDEM_DONE : IDEM_FAILED,
        .status = values->status >= 0 ? (int32_t)values->status
                  : values->done      ? 0
                                      : 1,
        .reason = values->reason != NULL ? values->reason : "settled by an operator",
        .force = values->force,
        .ttl_s = ttl_s != 0 ? ttl_s : TTL_DEFAULT_S,
    };
}

/* One record. */

/* Settles the record only if its state and attempt are still those that were shown. */
static int command_settle_entry(struct idem *h, const struct idem_name *name,
                                const struct idem_entry *entry, const struct cli_values *values,
                                struct cli_audit *audit) {
    struct idem_settlement how = cli_settlement(values);
    struct idem_error err;
    int status, rc;

    how.attempt = entry->attempt;
    how.from = entry->state;
    signals_hold();
    status = cli_audit_begin(audit, entry, 1, idem_state_name(how.to), how.reason);
    if (status != CLI_OK)
        return status;
    rc = idem_settle(h, name, &how, &err);
    cli_audit_line(audit, entry, idem_state_name(how.to), how.reason, rc < 0 ? &err : NULL);
    if (rc < 0)
        return cli_say_error("settle", &err);
    printf("settled as %s\n", idem_state_name(how.to));
    return cli_flush();
}

static int command_settle_one(struct idem *h, const struct cli_values *values,
                              struct cli_audit *audit) {
    struct cli_name_hold hold;
    struct idem_entry entry;
    struct idem_name name;
    struct idem_error err;
    int64_t now = 0;
    int status = cli_name(h, values, &hold, &name);

    if (status != CLI_OK)
        return status;
    if (idem_lookup(h, &name, &entry, &err) < 0 || idem_time(h, &now, &err) < 0)
        return cli_say_error("settle", &err);
    if (values->dry_run) {
        cli_entry_head(stdout);
        cli_entry_row(&entry, now, stdout);
        status = cli_flush();
    } else {
        status = command_settle_entry(h, &name, &entry, values, audit);
    }
    idem_entry_release(&entry);
    return status;
}

static const char *command_settle_fault(const struct cli_values *values, bool many) {
    if (values->done && values->failed)
        return "--done or --failed, not both";
    if (!values->done && !values->failed && !values->dry_run)
        return "the outcome is missing: --done or --failed";
    if (!many && values->state == NULL && values->since != NULL)
        return "--since goes with --state";
    if (many && values->layer.said.scope != NULL)
        return "a filter knows no --scope: records hold only its hash";
    if (values->state != NULL && !many)
        return "name one record by KEY or --hash, or many by --state, not both";
    if (values->only != NULL && !many)
        return "--only goes with --state, which must still be theirs";
    if (values->state != NULL && strcmp(values->state, "done") == 0)
        return "what is done is settled already; to run it again, forget it";
    if (values->state != NULL && strcmp(values->state, "damaged") == 0)
        return "what is damaged cannot be settled; idem forget --force --hash HEX removes it";
    if (values->state != NULL && strcmp(values->state, "newer") == 0)
        return "what a newer version has written is settled by that version";
    return NULL;
}

static int command_settle_run(const struct cli_values *values) {
    bool many = values->operands_n == 0 && values->hash == NULL && values->state != NULL;
    const char *fault = command_settle_fault(values, many);
    struct cli_audit audit = {0};
    struct cli_only only = {0};
    int status = CLI_OK, written;
    struct idem *h = NULL;

    if (fault != NULL) {
        cli_say("settle: %s (see: idem help settle)", fault);
        return CLI_USAGE;
    }
    if (values->only != NULL)
        status = cli_only_read(values->only, values->layer.said.prefix, &only);
    if (status == CLI_OK && !values->dry_run)
        status = cli_audit_open(&audit, values, "settle");
    if (status == CLI_OK)
        h = cli_open(values, &status);
    if (h != NULL)
        status = many ? cli_settle_many(h, values, &only, &audit)
                      : command_settle_one(h, values, &audit);
    written = cli_audit_close(&audit);
    cli_only_release(&only);
    idem_close(h);
    signals_let();
    return status == CLI_OK ? written : status;
}

static const char *const command_settle_options[] = {
    "done",  "failed",       "status", "reason", "ttl",   "force", "prefix",
    "scope", "key-is-token", "hash",   "state",  "since", "only",  "dry-run",
    "yes",   "audit",        "store",  "help",   NULL,
};

const struct cli_command cli_settle = {
    .name = "settle",
    .summary = "settle the outcome of an uncertain run",
    .synopsis = "--done|--failed [OPTIONS] KEY | --hash HEX | --state STATE",
    .text = "A run that vanished may have happened or not. Find out, then settle it: --done, and\n"
            "duplicates learn that it happened; --failed, and it may run again while its\n"
            "policy has attempts left. --state with --prefix, --since and --only names many at\n"
            "once.\n",
    .after = "  idem settle --done --reason 'seen on the bank statement' order-4711\n"
             "  idem settle --failed report@2026-11-15T20:00:00Z    (run with --at)\n"
             "  idem settle --state uncertain --since 2h --failed --dry-run\n"
             "  idem settle --state uncertain --prefix order: --only happened.jsonl --done --yes\n",
    .operand = "a key",
    .options = command_settle_options,
    .run = command_settle_run,
};
