/*
 * Shared by the parts of `idem consume`: its reports while it runs, and the parsing of --key.
 */
#ifndef IDEM_CLI_CONSUME_COMMAND_CONSUME_H
#define IDEM_CLI_CONSUME_COMMAND_CONSUME_H

#include "cli/cli.h"
#include "core/handle.h"
#include "loop/signals.h"
#include "queue/consumer.h"
#include "queue/handler/handler_open.h"

enum consume_log_level { CONSUME_LOG_ALL = 1, CONSUME_LOG_PROBLEMS, CONSUME_LOG_NONE };

/* The reports: lines about messages, a progress line on a terminal, and JSON. */
struct consume_log {
    enum consume_log_level level;
    bool tty;   /* stderr is one: it shows the progress line */
    bool json;  /* a line of JSON per second on stdout */
    bool shown; /* the progress line is visible now */
    bool ready; /* the broker can deliver */
    int64_t at; /* of the last progress report, on idem_loop_now() */
    struct queue_counts before;
};

void consume_log_init(struct consume_log *log, const struct cli_values *values);
void consume_log_report(struct consume_log *log, const struct queue_report *report);
void consume_log_state(struct consume_log *log, bool ready, const char *text);
/* Called once a second. */
void consume_log_progress(struct consume_log *log, const struct queue_counts *counts);
/* Reports all counts in one line for people: at SIGUSR1, and at the end. */
void consume_log_sum(struct consume_log *log, const struct queue_counts *counts);

/* The value of --key: the name of a header, message-id, or else an expression. */
struct consume_key {
    enum queue_key_kind kind;
    const char *header, *expr;
};

#endif
