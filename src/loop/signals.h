/*
 * Signals of `idem run`: read from a descriptor in the loop, and restored for the command. Also
 * delays the signals that would end an operator's change.
 */
#ifndef IDEM_LOOP_SIGNALS_H
#define IDEM_LOOP_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

struct signals {
    int fd;
    sigset_t mask;                /* the mask before signals_open() */
    struct sigaction child, pipe; /* likewise */
};

/* Every command calls this first: a write beyond RLIMIT_FSIZE then fails and is reported like a
   full disk, instead of killing idem during the write. */
void signals_begin(void);

/* A change must not end between its two audit lines. Between defer and resume, INT, TERM and HUP
   are delayed in this thread and in the threads that it starts. */
void signals_defer(void);
bool signals_pending(void); /* a signal is pending: start nothing more */
void signals_resume(void);

/* True if idem has a controlling terminal, which does the job control. */
bool signals_has_tty(void);

/* Blocks the signals and opens the descriptor. `tty`: a terminal does the job control. 0, or -1
   with errno. */
int signals_open(struct signals *signals, bool tty);

/* Restores mask and dispositions, including SIGXFSZ. Async-signal-safe. */
void signals_restore(const struct signals *signals);

/* Unblocks the signals, except that SIGPIPE stays ignored. For use when no state is left that
   they could damage. */
void signals_unblock(const struct signals *signals);

void signals_release(struct signals *signals);

/* Reads the next signal; false if none is pending. */
bool signals_next(const struct signals *signals, struct signalfd_siginfo *ret);

#endif
