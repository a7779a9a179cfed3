/*
 * One `idem run` from its claim to its exit status, on one loop:
 *
 *     CLAIMING --RUN--> STARTING --> RUNNING --ended--> DRAINING --> FINISHING --> OVER
 *        |               ^ |  |                                         ^           ^
 *        |               | |  +--- cannot be started, a signal: release-+           |
 *        |               | v                                            |           |
 *        |            RENEWING ---- lost, a signal: release ------------+           |
 *        +--- any other verdict, an error, a signal --------------------------------+
 *
 * RENEWING: so much time has passed since the claim (idem was stopped, the
 * machine slept) that the lease is over, or nearly. Nothing is started before
 * the store has said that it is still ours.
 */
#ifndef IDEM_CLI_WORK_H
#define IDEM_CLI_WORK_H

#include "cli/child.h"
#include "cli/verdict.h"
#include "loop/poll.h"

enum work_phase {
    WORK_CLAIMING,
    WORK_STARTING,
    WORK_RENEWING,
    WORK_RUNNING,
    WORK_DRAINING,
    WORK_FINISHING,
    WORK_OVER,
};

struct work {
    /* Set before cli_work(). */
    const struct cli_values *values;
    struct idem_poll *poll;
    struct idem *h; /* NULL: there is no store, and it is to be run all the same */
    const struct idem_guard *guard;
    const struct idem_policy *policy; /* the guard's, merged */
    struct idem_args args;
    struct cli_signals signals;
    struct cli_voice voice;
    char **argv;
    const char *planned; /* IDEM_AT, or NULL */
    bool tty;

    /* While it goes on. */
    enum work_phase phase;
    struct idem_claim *claim;
    struct cli_child child;
    struct cli_result result;
    struct cli_finish finish;
    int64_t kill_at;  /* SIGKILL; all on idem_loop_now(); INT64_MAX: not set */
    int64_t drain_by; /* its pipes are held open by somebody else */
    int64_t quit_by;  /* asked to quit before anything ran */
    int64_t end_by;   /* run_max of an unguarded run, which nobody else counts */
    int renewals;     /* before the start */
    int quit_signal;  /* to die by, at the end */
    bool asked;       /* a signal has asked it to end */
    bool cancelled;   /* we ended it: the lease was lost, or run_max is over */
    bool timed_out;   /* the latter */
    bool lost_early;  /* the lease was lost before it was started */
    bool unguarded;   /* the store was not there: nothing to finish */
    bool started;
    int status;          /* the exit status */
    char unstarted[512]; /* why it was not, where nobody asked for that */
};

/* Signals are taken, and the voice is open. Returns the exit status; with quit_signal set, idem
 * should die by that instead. */
int cli_work(struct work *work);

#endif
