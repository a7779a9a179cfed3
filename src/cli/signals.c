/*
 * Takes the signals that idem run passes on, and SIGCHLD. Fails where no
 * descriptor is left. Holds those that would end a change of operators' in its
 * middle.
 *
 * A signal that was ignored when idem was started (nohup, `&` in a script)
 * stays so, for idem and for the command. SIGPIPE is ignored meanwhile: a
 * reader that leaves early must not end idem before the finish is recorded. So
 * is SIGXFSZ: a store that may not grow is a store error, and no death.
 */
#include "cli/signals.h"

#include <errno.h>
#include <unistd.h>

static const int signals_passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static const struct sigaction ignore = {.sa_handler = SIG_IGN};
static struct sigaction found_xfsz;

void cli_signals_begin(void) {
    sigaction(SIGXFSZ, &ignore, &found_xfsz);
}

static bool is_ignored(int sig) {
    struct sigaction action;

    return sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static sigset_t held; /* by us, and not by who has started idem */

void cli_signals_hold(void) {
    static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t blocked;

    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
        if (!is_ignored(ending[i]) && !sigismember(&blocked, ending[i]))
            sigaddset(&held, ending[i]);
    sigprocmask(SIG_BLOCK, &held, NULL);
}

bool cli_signals_came(void) {
    sigset_t pending;

    sigpending(&pending);
    sigandset(&pending, &pending, &held);
    return !sigisemptyset(&pending);
}

void cli_signals_let(void) {
    sigprocmask(SIG_UNBLOCK, &held, NULL);
    sigemptyset(&held);
}

int cli_signals_take(struct cli_signals *signals, bool tty) {
    struct sigaction deflt = {.sa_handler = SIG_DFL};
    sigset_t taken;

    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    sigaddset(&taken, SIGCONT);
    for (size_t i = 0; i < sizeof(signals_passed) / sizeof(signals_passed[0]); i++)
        if (!is_ignored(signals_passed[i]))
            sigaddset(&taken, signals_passed[i]);
    /* With a terminal, Ctrl-Z stops idem and the command alike: nothing to pass on. */
    if (!tty && !is_ignored(SIGTSTP))
        sigaddset(&taken, SIGTSTP);
    signals->fd = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals->fd < 0)
        return -1;
    /* Where SIGCHLD is ignored, children vanish without a status. */
    sigaction(SIGCHLD, &deflt, &signals->child);
    sigaction(SIGPIPE, &ignore, &signals->pipe);
    sigprocmask(SIG_BLOCK, &taken, &signals->mask);
    return 0;
}

void cli_signals_restore(const struct cli_signals *signals) {
    sigaction(SIGCHLD, &signals->child, NULL);
    sigaction(SIGPIPE, &signals->pipe, NULL);
    sigaction(SIGXFSZ, &found_xfsz, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}

void cli_signals_unblock(const struct cli_signals *signals) {
    sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}

void cli_signals_release(struct cli_signals *signals) {
    cli_signals_restore(signals);
    sigaction(SIGXFSZ, &ignore, NULL); /* the store is still to be closed, and writes then */
    close(signals->fd);
    signals->fd = -1;
}

bool cli_signals_next(const struct cli_signals *signals, struct signalfd_siginfo *ret) {
    ssize_t n;

    do
        n = read(signals->fd, ret, sizeof(*ret));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(*ret);
}
