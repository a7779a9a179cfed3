/*
 * One `idem run` from its claim to its exit status, on one loop:
 *
 *     CLAIMING --RUN--> STARTING --> RUNNING --ended--> DRAINING --> FINISHING --> OVER
 *        |               ^ |  |                                         ^           ^
 *        |               | |  +-- cannot be started, a signal: release -+           |
 *        |               | v                                            |           |
 *        |            RENEWING ---- lost, a signal: release ------------+           |
 *        +--- any other verdict, an error, a signal --------------------------------+
 *
 * RENEWING: so much time has passed since the claim (idem was stopped, the machine slept) that the
 * lease has expired, or nearly so. Nothing is started before the store confirms the lease.
 */
#ifndef IDEM_CLI_RUN_RUN_LOOP_H
#define IDEM_CLI_RUN_RUN_LOOP_H

#include <stdint.h>
#include <sys/types.h>

#include "cli/run/run_output.h"
#include "cli/run/run_verdict.h"
#include "loop/poll.h"
#include "loop/spawn.h"
#include "protocol/record.h"

/*
 * The command as a process: it is started, watched and signalled, and its end is recorded.
 */

struct cli_child {
    pid_t pid; /* 0: not started, or reaped */
    bool own_group;
    bool ended; /* ended, but not reaped before the last signal: its pid cannot be reused */
    bool piped;
    struct spawn_end end;
    struct cli_stream streams[2];
};

struct cli_start {
    char **argv;
    char **env;
    const struct signals *signals;
    bool piped;        /* idem reads its output; otherwise it inherits idem's stdout and stderr */
    bool own_group;    /* see child_start() in run_loop.c */
    int die_with;      /* the signal that it gets when idem itself is killed; 0: none */
    int64_t not_after; /* on idem_loop_now(): after that time nothing is started */
};

enum run_phase {
    RUN_CLAIMING,
    RUN_STARTING,
    RUN_RENEWING,
    RUN_RUNNING,
    RUN_DRAINING,
    RUN_FINISHING,
    RUN_OVER,
};

struct run_loop {
    /* Set by the caller of run_loop_run(). */
    const struct cli_values *values;
    struct idem_poll *poll;
    struct idem *h; /* NULL: no store, and the policy runs the command anyway */
    const struct idem_guard *guard;
    const struct idem_policy *policy;    /* the guard's policy, merged */
    struct idem_args args;               /* with the key itself */
    struct idem_fingerprint fingerprint; /* made with the key; all 0: it has none */
    struct signals signals;
    struct run_verdict verdict;
    char **argv;
    const char *planned; /* IDEM_AT, or NULL */
    bool tty;

    /* The state of the run. Times are on idem_loop_now(); INT64_MAX: not set. */
    enum run_phase phase;
    struct idem_claim *claim;
    struct cli_child child;
    struct cli_result result;
    struct cli_finish finish;
    int64_t kill_at;  /* when SIGKILL is due */
    int64_t drain_by; /* the end of DRAINING, if another process holds the pipes open */
    int64_t quit_by;  /* the end of CLAIMING, after a signal */
    int64_t end_by;   /* run_max of an unguarded run, which the claim does not count */
    int renewals;     /* of the lease, before the start */
    int quit_signal;  /* idem ends by this signal */
    bool asked;       /* a signal has asked the command to end */
    bool cancelled;   /* idem ended the command: lost lease, or run_max */
    bool timed_out;   /* cancelled by run_max */
    bool lost_early;  /* the lease was lost before the start */
    bool unguarded;   /* run without the store: nothing to finish */
    bool started;
    int status;          /* idem's exit status */
    char unstarted[512]; /* why the command was not started; empty after a signal */
};

/* The caller has taken the signals and opened the verdict. Returns the exit status; if quit_signal
   is set, idem should end by that signal instead. */
int run_loop_run(struct run_loop *loop);

#endif
