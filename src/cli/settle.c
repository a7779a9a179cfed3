/*
 * `idem settle`: an operator says what came of a record, or of all that a
 * filter names (settle_many.c). --dry-run changes nothing. Fails where there is
 * no such record, where it is done already, and on a live lease without --force.
 */
#include "cli/settle.h"

#include <string.h>

#include "cli/entry.h"
#include "cli/signals.h"

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

/* One. */

/* As it was seen before, and if it is still that. */
static int entry_settle_one(struct idem *h, const struct idem_name *name,
                            const struct idem_entry *entry, const struct cli_values *values,
                            struct cli_audit *audit) {
    struct idem_settlement how = cli_settlement(values);
    struct idem_error err;
    int status, rc;

    how.attempt = entry->attempt;
    how.from = entry->state;
    cli_signals_hold();
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

static int settle_one(struct idem *h, const struct cli_values *values, struct cli_audit *audit) {
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
        status = entry_settle_one(h, &name, &entry, values, audit);
    }
    idem_entry_release(&entry);
    return status;
}

static const char *settle_fault(const struct cli_values *values, bool many) {
    if (values->done && values->failed)
        return "--done or --failed, not both";
    if (!values->done && !values->failed && !values->dry_run)
        return "say what came of it: --done or --failed";
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

static int settle_run(const struct cli_values *values) {
    bool many = values->operands_n == 0 && values->hash == NULL && values->state != NULL;
    const char *fault = settle_fault(values, many);
    struct cli_audit audit = {0};
    int status = CLI_OK, written;
    struct idem *h;

    if (fault != NULL) {
        cli_say("settle: %s (see: idem help settle)", fault);
        return CLI_USAGE;
    }
    h = cli_open(values, &status);
    if (h == NULL)
        return status;
    if (!values->dry_run)
        status = cli_audit_open(&audit, values, "settle");
    if (status == CLI_OK) {
        status = many ? cli_settle_many(h, values, &audit) : settle_one(h, values, &audit);
        written = cli_audit_close(&audit);
        status = status == CLI_OK ? written : status;
    }
    idem_close(h);
    cli_signals_let();
    return status;
}

static const char *const settle_options[] = {
    "done",  "failed",       "status", "reason", "ttl",   "force", "prefix",
    "scope", "key-is-token", "hash",   "state",  "since", "only",  "dry-run",
    "yes",   "audit",        "store",  "help",   NULL,
};

const struct cli_command cli_settle = {
    .name = "settle",
    .summary = "say what came of an uncertain run",
    .synopsis = "--done|--failed [OPTIONS] KEY | --hash HEX | --state STATE",
    .text = "A run that vanished may have happened or not. Find out, then say so: --done, and\n"
            "duplicates are told that it happened; --failed, and it may run again while its\n"
            "policy has attempts left. --state with --prefix, --since and --only names many at\n"
            "once.\n",
    .after = "  idem settle --done --reason 'seen on the bank statement' order-4711\n"
             "  idem settle --failed report@2026-11-15T20:00:00Z    (run with --at)\n"
             "  idem settle --state uncertain --since 2h --failed --dry-run\n"
             "  idem settle --state uncertain --prefix order: --only happened.jsonl --done --yes\n",
    .operand = "a key",
    .options = settle_options,
    .run = settle_run,
};
