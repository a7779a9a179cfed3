/*
 * Signals of `idem run`: read from a descriptor, so that they take their turn in
 * the loop, and put back as they were for the command. And those that end what
 * operators do.
 */
#ifndef IDEM_CLI_SIGNALS_H
#define IDEM_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

struct cli_signals {
    int fd;
    sigset_t mask;                /* as it was before */
    struct sigaction child, pipe; /* the same */
};

/* For every command, before anything else: a write beyond RLIMIT_FSIZE fails, and is told like a
   full disk, instead of ending idem in the middle of it. */
void cli_signals_begin(void);

/* A change is not ended between its two lines of the audit: INT, TERM and HUP wait from hold to
   let, in this thread and in those that it starts meanwhile, and act then. */
void cli_signals_hold(void);
bool cli_signals_came(void); /* one is waiting: nothing more should be begun */
void cli_signals_let(void);

/* Blocks them and opens the descriptor; `tty` says that a terminal does the job control. 0, or -1
   with errno. */
int cli_signals_take(struct cli_signals *signals, bool tty);

/* Puts mask and dispositions back as they were found, SIGXFSZ included. Async-signal-safe. */
void cli_signals_restore(const struct cli_signals *signals);

/* Lets signals act again, SIGPIPE excepted: nothing is held any more that they could spoil. */
void cli_signals_unblock(const struct cli_signals *signals);

void cli_signals_release(struct cli_signals *signals);

/* The next one that came; false if there is none. */
bool cli_signals_next(const struct cli_signals *signals, struct signalfd_siginfo *ret);

#endif
