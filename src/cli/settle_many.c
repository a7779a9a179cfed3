/*
 * Settling many records: listed, asked about, and settled if they are still what was shown, by many
 * hands. They need --yes or a typed yes, which goes for those that were shown and for no other.
 * A batch is written down as begun before any of it is changed, so that one fsync is enough for all
 * of it; then each has a line of what came of it, also where that is nothing. A failure or a signal
 * ends it between two records. What was settled before stays so.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/crew.h"
#include "cli/entry.h"
#include "cli/only.h"
#include "cli/settle.h"
#include "cli/signals.h"
#include "core/error.h"

/* How many are asked about at once. */
#define BATCH 1024
#define PAGE 64
#define CREATED_MS 100

struct batch {
    const struct cli_values *values;
    struct idem *h;
    struct idem_filter filter;
    struct cli_only only;
    struct idem_settlement how;
    int64_t now;
    struct idem_cursor at;    /* behind it in the list */
    struct idem_entry *shown; /* room for BATCH */
    size_t n;

    pthread_mutex_t lock; /* what many hands change: */
    struct cli_audit *audit;
    size_t listed, settled; /* in all batches */
    int status;
};

/* Listing. */

/* As many of the next pages as fit, in the list's order. */
static int batch_list(struct batch *batch) {
    struct idem_error err;
    size_t n = 0;

    batch->n = 0;
    while (batch->n + PAGE <= BATCH && !batch->at.end) {
        struct idem_entry *page = &batch->shown[batch->n];
        size_t kept = 0;

        if (idem_list(batch->h, &batch->filter, &batch->at, page, PAGE, &n, &err) < 0)
            return cli_say_error("list", &err);
        for (size_t i = 0; i < n; i++) {
            if (!cli_filter_takes(batch->values, &page[i]) || !cli_only_has(&batch->only, &page[i]))
                continue;
            page[kept] = page[i];
            if (batch->listed++ == 0)
                cli_entry_head(stdout);
            cli_entry_row(&page[kept++], batch->now, stdout);
        }
        batch->n += kept;
    }
    return CLI_OK;
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

/* Settling. */

/* A list may name a record twice, and then it was settled the first time. */
static bool is_ours(const struct batch *batch, const struct idem_entry *now) {
    return now->state == batch->how.to && strcmp(now->reason, batch->how.reason) == 0;
}

/* Whether it is still what somebody has seen: what came after the question was not agreed to. A key
   that was forgotten begins at attempt 1 again, but not at the same time; Redis tells that by what
   is left of the record's life, some milliseconds off. */
static bool is_still(const struct batch *batch, const struct idem_entry *shown,
                     const struct idem_entry *now) {
    int64_t apart = now->created_ms - shown->created_ms;

    return now->attempt == shown->attempt && apart <= CREATED_MS && apart >= -CREATED_MS &&
           cli_filter_takes(batch->values, now);
}

/* With what came of it; each line is written before the hand takes the next record. One that cannot
   be written ends it (is_over). */
static void outcome_note(struct batch *batch, const struct idem_entry *shown, int rc,
                         const struct idem_error *err) {
    pthread_mutex_lock(&batch->lock);
    cli_audit_line(batch->audit, shown, idem_state_name(batch->how.to), batch->how.reason,
                   rc < 0 ? err : NULL);
    if (rc == 0)
        batch->settled++;
    else if (rc != IDEM_E_ABSENT && rc != IDEM_E_LIVE && rc != IDEM_E_SETTLED &&
             batch->status == CLI_OK)
        batch->status = cli_say_error("settle", err);
    pthread_mutex_unlock(&batch->lock);
}

static bool is_over(struct batch *batch) {
    bool over;

    pthread_mutex_lock(&batch->lock);
    over = batch->status != CLI_OK || batch->audit->fault != 0;
    pthread_mutex_unlock(&batch->lock);
    return over || cli_signals_came();
}

static void entry_leave(struct batch *batch, const struct idem_entry *shown, const char *why) {
    struct idem_error err;

    outcome_note(batch, shown, idem_error_set(&err, IDEM_E_LIVE, "%s", why), &err);
}

/* True: it may be settled; else it is written down why not. */
static bool entry_check(struct batch *batch, const struct idem_entry *shown,
                        const struct idem_name *name) {
    struct idem_entry now;
    struct idem_error err;
    int rc = idem_lookup(batch->h, name, &now, &err);
    bool still, ours;

    if (rc != 0) {
        outcome_note(batch, shown, rc, &err);
        return false;
    }
    still = is_still(batch, shown, &now);
    ours = !still && is_ours(batch, &now);
    idem_entry_release(&now);
    if (still)
        return true;
    if (ours) {
        pthread_mutex_lock(&batch->lock);
        batch->listed--;
        pthread_mutex_unlock(&batch->lock);
    }
    entry_leave(batch, shown,
                ours ? "it is settled so already" : "it has changed since it was shown");
    return false;
}

static void entry_settle(void *data, size_t i) {
    struct batch *batch = data;
    const struct idem_entry *shown = &batch->shown[i];
    struct idem_name name = {.prefix = shown->prefix, .hash = shown->hash};
    struct idem_settlement how = batch->how;
    struct idem_error err;
    int rc;

    if (is_over(batch)) {
        entry_leave(batch, shown, "it was not tried: idem was stopped, or had failed, before");
        return;
    }
    if (!entry_check(batch, shown, &name))
        return;
    how.attempt = shown->attempt;
    how.from = shown->state;
    rc = idem_settle(batch->h, &name, &how, &err);
    outcome_note(batch, shown, rc, &err);
}

/* One batch: shown, asked about, settled. */
static int batch_settle(struct batch *batch) {
    int status = batch_list(batch);

    if (status != CLI_OK || batch->n == 0 || batch->values->dry_run)
        return status;
    if (!confirmed(batch->values, batch->n))
        return CLI_USAGE;
    cli_signals_hold();
    status = cli_audit_begin(batch->audit, batch->shown, batch->n, idem_state_name(batch->how.to),
                             batch->how.reason);
    if (status != CLI_OK)
        return status;
    cli_crew(batch->n, entry_settle, batch);
    if (batch->status == CLI_OK && cli_signals_came()) {
        cli_say("settle: stopped by a signal");
        return CLI_SYSTEM;
    }
    cli_signals_let(); /* the next question may be answered so */
    return batch->status;
}

static int many_say(const struct batch *batch, int status) {
    size_t left = batch->listed - batch->settled, unmet = cli_only_unmet(&batch->only);
    int flushed;

    if (status != CLI_OK && batch->settled == 0) {
        cli_say("settle: nothing was changed");
        return status;
    }
    if (status == CLI_OK && unmet != 0)
        printf("%zu of %s not found as %s%s\n", unmet, batch->values->only, batch->values->state,
               batch->values->layer.said.prefix == NULL ? "" : " under this prefix");
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

static int batches_settle(struct batch *batch) {
    struct idem_error err;
    int status = cli_filter(batch->h, batch->values, &batch->filter);

    if (status != CLI_OK)
        return status;
    if (idem_time(batch->h, &batch->now, &err) < 0)
        return cli_say_error("store", &err);
    batch->shown = calloc(BATCH, sizeof(*batch->shown));
    if (batch->shown == NULL) {
        cli_say("settle: no memory");
        return CLI_SYSTEM;
    }
    while (status == CLI_OK && !batch->at.end)
        status = batch_settle(batch);
    free(batch->shown);
    return many_say(batch, status);
}

int cli_settle_many(struct idem *h, const struct cli_values *values, struct cli_audit *audit) {
    struct batch batch = {.values = values,
                          .audit = audit,
                          .h = h,
                          .how = cli_settlement(values),
                          .lock = PTHREAD_MUTEX_INITIALIZER};
    int status = CLI_OK;

    if (values->only != NULL)
        status = cli_only_read(values->only, values->layer.said.prefix, &batch.only);
    if (status == CLI_OK)
        status = batches_settle(&batch);
    cli_only_release(&batch.only);
    return status;
}
