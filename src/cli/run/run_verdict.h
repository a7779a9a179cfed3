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
#define CLI_VOICE_LINES 1024

struct cli_voice {
    int fd; /* -1: none */
    struct cli_sink sink;
    char waiting[CLI_VOICE_LINES]; /* lines that are not written yet: waiting[at..len) */
    size_t at, len;
    bool quiet;                           /* no lines about verdicts */
    bool selected;                        /* fingerprint_expr selects what is compared */
    const char *prefix, *label, *message; /* label and message may be NULL */
    char hash[65];
};

/* Prepares the descriptor. 0, or -1 with errno; close with cli_voice_close(). */
int cli_voice_open(struct cli_voice *voice);
void cli_voice_close(struct cli_voice *voice);

/* The event to wait for until all lines are written; false: all are. */
bool cli_voice_pending(struct cli_voice *voice, struct pollfd *ret);

/* Writes as much as it can without waiting: the command and its lease never wait for the reader of
   verdicts. */
void cli_voice_pass(struct cli_voice *voice);

/* Writes a claim's verdict on the descriptor. */
void cli_voice_verdict(struct cli_voice *voice, const struct idem_answer *answer);

/* Writes the line on stderr for a verdict that neither runs nor replays. */
void cli_voice_refusal(const struct cli_voice *voice, const struct idem_answer *answer);

/* Reports on the descriptor a failure before the claim, which stderr has already. */
void cli_voice_failed(int fd, int code);

/* Reports a failed claim on both; returns the exit status. */
int cli_voice_error(struct cli_voice *voice, const struct idem_error *err);

struct cli_finish {
    enum idem_finish how;
    const char *action;
    uint32_t attempt;
    int status; /* the command's exit status */
};
void cli_voice_finish(struct cli_voice *voice, const struct cli_finish *finish);

/* "run:3f2a91c0d4e5" and the label: the name of a record in messages; returns buf. */
#define CLI_VOICE_NAME (IDEM_PREFIX_MAX + IDEM_LABEL_MAX + 32)
const char *cli_voice_name(const struct cli_voice *voice, char *buf, size_t size);

#endif
