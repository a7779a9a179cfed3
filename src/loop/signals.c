/*
 * Takes SIGCHLD and the signals that idem run forwards; delays signals that would interrupt an
 * operator's change. Fails if no descriptor is left.
 *
 * A signal that was ignored when idem was started (nohup, `&` in a script) stays ignored, for idem
 * and for the command. SIGPIPE is ignored while idem runs: a reader that closes early must not end
 * idem before the finish is recorded. So is SIGXFSZ: a store that may not grow is a store error
 * and must not kill idem.
 */
#include "loop/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const int signals_passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static const struct sigaction ignore = {.sa_handler = SIG_IGN};
static struct sigaction found_xfsz;

void signals_begin(void) {
    sigaction(SIGXFSZ, &ignore, &found_xfsz);
}

static bool signals_is_ignored(int sig) {
    struct sigaction action;

    return sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static sigset_t held; /* blocked here, and not by the parent of idem */

void signals_defer(void) {
    static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t blocked;

    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
        if (!signals_is_ignored(ending[i]) && !sigismember(&blocked, ending[i]))
            sigaddset(&held, ending[i]);
    sigprocmask(SIG_BLOCK, &held, NULL);
}

bool signals_pending(void) {
    sigset_t pending;

    sigpending(&pending);
    sigandset(&pending, &pending, &held);
    return !sigisemptyset(&pending);
}

void signals_resume(void) {
    sigprocmask(SIG_UNBLOCK, &held, NULL);
    sigemptyset(&held);
}

bool signals_has_tty(void) {
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return false;
    close(fd);
    return true;
}

int signals_open(struct signals *signals, bool tty) {
    struct sigaction deflt = {.sa_handler = SIG_DFL};
    sigset_t taken;

    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    sigaddset(&taken, SIGCONT);
    for (size_t i = 0; i < sizeof(signals_passed) / sizeof(signals_passed[0]); i++)
        if (!signals_is_ignored(signals_passed[i]))
            sigaddset(&taken, signals_passed[i]);
    /* With a terminal, Ctrl-Z stops idem and the command alike: nothing to forward. */
    if (!tty && !signals_is_ignored(SIGTSTP))
        sigaddset(&taken, SIGTSTP);
    signals->fd = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals->fd < 0)
        return -1;
    /* While SIGCHLD is ignored, children vanish without a status. */
    sigaction(SIGCHLD, &deflt, &signals->child);
    sigaction(SIGPIPE, &ignore, &signals->pipe);
    sigprocmask(SIG_BLOCK, &taken, &signals->mask);
    return 0;
}

void signals_restore(const struct signals *signals) {
    sigaction(SIGCHLD, &signals->child, NULL);
    sigaction(SIGPIPE, &signals->pipe, NULL);
    sigaction(SIGXFSZ, &found_xfsz, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}

void signals_unblock(const struct signals *signals) {
    sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}

void signals_release(struct signals *signals) {
    signals_restore(signals);
    sigaction(SIGXFSZ, &ignore, NULL); /* the store is still open, and its close may write */
    close(signals->fd);
    signals->fd = -1;
}

bool signals_next(const struct signals *signals, struct signalfd_siginfo *ret) {
    ssize_t n;

    do
        n = read(signals->fd, ret, sizeof(*ret));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(*ret);
}
