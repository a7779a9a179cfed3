/*
 * `idem settle`: an operator says what came of a record, or of all that a
 * filter names. Many at once need --yes or a typed yes, which goes for those
 * that were shown and for no other; --dry-run changes nothing. Fails where
 * there is no such record, where it is done already, and on a live lease
 * without --force.
 */
#include <stdlib.h>
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

/* What was shown, and is settled if it is still that. */
struct shown {
    char prefix[IDEM_PREFIX_MAX + 1];
    char hash[65];
    uint32_t attempt;
    int64_t created_ms; /* a key that was forgotten begins at attempt 1 again */
};

/* How many are asked about at once. */
#define BATCH 1024
#define PAGE 64

struct batch {
    const struct cli_values *values;
    struct idem *h;
    struct idem_filter filter;
    struct idem_settlement how;
    int64_t now;
    struct idem_cursor at;  /* behind it in the list */
    struct shown *shown;    /* room for BATCH */
    size_t n, seen;         /* shown; and of those, seen again when they were settled */
    size_t listed, settled; /* in all batches */
};

/* Calls `each` for what the filter names, from *cursor on, until it has returned false: then to
   the end of that page. */
static int page_each(struct batch *batch, struct idem_cursor *cursor,
                     bool (*each)(struct batch *batch, const struct idem_entry *entry,
                                  int *ret_status)) {
    static struct idem_entry page[PAGE];
    struct idem_error err;
    int status = CLI_OK;
    bool more = true;
    size_t n = 0;

    while (more && status == CLI_OK && !cursor->end) {
        if (idem_list(batch->h, &batch->filter, cursor, page, PAGE, &n, &err) < 0)
            return cli_say_error("list", &err);
        for (size_t i = 0; i < n && status == CLI_OK; i++)
            if (cli_filter_takes(batch->values, &page[i]))
                more = each(batch, &page[i], &status);
    }
    return status;
}

static bool entry_show(struct batch *batch, const struct idem_entry *entry, int *ret_status) {
    struct shown *shown = &batch->shown[batch->n];

    (void)ret_status;
    if (batch->listed++ == 0)
        cli_entry_head(stdout);
    cli_entry_row(entry, batch->now, stdout);
    memcpy(shown->prefix, entry->prefix, sizeof(shown->prefix));
    memcpy(shown->hash, entry->hash, sizeof(shown->hash));
    shown->attempt = entry->attempt;
    shown->created_ms = entry->created_ms;
    batch->n++;
    return batch->n + PAGE <= BATCH;
}

static int shown_order(const void *a, const void *b) {
    const struct shown *x = a, *y = b;
    int order = strcmp(x->hash, y->hash);

    return order != 0 ? order : strcmp(x->prefix, y->prefix);
}

/* Whether somebody has seen it as it is now: what came after the question was not agreed to. */
static bool was_shown(const struct batch *batch, const struct idem_entry *entry) {
    const struct shown *found;
    struct shown key;

    memcpy(key.prefix, entry->prefix, sizeof(key.prefix));
    memcpy(key.hash, entry->hash, sizeof(key.hash));
    found = bsearch(&key, batch->shown, batch->n, sizeof(key), shown_order);
    return found != NULL && found->attempt == entry->attempt &&
           found->created_ms == entry->created_ms;
}

static bool entry_settle(struct batch *batch, const struct idem_entry *entry, int *ret_status) {
    struct idem_name name = {.prefix = entry->prefix, .hash = entry->hash};
    struct idem_error err;
    int rc;

    if (!was_shown(batch, entry))
        return true;
    batch->seen++;
    batch->how.attempt = entry->attempt;
    rc = idem_settle(batch->h, &name, &batch->how, &err);
    if (rc == 0)
        batch->settled++;
    else if (rc != IDEM_E_ABSENT && rc != IDEM_E_LIVE && rc != IDEM_E_SETTLED)
        *ret_status = cli_say_error("settle", &err);
    return batch->seen < batch->n;
}

static bool confirmed(const struct cli_values *values, size_t n) {
    char answer[16];

    if (values->yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        cli_say("settle: many at once need --yes; --dry-run shows them");
        return false;
    }
    printf("Settle %zu record%s as %s? Type yes: ", n, n == 1 ? "" : "s",
           values->done ? "done" : "failed");
    fflush(stdout);
    return fgets(answer, sizeof(answer), stdin) != NULL && strcmp(answer, "yes\n") == 0;
}

/* One batch: shown, asked about, settled. */
static int batch_settle(struct batch *batch) {
    struct idem_cursor from = batch->at;
    int status;

    batch->n = batch->seen = 0;
    status = page_each(batch, &batch->at, entry_show);
    if (status != CLI_OK || batch->n == 0 || batch->values->dry_run)
        return status;
    if (!confirmed(batch->values, batch->n))
        return CLI_USAGE;
    qsort(batch->shown, batch->n, sizeof(*batch->shown), shown_order);
    return page_each(batch, &from, entry_settle);
}

static int many_say(const struct batch *batch, int status) {
    size_t left = batch->listed - batch->settled;

    if (status != CLI_OK && batch->settled == 0) {
        cli_say("settle: nothing was changed");
        return status;
    }
    if (batch->values->dry_run) {
        printf("%zu record%s; nothing was changed\n", batch->listed, batch->listed == 1 ? "" : "s");
        return cli_flush();
    }
    printf("settled %zu record%s as %s\n", batch->settled, batch->settled == 1 ? "" : "s",
           idem_state_name(batch->how.to));
    if (status == CLI_OK && left != 0)
        printf("%zu left alone: changed since shown, or still being run\n", left);
    return status != CLI_OK ? status : cli_flush();
}

static int settle_many(struct idem *h, const struct cli_values *values) {
    struct batch batch = {.values = values, .h = h, .how = settlement_of(values)};
    struct idem_error err;
    int status = cli_filter(h, values, &batch.filter);

    if (status != CLI_OK)
        return status;
    if (idem_time(h, &batch.now, &err) < 0)
        return cli_say_error("store", &err);
    batch.shown = calloc(BATCH, sizeof(*batch.shown));
    if (batch.shown == NULL) {
        cli_say("settle: no memory");
        return CLI_SYSTEM;
    }
    while (status == CLI_OK && !batch.at.end)
        status = batch_settle(&batch);
    free(batch.shown);
    return many_say(&batch, status);
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
    "done", "failed", "status", "reason",  "ttl", "force", "prefix", "scope", "key-is-token",
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
             "  idem settle --failed report@2026-11-15T20:00:00Z    (run with --at)\n"
             "  idem settle --state uncertain --since 2h --failed --dry-run\n",
    .operand = "a key",
    .options = settle_options,
    .run = settle_run,
};
