/*
 * `idem settle`: an operator says what came of a record, or of all that a
 * filter names. Many at once need --yes or a typed yes; --dry-run changes
 * nothing. Fails where there is no such record, where it is done already, and
 * on a live lease without --force.
 */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/entry.h"

#define TTL_DEFAULT_S 86400

static struct idem_settlement settlement_of(const struct cli_values *values) {
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

static int settle_one(struct idem *h, const struct cli_values *values) {
    struct idem_settlement how = settlement_of(values);
    struct cli_name_hold hold;
    struct idem_entry entry;
    struct idem_name name;
    struct idem_error err;
    int64_t now = 0;
    int status = cli_name(h, values, &hold, &name);

    if (status != CLI_OK)
        return status;
    if (!values->dry_run) {
        if (idem_settle(h, &name, &how, &err) < 0)
            return cli_say_error("settle", &err);
        printf("settled as %s\n", idem_state_name(how.to));
        return cli_flush();
    }
    if (idem_lookup(h, &name, &entry, &err) < 0 || idem_time(h, &now, &err) < 0)
        return cli_say_error("settle", &err);
    cli_entry_head(stdout);
    cli_entry_row(&entry, now, stdout);
    idem_entry_release(&entry);
    return cli_flush();
}

/* Many. */

struct batch {
    const struct cli_values *values;
    int64_t now;
    size_t n;
};

static bool batch_show(const struct idem_entry *entry, void *data) {
    struct batch *batch = data;

    if (batch->n++ == 0)
        cli_entry_head(stdout);
    cli_entry_row(entry, batch->now, stdout);
    return true;
}

static bool batch_take(const struct idem_entry *entry, void *data) {
    const struct batch *batch = data;

    return cli_filter_takes(batch->values, entry);
}

static bool confirmed(const struct cli_values *values, size_t n) {
    char answer[16];

    if (values->yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        cli_say("settle: many at once need --yes; --dry-run shows them, nothing was changed");
        return false;
    }
    printf("Settle %zu record%s as %s? Type yes: ", n, n == 1 ? "" : "s",
           values->done ? "done" : "failed");
    fflush(stdout);
    if (fgets(answer, sizeof(answer), stdin) != NULL && strcmp(answer, "yes\n") == 0)
        return true;
    cli_say("settle: nothing was changed");
    return false;
}

static int settle_many(struct idem *h, const struct cli_values *values) {
    struct idem_settlement how = settlement_of(values);
    struct batch batch = {.values = values};
    struct idem_filter filter;
    struct idem_error err;
    size_t n = 0;
    int status = cli_filter(h, values, &filter);

    if (status != CLI_OK)
        return status;
    if (idem_time(h, &batch.now, &err) < 0)
        return cli_say_error("store", &err);
    status = cli_each(h, values, &filter, batch_show, &batch);
    if (status != CLI_OK)
        return status;
    if (values->dry_run) {
        printf("%zu record%s; nothing was changed\n", batch.n, batch.n == 1 ? "" : "s");
        return cli_flush();
    }
    if (batch.n != 0) {
        if (!confirmed(values, batch.n))
            return CLI_USAGE;
        if (idem_settle_all(h, &filter, &how, batch_take, &batch, &n, &err) < 0)
            return cli_say_error("settle", &err);
    }
    printf("settled %zu record%s as %s\n", n, n == 1 ? "" : "s", idem_state_name(how.to));
    return cli_flush();
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
    int status = CLI_OK;
    struct idem *h;

    if (fault != NULL) {
        cli_say("settle: %s (see: idem help settle)", fault);
        return CLI_USAGE;
    }
    h = cli_open(values, &status);
    if (h == NULL)
        return status;
    status = many ? settle_many(h, values) : settle_one(h, values);
    idem_close(h);
    return status;
}

static const char *const settle_options[] = {
    "done", "failed", "status", "reason",  "ttl", "force", "prefix", "scope",
    "hash", "state",  "since",  "dry-run", "yes", "store", "help",   NULL,
};

const struct cli_command cli_settle = {
    .name = "settle",
    .summary = "say what came of an uncertain run",
    .synopsis = "--done|--failed [OPTIONS] KEY | --hash HEX | --state STATE",
    .text = "A run that vanished may have happened or not. Find out, then say so: --done, and\n"
            "duplicates are told that it happened; --failed, and it may run again while its\n"
            "policy has attempts left. --state with --prefix and --since names many at once.\n",
    .after = "  idem settle --done --reason 'seen on the bank statement' order-4711\n"
             "  idem settle --state uncertain --since 2h --failed --dry-run\n",
    .options = settle_options,
    .run = settle_run,
};
