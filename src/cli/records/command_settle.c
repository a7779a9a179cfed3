/*
 * `idem settle`: an operator reports the outcome of a record, or of all records that a filter
 * selects; and `idem forget`. --dry-run changes nothing. Fails if there is no such record, if it is
 * done already, and on a live lease without --force.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/audit_file.h"
#include "cli/records/parallel.h"
#include "cli/records/record_list.h"
#include "loop/signals.h"
#include "protocol/record_entry.h"

/*
 * Settles many records in batches: lists a batch, asks for confirmation, and settles in several
 * threads each record that has not changed since it was listed. This needs --yes or a typed yes,
 * which covers the listed records only.
 *
 * The audit records a batch as begun before any record of it is changed, so that one fsync is
 * enough for the batch; then each record gets a line with its outcome, also if nothing was changed.
 * A failure or a signal ends the command between two records. Records that were settled before that
 * stay settled.
 */

/* Returns the settlement that the flags request. */
static struct idem_settlement settle_how(const struct cli_values *values);

/* records per question */
#define BATCH 1024
#define PAGE 64
#define CREATED_MS 100

struct batch {
    const struct cli_values *values;
    struct idem *h;
    struct idem_filter filter;
    struct cli_record_set *only;
    struct idem_settlement how;
    int64_t now;
    struct idem_cursor at;    /* the position in the list after this batch */
    struct idem_entry *shown; /* room for BATCH */
    size_t n;

    pthread_mutex_t lock; /* protects the fields below, which all threads change */
    struct cli_audit *audit;
    size_t listed, settled; /* of all batches */
    int status;
};

/* Listing. */

/* Reads as many of the next pages as fit, in the order of the list. */
static int batch_list(struct batch *batch) {
    struct idem_error err;
    size_t n = 0;

    batch->n = 0;
    while (batch->n + PAGE <= BATCH && !batch->at.end) {
        struct idem_entry *page = &batch->shown[batch->n];
        size_t kept = 0;

        if (idem_list(batch->h, &batch->filter, &batch->at, page, PAGE, &n, &err) < 0)
            return cli_message_error("list", &err);
        for (size_t i = 0; i < n; i++) {
            if (!cli_record_filter_takes(batch->values, &page[i]) ||
                !cli_record_set_has(batch->only, &page[i]))
                continue;
            page[kept] = page[i];
            if (batch->listed++ == 0)
                cli_entry_print_heading(stdout);
            cli_entry_print(&page[kept++], batch->now, stdout);
        }
        batch->n += kept;
    }
    return CLI_OK;
}

static bool settle_many_confirm(const struct cli_values *values, size_t n) {
    char reply[16];

    if (values->yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        cli_message("settle: many at once need --yes; --dry-run shows them");
        return false;
    }
    printf("Settle %zu record%s as %s? Type yes: ", n, n == 1 ? "" : "s",
           values->done ? "done" : "failed");
    fflush(stdout);
    return fgets(reply, sizeof(reply), stdin) != NULL && strcmp(reply, "yes\n") == 0;
}

/* Settling. */

/* True if this command has settled the record: a list may contain a record twice. */
static bool batch_has_settled(const struct batch *batch, const struct idem_entry *now) {
    return now->state == batch->how.to && strcmp(now->reason, batch->how.reason) == 0;
}

/* True if the record is still as listed: the confirmation does not cover later changes. A key that
   was forgotten and claimed again begins at attempt 1 once more, but has another time of creation.
   Redis computes that time from the record's remaining life, which is some milliseconds off. */
static bool batch_is_unchanged(const struct batch *batch, const struct idem_entry *shown,
                               const struct idem_entry *now) {
    int64_t apart = now->created_ms - shown->created_ms;

    return now->attempt == shown->attempt && apart <= CREATED_MS && apart >= -CREATED_MS &&
           cli_record_filter_takes(batch->values, now);
}

/* Writes the outcome to the audit before the thread takes its next record. A line that cannot be
   written ends the command (batch_is_over). */
static void batch_record_outcome(struct batch *batch, const struct idem_entry *shown, int rc,
                                 const struct idem_error *err) {
    pthread_mutex_lock(&batch->lock);
    cli_audit_line(batch->audit, shown, idem_state_name(batch->how.to), batch->how.reason,
                   rc < 0 ? err : NULL);
    if (rc == 0)
        batch->settled++;
    else if (rc != IDEM_E_ABSENT && rc != IDEM_E_LIVE && rc != IDEM_E_SETTLED &&
             batch->status == CLI_OK)
        batch->status = cli_message_error("settle", err);
    pthread_mutex_unlock(&batch->lock);
}

static bool batch_is_over(struct batch *batch) {
    bool over;

    pthread_mutex_lock(&batch->lock);
    over = batch->status != CLI_OK || batch->audit->fault != 0;
    pthread_mutex_unlock(&batch->lock);
    return over || signals_pending();
}

static void batch_skip_entry(struct batch *batch, const struct idem_entry *shown, const char *why) {
    struct idem_error err;

    batch_record_outcome(batch, shown, idem_error_set(&err, IDEM_E_LIVE, "%s", why), &err);
}

/* True if the record may be settled; otherwise the reason is written to the audit. */
static bool batch_check_entry(struct batch *batch, const struct idem_entry *shown,
                              const struct idem_name *name) {
    struct idem_entry now;
    struct idem_error err;
    int rc = idem_lookup(batch->h, name, &now, &err);
    bool still, ours;

    if (rc != 0) {
        batch_record_outcome(batch, shown, rc, &err);
        return false;
    }
    still = batch_is_unchanged(batch, shown, &now);
    ours = !still && batch_has_settled(batch, &now);
    idem_entry_release(&now);
    if (still)
        return true;
    if (ours) {
        pthread_mutex_lock(&batch->lock);
        batch->listed--;
        pthread_mutex_unlock(&batch->lock);
    }
    batch_skip_entry(batch, shown,
                     ours ? "it is settled so already" : "it has changed since it was shown");
    return false;
}

static void settle_many_entry(void *data, size_t i) {
    struct batch *batch = data;
    const struct idem_entry *shown = &batch->shown[i];
    struct idem_name name = {.prefix = shown->prefix, .hash = shown->hash};
    struct idem_settlement how = batch->how;
    struct idem_error err;
    int rc;

    if (batch_is_over(batch)) {
        batch_skip_entry(batch, shown, "it was not tried: idem was stopped, or had failed, before");
        return;
    }
    if (!batch_check_entry(batch, shown, &name))
        return;
    how.attempt = shown->attempt;
    how.from = shown->state;
    rc = idem_settle(batch->h, &name, &how, &err);
    batch_record_outcome(batch, shown, rc, &err);
}

/* Lists one batch, asks for confirmation, settles it. */
static int batch_settle(struct batch *batch) {
    int status = batch_list(batch);

    if (status != CLI_OK || batch->n == 0 || batch->values->dry_run)
        return status;
    if (!settle_many_confirm(batch->values, batch->n))
        return CLI_USAGE;
    signals_defer();
    status = cli_audit_begin(batch->audit, batch->shown, batch->n, idem_state_name(batch->how.to),
                             batch->how.reason);
    if (status != CLI_OK)
        return status;
    cli_parallel(batch->n, settle_many_entry, batch);
    if (batch->status == CLI_OK && signals_pending())
        return cli_fail(CLI_SYSTEM, "settle: stopped by a signal");
    signals_resume(); /* a signal may end the next question */
    return batch->status;
}

static int batch_print_summary(const struct batch *batch, int status) {
    size_t left = batch->listed - batch->settled, unmet = cli_record_set_unmet(batch->only);
    int flushed;

    if (status != CLI_OK && batch->settled == 0) {
        cli_message("settle: nothing was changed");
        return status;
    }
    if (status == CLI_OK && unmet != 0)
        printf("%zu of %s not found as %s%s\n", unmet, batch->values->only, batch->values->state,
               batch->values->layer.policy.prefix == NULL ? "" : " under this prefix");
    if (batch->values->dry_run) {
        printf("%zu record%s; nothing was changed\n", batch->listed, batch->listed == 1 ? "" : "s");
        return cli_flush();
    }
    printf("settled %zu record%s as %s\n", batch->settled, batch->settled == 1 ? "" : "s",
           idem_state_name(batch->how.to));
    if (status == CLI_OK && left != 0)
        printf("%zu left alone: changed since shown, or still being run\n", left);
    flushed = cli_flush();
    return status != CLI_OK ? status : flushed;
}

static int batch_settle_all(struct batch *batch) {
    struct idem_error err;
    int status = cli_record_filter(batch->h, batch->values, &batch->filter);

    if (status != CLI_OK)
        return status;
    if (idem_time(batch->h, &batch->now, &err) < 0)
        return cli_message_error("store", &err);
    batch->shown = calloc(BATCH, sizeof(*batch->shown));
    if (batch->shown == NULL)
        return cli_fail(CLI_SYSTEM, "settle: no memory");
    while (status == CLI_OK && !batch->at.end)
        status = batch_settle(batch);
    free(batch->shown);
    return batch_print_summary(batch, status);
}

/* Settles all records that --state, --prefix, --since and --only select. Returns the exit
   status. */
static int settle_many(struct idem *h, const struct cli_values *values, struct cli_record_set *only,
                       struct cli_audit *audit) {
    struct batch batch = {.values = values,
                          .audit = audit,
                          .h = h,
                          .only = only,
                          .how = settle_how(values),
                          .lock = PTHREAD_MUTEX_INITIALIZER};

    return batch_settle_all(&batch);
}

#define TTL_DEFAULT_S 86400

static struct idem_settlement settle_how(const struct cli_values *values) {
    int64_t ttl_s = values->layer.policy.ttl_s;

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
    struct idem_settlement how = settle_how(values);
    struct idem_error err;
    int status, rc;

    how.attempt = entry->attempt;
    how.from = entry->state;
    signals_defer();
    status = cli_audit_begin(audit, entry, 1, idem_state_name(how.to), how.reason);
    if (status != CLI_OK)
        return status;
    rc = idem_settle(h, name, &how, &err);
    cli_audit_line(audit, entry, idem_state_name(how.to), how.reason, rc < 0 ? &err : NULL);
    if (rc < 0)
        return cli_message_error("settle", &err);
    printf("settled as %s\n", idem_state_name(how.to));
    return cli_flush();
}

static int command_settle_one(struct idem *h, const struct cli_values *values,
                              struct cli_audit *audit) {
    struct cli_record_name_hold hold;
    struct idem_entry entry;
    struct idem_name name;
    struct idem_error err;
    int64_t now = 0;
    int status = cli_record_name(h, values, &hold, &name);

    if (status != CLI_OK)
        return status;
    if (idem_lookup(h, &name, &entry, &err) < 0 || idem_time(h, &now, &err) < 0)
        return cli_message_error("settle", &err);
    if (values->dry_run) {
        cli_entry_print_heading(stdout);
        cli_entry_print(&entry, now, stdout);
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
    if (many && values->layer.policy.scope != NULL)
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
    struct cli_record_set only = {0};
    int status = CLI_OK, written;
    struct idem *h = NULL;

    if (fault != NULL)
        return cli_usage("settle", "%s", fault);
    if (values->only != NULL)
        status = cli_record_set_read(values->only, values->layer.policy.prefix, &only);
    if (status == CLI_OK && !values->dry_run)
        status = cli_audit_open(&audit, values, "settle");
    if (status == CLI_OK)
        h = cli_open(values, &status);
    if (h != NULL)
        status =
            many ? settle_many(h, values, &only, &audit) : command_settle_one(h, values, &audit);
    written = cli_audit_close(&audit);
    cli_record_set_release(&only);
    idem_close(h);
    signals_resume();
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

/*
 * `idem forget`: removes one record, so that its key runs anew. Fails if there is no such record,
 * and on a live lease without --force.
 */

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
        return cli_message_error("forget", &err);
    if (idem_name_key(name, &key, &err) != 0)
        return cli_message_error("forget", &err);
    idem_entry_fill_bad(ret, &key, rc);
    if (rc == IDEM_E_ABSENT)
        ret->state = IDEM_ABSENT;
    return CLI_OK;
}

static int command_forget_record(struct idem *h, const struct cli_values *values,
                                 struct cli_audit *audit) {
    struct cli_record_name_hold hold;
    struct idem_entry before;
    struct idem_name name;
    struct idem_error err;
    int status = cli_record_name(h, values, &hold, &name), rc;

    if (status == CLI_OK)
        status = command_forget_look_up(h, &name, &before);
    if (status != CLI_OK)
        return status;
    signals_defer();
    status = cli_audit_begin(audit, &before, 1, "absent", NULL);
    if (status != CLI_OK)
        return status;
    rc = idem_forget(h, &name, values->force, &err);
    cli_audit_line(audit, &before, "absent", NULL, rc < 0 ? &err : NULL);
    if (rc < 0)
        return cli_message_error("forget", &err);
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
    signals_resume();
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
