/*
 * What comes of every verdict but RUN. Nothing is held, so that writing may
 * wait; it fails where a stored result is no command's, or cannot be written.
 */
#include "cli/refuse.h"

#include <string.h>

#include "cli/replay.h"

/* The exit status of a record that is not run again: what is stored, as far as it is one. */
static int stored_status(int32_t status) {
    return status >= 0 && status <= 255 ? (int)status : 1;
}

/* The stored result, as the first caller saw it. */
static int replay(const struct idem_answer *answer) {
    struct cli_fault fault;
    struct cli_end end;

    if (!cli_replay(answer->result, answer->result_len, &end, &fault)) {
        cli_say("replay: the stored result is not one of a command: another front door has stored "
                "it, or a newer version; it ended with status %d",
                (int)answer->status);
        return CLI_STORE;
    }
    if (fault.why == 0)
        return cli_end_status(&end);
    cli_say("replay: cannot write to %s: %s; the command itself has ended with status %d",
            fault.stream == 1 ? "stdout" : "stderr", strerror(fault.why), cli_end_status(&end));
    return CLI_IO;
}

static int duplicate(const struct work *work, const struct idem_answer *answer) {
    char name[CLI_VOICE_NAME];

    if (work->policy->mode != IDEM_MODE_REPLAY)
        cli_voice_refusal(&work->voice, answer);
    else if (!work->voice.quiet)
        cli_say("duplicate: %s has run already (attempt %u) and ended with status %d; its output "
                "was not kept, being longer than result_max or settled by an operator",
                cli_voice_name(&work->voice, name, sizeof(name)), (unsigned)answer->attempt,
                (int)answer->status);
    if (work->values->duplicate_exit >= 0)
        return (int)work->values->duplicate_exit;
    return work->policy->mode == IDEM_MODE_REPLAY ? stored_status(answer->status) : CLI_OK;
}

int cli_refuse(const struct work *work, const struct idem_answer *answer) {
    switch (answer->verdict) {
    case IDEM_REPLAY:
        return replay(answer);
    case IDEM_DUPLICATE:
        return duplicate(work, answer);
    case IDEM_DEAD:
        if (work->policy->mode == IDEM_MODE_REPLAY && answer->has_result)
            return replay(answer);
        cli_voice_refusal(&work->voice, answer);
        return CLI_DEAD;
    case IDEM_BUSY:
        cli_voice_refusal(&work->voice, answer);
        return CLI_BUSY;
    case IDEM_MISMATCH:
        cli_voice_refusal(&work->voice, answer);
        return CLI_MISMATCH;
    case IDEM_NO_TOKEN:
        cli_voice_refusal(&work->voice, answer);
        return CLI_ABSENT;
    default:
        cli_voice_refusal(&work->voice, answer);
        return CLI_UNCERTAIN;
    }
}
