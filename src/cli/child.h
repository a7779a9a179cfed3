/*
 * The command as a process: started, watched, signalled, and its end told.
 */
#ifndef IDEM_CLI_CHILD_H
#define IDEM_CLI_CHILD_H

#include <sys/types.h>

#include "cli/spawn.h"
#include "cli/stream.h"

struct cli_child {
    pid_t pid; /* 0: not started, or reaped */
    bool own_group;
    bool ended; /* it is not reaped before the last signal: its number stays its own */
    bool piped;
    struct cli_end end;
    struct cli_stream streams[2];
};

struct cli_start {
    char **argv;
    char **env;
    const struct cli_signals *signals;
    bool piped;        /* take its output; otherwise it writes to ours */
    bool own_group;    /* see below */
    int die_with;      /* the signal it gets when idem itself is killed; 0: none */
    int64_t not_after; /* on idem_loop_now(): later than that nothing is started */
};

/*
 * 0, or an errno: why it could not be started, and nothing was; or
 * CLI_SPAWN_LATE.
 *
 * Its process group. Without a controlling terminal (cron, a service, CI) the
 * command gets a group of its own, so that ending it ends what it started, too.
 * With one, it stays in ours: a group of its own would be a background job,
 * stopped as soon as it reads the keyboard, and Ctrl-C would not reach it;
 * making it the foreground group instead would do the same to the rest of the
 * pipeline (`idem run ... | less`). Ctrl-C and Ctrl-Z then reach the command
 * and idem alike, and a lost lease ends the command's own process only.
 */
int cli_child_start(struct cli_child *child, const struct cli_start *how);

/* Whether there is a terminal that does the job control. */
bool cli_has_tty(void);

/* Signals it, or its group. After its end only a group of its own is still there to get one. */
void cli_child_signal(const struct cli_child *child, int sig);

/* Looks whether it has ended: sets `ended` and `end`. */
void cli_child_look(struct cli_child *child);

/* Reaps it, and frees everything; the streams must be over or are dropped. */
void cli_child_release(struct cli_child *child);

#endif
