/*
 * The state machine of `idem run`. What can fail: the claim (nothing is run),
 * the start (the claim is released), the finish (the status says that the store
 * does not know). A lost lease ends the command; its late result is refused by
 * the store.
 *
 * Nothing in here waits for a reader while the claim is held: what is to be
 * said to people is said after the finish, and verdicts and output are passed
 * on as far as they are taken.
 */
#include "cli/work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/environment.h"
#include "cli/refuse.h"
#include "core/claim.h"
#include "loop/loop.h"

/* How long a command's output is waited for after its end, while a process that it left behind
   holds the pipes open; and how long, by who was asked to end, for a reader that takes nothing. */
#define DRAIN_MS 500

/* How long the answer to a claim is waited for after a signal: it may be RUN, and a run that is
   not going to happen must be released. */
#define QUIT_MS 300

/* How often the lease is renewed before the start because its answer came too late, too. */
#define RENEWALS_MAX 3

#define NEVER INT64_MAX

static void phase_set(struct work *work, enum work_phase phase) {
    work->phase = phase;
}

static void over(struct work *work, int status) {
    work->status = status;
    phase_set(work, WORK_OVER);
}

/* What is left to be passed on. */

static size_t pending(struct work *work, struct pollfd fds[3]) {
    size_t n = 0;

    n += cli_voice_pending(&work->voice, &fds[n]);
    for (int i = 0; work->child.piped && i < 2; i++)
        n += cli_stream_pending(&work->child.streams[i], &fds[n]);
    return n;
}

static size_t bytes_left(const struct work *work) {
    const struct cli_stream *streams = work->child.streams;

    return work->voice.len - work->voice.at + streams[0].len - streams[0].at + streams[1].len -
           streams[1].at;
}

/* Waits for who takes it, since nothing is held any more: signals act at once. */
static void flush(struct work *work) {
    int64_t by = idem_loop_now() + DRAIN_MS;
    bool hurried = work->cancelled || work->asked;
    struct pollfd fds[3];
    size_t n, before;

    cli_signals_unblock(&work->signals);
    while ((n = pending(work, fds)) != 0 && (!hurried || idem_loop_now() < by)) {
        poll(fds, n, hurried ? DRAIN_MS : -1);
        before = bytes_left(work);
        cli_voice_pass(&work->voice);
        for (int i = 0; work->child.piped && i < 2; i++)
            cli_stream_pass(&work->child.streams[i]);
        if (bytes_left(work) != before)
            by = idem_loop_now() + DRAIN_MS;
    }
}

static void faults_say(const struct work *work) {
    for (int i = 0; work->child.piped && i < 2; i++)
        if (work->child.streams[i].fault != 0)
            cli_say("cannot write to %s any more: %s; the command has gone on",
                    i == 0 ? "stdout" : "stderr", strerror(work->child.streams[i].fault));
}

/* The claim's answer. */

static void claim_failed(struct work *work, const struct idem_error *err) {
    cli_signals_unblock(&work->signals);
    over(work, cli_voice_error(&work->voice, err));
}

static void on_claim(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                     const struct idem_error *err, void *data) {
    struct work *work = data;

    (void)claim;
    if (rc < 0) {
        claim_failed(work, err);
        return;
    }
    cli_voice_verdict(&work->voice, answer);
    if (answer->verdict != IDEM_RUN) {
        flush(work);
        over(work, cli_refuse(work, answer));
        return;
    }
    if (answer->unguarded)
        cli_say("unguarded: the store is not there, and on_store_error=open runs it anyway");
    work->unguarded = answer->unguarded;
    work->finish.attempt = answer->attempt;
    if (answer->unguarded && work->policy->run_max_ms != IDEM_NONE)
        work->end_by = idem_loop_now() + work->policy->run_max_ms;
    phase_set(work, WORK_STARTING);
}

/* The store could not even be opened, which the policy overlooks. */
static void claim_nothing(struct work *work) {
    struct idem_answer answer = {.verdict = IDEM_RUN, .unguarded = true};

    on_claim(NULL, 0, &answer, NULL, work);
}

/* The finish. */

/* Nothing was run. */
static void unstarted_say(const struct work *work) {
    const char *key = "the key is free again";

    if (work->finish.how == IDEM_FINISH_LOST)
        key = "somebody else has taken the key over";
    else if (work->finish.how == IDEM_FINISH_UNKNOWN && !work->unguarded)
        key = "the key is free when its lease is over, or to be settled";
    if (work->unstarted[0] != '\0')
        cli_say("%s; nothing was run, and %s", work->unstarted, key);
}

static void finish_say(struct work *work) {
    char name[CLI_VOICE_NAME];

    cli_voice_name(&work->voice, name, sizeof(name));
    if (!work->started)
        unstarted_say(work);
    else if (work->finish.how == IDEM_FINISH_LOST)
        cli_say("lost: %s: the lease was lost while the command ran (attempt %u), and somebody "
                "else may have run it; it ended with status %d, and nothing was stored",
                name, (unsigned)work->finish.attempt, work->finish.status);
    else if (work->finish.how == IDEM_FINISH_UNKNOWN)
        cli_say("unstored: %s: the command ended with status %d, but the store did not take it; "
                "see idem show --hash %.*s before it is run again",
                name, work->finish.status, CLI_HASH_SHORT, work->voice.hash);
    else if (work->cancelled)
        cli_say("uncertain: %s: the command was ended after %s (attempt %u); it may have happened",
                name, work->timed_out ? "run_max" : "its lease was over",
                (unsigned)work->finish.attempt);
}

static void on_finish(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                      void *data) {
    struct work *work = data;

    (void)claim;
    work->finish.how = lost ? IDEM_FINISH_LOST : rc < 0 ? IDEM_FINISH_UNKNOWN : IDEM_FINISH_STORED;
    cli_voice_finish(&work->voice, &work->finish);
    cli_signals_unblock(&work->signals);
    finish_say(work);
    if (rc < 0 && !lost)
        cli_say("store: %s", err->text);
    if (work->finish.how == IDEM_FINISH_LOST)
        over(work, CLI_LOST);
    else if (work->finish.how == IDEM_FINISH_UNKNOWN)
        over(work, CLI_STORE);
    else
        over(work, work->cancelled ? CLI_UNCERTAIN : work->finish.status);
}

/* One of the four, and what scripts are told of it. */
static void finish_begin(struct work *work, const char *said, int rc) {
    work->finish.said = said;
    phase_set(work, WORK_FINISHING);
    if (rc < 0) {
        struct idem_error err = {.code = rc};

        snprintf(err.text, sizeof(err.text), "the finish could not be sent (%s)",
                 idem_code_name(rc));
        on_finish(work->claim, rc, false, &err, work);
    }
}

/* Nothing is remembered of an unguarded run. */
static void finish_nothing(struct work *work) {
    work->finish.said = "none";
    work->finish.how = IDEM_FINISH_UNKNOWN;
    cli_voice_finish(&work->voice, &work->finish);
    cli_signals_unblock(&work->signals);
    if (!work->started)
        unstarted_say(work);
    over(work, work->cancelled ? CLI_UNCERTAIN : work->finish.status);
}

static void finish_release(struct work *work, int status) {
    work->finish.status = status;
    if (work->unguarded) {
        finish_nothing(work);
        return;
    }
    finish_begin(work, "release", idem_claim_release(work->claim, on_finish, work));
}

/* Done or failed, with what was kept. Where there is no memory to hand a result over, the end
   itself is still worth storing. */
static int finish_send(struct work *work, const char *reason, const void *result, size_t len) {
    bool final = work->policy->on_failure == IDEM_ON_FAILURE_KEEP;
    int rc;

    if (reason == NULL)
        rc = idem_claim_done(work->claim, 0, result, len, on_finish, work);
    else
        rc = idem_claim_fail(work->claim, work->finish.status, reason, result, len, final,
                             on_finish, work);
    return rc == IDEM_E_NOMEM && result != NULL ? finish_send(work, reason, NULL, 0) : rc;
}

static void finish_result(struct work *work) {
    const struct cli_end *end = &work->child.end;
    bool kept = work->child.piped && cli_result_end(&work->result, end);
    bool done = work->finish.status == 0;
    char reason[64];

    snprintf(reason, sizeof(reason), end->signalled ? "died by signal %d" : "exit status %d",
             end->number);
    finish_begin(work, done ? "done" : "fail",
                 finish_send(work, done ? NULL : reason, kept ? work->result.bytes : NULL,
                             kept ? work->result.len : 0));
}

static void finish(struct work *work) {
    work->finish.status = cli_end_status(&work->child.end);
    work->drain_by = work->end_by = NEVER; /* what is over must not keep the loop awake */
    if (work->unguarded)
        finish_nothing(work);
    else if (work->cancelled)
        /* We ended it ourselves: whatever its status says, it may have happened. */
        finish_begin(work, "unknown",
                     idem_claim_unknown(work->claim,
                                        work->timed_out ? "ended after run_max"
                                                        : "ended because its lease was lost",
                                        on_finish, work));
    else if (work->finish.status != 0 && work->policy->on_failure == IDEM_ON_FAILURE_RELEASE)
        finish_release(work, work->finish.status);
    else
        finish_result(work);
}

/* The command. */

static void on_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    struct work *work = data;

    (void)claim;
    work->lost_early = work->phase == WORK_STARTING;
    if (work->phase != WORK_RUNNING)
        return;
    /* After its end there is nothing to end: the store decides whether the finish still counts. */
    cli_child_look(&work->child);
    if (work->child.ended)
        return;
    work->cancelled = true;
    work->timed_out = why == IDEM_END_RUN_MAX;
    cli_child_signal(&work->child, SIGTERM);
    cli_child_signal(&work->child, SIGCONT); /* one that is stopped would never see it */
    work->kill_at = idem_loop_now() + work->values->kill_after_ms;
}

__attribute__((format(printf, 3, 4))) static void start_refuse(struct work *work, int status,
                                                               const char *why, ...) {
    va_list args;

    va_start(args, why);
    vsnprintf(work->unstarted, sizeof(work->unstarted), why, args);
    va_end(args);
    finish_release(work, status);
}

static void start_lost(struct work *work) {
    start_refuse(work, CLI_LOST,
                 "lost: the lease was over before the command was started (attempt %u)",
                 (unsigned)work->finish.attempt);
}

static void on_renewed(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                       void *data) {
    struct work *work = data;

    (void)claim;
    if (rc < 0)
        start_refuse(work, CLI_STORE, "the lease could not be renewed before the start: %.300s",
                     err->text);
    else if (lost)
        start_lost(work);
    else
        phase_set(work, WORK_STARTING);
}

/* Whether the lease is still ours is for the store to say: under hold as well an operator may have
   settled what looked vanished, and somebody else have run it. */
static void renew(struct work *work) {
    if (work->renewals++ == RENEWALS_MAX)
        start_refuse(work, CLI_STORE, "the store answers too slowly for a lease of %lld ms",
                     (long long)work->policy->lease_ms);
    else if (idem_claim_renew(work->claim, on_renewed, work) < 0)
        start_lost(work);
    else
        phase_set(work, WORK_RENEWING);
}

static bool lease_is_short(const struct work *work) {
    int64_t least = work->renewals == 0 ? work->policy->lease_ms / 2 : 0;

    return !work->unguarded && idem_claim_lease_until(work->claim) - idem_loop_now() <= least;
}

static void start_failed(struct work *work, int why) {
    int status = why == ENOENT || why == ENOTDIR ? CLI_NOT_FOUND
                 : why == EAGAIN || why == ENOMEM || why == EMFILE || why == ENFILE
                     ? CLI_SYSTEM
                     : CLI_NOT_EXECUTABLE;

    start_refuse(work, status, "the command cannot be started: %s", strerror(why));
}

static void start_command(struct work *work) {
    struct cli_start how = {
        .argv = work->argv,
        .signals = &work->signals,
        .piped = work->policy->mode == IDEM_MODE_REPLAY,
        .own_group = !work->tty,
        /* Under rerun somebody else runs it as soon as the lease is over: the command must not
           outlive its guard. Under hold nobody does, and work that comes to its end is better
           than work cut in half. */
        .die_with = work->policy->recover == IDEM_RECOVER_RERUN ? SIGTERM : 0,
        .not_after = work->unguarded ? NEVER : idem_claim_lease_until(work->claim),
    };
    int why;

    how.env = cli_environment(work->args.key, work->finish.attempt, work->planned);
    if (how.env == NULL) {
        start_failed(work, ENOMEM);
        return;
    }
    why = cli_child_start(&work->child, &how);
    cli_environment_free(how.env);
    if (why == CLI_SPAWN_LATE)
        return;
    if (why != 0) {
        start_failed(work, why);
        return;
    }
    work->started = true;
    phase_set(work, WORK_RUNNING);
}

static void start(struct work *work) {
    if (work->lost_early)
        start_lost(work);
    else if (work->quit_signal != 0)
        finish_release(work, 128 + work->quit_signal);
    else if (lease_is_short(work))
        renew(work);
    else
        start_command(work);
}

static void drain(struct work *work, int64_t now) {
    struct cli_stream *streams = work->child.streams;

    if (work->child.piped && now < work->drain_by &&
        !(cli_stream_over(&streams[0]) && cli_stream_over(&streams[1])))
        return;
    for (int i = 0; work->child.piped && i < 2; i++)
        cli_stream_sweep(&streams[i], &work->result);
    /* What it started must not go on either, once somebody else may be running it. */
    if (work->cancelled)
        cli_child_signal(&work->child, SIGKILL);
    finish(work);
}

static void look(struct work *work, int64_t now) {
    cli_child_look(&work->child);
    if (work->child.ended) {
        work->kill_at = NEVER;
        work->drain_by = now + DRAIN_MS;
        phase_set(work, WORK_DRAINING);
        drain(work, now);
    } else if (now >= work->kill_at) {
        cli_child_signal(&work->child, SIGKILL);
        work->kill_at = NEVER;
    } else if (now >= work->end_by) {
        work->end_by = NEVER;
        on_lost(NULL, IDEM_END_RUN_MAX, work);
    }
}

/* Signals. */

/* From the keyboard: the kernel has sent it to the whole group, the command included. */
static bool command_has_it(const struct work *work, const struct signalfd_siginfo *info) {
    return !work->child.own_group && info->ssi_code == SI_KERNEL;
}

static void signal_take(struct work *work, const struct signalfd_siginfo *info) {
    int sig = (int)info->ssi_signo;

    if (sig == SIGCHLD)
        return;
    if (work->phase == WORK_RUNNING && !command_has_it(work, info))
        cli_child_signal(&work->child, sig);
    if (sig == SIGCONT)
        return;
    if (sig == SIGTSTP) {
        raise(SIGSTOP);
        return;
    }
    if (work->phase < WORK_RUNNING) {
        work->quit_signal = sig;
        work->quit_by = idem_loop_now() + QUIT_MS;
        return;
    }
    work->asked = work->asked || (sig != SIGUSR1 && sig != SIGUSR2);
    if (sig == SIGINT)
        work->quit_signal = sig;
    else if (work->phase == WORK_DRAINING)
        work->drain_by = 0;
}

static void signals_take(struct work *work) {
    struct signalfd_siginfo info;

    while (cli_signals_next(&work->signals, &info))
        signal_take(work, &info);
}

/* The loop. */

static int64_t earliest(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A verdict on stdout or stderr comes before what the command writes there. */
static bool is_flowing(const struct work *work, bool speaking) {
    return work->child.piped && !(speaking && work->voice.fd <= STDERR_FILENO) &&
           (work->phase == WORK_RUNNING || work->phase == WORK_DRAINING);
}

/* Only the stream that poll(2) has named goes on: so the order between stdout and stderr is kept
   as well as two pipes can keep it. */
static void turn(struct work *work) {
    struct pollfd fds[4] = {{.fd = work->signals.fd, .events = POLLIN}};
    bool speaking = cli_voice_pending(&work->voice, &fds[1]);
    size_t first = speaking ? 2 : 1, n = first;
    int64_t now = idem_loop_now(), until, ms;
    struct cli_stream *streams[4];

    until =
        earliest(earliest(work->kill_at, work->end_by), earliest(work->drain_by, work->quit_by));
    ms = until == NEVER ? -1 : until > now ? until - now : 0;
    if (work->phase == WORK_STARTING)
        ms = 0;
    for (int i = 0; is_flowing(work, speaking) && i < 2; i++) {
        streams[n] = &work->child.streams[i];
        n += cli_stream_poll(streams[n], &fds[n]);
    }
    /* It fails only for want of kernel memory: to try again is all that can be done. */
    if (idem_poll_turn(work->poll, fds, n, ms) < 0) {
        poll(NULL, 0, 50);
        return;
    }
    if (speaking && fds[1].revents != 0)
        cli_voice_pass(&work->voice);
    for (size_t i = first; i < n; i++)
        if (fds[i].revents != 0)
            cli_stream_turn(streams[i], &work->result);
}

static void advance(struct work *work) {
    int64_t now = idem_loop_now();

    signals_take(work);
    switch (work->phase) {
    case WORK_CLAIMING:
        if (now >= work->quit_by)
            over(work, 128 + work->quit_signal);
        break;
    case WORK_STARTING:
        start(work);
        break;
    case WORK_RENEWING:
        if (work->quit_signal != 0)
            finish_release(work, 128 + work->quit_signal);
        break;
    case WORK_RUNNING:
        look(work, now);
        break;
    case WORK_DRAINING:
        drain(work, now);
        break;
    default:
        break;
    }
}

/* A command that was interrupted from the keyboard takes idem with it, by the same signal, so
   that a shell script around both stops as well. */
static void quit_decide(struct work *work) {
    bool interrupted =
        work->child.ended && work->child.end.signalled && work->child.end.number == SIGINT;

    if (work->child.ended && !(work->quit_signal == SIGINT && interrupted))
        work->quit_signal = 0;
}

static void claim_begin(struct work *work) {
    struct idem_error err;

    if (work->h == NULL) {
        claim_nothing(work);
        return;
    }
    if (idem_claim_new(work->h, work->guard, &work->args, on_claim, work, &work->claim, &err) < 0) {
        claim_failed(work, &err);
        return;
    }
    snprintf(work->voice.hash, sizeof(work->voice.hash), "%s", idem_claim_hash(work->claim));
    idem_claim_on_lost(work->claim, on_lost, work);
}

int cli_work(struct work *work) {
    work->kill_at = work->drain_by = work->quit_by = work->end_by = NEVER;
    work->child.streams[0].from = work->child.streams[1].from = -1;
    cli_result_init(&work->result,
                    work->policy->result_max > 0 ? (size_t)work->policy->result_max : 0);
    claim_begin(work);
    while (work->phase != WORK_OVER) {
        turn(work);
        advance(work);
    }
    idem_claim_free(work->claim);
    flush(work);
    faults_say(work);
    quit_decide(work);
    cli_child_release(&work->child);
    cli_result_release(&work->result);
    return work->status;
}
