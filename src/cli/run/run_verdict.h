/*
 * Reports of `idem run` about itself: a line on stderr for people, and lines on --verdict-fd for
 * scripts, which cannot distinguish idem's exit statuses from the command's otherwise. Neither
 * contains a key: a record is named by its hash.
 *
 *     VERDICT attempt=N [status=N] hash=HEX [retry_after_ms=N] [unguarded=1]
 *     FINISH said=WORD attempt=N status=N hash=HEX
 *     error code=WORD [hash=HEX]
 *
 * VERDICT is one of idem_verdict_name(), FINISH is stored, lost or unknown, the WORD of an error is
 * one of idem_code_name().
 */
#ifndef IDEM_CLI_RUN_RUN_VERDICT_H
#define IDEM_CLI_RUN_RUN_VERDICT_H

#include "cli/cli.h"
#include "cli/run/run_output.h"

/* Room for all lines of one run: their reader may be slow. */
#define RUN_VERDICT_LINES 1024

struct run_verdict {
    int fd; /* -1: none */
    struct cli_sink sink;
    char waiting[RUN_VERDICT_LINES]; /* lines that are not written yet: waiting[at..len) */
    size_t at, len;
    bool quiet;                           /* no lines about verdicts */
    bool selected;                        /* fingerprint_expr selects what is compared */
    const char *prefix, *label, *message; /* label and message may be NULL */
    char hash[65];
};

/* Prepares the descriptor. 0, or -1 with errno; close with run_verdict_close(). */
int run_verdict_open(struct run_verdict *verdict);
void run_verdict_close(struct run_verdict *verdict);

/* The event to wait for until all lines are written; false: all are. */
bool run_verdict_pending(struct run_verdict *verdict, struct pollfd *ret);

/* Writes as much as it can without waiting: the command and its lease never wait for the reader of
   verdicts. */
void run_verdict_pass(struct run_verdict *verdict);

/* Writes a claim's verdict on the descriptor. */
void run_verdict_claim(struct run_verdict *verdict, const struct idem_answer *answer);

/* Writes the line on stderr for a verdict that neither runs nor replays. */
void run_verdict_refusal(const struct run_verdict *verdict, const struct idem_answer *answer);

/* Reports on the descriptor a failure before the claim, which stderr has already. */
void run_verdict_failed(int fd, int code);

/* Reports a failed claim on both; returns the exit status. */
int run_verdict_error(struct run_verdict *verdict, const struct idem_error *err);

struct cli_finish {
    enum idem_finish how;
    const char *action;
    uint32_t attempt;
    int status; /* the command's exit status */
};
void run_verdict_finish(struct run_verdict *verdict, const struct cli_finish *finish);

/* "run:3f2a91c0d4e5" and the label: the name of a record in messages; returns buf. */
#define RUN_VERDICT_NAME (IDEM_PREFIX_MAX + IDEM_LABEL_MAX + 32)
const char *run_verdict_name(const struct run_verdict *verdict, char *buf, size_t size);

#endif
