/*
 * A history in memory, written line by line and judged: what the tests of the
 * judge share.
 */
#ifndef IDEM_TESTS_MODEL_JUDGED_H
#define IDEM_TESTS_MODEL_JUDGED_H

#include "history.h"
#include "test.h"

#include <inttypes.h>
#include <stdarg.h>

static char log_text[16384];
static size_t log_len;
static char *report;
static struct history_sum sum;

/* One line, at so many milliseconds. */
__attribute__((unused, format(printf, 2, 3))) static void at(int64_t ms, const char *words, ...) {
    va_list args;
    int n;

    n = snprintf(log_text + log_len, sizeof(log_text) - log_len, "%" PRId64 " ", ms * 1000000);
    log_len += (size_t)n;
    va_start(args, words);
    n = vsnprintf(log_text + log_len, sizeof(log_text) - log_len, words, args);
    va_end(args);
    log_len += (size_t)n;
    n = snprintf(log_text + log_len, sizeof(log_text) - log_len, " .\n");
    log_len += (size_t)n;
    CHECK(log_len < sizeof(log_text));
}

__attribute__((unused)) static void raw(const char *text) {
    size_t len = strlen(text);

    CHECK(log_len + len < sizeof(log_text));
    memcpy(log_text + log_len, text, len + 1);
    log_len += len;
}

/* The first line of every log here. */
__attribute__((unused)) static void policy(const char *words) {
    log_len = 0;
    at(0, "- * policy %s", words);
}

#define HOLD "mode=replay recover=hold lease_ms=1000"
#define RERUN "mode=reject recover=rerun lease_ms=1000"
#define LOCK "mode=lock lease_ms=1000"

__attribute__((unused)) static int judged(void) {
    size_t size;
    FILE *log = fmemopen(log_text, log_len, "r"), *out;
    int found;

    free(report);
    out = open_memstream(&report, &size);
    CHECK(log != NULL && out != NULL);
    found = history_check(log, out, &sum);
    fclose(log);
    fclose(out);
    return found;
}

__attribute__((unused)) static void passes(void) {
    int found = judged();

    if (found != 0)
        fprintf(stderr, "# %s", report);
    CHECK_INT(found, 0);
}

/* Exactly one violation, of this invariant, with these two lines pointed at. */
__attribute__((unused)) static void caught(int invariant, size_t one, size_t two) {
    char text[64];
    int found = judged();

    if (found != 1)
        fprintf(stderr, "# %s", report);
    CHECK_INT(found, 1);
    snprintf(text, sizeof(text), "invariant %d is broken for key k:", invariant);
    CHECK_HAS(report, text);
    snprintf(text, sizeof(text), "  > %zu: ", one);
    CHECK_HAS(report, text);
    snprintf(text, sizeof(text), "  > %zu: ", two);
    CHECK_HAS(report, text);
}

/* A claim and its answer. */
__attribute__((unused)) static void claimed(int64_t sent, int64_t answered, const char *owner,
                                            const char *verdict) {
    at(sent, "p%s k claim owner=%s", owner, owner);
    at(answered, "p%s k claimed owner=%s verdict=%s", owner, owner, verdict);
}

__attribute__((unused)) static void finished(int64_t sent, int64_t answered, const char *owner,
                                             const char *said, const char *ack) {
    at(sent, "p%s k finish owner=%s said=%s", owner, owner, said);
    at(answered, "p%s k finished owner=%s said=%s ack=%s", owner, owner, said, ack);
}

#endif
