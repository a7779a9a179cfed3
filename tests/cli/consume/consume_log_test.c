/*
 * The log lines of `idem consume` for a message: their fields, in order, and
 * the hint for the operator if one must act.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/consume/command_consume.h"
#include "test.h"

#define HASH "31b2584f6d5d5eadbeef31b2584f6d5d5eadbeef31b2584f6d5d5eadbeef0123"

/* The text that one report writes to stderr. */
static const char *said(enum consume_log_level level, const struct queue_report *report) {
    struct consume_log log = {.level = level};
    static char text[4096];
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    size_t len;

    CHECK(file != NULL && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    consume_log_report(&log, report);
    CHECK(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(file);
    len = fread(text, 1, sizeof(text) - 1, file);
    text[len] = '\0';
    fclose(file);
    return text;
}

TEST(what_was_done_is_a_line_without_a_deed) {
    CHECK_STR(said(CONSUME_LOG_ALL, &(struct queue_report){.hash = HASH,
                                                           .label = "order 7",
                                                           .trace = "4bf9",
                                                           .verdict = "run",
                                                           .result = "done",
                                                           .then = "ack",
                                                           .attempt = 2,
                                                           .took_ms = 1500}),
              "idem: run done record=31b2584f6d5d label=\"order 7\" attempt=2 trace=4bf9 "
              "took=1s500ms\n");
}

TEST(problems_alone_are_said_where_only_they_are_wanted) {
    struct queue_report report = {
        .hash = HASH, .trace = "-", .verdict = "duplicate", .then = "ack"};

    CHECK_STR(said(CONSUME_LOG_PROBLEMS, &report), "");
    CHECK_STR(said(CONSUME_LOG_NONE, &report), "");
    report.then = "hold";
    report.again_ms = 2000;
    CHECK_STR(said(CONSUME_LOG_PROBLEMS, &report),
              "idem: duplicate record=31b2584f6d5d trace=- then=hold for=2s\n");
}

TEST(who_must_act_is_told_how) {
    static const struct {
        const char *verdict, *then, *todo;
    } rows[] = {
        {"uncertain", "bury",
         "do=\"find out whether it happened, then: idem settle --hash 31b2584f6d5d --done, or "
         "--failed; the message: idem dead list\"\n"},
        {"mismatch", "bury",
         "do=\"the sender must choose a new key; if the recorded message never ran, idem forget "
         "--hash 31b2584f6d5d frees the key for this one (idem settle --failed only for that "
         "one), then: idem dead requeue\"\n"},
        {"dead", "bury", "do=\"mend what made it fail, then: idem dead requeue\"\n"},
        {"store", "hold", "do=\"see to the store: idem doctor --store URL\"\n"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct queue_report report = {
            .hash = HASH, .trace = "-", .verdict = rows[i].verdict, .then = rows[i].then};
        const char *text = said(CONSUME_LOG_ALL, &report), *deed = strstr(text, "do=");

        CHECK(deed != NULL);
        CHECK_STR(deed, rows[i].todo);
    }
    CHECK_STR(
        said(CONSUME_LOG_ALL,
             &(struct queue_report){.trace = "-", .verdict = "key", .then = "bury"}),
        "idem: key record=- trace=- then=bury do=\"correct --key, or the sender; the message: "
        "idem dead list\"\n");
}

TEST(a_hostile_label_or_reason_stays_one_value) {
    CHECK_STR(
        said(CONSUME_LOG_ALL, &(struct queue_report){.hash = HASH,
                                                     .label = "a\" do=\"x\nidem: run",
                                                     .trace = "-",
                                                     .verdict = "run",
                                                     .result = "refused",
                                                     .then = "ack",
                                                     .attempt = 1,
                                                     .reason = "\x1b[2J\\"}),
        "idem: run refused record=31b2584f6d5d label=\"a\\\" do=\\\"x\\x0aidem: run\" attempt=1 "
        "trace=- took=0s reason=\"\\x1b[2J\\\\\"\n");
}

TEST_MAIN
