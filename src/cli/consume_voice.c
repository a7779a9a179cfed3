/*
 * What `idem consume` says: a line for each message on stderr, or only for those
 * that somebody should know of; on a terminal one line that shows how it goes; and
 * JSON on stdout for programs. No key and no body is ever said: a message is named
 * by the hash of its key and its trace id.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/consume.h"
#include "cli/json.h"
#include "core/units.h"

void consume_voice_init(struct consume_voice *voice, const struct cli_values *values) {
    *voice = (struct consume_voice){
        .tty = isatty(STDERR_FILENO) == 1, .json = values->json, .at = idem_loop_now()};
    voice->log = voice->tty ? CONSUME_LOG_PROBLEMS : CONSUME_LOG_ALL;
    if (values->log != NULL)
        voice->log = strcmp(values->log, "all") == 0        ? CONSUME_LOG_ALL
                     : strcmp(values->log, "problems") == 0 ? CONSUME_LOG_PROBLEMS
                                                            : CONSUME_LOG_NONE;
    if (values->quiet)
        voice->log = CONSUME_LOG_NONE;
}

/* The line that is written over gives way to one that stays. */
static void line_clear(struct consume_voice *voice) {
    if (voice->shown)
        fputs("\r\033[K", stderr);
    voice->shown = false;
}

/* Done and duplicates are what is expected. */
static bool is_problem(const struct queue_report *report) {
    return strcmp(report->then, "ack") != 0;
}

void consume_voice_report(struct consume_voice *voice, const struct queue_report *report) {
    char took[IDEM_UNITS_TEXT] = "", again[IDEM_UNITS_TEXT] = "", reason[600] = "";

    if (voice->log == CONSUME_LOG_NONE ||
        (voice->log == CONSUME_LOG_PROBLEMS && !is_problem(report)))
        return;
    line_clear(voice);
    if (report->result != NULL)
        idem_duration_print(report->took_ms, took, sizeof(took));
    if (report->again_ms != 0)
        idem_duration_print(report->again_ms, again, sizeof(again));
    if (report->reason != NULL)
        cli_printable(report->reason, reason, sizeof(reason));
    cli_say("%s%s%s key=%.*s trace=%s attempt=%" PRIu32 "%s%s%s%s%s%s%s%s%s", report->verdict,
            report->result == NULL ? "" : " ", report->result == NULL ? "" : report->result,
            CLI_HASH_SHORT, report->hash == NULL ? "-" : report->hash, report->trace,
            report->attempt, took[0] == '\0' ? "" : " took=", took,
            strcmp(report->then, "ack") == 0 ? "" : " then=",
            strcmp(report->then, "ack") == 0 ? "" : report->then,
            again[0] == '\0' ? "" : " for=", again, reason[0] == '\0' ? "" : " reason=\"", reason,
            reason[0] == '\0' ? "" : "\"");
}

void consume_voice_state(struct consume_voice *voice, bool ready, const char *text) {
    char clean[700];

    voice->ready = ready;
    if (voice->log == CONSUME_LOG_NONE && ready)
        return;
    line_clear(voice);
    cli_say("%s", cli_printable(text, clean, sizeof(clean)));
}

static double rate(uint64_t now, uint64_t before, int64_t ms) {
    return ms <= 0 ? 0 : (double)(now - before) * 1000 / (double)ms;
}

static void progress_json(const struct consume_voice *voice, const struct queue_counts *counts,
                          double per_second) {
    struct cli_json json = {.out = stdout};

    cli_json_open(&json, NULL);
    cli_json_bool(&json, "ready", voice->ready);
    cli_json_uint(&json, "fetched", counts->fetched);
    cli_json_uint(&json, "done", counts->done);
    cli_json_uint(&json, "duplicates", counts->duplicates);
    cli_json_uint(&json, "retries", counts->retries);
    cli_json_uint(&json, "dead", counts->dead);
    cli_json_uint(&json, "held", counts->held);
    cli_json_uint(&json, "lost", counts->lost);
    cli_json_uint(&json, "store_errors", counts->store_errors);
    cli_json_uint(&json, "unburied", counts->unburied);
    cli_json_uint(&json, "in_hand", counts->in_hand);
    cli_json_uint(&json, "working", counts->working);
    cli_json_uint(&json, "per_second", (uint64_t)(per_second + 0.5));
    cli_json_line(&json);
    fflush(stdout);
}

void consume_voice_progress(struct consume_voice *voice, const struct queue_counts *counts) {
    int64_t now = idem_loop_now();
    double per_second = rate(counts->done, voice->before.done, now - voice->at);

    if (voice->json)
        progress_json(voice, counts, per_second);
    if (voice->tty && voice->log != CONSUME_LOG_NONE) {
        fprintf(stderr,
                "\r\033[K%s %.0f/s, done %" PRIu64 ", in hand %" PRIu64 ", duplicates %" PRIu64
                ", retries %" PRIu64 ", dead %" PRIu64,
                voice->ready ? "consuming" : "waiting for the broker", per_second, counts->done,
                counts->in_hand, counts->duplicates, counts->retries, counts->dead);
        fflush(stderr);
        voice->shown = true;
    }
    voice->before = *counts;
    voice->at = now;
}

void consume_voice_sum(struct consume_voice *voice, const struct queue_counts *counts) {
    line_clear(voice);
    cli_say("fetched %" PRIu64 ", done %" PRIu64 ", duplicates %" PRIu64 ", retries %" PRIu64
            ", dead %" PRIu64 ", held %" PRIu64 ", lost %" PRIu64 ", store errors %" PRIu64
            ", in hand %" PRIu64 ", handled now %" PRIu64,
            counts->fetched, counts->done, counts->duplicates, counts->retries, counts->dead,
            counts->held, counts->lost, counts->store_errors, counts->in_hand, counts->working);
}
