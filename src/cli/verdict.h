/*
 * What `idem run` says of itself: a line on stderr for people, and lines on
 * --verdict-fd for scripts, which cannot tell idem's exit statuses from the
 * command's otherwise. Neither holds a key: a record is named by its hash.
 *
 *     VERDICT attempt=N [status=N] hash=HEX [retry_after_ms=N] [unguarded=1]
 *     FINISH said=WORD attempt=N status=N hash=HEX
 *     error code=WORD [hash=HEX]
 *
 * VERDICT is one of idem_verdict_name(), FINISH is stored, lost or unknown, the
 * error's WORD is of idem_code_name().
 */
#ifndef IDEM_CLI_VERDICT_H
#define IDEM_CLI_VERDICT_H

#include "cli/cli.h"
#include "cli/result.h"
#include "cli/sink.h"

/* The lines of one run, which a reader may be slow to take. */
#define CLI_VOICE_LINES 1024

struct cli_voice {
    int fd; /* -1: none */
    struct cli_sink sink;
    char waiting[CLI_VOICE_LINES]; /* said, and not written yet: waiting[at..len) */
    size_t at, len;
    bool quiet;                           /* no lines about verdicts */
    bool selected;                        /* fingerprint_expr says what is compared */
    const char *prefix, *label, *message; /* label and message may be NULL */
    char hash[65];
};

/* Makes the descriptor ready; cli_voice_close() in the end. 0, or -1 with errno. */
int cli_voice_open(struct cli_voice *voice);
void cli_voice_close(struct cli_voice *voice);

/* What is waited for until all lines are written; false: they are. */
bool cli_voice_pending(struct cli_voice *voice, struct pollfd *ret);

/* Writes what can be written without waiting. The command and its lease never wait for who reads
   verdicts. */
void cli_voice_pass(struct cli_voice *voice);

/* A verdict of a claim, on the descriptor. */
void cli_voice_verdict(struct cli_voice *voice, const struct idem_answer *answer);

/* The line on stderr that goes with a verdict which neither runs nor replays. */
void cli_voice_refusal(const struct cli_voice *voice, const struct idem_answer *answer);

/* What failed before there was a claim, on the descriptor; on stderr it was said already. */
void cli_voice_failed(int fd, int code);

/* A failed claim, on both; returns the exit status. */
int cli_voice_error(struct cli_voice *voice, const struct idem_error *err);

struct cli_finish {
    enum idem_finish how;
    const char *said;
    uint32_t attempt;
    int status; /* the command's */
};
void cli_voice_finish(struct cli_voice *voice, const struct cli_finish *finish);

/* "run:3f2a91c0d4e5" and the label, as lines name a record; returns buf. */
#define CLI_VOICE_NAME (IDEM_PREFIX_MAX + IDEM_LABEL_MAX + 32)
const char *cli_voice_name(const struct cli_voice *voice, char *buf, size_t size);

#endif
