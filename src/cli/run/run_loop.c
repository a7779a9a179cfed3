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

#include "cli/run/run_output.h"
#include "core/claim.h"
#include "loop/loop.h"

/*
 * Builds the command's environment. Variables from an enclosing `idem run` are left out: they
 * describe another command. Fails only without memory.
 */

static const char *const names[] = {"IDEM_KEY=", "IDEM_ATTEMPT=", "IDEM_AT="};
#define NAMES_N (sizeof(names) / sizeof(names[0]))

static bool run_environment_is_own(const char *variable) {
    for (size_t i = 0; i < NAMES_N; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
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
    env = calloc(n + NAMES_N + 1, sizeof(*env));
    if (env == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (!run_environment_is_own(environ[i]))
            env[at++] = environ[i];
    snprintf(number, sizeof(number), "%" PRIu32, attempt);
    if (run_environment_append(env, &at, names[0], key) &&
        run_environment_append(env, &at, names[1], number) &&
        (planned == NULL || run_environment_append(env, &at, names[2], planned)))
        return env;
    run_environment_free(env);
    return NULL;
}

/*
 * Starts and watches the command. Starting fails as pipe(2) and spawn_start() do.
 */

bool cli_has_tty(void) {
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return false;
    close(fd);
    return true;
}

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

    if (!cli_replay(answer->result, answer->result_len, &end, &fault)) {
        cli_message(
            "replay: the stored result is not one of a command: another front door has stored "
            "it, or a newer version; it ended with status %d",
            (int)answer->status);
        return CLI_STORE;
    }
    if (fault.why == 0)
        return spawn_end_status(&end);
    cli_message("replay: cannot write to %s: %s; the command itself has ended with status %d",
                fault.stream == 1 ? "stdout" : "stderr", strerror(fault.why),
                spawn_end_status(&end));
    return CLI_IO;
}

static int work_duplicate_report(const struct work *work, const struct idem_answer *answer) {
    char name[CLI_VOICE_NAME];

    if (work->policy->mode != IDEM_MODE_REPLAY)
        cli_voice_refusal(&work->voice, answer);
    else if (!work->voice.quiet)
        cli_message(
            "duplicate: %s has run already (attempt %u) and ended with status %d; its output "
            "was not kept, being longer than result_max or settled by an operator",
            cli_voice_name(&work->voice, name, sizeof(name)), (unsigned)answer->attempt,
            (int)answer->status);
    if (work->values->duplicate_exit >= 0)
        return (int)work->values->duplicate_exit;
    return work->policy->mode == IDEM_MODE_REPLAY ? answer_exit_status(answer->status) : CLI_OK;
}

/* Returns the exit status. */
static int work_verdict_report(const struct work *work, const struct idem_answer *answer) {
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

static void work_phase_set(struct work *work, enum work_phase phase) {
    work->phase = phase;
}

static void work_end(struct work *work, int status) {
    work->status = status;
    work_phase_set(work, WORK_OVER);
}

/* Pending output. */

static size_t work_pending(struct work *work, struct pollfd fds[3]) {
    size_t n = 0;

    n += cli_voice_pending(&work->voice, &fds[n]);
    for (int i = 0; work->child.piped && i < 2; i++)
        n += cli_stream_pending(&work->child.streams[i], &fds[n]);
    return n;
}

static size_t work_bytes_left(const struct work *work) {
    const struct cli_stream *streams = work->child.streams;

    return work->voice.len - work->voice.at + streams[0].len - streams[0].at + streams[1].len -
           streams[1].at;
}

/* Nothing is held any more, so idem waits for its readers; signals act at once. */
static void work_flush(struct work *work) {
    int64_t by = idem_loop_now() + DRAIN_MS;
    bool hurried = work->cancelled || work->asked;
    struct pollfd fds[3];
    size_t n, before;

    signals_unblock(&work->signals);
    while ((n = work_pending(work, fds)) != 0 && (!hurried || idem_loop_now() < by)) {
        poll(fds, n, hurried ? DRAIN_MS : -1);
        before = work_bytes_left(work);
        cli_voice_pass(&work->voice);
        for (int i = 0; work->child.piped && i < 2; i++)
            cli_stream_pass(&work->child.streams[i]);
        if (work_bytes_left(work) != before)
            by = idem_loop_now() + DRAIN_MS;
    }
}

static void work_faults_report(const struct work *work) {
    for (int i = 0; work->child.piped && i < 2; i++)
        if (work->child.streams[i].fault != 0)
            cli_message("cannot write to %s any more: %s; the command has gone on",
                        i == 0 ? "stdout" : "stderr", strerror(work->child.streams[i].fault));
}

/* The claim. */

static void work_claim_fail(struct work *work, const struct idem_error *err) {
    signals_unblock(&work->signals);
    work_end(work, cli_voice_error(&work->voice, err));
}

static void claim_decided(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                          const struct idem_error *err, void *data) {
    struct work *work = data;

    (void)claim;
    if (rc < 0) {
        work_claim_fail(work, err);
        return;
    }
    cli_voice_verdict(&work->voice, answer);
    if (answer->verdict != IDEM_RUN) {
        work_flush(work);
        work_end(work, work_verdict_report(work, answer));
        return;
    }
    if (answer->unguarded)
        cli_message("unguarded: the store is not there, and on_store_error=open runs it anyway");
    work->unguarded = answer->unguarded;
    work->finish.attempt = answer->attempt;
    if (answer->unguarded && work->policy->run_max_ms != IDEM_NONE)
        work->end_by = idem_loop_now() + work->policy->run_max_ms;
    work_phase_set(work, WORK_STARTING);
}

/* The store could not be opened, and the policy ignores that. */
static void work_claim_skip(struct work *work) {
    struct idem_answer answer = {.verdict = IDEM_RUN, .unguarded = true};

    claim_decided(NULL, 0, &answer, NULL, work);
}

/* The finish. */

/* Reports why the command was not started, and the state of its key. */
static void work_unstarted_report(const struct work *work) {
    const char *key = "the key is free again";

    if (work->finish.how == IDEM_FINISH_LOST)
        key = "another process has taken the key over";
    else if (work->finish.how == IDEM_FINISH_UNKNOWN && !work->unguarded)
        key = "the key is free when its lease is over, or to be settled";
    if (work->unstarted[0] != '\0')
        cli_message("%s; nothing was run, and %s", work->unstarted, key);
}

static void work_finish_report(struct work *work) {
    char name[CLI_VOICE_NAME];

    cli_voice_name(&work->voice, name, sizeof(name));
    if (!work->started)
        work_unstarted_report(work);
    else if (work->finish.how == IDEM_FINISH_LOST)
        cli_message("lost: %s: the lease was lost while the command ran (attempt %u), and another "
                    "process may have run it; it ended with status %d, and nothing was stored",
                    name, (unsigned)work->finish.attempt, work->finish.status);
    else if (work->finish.how == IDEM_FINISH_UNKNOWN)
        cli_message(
            "unstored: %s: the command ended with status %d, but the store did not take it; "
            "see idem show --hash %.*s before it is run again",
            name, work->finish.status, CLI_HASH_SHORT, work->voice.hash);
    else if (work->cancelled)
        cli_message(
            "uncertain: %s: the command was ended after %s (attempt %u); it may have happened",
            name, work->timed_out ? "run_max" : "its lease was over",
            (unsigned)work->finish.attempt);
}

static void claim_finished(struct idem_claim *claim, int rc, bool lost,
                           const struct idem_error *err, void *data) {
    struct work *work = data;

    (void)claim;
    work->finish.how = lost ? IDEM_FINISH_LOST : rc < 0 ? IDEM_FINISH_UNKNOWN : IDEM_FINISH_STORED;
    cli_voice_finish(&work->voice, &work->finish);
    signals_unblock(&work->signals);
    work_finish_report(work);
    if (rc < 0 && !lost)
        cli_message("store: %s", err->text);
    if (work->finish.how == IDEM_FINISH_LOST)
        work_end(work, CLI_LOST);
    else if (work->finish.how == IDEM_FINISH_UNKNOWN)
        work_end(work, CLI_STORE);
    else
        work_end(work, work->cancelled ? CLI_UNCERTAIN : work->finish.status);
}

/* Begins one of the four finishes; `operation` is its name on the verdict descriptor. */
static void work_finish_begin(struct work *work, const char *operation, int rc) {
    work->finish.action = operation;
    work_phase_set(work, WORK_FINISHING);
    if (rc < 0) {
        struct idem_error err = {.code = rc};

        snprintf(err.text, sizeof(err.text), "the finish could not be sent (%s)",
                 idem_code_name(rc));
        claim_finished(work->claim, rc, false, &err, work);
    }
}

/* The store has no record of an unguarded run. */
static void work_finish_unguarded(struct work *work) {
    work->finish.action = "none";
    work->finish.how = IDEM_FINISH_UNKNOWN;
    cli_voice_finish(&work->voice, &work->finish);
    signals_unblock(&work->signals);
    if (!work->started)
        work_unstarted_report(work);
    work_end(work, work->cancelled ? CLI_UNCERTAIN : work->finish.status);
}

static void work_finish_release(struct work *work, int status) {
    work->finish.status = status;
    if (work->unguarded) {
        work_finish_unguarded(work);
        return;
    }
    work_finish_begin(work, "release", idem_claim_release(work->claim, claim_finished, work));
}

/* Sends done or failed, with the result that was kept. Without memory for the result, the outcome
   alone is still worth storing. */
static int work_finish_send(struct work *work, const char *reason, const void *result, size_t len) {
    bool final = work->policy->on_failure == IDEM_ON_FAILURE_KEEP;
    int rc;

    if (reason == NULL)
        rc = idem_claim_done(work->claim, 0, result, len, claim_finished, work);
    else
        rc = idem_claim_fail(work->claim, work->finish.status, reason, result, len, final,
                             claim_finished, work);
    return rc == IDEM_E_NOMEM && result != NULL ? work_finish_send(work, reason, NULL, 0) : rc;
}

static void work_finish_result(struct work *work) {
    const struct spawn_end *end = &work->child.end;
    bool kept = work->child.piped && cli_result_end(&work->result, end);
    bool done = work->finish.status == 0;
    char reason[64];

    snprintf(reason, sizeof(reason), end->signalled ? "died by signal %d" : "exit status %d",
             end->number);
    work_finish_begin(work, done ? "done" : "fail",
                      work_finish_send(work, done ? NULL : reason,
                                       kept ? work->result.bytes.at : NULL,
                                       kept ? work->result.bytes.len : 0));
}

static void work_finish(struct work *work) {
    work->finish.status = spawn_end_status(&work->child.end);
    work->drain_by = work->end_by = NEVER; /* expired deadlines must not keep the loop awake */
    if (work->unguarded)
        work_finish_unguarded(work);
    else if (work->cancelled)
        /* idem ended the command: it may have had its effect, whatever its exit status. */
        work_finish_begin(work, "unknown",
                          idem_claim_unknown(work->claim,
                                             work->timed_out ? "ended after run_max"
                                                             : "ended because its lease was lost",
                                             claim_finished, work));
    else if (work->finish.status != 0 && work->policy->on_failure == IDEM_ON_FAILURE_RELEASE)
        work_finish_release(work, work->finish.status);
    else
        work_finish_result(work);
}

/* The command. */

static void claim_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    struct work *work = data;

    (void)claim;
    work->lost_early = work->phase == WORK_STARTING;
    if (work->phase != WORK_RUNNING)
        return;
    /* After the command's end there is nothing to stop: the store decides if the finish counts. */
    child_check_end(&work->child);
    if (work->child.ended)
        return;
    work->cancelled = true;
    work->timed_out = why == IDEM_END_RUN_MAX;
    child_signal(&work->child, SIGTERM);
    child_signal(&work->child, SIGCONT); /* a stopped process would never see the SIGTERM */
    work->kill_at = idem_loop_now() + work->values->kill_after_ms;
}

__attribute__((format(printf, 3, 4))) static void work_start_refuse(struct work *work, int status,
                                                                    const char *why, ...) {
    va_list args;

    va_start(args, why);
    vsnprintf(work->unstarted, sizeof(work->unstarted), why, args);
    va_end(args);
    work_finish_release(work, status);
}

static void work_start_lost(struct work *work) {
    work_start_refuse(work, CLI_LOST,
                      "lost: the lease was over before the command was started (attempt %u)",
                      (unsigned)work->finish.attempt);
}

static void claim_renewed(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                          void *data) {
    struct work *work = data;

    (void)claim;
    if (rc < 0)
        work_start_refuse(work, CLI_STORE,
                          "the lease could not be renewed before the start: %.300s", err->text);
    else if (lost)
        work_start_lost(work);
    else
        work_phase_set(work, WORK_STARTING);
}

/* Only the store knows if the lease still holds: even under recover = hold an operator may have
   settled a run that seemed to have vanished, and another caller may have run it since. */
static void work_renew(struct work *work) {
    if (work->renewals++ == RENEWALS_MAX)
        work_start_refuse(work, CLI_STORE, "the store answers too slowly for a lease of %lld ms",
                          (long long)work->policy->lease_ms);
    else if (idem_claim_renew(work->claim, claim_renewed, work) < 0)
        work_start_lost(work);
    else
        work_phase_set(work, WORK_RENEWING);
}

static bool work_lease_is_short(const struct work *work) {
    int64_t least = work->renewals == 0 ? work->policy->lease_ms / 2 : 0;

    return !work->unguarded && idem_claim_lease_until(work->claim) - idem_loop_now() <= least;
}

static void work_start_fail(struct work *work, int why) {
    int status = why == ENOENT || why == ENOTDIR ? CLI_NOT_FOUND
                 : why == EAGAIN || why == ENOMEM || why == EMFILE || why == ENFILE
                     ? CLI_SYSTEM
                     : CLI_NOT_EXECUTABLE;

    work_start_refuse(work, status, "the command cannot be started: %s", strerror(why));
}

static void work_start_command(struct work *work) {
    struct cli_start how = {
        .argv = work->argv,
        .signals = &work->signals,
        .piped = work->policy->mode == IDEM_MODE_REPLAY,
        .own_group = !work->tty,
        /* Under rerun another caller runs it as soon as the lease expires: the command must not
           outlive its guard. Under hold no other caller does, and finished work is better than half
           of it. */
        .die_with = work->policy->recover == IDEM_RECOVER_RERUN ? SIGTERM : 0,
        .not_after = work->unguarded ? NEVER : idem_claim_lease_until(work->claim),
    };
    int why;

    how.env = run_environment_new(work->args.key, work->finish.attempt, work->planned);
    if (how.env == NULL) {
        work_start_fail(work, ENOMEM);
        return;
    }
    why = child_start(&work->child, &how);
    run_environment_free(how.env);
    if (why == SPAWN_LATE)
        return;
    if (why != 0) {
        work_start_fail(work, why);
        return;
    }
    work->started = true;
    work_phase_set(work, WORK_RUNNING);
}

static void work_start(struct work *work) {
    if (work->lost_early)
        work_start_lost(work);
    else if (work->quit_signal != 0)
        work_finish_release(work, 128 + work->quit_signal);
    else if (work_lease_is_short(work))
        work_renew(work);
    else
        work_start_command(work);
}

static void work_drain(struct work *work, int64_t now) {
    struct cli_stream *streams = work->child.streams;

    if (work->child.piped && now < work->drain_by &&
        !(cli_stream_over(&streams[0]) && cli_stream_over(&streams[1])))
        return;
    for (int i = 0; work->child.piped && i < 2; i++)
        cli_stream_sweep(&streams[i], &work->result);
    /* Processes that the command started must not go on either, once another caller may run it. */
    if (work->cancelled)
        child_signal(&work->child, SIGKILL);
    work_finish(work);
}

static void work_watch(struct work *work, int64_t now) {
    child_check_end(&work->child);
    if (work->child.ended) {
        work->kill_at = NEVER;
        work->drain_by = now + DRAIN_MS;
        work_phase_set(work, WORK_DRAINING);
        work_drain(work, now);
    } else if (now >= work->kill_at) {
        child_signal(&work->child, SIGKILL);
        work->kill_at = NEVER;
    } else if (now >= work->end_by) {
        work->end_by = NEVER;
        claim_lost(NULL, IDEM_END_RUN_MAX, work);
    }
}

/* Signals. */

/* A signal from the keyboard: the kernel sends it to the whole group, the command included. */
static bool work_signal_is_shared(const struct work *work, const struct signalfd_siginfo *info) {
    return !work->child.own_group && info->ssi_code == SI_KERNEL;
}

static void work_signal_handle(struct work *work, const struct signalfd_siginfo *info) {
    int sig = (int)info->ssi_signo;

    if (sig == SIGCHLD)
        return;
    if (work->phase == WORK_RUNNING && !work_signal_is_shared(work, info))
        child_signal(&work->child, sig);
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

static void work_signals_read(struct work *work) {
    struct signalfd_siginfo info;

    while (signals_next(&work->signals, &info))
        work_signal_handle(work, &info);
}

/* The loop. */

static int64_t run_loop_earliest(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A verdict on stdout or stderr precedes the command's output there. */
static bool work_is_flowing(const struct work *work, bool speaking) {
    return work->child.piped && !(speaking && work->voice.fd <= STDERR_FILENO) &&
           (work->phase == WORK_RUNNING || work->phase == WORK_DRAINING);
}

/* Only the stream that poll(2) reports is read: this keeps the order between stdout and stderr as
   well as two pipes can. */
static void work_turn(struct work *work) {
    struct pollfd fds[4] = {{.fd = work->signals.fd, .events = POLLIN}};
    bool speaking = cli_voice_pending(&work->voice, &fds[1]);
    size_t first = speaking ? 2 : 1, n = first;
    int64_t now = idem_loop_now(), until, ms;
    struct cli_stream *streams[4];

    until = run_loop_earliest(run_loop_earliest(work->kill_at, work->end_by),
                              run_loop_earliest(work->drain_by, work->quit_by));
    ms = until == NEVER ? -1 : until > now ? until - now : 0;
    if (work->phase == WORK_STARTING)
        ms = 0;
    for (int i = 0; work_is_flowing(work, speaking) && i < 2; i++) {
        streams[n] = &work->child.streams[i];
        n += cli_stream_poll(streams[n], &fds[n]);
    }
    /* It fails only without kernel memory; a retry is all that can be done. */
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

static void work_advance(struct work *work) {
    int64_t now = idem_loop_now();

    work_signals_read(work);
    switch (work->phase) {
    case WORK_CLAIMING:
        if (now >= work->quit_by)
            work_end(work, 128 + work->quit_signal);
        break;
    case WORK_STARTING:
        work_start(work);
        break;
    case WORK_RENEWING:
        if (work->quit_signal != 0)
            work_finish_release(work, 128 + work->quit_signal);
        break;
    case WORK_RUNNING:
        work_watch(work, now);
        break;
    case WORK_DRAINING:
        work_drain(work, now);
        break;
    default:
        break;
    }
}

/* A command that was interrupted from the keyboard ends idem by the same signal, so that a shell
   script around both stops as well. */
static void work_quit_decide(struct work *work) {
    bool interrupted =
        work->child.ended && work->child.end.signalled && work->child.end.number == SIGINT;

    if (work->child.ended && !(work->quit_signal == SIGINT && interrupted))
        work->quit_signal = 0;
}

static void work_claim_begin(struct work *work) {
    struct idem_error err;

    if (work->h == NULL) {
        work_claim_skip(work);
        return;
    }
    if (idem_claim_make_fingerprinted(work->h, work->guard, &work->args, &work->fingerprint,
                                      claim_decided, work, &work->claim, &err) < 0) {
        work_claim_fail(work, &err);
        return;
    }
    idem_claim_start(work->h, work->claim);
    snprintf(work->voice.hash, sizeof(work->voice.hash), "%s", idem_claim_hash(work->claim));
    idem_claim_on_lost(work->claim, claim_lost, work);
}

int cli_work(struct work *work) {
    work->kill_at = work->drain_by = work->quit_by = work->end_by = NEVER;
    work->child.streams[0].from = work->child.streams[1].from = -1;
    cli_result_init(&work->result,
                    work->policy->result_max > 0 ? (size_t)work->policy->result_max : 0);
    work_claim_begin(work);
    while (work->phase != WORK_OVER) {
        work_turn(work);
        work_advance(work);
    }
    idem_claim_free(work->claim);
    work_flush(work);
    work_faults_report(work);
    work_quit_decide(work);
    child_release(&work->child);
    cli_result_release(&work->result);
    return work->status;
}
