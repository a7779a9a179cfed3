/*
 * The outcome of every verdict but RUN. No lease is held, so writing may wait. Fails if a stored
 * result was not made by a command, or cannot be written.
 */
#include "cli/run/run_refuse.h"

#include <string.h>

#include "cli/run/run_replay.h"

/* The exit status of a record that is not run again; 1 if the stored status is no exit status. */
static int run_refuse_stored_status(int32_t status) {
    return status >= 0 && status <= 255 ? (int)status : 1;
}

/* Replays the stored result as the first caller got it. */
static int answer_replay(const struct idem_answer *answer) {
    struct cli_fault fault;
    struct spawn_end end;

    if (!cli_replay(answer->result, answer->result_len, &end, &fault)) {
        cli_say("replay: the stored result is not one of a command: another front door has stored "
                "it, or a newer version; it ended with status %d",
                (int)answer->status);
        return CLI_STORE;
    }
    if (fault.why == 0)
        return spawn_end_status(&end);
    cli_say("replay: cannot write to %s: %s; the command itself has ended with status %d",
            fault.stream == 1 ? "stdout" : "stderr", strerror(fault.why), spawn_end_status(&end));
    return CLI_IO;
}

static int work_duplicate_report(const struct work *work, const struct idem_answer *answer) {
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
    return work->policy->mode == IDEM_MODE_REPLAY ? run_refuse_stored_status(answer->status)
                                                  : CLI_OK;
}

int cli_refuse(const struct work *work, const struct idem_answer *answer) {
    switch (answer->verdict) {
    case IDEM_REPLAY:
        return answer_replay(answer);
    case IDEM_DUPLICATE:
        return work_duplicate_report(work, answer);
    case IDEM_DEAD:
        if (work->policy->mode == IDEM_MODE_REPLAY && answer->has_result)
            return answer_replay(answer);
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
