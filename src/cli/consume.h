/*
 * `idem consume`, inside: what it opens, and what it says while it runs.
 */
#ifndef IDEM_CLI_CONSUME_H
#define IDEM_CLI_CONSUME_H

#include "cli/cli.h"
#include "cli/handler/handler.h"
#include "cli/signals.h"
#include "core/handle.h"
#include "queue/consumer.h"

enum consume_log { CONSUME_LOG_ALL = 1, CONSUME_LOG_PROBLEMS, CONSUME_LOG_NONE };

/* What is said: lines about messages, a line that shows how it goes, or JSON. */
struct consume_voice {
    enum consume_log log;
    bool tty;   /* stderr: one line, written over and over */
    bool json;  /* stdout: a line per second */
    bool shown; /* that line stands there */
    bool ready; /* the broker can deliver */
    int64_t at; /* of the last one, on idem_loop_now() */
    struct queue_counts before;
};

void consume_voice_init(struct consume_voice *voice, const struct cli_values *values);
void consume_voice_report(struct consume_voice *voice, const struct queue_report *report);
void consume_voice_state(struct consume_voice *voice, bool ready, const char *text);
/* Once a second. */
void consume_voice_progress(struct consume_voice *voice, const struct queue_counts *counts);
/* All that was counted, as one line for people: at SIGUSR1, and at the end. */
void consume_voice_sum(struct consume_voice *voice, const struct queue_counts *counts);

/* The key, as --key says it; what is no name of one is an expression. */
struct consume_key {
    enum queue_key_kind kind;
    const char *header, *expr;
};
/* CLI_OK, or a status after saying why. */
int consume_key_parse(const char *text, struct consume_key *ret);

#endif
