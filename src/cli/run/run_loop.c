/*
 * The state machine of `idem run`. Three steps can fail: the claim (nothing is run), the start (the
 * claim is released) and the finish (the exit status reports that the store has no outcome). A lost
 * lease ends the command; the store refuses its late result.
 *
 * Nothing here waits for a reader while the claim is held: messages for people are written after
 * the finish, and verdicts and output are passed on only as far as their readers take them.
 */
#include "cli/run/run_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/run/run_output.h"
#include "core/claim.h"
#include "loop/loop.h"

/*
 * Builds the command's environment. Variables from an enclosing `idem run` are left out: they
 * describe another command. Fails only without memory.
 */

static const char *const own_variables[] = {"IDEM_KEY=", "IDEM_ATTEMPT=", "IDEM_AT="};
#define OWN_VARIABLES_N (sizeof(own_variables) / sizeof(own_variables[0]))

static bool run_environment_is_own(const char *variable) {
    for (size_t i = 0; i < OWN_VARIABLES_N; i++)
        if (idem_text_begins(variable, own_variables[i]))
            return true;
    return false;
}

/* Only variables set by run_environment_new() were allocated; others of these names are never
   copied. */
static void run_environment_free(char **env) {
    if (env == NULL)
        return;
    for (size_t i = 0; env[i] != NULL; i++)
        if (run_environment_is_own(env[i]))
            free(env[i]);
    free(env);
}

static bool run_environment_append(char **env, size_t *at, const char *name, const char *value) {
    if (asprintf(&env[*at], "%s%s", name, value) < 0) {
        env[*at] = NULL;
        return false;
    }
    (*at)++;
    return true;
}

/* `planned` may be NULL. Owned by the caller; NULL without memory. */
static char **run_environment_new(const char *key, uint32_t attempt, const char *planned) {
    size_t n = 0, at = 0;
    char number[16], **env;

    while (environ != NULL && environ[n] != NULL)
        n++;
    env = calloc(n + OWN_VARIABLES_N + 1, sizeof(*env));
    if (env == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (!run_environment_is_own(environ[i]))
            env[at++] = environ[i];
    snprintf(number, sizeof(number), "%" PRIu32, attempt);
    if (run_environment_append(env, &at, own_variables[0], key) &&
        run_environment_append(env, &at, own_variables[1], number) &&
        (planned == NULL || run_environment_append(env, &at, own_variables[2], planned)))
        return env;
    run_environment_free(env);
    return NULL;
}

/*
 * Starts and watches the command. Starting fails as pipe(2) and spawn_start() do.
 */

static void child_fds_close(int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* fds holds the pipes of stdout and stderr; the even ones are the ends that idem reads. */
static int child_streams_init(struct cli_child *child, int fds[4]) {
    for (int i = 0; i < 2; i++) {
        int from = fds[2 * i];

        fds[2 * i] = -1;
        if (cli_stream_init(&child->streams[i], i + 1, from, i == 0 ? NULL : child->streams) < 0)
            return errno;
    }
    return 0;
}

/* Reaps the command and frees everything. A stream that is not at its end is dropped. */
static void child_release(struct cli_child *child) {
    if (child->pid != 0 && child->ended)
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    child->pid = 0;
    for (int i = 0; i < 2; i++)
        cli_stream_release(&child->streams[i]);
}

/*
 * Returns 0, or an errno or SPAWN_LATE if nothing was started.
 *
 * The process group: without a controlling terminal (cron, a service, CI) the command gets a group
 * of its own, so that ending the command also ends the processes that it started. With a terminal,
 * the command stays in idem's group: a group of its own would be a background job, stopped as soon
 * as it reads the keyboard, and Ctrl-C would not reach it; making that group the foreground group
 * would do the same to the rest of the pipeline (`idem run ... | less`). Ctrl-C and Ctrl-Z then
 * reach both the command and idem, and a lost lease ends the command's own process only.
 */
static int child_start(struct cli_child *child, const struct cli_start *how) {
    int fds[4] = {-1, -1, -1, -1}, why = 0;

    *child = (struct cli_child){.own_group = how->own_group, .piped = how->piped};
    child->streams[0].from = child->streams[1].from = -1;
    if (how->piped && (pipe2(fds, O_CLOEXEC) < 0 || pipe2(fds + 2, O_CLOEXEC) < 0))
        why = errno;
    if (why == 0 && how->piped)
        why = child_streams_init(child, fds);
    if (why == 0)
        why = spawn_start(
            &(struct spawn){
                .argv = how->argv,
                .env = how->env,
                .signals = how->signals,
                .fds = {-1, fds[1], fds[3]},
                .own_group = how->own_group,
                .die_with = how->die_with,
                .not_after = how->not_after,
            },
            &child->pid);
    child_fds_close(fds, 4);
    if (why != 0)
        child_release(child);
    return why;
}

/* Signals the command, or its group. After the command's end only a group of its own can still
   receive a signal. */
static void child_signal(const struct cli_child *child, int sig) {
    if (child->pid == 0)
        return;
    if (child->own_group)
        kill(-child->pid, sig);
    else if (!child->ended)
        kill(child->pid, sig);
}

/* Checks without waiting if the command has ended; sets `ended` and `end`. */
static void child_check_end(struct cli_child *child) {
    siginfo_t info = {0};

    if (child->pid == 0 || child->ended ||
        waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
        return;
    child->ended = true;
    child->end = (struct spawn_end){.signalled = info.si_code != CLD_EXITED,
                                    .number = info.si_status & 0xff};
}

/*
 * The outcome of every verdict but RUN. No lease is held, so writing may wait. Fails if a stored
 * result was not made by a command, or cannot be written.
 */

/* The exit status of a record that is not run again; 1 if the stored status is no exit status. */
static int answer_exit_status(int32_t status) {
    return status >= 0 && status <= 255 ? (int)status : 1;
}

/* Replays the stored result as the first caller got it. */
static int answer_replay(const struct idem_answer *answer) {
    struct cli_fault fault;
    struct spawn_end end;

    if (!cli_replay(answer->result, answer->result_len, &end, &fault))
        return cli_fail(
            CLI_STORE,
            "replay: the stored result is not one of a command: another front door has stored "
            "it, or a newer version; it ended with status %d",
            (int)answer->status);
    if (fault.why == 0)
        return spawn_end_status(&end);
    return cli_fail(
        CLI_IO, "replay: cannot write to %s: %s; the command itself has ended with status %d",
        fault.stream == 1 ? "stdout" : "stderr", strerror(fault.why), spawn_end_status(&end));
}

static int run_loop_duplicate_report(const struct run_loop *loop,
                                     const struct idem_answer *answer) {
    char name[RUN_VERDICT_NAME];

    if (loop->policy->mode != IDEM_MODE_REPLAY)
        run_verdict_refusal(&loop->verdict, answer);
    else if (!loop->verdict.quiet)
        cli_message(
            "duplicate: %s has run already (attempt %u) and ended with status %d; its output "
            "was not kept, being longer than result_max or settled by an operator",
            run_verdict_name(&loop->verdict, name, sizeof(name)), (unsigned)answer->attempt,
            (int)answer->status);
    if (loop->values->duplicate_exit >= 0)
        return (int)loop->values->duplicate_exit;
    return loop->policy->mode == IDEM_MODE_REPLAY ? answer_exit_status(answer->status) : CLI_OK;
}

/* Returns the exit status. */
static int run_loop_verdict_report(const struct run_loop *loop, const struct idem_answer *answer) {
    static const int refusals[] = {
        [IDEM_DEAD] = CLI_DEAD,           [IDEM_BUSY] = CLI_BUSY,
        [IDEM_MISMATCH] = CLI_MISMATCH,   [IDEM_NO_TOKEN] = CLI_ABSENT,
        [IDEM_UNCERTAIN] = CLI_UNCERTAIN, [IDEM_PROBE] = CLI_UNCERTAIN,
    };

    if (answer->verdict == IDEM_REPLAY ||
        (answer->verdict == IDEM_DEAD && loop->policy->mode == IDEM_MODE_REPLAY &&
         answer->has_result))
        return answer_replay(answer);
    if (answer->verdict == IDEM_DUPLICATE)
        return run_loop_duplicate_report(loop, answer);
    run_verdict_refusal(&loop->verdict, answer);
    return refusals[answer->verdict];
}

/*
 * The state machine, one section per step: pending output, the claim, the finish, the command,
 * signals, and the loop that calls them all. run_loop.h draws it.
 */

/* How long idem waits for the command's output after its end, while a process that the command left
   behind holds the pipes open; and, after a signal to end, for a reader that takes nothing. */
#define DRAIN_MS 500

/* How long idem waits for the claim's verdict after a signal: it may be RUN, and a run that will
   not start must be released. */
#define QUIT_MS 300

/* How often the lease is renewed before the start, if each renewal arrives too late. */
#define RENEWALS_MAX 3

#define NEVER INT64_MAX

static void run_loop_phase_set(struct run_loop *loop, enum run_phase phase) {
    loop->phase = phase;
}

static void run_loop_end(struct run_loop *loop, int status) {
    loop->status = status;
    run_loop_phase_set(loop, RUN_OVER);
}

/* Pending output. */

static size_t run_loop_pending(struct run_loop *loop, struct pollfd fds[3]) {
    size_t n = 0;

    n += run_verdict_pending(&loop->verdict, &fds[n]);
    for (int i = 0; loop->child.piped && i < 2; i++)
        n += cli_stream_pending(&loop->child.streams[i], &fds[n]);
    return n;
}

static size_t run_loop_bytes_left(const struct run_loop *loop) {
    const struct cli_stream *streams = loop->child.streams;

    return loop->verdict.len - loop->verdict.at + streams[0].len - streams[0].at + streams[1].len -
           streams[1].at;
}

/* Nothing is held any more, so idem waits for its readers; signals act at once. */
static void run_loop_flush(struct run_loop *loop) {
    int64_t by = idem_loop_now() + DRAIN_MS;
    bool hurried = loop->cancelled || loop->asked;
    struct pollfd fds[3];
    size_t n, before;

    signals_unblock(&loop->signals);
    while ((n = run_loop_pending(loop, fds)) != 0 && (!hurried || idem_loop_now() < by)) {
        poll(fds, n, hurried ? DRAIN_MS : -1);
        before = run_loop_bytes_left(loop);
        run_verdict_pass(&loop->verdict);
        for (int i = 0; loop->child.piped && i < 2; i++)
            cli_stream_pass(&loop->child.streams[i]);
        if (run_loop_bytes_left(loop) != before)
            by = idem_loop_now() + DRAIN_MS;
    }
}

static void run_loop_faults_report(const struct run_loop *loop) {
    for (int i = 0; loop->child.piped && i < 2; i++)
        if (loop->child.streams[i].fault != 0)
            cli_message("cannot write to %s any more: %s; the command has gone on",
                        i == 0 ? "stdout" : "stderr", strerror(loop->child.streams[i].fault));
}

/* The claim. */

static void run_loop_claim_fail(struct run_loop *loop, const struct idem_error *err) {
    signals_unblock(&loop->signals);
    run_loop_end(loop, run_verdict_error(&loop->verdict, err));
}

static void claim_decided(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                          const struct idem_error *err, void *data) {
    struct run_loop *loop = data;

    (void)claim;
    if (rc < 0) {
        run_loop_claim_fail(loop, err);
        return;
    }
    run_verdict_claim(&loop->verdict, answer);
    if (answer->verdict != IDEM_RUN) {
        run_loop_flush(loop);
        run_loop_end(loop, run_loop_verdict_report(loop, answer));
        return;
    }
    if (answer->unguarded)
        cli_message("unguarded: the store is not there, and on_store_error=open runs it anyway");
    loop->unguarded = answer->unguarded;
    loop->finish.attempt = answer->attempt;
    if (answer->unguarded && loop->policy->run_max_ms != IDEM_NONE)
        loop->end_by = idem_loop_now() + loop->policy->run_max_ms;
    run_loop_phase_set(loop, RUN_STARTING);
}

/* The store could not be opened, and the policy ignores that. */
static void run_loop_claim_skip(struct run_loop *loop) {
    struct idem_answer answer = {.verdict = IDEM_RUN, .unguarded = true};

    claim_decided(NULL, 0, &answer, NULL, loop);
}

/* The finish. */

/* Reports why the command was not started, and the state of its key. */
static void run_loop_unstarted_report(const struct run_loop *loop) {
    const char *key = "the key is free again";

    if (loop->finish.how == IDEM_FINISH_LOST)
        key = "another process has taken the key over";
    else if (loop->finish.how == IDEM_FINISH_UNKNOWN && !loop->unguarded)
        key = "the key is free when its lease is over, or to be settled";
    if (loop->unstarted[0] != '\0')
        cli_message("%s; nothing was run, and %s", loop->unstarted, key);
}

static void run_loop_finish_report(struct run_loop *loop) {
    char name[RUN_VERDICT_NAME];

    run_verdict_name(&loop->verdict, name, sizeof(name));
    if (!loop->started)
        run_loop_unstarted_report(loop);
    else if (loop->finish.how == IDEM_FINISH_LOST)
        cli_message("lost: %s: the lease was lost while the command ran (attempt %u), and another "
                    "process may have run it; it ended with status %d, and nothing was stored",
                    name, (unsigned)loop->finish.attempt, loop->finish.status);
    else if (loop->finish.how == IDEM_FINISH_UNKNOWN)
        cli_message(
            "unstored: %s: the command ended with status %d, but the store did not take it; "
            "see idem show --hash %.*s before it is run again",
            name, loop->finish.status, CLI_HASH_SHORT, loop->verdict.hash);
    else if (loop->cancelled)
        cli_message(
            "uncertain: %s: the command was ended after %s (attempt %u); it may have happened",
            name, loop->timed_out ? "run_max" : "its lease was over",
            (unsigned)loop->finish.attempt);
}

static void claim_finished(struct idem_claim *claim, int rc, bool lost,
                           const struct idem_error *err, void *data) {
    struct run_loop *loop = data;

    (void)claim;
    loop->finish.how = lost ? IDEM_FINISH_LOST : rc < 0 ? IDEM_FINISH_UNKNOWN : IDEM_FINISH_STORED;
    run_verdict_finish(&loop->verdict, &loop->finish);
    signals_unblock(&loop->signals);
    run_loop_finish_report(loop);
    if (rc < 0 && !lost)
        cli_message("store: %s", err->text);
    if (loop->finish.how == IDEM_FINISH_LOST)
        run_loop_end(loop, CLI_LOST);
    else if (loop->finish.how == IDEM_FINISH_UNKNOWN)
        run_loop_end(loop, CLI_STORE);
    else
        run_loop_end(loop, loop->cancelled ? CLI_UNCERTAIN : loop->finish.status);
}

/* Begins one of the four finishes; `operation` is its name on the verdict descriptor. */
static void run_loop_finish_begin(struct run_loop *loop, const char *operation, int rc) {
    loop->finish.action = operation;
    run_loop_phase_set(loop, RUN_FINISHING);
    if (rc < 0) {
        struct idem_error err = {.code = rc};

        snprintf(err.text, sizeof(err.text), "the finish could not be sent (%s)",
                 idem_code_name(rc));
        claim_finished(loop->claim, rc, false, &err, loop);
    }
}

/* The store has no record of an unguarded run. */
static void run_loop_finish_unguarded(struct run_loop *loop) {
    loop->finish.action = "none";
    loop->finish.how = IDEM_FINISH_UNKNOWN;
    run_verdict_finish(&loop->verdict, &loop->finish);
    signals_unblock(&loop->signals);
    if (!loop->started)
        run_loop_unstarted_report(loop);
    run_loop_end(loop, loop->cancelled ? CLI_UNCERTAIN : loop->finish.status);
}

static void run_loop_finish_release(struct run_loop *loop, int status) {
    loop->finish.status = status;
    if (loop->unguarded) {
        run_loop_finish_unguarded(loop);
        return;
    }
    run_loop_finish_begin(loop, "release", idem_claim_release(loop->claim, claim_finished, loop));
}

/* Sends done or failed, with the result that was kept. Without memory for the result, the outcome
   alone is still worth storing. */
static int run_loop_finish_send(struct run_loop *loop, const char *reason, const void *result,
                                size_t len) {
    bool final = loop->policy->on_failure == IDEM_ON_FAILURE_KEEP;
    int rc;

    if (reason == NULL)
        rc = idem_claim_done(loop->claim, 0, result, len, claim_finished, loop);
    else
        rc = idem_claim_fail(loop->claim, loop->finish.status, reason, result, len, final,
                             claim_finished, loop);
    return rc == IDEM_E_NOMEM && result != NULL ? run_loop_finish_send(loop, reason, NULL, 0) : rc;
}

static void run_loop_finish_result(struct run_loop *loop) {
    const struct spawn_end *end = &loop->child.end;
    bool kept = loop->child.piped && cli_result_end(&loop->result, end);
    bool done = loop->finish.status == 0;
    char reason[64];

    snprintf(reason, sizeof(reason), end->signalled ? "died by signal %d" : "exit status %d",
             end->number);
    run_loop_finish_begin(loop, done ? "done" : "fail",
                          run_loop_finish_send(loop, done ? NULL : reason,
                                               kept ? loop->result.bytes.at : NULL,
                                               kept ? loop->result.bytes.len : 0));
}

static void run_loop_finish(struct run_loop *loop) {
    loop->finish.status = spawn_end_status(&loop->child.end);
    loop->drain_by = loop->end_by = NEVER; /* expired deadlines must not keep the loop awake */
    if (loop->unguarded)
        run_loop_finish_unguarded(loop);
    else if (loop->cancelled)
        /* idem ended the command: it may have had its effect, whatever its exit status. */
        run_loop_finish_begin(loop, "unknown",
                              idem_claim_unknown(loop->claim,
                                                 loop->timed_out
                                                     ? "ended after run_max"
                                                     : "ended because its lease was lost",
                                                 claim_finished, loop));
    else if (loop->finish.status != 0 && loop->policy->on_failure == IDEM_ON_FAILURE_RELEASE)
        run_loop_finish_release(loop, loop->finish.status);
    else
        run_loop_finish_result(loop);
}

/* The command. */

static void claim_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    struct run_loop *loop = data;

    (void)claim;
    loop->lost_early = loop->phase == RUN_STARTING;
    if (loop->phase != RUN_RUNNING)
        return;
    /* After the command's end there is nothing to stop: the store decides if the finish counts. */
    child_check_end(&loop->child);
    if (loop->child.ended)
        return;
    loop->cancelled = true;
    loop->timed_out = why == IDEM_END_RUN_MAX;
    child_signal(&loop->child, SIGTERM);
    child_signal(&loop->child, SIGCONT); /* a stopped process would never see the SIGTERM */
    loop->kill_at = idem_loop_now() + loop->values->kill_after_ms;
}

__attribute__((format(printf, 3, 4))) static void
run_loop_start_refuse(struct run_loop *loop, int status, const char *why, ...) {
    va_list args;

    va_start(args, why);
    vsnprintf(loop->unstarted, sizeof(loop->unstarted), why, args);
    va_end(args);
    run_loop_finish_release(loop, status);
}

static void run_loop_start_lost(struct run_loop *loop) {
    run_loop_start_refuse(loop, CLI_LOST,
                          "lost: the lease was over before the command was started (attempt %u)",
                          (unsigned)loop->finish.attempt);
}

static void claim_renewed(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                          void *data) {
    struct run_loop *loop = data;

    (void)claim;
    if (rc < 0)
        run_loop_start_refuse(loop, CLI_STORE,
                              "the lease could not be renewed before the start: %.300s", err->text);
    else if (lost)
        run_loop_start_lost(loop);
    else
        run_loop_phase_set(loop, RUN_STARTING);
}

/* Only the store knows if the lease still holds: even under recover = hold an operator may have
   settled a run that seemed to have vanished, and another caller may have run it since. */
static void run_loop_renew(struct run_loop *loop) {
    if (loop->renewals++ == RENEWALS_MAX)
        run_loop_start_refuse(loop, CLI_STORE,
                              "the store answers too slowly for a lease of %lld ms",
                              (long long)loop->policy->lease_ms);
    else if (idem_claim_renew(loop->claim, claim_renewed, loop) < 0)
        run_loop_start_lost(loop);
    else
        run_loop_phase_set(loop, RUN_RENEWING);
}

static bool run_loop_lease_is_short(const struct run_loop *loop) {
    int64_t least = loop->renewals == 0 ? loop->policy->lease_ms / 2 : 0;

    return !loop->unguarded && idem_claim_lease_until(loop->claim) - idem_loop_now() <= least;
}

static void run_loop_start_fail(struct run_loop *loop, int why) {
    int status = why == ENOENT || why == ENOTDIR ? CLI_NOT_FOUND
                 : why == EAGAIN || why == ENOMEM || why == EMFILE || why == ENFILE
                     ? CLI_SYSTEM
                     : CLI_NOT_EXECUTABLE;

    run_loop_start_refuse(loop, status, "the command cannot be started: %s", strerror(why));
}

static void run_loop_start_command(struct run_loop *loop) {
    struct cli_start how = {
        .argv = loop->argv,
        .signals = &loop->signals,
        .piped = loop->policy->mode == IDEM_MODE_REPLAY,
        .own_group = !loop->tty,
        /* Under rerun another caller runs it as soon as the lease expires: the command must not
           outlive its guard. Under hold no other caller does, and finished work is better than half
           of it. */
        .die_with = loop->policy->recover == IDEM_RECOVER_RERUN ? SIGTERM : 0,
        .not_after = loop->unguarded ? NEVER : idem_claim_lease_until(loop->claim),
    };
    int why;

    how.env = run_environment_new(loop->args.key, loop->finish.attempt, loop->planned);
    if (how.env == NULL) {
        run_loop_start_fail(loop, ENOMEM);
        return;
    }
    why = child_start(&loop->child, &how);
    run_environment_free(how.env);
    if (why == SPAWN_LATE)
        return;
    if (why != 0) {
        run_loop_start_fail(loop, why);
        return;
    }
    loop->started = true;
    run_loop_phase_set(loop, RUN_RUNNING);
}

static void run_loop_start(struct run_loop *loop) {
    if (loop->lost_early)
        run_loop_start_lost(loop);
    else if (loop->quit_signal != 0)
        run_loop_finish_release(loop, 128 + loop->quit_signal);
    else if (run_loop_lease_is_short(loop))
        run_loop_renew(loop);
    else
        run_loop_start_command(loop);
}

static void run_loop_drain(struct run_loop *loop, int64_t now) {
    struct cli_stream *streams = loop->child.streams;

    if (loop->child.piped && now < loop->drain_by &&
        !(cli_stream_over(&streams[0]) && cli_stream_over(&streams[1])))
        return;
    for (int i = 0; loop->child.piped && i < 2; i++)
        cli_stream_sweep(&streams[i], &loop->result);
    /* Processes that the command started must not go on either, once another caller may run it. */
    if (loop->cancelled)
        child_signal(&loop->child, SIGKILL);
    run_loop_finish(loop);
}

static void run_loop_watch(struct run_loop *loop, int64_t now) {
    child_check_end(&loop->child);
    if (loop->child.ended) {
        loop->kill_at = NEVER;
        loop->drain_by = now + DRAIN_MS;
        run_loop_phase_set(loop, RUN_DRAINING);
        run_loop_drain(loop, now);
    } else if (now >= loop->kill_at) {
        child_signal(&loop->child, SIGKILL);
        loop->kill_at = NEVER;
    } else if (now >= loop->end_by) {
        loop->end_by = NEVER;
        claim_lost(NULL, IDEM_END_RUN_MAX, loop);
    }
}

/* Signals. */

/* A signal from the keyboard: the kernel sends it to the whole group, the command included. */
static bool run_loop_signal_is_shared(const struct run_loop *loop,
                                      const struct signalfd_siginfo *info) {
    return !loop->child.own_group && info->ssi_code == SI_KERNEL;
}

static void run_loop_signal_handle(struct run_loop *loop, const struct signalfd_siginfo *info) {
    int sig = (int)info->ssi_signo;

    if (sig == SIGCHLD)
        return;
    if (loop->phase == RUN_RUNNING && !run_loop_signal_is_shared(loop, info))
        child_signal(&loop->child, sig);
    if (sig == SIGCONT)
        return;
    if (sig == SIGTSTP) {
        raise(SIGSTOP);
        return;
    }
    if (loop->phase < RUN_RUNNING) {
        loop->quit_signal = sig;
        loop->quit_by = idem_loop_now() + QUIT_MS;
        return;
    }
    loop->asked = loop->asked || (sig != SIGUSR1 && sig != SIGUSR2);
    if (sig == SIGINT)
        loop->quit_signal = sig;
    else if (loop->phase == RUN_DRAINING)
        loop->drain_by = 0;
}

static void run_loop_signals_read(struct run_loop *loop) {
    struct signalfd_siginfo info;

    while (signals_next(&loop->signals, &info))
        run_loop_signal_handle(loop, &info);
}

/* The loop. */

static int64_t run_loop_earliest(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A verdict on stdout or stderr precedes the command's output there. */
static bool run_loop_is_flowing(const struct run_loop *loop, bool speaking) {
    return loop->child.piped && !(speaking && loop->verdict.fd <= STDERR_FILENO) &&
           (loop->phase == RUN_RUNNING || loop->phase == RUN_DRAINING);
}

/* Only the stream that poll(2) reports is read: this keeps the order between stdout and stderr as
   well as two pipes can. */
static void run_loop_turn(struct run_loop *loop) {
    struct pollfd fds[4] = {{.fd = loop->signals.fd, .events = POLLIN}};
    bool speaking = run_verdict_pending(&loop->verdict, &fds[1]);
    size_t first = speaking ? 2 : 1, n = first;
    int64_t now = idem_loop_now(), until, ms;
    struct cli_stream *streams[4];

    until = run_loop_earliest(run_loop_earliest(loop->kill_at, loop->end_by),
                              run_loop_earliest(loop->drain_by, loop->quit_by));
    ms = until == NEVER ? -1 : until > now ? until - now : 0;
    if (loop->phase == RUN_STARTING)
        ms = 0;
    for (int i = 0; run_loop_is_flowing(loop, speaking) && i < 2; i++) {
        streams[n] = &loop->child.streams[i];
        n += cli_stream_poll(streams[n], &fds[n]);
    }
    /* It fails only without kernel memory; a retry is all that can be done. */
    if (idem_poll_turn(loop->poll, fds, n, ms) < 0) {
        poll(NULL, 0, 50);
        return;
    }
    if (speaking && fds[1].revents != 0)
        run_verdict_pass(&loop->verdict);
    for (size_t i = first; i < n; i++)
        if (fds[i].revents != 0)
            cli_stream_turn(streams[i], &loop->result);
}

static void run_loop_advance(struct run_loop *loop) {
    int64_t now = idem_loop_now();

    run_loop_signals_read(loop);
    switch (loop->phase) {
    case RUN_CLAIMING:
        if (now >= loop->quit_by)
            run_loop_end(loop, 128 + loop->quit_signal);
        break;
    case RUN_STARTING:
        run_loop_start(loop);
        break;
    case RUN_RENEWING:
        if (loop->quit_signal != 0)
            run_loop_finish_release(loop, 128 + loop->quit_signal);
        break;
    case RUN_RUNNING:
        run_loop_watch(loop, now);
        break;
    case RUN_DRAINING:
        run_loop_drain(loop, now);
        break;
    default:
        break;
    }
}

/* A command that was interrupted from the keyboard ends idem by the same signal, so that a shell
   script around both stops as well. */
static void run_loop_quit_decide(struct run_loop *loop) {
    bool interrupted =
        loop->child.ended && loop->child.end.signalled && loop->child.end.number == SIGINT;

    if (loop->child.ended && !(loop->quit_signal == SIGINT && interrupted))
        loop->quit_signal = 0;
}

static void run_loop_claim_begin(struct run_loop *loop) {
    struct idem_error err;

    if (loop->h == NULL) {
        run_loop_claim_skip(loop);
        return;
    }
    if (idem_claim_make_fingerprinted(loop->h, loop->guard, &loop->args, &loop->fingerprint,
                                      claim_decided, loop, &loop->claim, &err) < 0) {
        run_loop_claim_fail(loop, &err);
        return;
    }
    idem_claim_start(loop->h, loop->claim);
    snprintf(loop->verdict.hash, sizeof(loop->verdict.hash), "%s", idem_claim_hash(loop->claim));
    idem_claim_on_lost(loop->claim, claim_lost, loop);
}

int run_loop_run(struct run_loop *loop) {
    loop->kill_at = loop->drain_by = loop->quit_by = loop->end_by = NEVER;
    loop->child.streams[0].from = loop->child.streams[1].from = -1;
    cli_result_init(&loop->result,
                    loop->policy->result_max > 0 ? (size_t)loop->policy->result_max : 0);
    run_loop_claim_begin(loop);
    while (loop->phase != RUN_OVER) {
        run_loop_turn(loop);
        run_loop_advance(loop);
    }
    idem_claim_free(loop->claim);
    run_loop_flush(loop);
    run_loop_faults_report(loop);
    run_loop_quit_decide(loop);
    child_release(&loop->child);
    cli_result_release(&loop->result);
    return loop->status;
}
