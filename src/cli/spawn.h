/*
 * Starts a program: what idem run and the handlers of a queue need of fork(2)
 * and exec(3).
 */
#ifndef IDEM_CLI_SPAWN_H
#define IDEM_CLI_SPAWN_H

#include <stdint.h>
#include <sys/types.h>

#include "cli/signals.h"

struct cli_spawn {
    char **argv;
    char **env;
    const struct cli_signals *signals; /* are put back as they were; NULL: none were taken */
    int fds[3];                        /* its stdin, stdout and stderr, above 2; -1: ours */
    bool own_group;                    /* a process group of its own */
    bool alone;        /* gets no other descriptor, also none that was left open on purpose */
    int die_with;      /* the signal it gets when we are killed; 0: none */
    int64_t not_after; /* on idem_loop_now(): later than that nothing is started */
    /* What must be in place before it begins; 0, or an errno, and then it never does. NULL: nothing
       must. */
    int (*prepare)(void *data, pid_t pid);
    void *data;
};

#define CLI_SPAWN_LATE (-1)

/*
 * 0 and its number, or an errno: why it could not be started, and nothing was;
 * or CLI_SPAWN_LATE. The signal of die_with comes when the calling thread ends:
 * that must be the one that lasts.
 */
int cli_spawn(const struct cli_spawn *how, pid_t *ret);

#endif
