/*
 * The text of verdicts. Only opening fails: a descriptor that takes no more lines is ignored.
 */
#include "cli/run/run_verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/units.h"

/* Lines for scripts. */

int run_verdict_open(struct run_verdict *verdict) {
    return verdict->fd < 0 ? 0 : cli_sink_open(&verdict->sink, verdict->fd, NULL);
}

void run_verdict_close(struct run_verdict *verdict) {
    cli_sink_close(&verdict->sink);
}

bool run_verdict_pending(struct run_verdict *verdict, struct pollfd *ret) {
    int state = verdict->fd < 0 ? 1 : cli_sink_state(&verdict->sink);

    if (state < 0 || (state > 0 && verdict->at == verdict->len))
        return false;
    *ret = cli_sink_poll(&verdict->sink);
    return true;
}

void run_verdict_pass(struct run_verdict *verdict) {
    if (cli_sink_drain(&verdict->sink, verdict->waiting, &verdict->at, verdict->len) != 0)
        verdict->at = verdict->len = 0;
}

__attribute__((format(printf, 2, 3))) static void run_verdict_line(struct run_verdict *verdict,
                                                                   const char *fmt, ...) {
    size_t room = sizeof(verdict->waiting) - verdict->len;
    va_list args;
    int n;

    if (verdict->fd < 0)
        return;
    va_start(args, fmt);
    n = vsnprintf(verdict->waiting + verdict->len, room, fmt, args);
    va_end(args);
    if (n > 0 && (size_t)n < room)
        verdict->len += (size_t)n;
    run_verdict_pass(verdict);
}

void run_verdict_claim(struct run_verdict *verdict, const struct idem_answer *answer) {
    char status[32] = "", retry[48] = "";
    bool over = answer->verdict == IDEM_REPLAY || answer->verdict == IDEM_DUPLICATE ||
                answer->verdict == IDEM_DEAD;

    if (over)
        snprintf(status, sizeof(status), " status=%" PRId32, answer->status);
    if (answer->verdict == IDEM_BUSY)
        snprintf(retry, sizeof(retry), " retry_after_ms=%" PRId64, answer->retry_after_ms);
    run_verdict_line(verdict, "%s attempt=%" PRIu32 "%s hash=%s%s%s\n",
                     idem_verdict_name(answer->verdict), answer->attempt, status, verdict->hash,
                     retry, answer->unguarded ? " unguarded=1" : "");
}

void run_verdict_finish(struct run_verdict *verdict, const struct cli_finish *finish) {
    const char *how = finish->how == IDEM_FINISH_STORED ? "stored"
                      : finish->how == IDEM_FINISH_LOST ? "lost"
                                                        : "unknown";

    run_verdict_line(verdict, "%s said=%s attempt=%" PRIu32 " status=%d hash=%s\n", how,
                     finish->action, finish->attempt, finish->status, verdict->hash);
}

void run_verdict_failed(int fd, int code) {
    struct run_verdict verdict = {.fd = fd};

    if (fd < 0 || run_verdict_open(&verdict) < 0)
        return;
    run_verdict_line(&verdict, "error code=%s\n", idem_code_name(code));
    run_verdict_close(&verdict);
}

int run_verdict_error(struct run_verdict *verdict, const struct idem_error *err) {
    run_verdict_line(verdict, "error code=%s%s%s\n", idem_code_name(err->code),
                     verdict->hash[0] == '\0' ? "" : " hash=", verdict->hash);
    return cli_message_error("run", err);
}

/* Lines for people. */

const char *run_verdict_name(const struct run_verdict *verdict, char *buf, size_t size) {
    snprintf(buf, size, "%s%.*s%s%s%s", verdict->prefix, CLI_HASH_SHORT, verdict->hash,
             verdict->label == NULL ? "" : " (", verdict->label == NULL ? "" : verdict->label,
             verdict->label == NULL ? "" : ")");
    return buf;
}

/* A running record with a reason may in fact have ended; record_list.c explains it. */
static const char *answer_busy_text(const struct idem_answer *answer) {
    if (answer->state == IDEM_FAILED)
        return "has failed, and its retry is not due yet";
    if (answer->reason_len == 0)
        return "is running elsewhere";
    return answer->attempt == 1 ? "has ended with an unknown outcome, and its rerun is not due yet"
                                : "is running elsewhere, or its rerun is not due yet";
}

/* The predicate of a sentence whose subject is the record. */
static void run_verdict_refusal_text(const struct run_verdict *verdict,
                                     const struct idem_answer *answer, char *buf, size_t size) {
    int64_t left_s = (answer->retry_after_ms + 999) / 1000;
    char left[IDEM_UNITS_TEXT];

    idem_duration_print(left_s * 1000, left, sizeof(left));
    switch (answer->verdict) {
    case IDEM_BUSY:
        snprintf(buf, size, "%s (attempt %" PRIu32 "); try again in %s, or wait for it with --wait",
                 answer_busy_text(answer), answer->attempt, left);
        return;
    case IDEM_DUPLICATE:
        snprintf(buf, size, "has run already (attempt %" PRIu32 ") and ended with status %" PRId32,
                 answer->attempt, answer->status);
        return;
    case IDEM_MISMATCH:
        snprintf(
            buf, size,
            "%s; if that one never ran, idem forget --hash %.*s frees the key for this one (idem "
            "settle --failed only for that one)",
            verdict->selected
                ? "was asked for with other variables before: what fingerprint_expr selects "
                  "of them differs; use another key for another operation, or compare nothing, "
                  "with --fingerprint none instead of the expression"
                : "was asked for with another command line before; use another key for "
                  "another command, or allow it with --fingerprint none",
            CLI_HASH_SHORT, verdict->hash);
        return;
    case IDEM_UNCERTAIN:
        snprintf(buf, size,
                 "was started (attempt %" PRIu32
                 "), and its outcome is unknown%s%.*s: it may have happened, and is not run again; "
                 "find out, then idem settle --done or --failed --hash %.*s",
                 answer->attempt, answer->reason_len == 0 ? "" : ", ", (int)answer->reason_len,
                 answer->reason_len == 0 ? "" : answer->reason, CLI_HASH_SHORT, verdict->hash);
        return;
    case IDEM_NO_TOKEN:
        snprintf(buf, size, "%s",
                 "is no token for this caller: it was never issued, has expired, or belongs to "
                 "another caller or another --bind; idem token issues one");
        return;
    case IDEM_DEAD:
        snprintf(buf, size,
                 "has failed for good (attempt %" PRIu32 ", status %" PRId32 "%s%.*s) and is not "
                 "run again; to run it anew: idem forget --hash %.*s",
                 answer->attempt, answer->status, answer->reason_len == 0 ? "" : ": ",
                 (int)answer->reason_len, answer->reason_len == 0 ? "" : answer->reason,
                 CLI_HASH_SHORT, verdict->hash);
        return;
    default:
        snprintf(buf, size, "is refused");
    }
}

void run_verdict_refusal(const struct run_verdict *verdict, const struct idem_answer *answer) {
    char name[RUN_VERDICT_NAME], text[IDEM_REASON_MAX + 512];

    if (verdict->quiet)
        return;
    run_verdict_refusal_text(verdict, answer, text, sizeof(text));
    cli_message("%s: %s %s%s%s", idem_verdict_name(answer->verdict),
                run_verdict_name(verdict, name, sizeof(name)), text,
                verdict->message == NULL ? "" : ". ",
                verdict->message == NULL ? "" : verdict->message);
}
