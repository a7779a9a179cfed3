/*
 * The command as a process: it is started, watched and signalled, and its end is recorded.
 */
#ifndef IDEM_CLI_RUN_RUN_CHILD_H
#define IDEM_CLI_RUN_RUN_CHILD_H

#include <sys/types.h>

#include "cli/run/run_stream.h"
#include "loop/spawn.h"

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
    bool own_group;    /* see below */
    int die_with;      /* the signal that it gets when idem itself is killed; 0: none */
    int64_t not_after; /* on idem_loop_now(): after that time nothing is started */
};

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
int cli_child_start(struct cli_child *child, const struct cli_start *how);

/* True if idem has a controlling terminal, which does the job control. */
bool cli_has_tty(void);

/* Signals the command, or its group. After the command's end only a group of its own can still
   receive a signal. */
void cli_child_signal(const struct cli_child *child, int sig);

/* Checks without waiting if the command has ended; sets `ended` and `end`. */
void cli_child_look(struct cli_child *child);

/* Reaps the command and frees everything. A stream that is not at its end is dropped. */
void cli_child_release(struct cli_child *child);

#endif
