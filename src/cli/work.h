/*
 * One `idem run` from its claim to its exit status, on one loop:
 *
 *     CLAIMING --RUN--> STARTING --> RUNNING --ended--> DRAINING --> FINISHING --> OVER
 *        |                 |                                            ^           ^
 *        |                 +--- cannot be started: release -------------+           |
 *        +--- any other verdict, an error, a signal --------------------------------+
 */
#ifndef IDEM_CLI_WORK_H
#define IDEM_CLI_WORK_H

#include "cli/child.h"
#include "cli/verdict.h"
#include "loop/poll.h"

enum work_phase {
    WORK_CLAIMING,
    WORK_STARTING,
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
    int64_t begun;    /* all on idem_loop_now(); INT64_MAX: not set */
    int64_t kill_at;  /* SIGKILL */
    int64_t drain_by; /* its pipes are held open by somebody else */
    int64_t quit_by;  /* asked to quit before anything ran */
    int64_t end_by;   /* run_max of an unguarded run, which nobody else counts */
    int quit_signal;  /* to die by, at the end */
    bool cancelled;   /* we ended it: the lease was lost, or run_max is over */
    bool timed_out;   /* the latter */
    bool lost_early;  /* the lease was lost before it was started */
    bool unguarded;   /* the store was not there: nothing to finish */
    int status;       /* the exit status */
};

/* Returns the exit status; with quit_signal set, idem should die by that instead. */
int cli_work(struct work *work);

#endif
