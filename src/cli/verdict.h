/*
 * What `idem run` says of itself: a line on stderr for people, and lines on
 * --verdict-fd for scripts, which cannot tell idem's exit statuses from the
 * command's otherwise. Neither holds a key: a record is named by its hash.
 *
 *     VERDICT attempt=N [status=N] hash=HEX [retry_after_ms=N] [unguarded=1]
 *     FINISH said=WORD attempt=N status=N hash=HEX
 *     error code=WORD [hash=HEX]
 *
 * VERDICT is one of idem_verdict_name(), FINISH is stored, lost or unknown.
 */
#ifndef IDEM_CLI_VERDICT_H
#define IDEM_CLI_VERDICT_H

#include "cli/cli.h"
#include "cli/result.h"

struct cli_voice {
    int fd;                               /* -1: none */
    bool quiet;                           /* no lines about verdicts */
    const char *prefix, *label, *message; /* label and message may be NULL */
    char hash[65];
};

/* A verdict of a claim, on the descriptor. */
void cli_voice_verdict(const struct cli_voice *voice, const struct idem_answer *answer);

/* The line on stderr that goes with a verdict which neither runs nor replays. */
void cli_voice_refusal(const struct cli_voice *voice, const struct idem_answer *answer);

/* A failed claim, on both; returns the exit status. */
int cli_voice_error(const struct cli_voice *voice, const struct idem_error *err);

struct cli_finish {
    enum idem_finish how;
    const char *said;
    uint32_t attempt;
    int status; /* the command's */
};
void cli_voice_finish(const struct cli_voice *voice, const struct cli_finish *finish);

/* "run:3f2a91c0d4e5" and the label, as lines name a record; returns buf. */
#define CLI_VOICE_NAME (IDEM_PREFIX_MAX + IDEM_LABEL_MAX + 32)
const char *cli_voice_name(const struct cli_voice *voice, char *buf, size_t size);

#endif
