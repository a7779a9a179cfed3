/*
 * Starts a program for idem run and for the handlers of a queue, by fork(2) and exec(3).
 */
#ifndef IDEM_LOOP_SPAWN_H
#define IDEM_LOOP_SPAWN_H

#include <stdint.h>
#include <sys/types.h>

#include "loop/signals.h"

/* The end of a program. */
struct spawn_end {
    bool signalled;
    int number; /* exit status, or signal number */
};

/* The exit status in a shell: 128 + N for signal N. */
static inline int spawn_end_status(const struct spawn_end *end) {
    return end->signalled ? 128 + end->number : end->number;
}

struct spawn {
    char **argv;
    char **env;
    const struct signals *signals; /* restored in the child; NULL: none were taken */
    int fds[3];        /* for its stdin, stdout and stderr, each above 2; -1: the caller's */
    bool own_group;    /* run in a new process group */
    bool alone;        /* inherit no other descriptor, not even one without O_CLOEXEC */
    int die_with;      /* the signal for the program when the calling thread ends; 0: none */
    int64_t not_after; /* on idem_loop_now(): after this time the program is not started */
    /* Runs in the parent before the program may start. Returns 0, or an errno, and the program
       never starts. NULL: nothing to prepare. */
    int (*prepare)(void *data, pid_t pid);
    void *data;
};

#define SPAWN_LATE (-1)

/*
 * Starts the program. 0 with its process id in *ret; an errno if it could not be started; or
 * SPAWN_LATE. The signal of die_with is sent when the calling thread ends, so that thread must
 * live as long as the program.
 */
int spawn_start(const struct spawn *how, pid_t *ret);

#endif
