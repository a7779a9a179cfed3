/*
 * The reports of `idem consume`: a line on stderr for each message, or only for problems; a
 * progress line on a terminal; JSON on stdout for programs. No report contains a key or a body: a
 * message is named by the hash of its key and by its trace id.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log_line.h"
#include "base/units.h"
#include "cli/consume/command_consume.h"
#include "json/json_out.h"

void consume_log_init(struct consume_log *log, const struct cli_values *values) {
    *log = (struct consume_log){
        .tty = isatty(STDERR_FILENO) == 1, .json = values->json, .at = idem_loop_now()};
    log->level = log->tty ? CONSUME_LOG_PROBLEMS : CONSUME_LOG_ALL;
    if (values->log != NULL)
        log->level = strcmp(values->log, "all") == 0        ? CONSUME_LOG_ALL
                     : strcmp(values->log, "problems") == 0 ? CONSUME_LOG_PROBLEMS
                                                            : CONSUME_LOG_NONE;
    if (values->quiet)
        log->level = CONSUME_LOG_NONE;
}

/* Removes the progress line, before a line that stays. */
static void consume_log_line_clear(struct consume_log *log) {
    if (log->shown)
        fputs("\r\033[K", stderr);
    log->shown = false;
}

/* Done and duplicate are expected, and acknowledge the message; all else is a problem. */
static bool queue_report_is_problem(const struct queue_report *report) {
    return strcmp(report->then, "ack") != 0;
}

/* The operator's remedy for each problem; the first row that fits counts. */
static const struct {
    const char *verdict, *then, *todo; /* NULL: any; HASH in `todo`: the short hash */
} remedies[] = {
    {"uncertain", "bury",
     "find out whether it happened, then: idem settle --hash HASH --done, or --failed; the "
     "message: "
     "idem dead list"},
    {"key", "bury", "correct --key, or the sender; the message: idem dead list"},
    {"mismatch", "bury",
     "the sender must choose a new key; if the recorded message never ran, idem forget --hash HASH "
     "frees the key for this one (idem settle --failed only for that one), then: idem dead "
     "requeue"},
    {NULL, "bury", "mend what made it fail, then: idem dead requeue"},
    {"store", NULL, "see to the store: idem doctor --store URL"},
};

static const char *queue_report_todo(const struct queue_report *report, char *buf, size_t size) {
    for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++) {
        const char *todo = remedies[i].todo, *mark = strstr(todo, "HASH");

        if ((remedies[i].verdict != NULL && strcmp(remedies[i].verdict, report->verdict) != 0) ||
            (remedies[i].then != NULL && strcmp(remedies[i].then, report->then) != 0))
            continue;
        if (mark == NULL || report->hash == NULL)
            return todo;
        snprintf(buf, size, "%.*s%.*s%s", (int)(mark - todo), todo, CLI_HASH_SHORT, report->hash,
                 mark + strlen("HASH"));
        return buf;
    }
    return NULL;
}

void consume_log_report(struct consume_log *log, const struct queue_report *report) {
    char took[IDEM_UNITS_TEXT] = "", again[IDEM_UNITS_TEXT] = "", words[64],
         hash[CLI_HASH_SHORT + 1] = "", todo[260], text[IDEM_LINE_MAX];
    struct idem_line line = {.words = words,
                             .record = hash,
                             .label = report->label,
                             .attempt = report->attempt,
                             .trace = report->trace,
                             .took = took,
                             .then = queue_report_is_problem(report) ? report->then : NULL,
                             .pause = again,
                             .reason = report->reason,
                             .todo = queue_report_todo(report, todo, sizeof(todo))};

    if (log->level == CONSUME_LOG_NONE ||
        (log->level == CONSUME_LOG_PROBLEMS && !queue_report_is_problem(report)))
        return;
    consume_log_line_clear(log);
    snprintf(words, sizeof(words), "%s%s%s", report->verdict, report->result == NULL ? "" : " ",
             report->result == NULL ? "" : report->result);
    if (report->hash != NULL)
        snprintf(hash, sizeof(hash), "%s", report->hash);
    if (report->result != NULL)
        idem_duration_print(report->took_ms, took, sizeof(took));
    if (report->again_ms != 0)
        idem_duration_print(report->again_ms, again, sizeof(again));
    (void)idem_line_print(&line, text, sizeof(text));
    cli_message("%s", text);
}

void consume_log_state(struct consume_log *log, bool ready, const char *text) {
    char clean[700];

    log->ready = ready;
    if (log->level == CONSUME_LOG_NONE && ready)
        return;
    consume_log_line_clear(log);
    cli_message("%s", cli_printable(text, clean, sizeof(clean)));
}

static double consume_log_rate(uint64_t now, uint64_t before, int64_t ms) {
    return ms <= 0 ? 0 : (double)(now - before) * 1000 / (double)ms;
}

static void consume_log_progress_json(const struct consume_log *log,
                                      const struct queue_counts *counts, double per_second) {
    struct json_out json = {.out = stdout};

    json_out_open(&json, NULL);
    json_out_bool(&json, "ready", log->ready);
    json_out_uint(&json, "fetched", counts->fetched);
    json_out_uint(&json, "done", counts->done);
    json_out_uint(&json, "duplicates", counts->duplicates);
    json_out_uint(&json, "retries", counts->retries);
    json_out_uint(&json, "dead", counts->dead);
    json_out_uint(&json, "held", counts->held);
    json_out_uint(&json, "lost", counts->lost);
    json_out_uint(&json, "store_errors", counts->store_errors);
    json_out_uint(&json, "unburied", counts->unburied);
    json_out_uint(&json, "in_hand", counts->in_hand);
    json_out_uint(&json, "working", counts->working);
    json_out_uint(&json, "per_second", (uint64_t)(per_second + 0.5));
    json_out_line(&json);
    fflush(stdout);
}

void consume_log_progress(struct consume_log *log, const struct queue_counts *counts) {
    int64_t now = idem_loop_now();
    double per_second = consume_log_rate(counts->done, log->before.done, now - log->at);

    if (log->json)
        consume_log_progress_json(log, counts, per_second);
    if (log->tty && log->level != CONSUME_LOG_NONE) {
        fprintf(stderr,
                "\r\033[K%s %.0f/s, done %" PRIu64 ", in hand %" PRIu64 ", duplicates %" PRIu64
                ", retries %" PRIu64 ", dead %" PRIu64,
                log->ready ? "consuming" : "waiting for the broker", per_second, counts->done,
                counts->in_hand, counts->duplicates, counts->retries, counts->dead);
        fflush(stderr);
        log->shown = true;
    }
    log->before = *counts;
    log->at = now;
}

void consume_log_sum(struct consume_log *log, const struct queue_counts *counts) {
    consume_log_line_clear(log);
    cli_message("fetched %" PRIu64 ", done %" PRIu64 ", duplicates %" PRIu64 ", retries %" PRIu64
                ", dead %" PRIu64 ", held %" PRIu64 ", lost %" PRIu64 ", store errors %" PRIu64
                ", in hand %" PRIu64 ", handled now %" PRIu64,
                counts->fetched, counts->done, counts->duplicates, counts->retries, counts->dead,
                counts->held, counts->lost, counts->store_errors, counts->in_hand, counts->working);
}
