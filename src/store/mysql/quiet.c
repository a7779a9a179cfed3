/*
 * What the library would do to the host: it has SIGPIPE ignored by the whole program when it is
 * first used, and its TLS writes without asking that signal to stay away, and leaves errors in the
 * thread's queue of OpenSSL's, or takes what the host left there for its own.
 */
#include <openssl/err.h>
#include <pthread.h>
#include <time.h>

#include "store/mysql/mysql.h"

static void library_init(void) {
    struct sigaction before, after;

    sigaction(SIGPIPE, NULL, &before);
    (void)mysql_library_init(0, NULL, NULL);
    sigaction(SIGPIPE, NULL, &after);
    if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_IGN)
        if ((after.sa_flags & SA_SIGINFO) == 0 && after.sa_handler == SIG_IGN)
            sigaction(SIGPIPE, &before, NULL);
}

void maria_library_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, library_init);
}

static bool is_pending(void) {
    sigset_t set;

    return sigpending(&set) == 0 && sigismember(&set, SIGPIPE) == 1;
}

/* Without TLS the library writes with MSG_NOSIGNAL. */
void maria_quiet_begin(struct maria_quiet *quiet, bool tls) {
    sigset_t pipe;

    quiet->tls = tls;
    if (!tls)
        return;
    ERR_clear_error();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    quiet->pending = is_pending();
    pthread_sigmask(SIG_BLOCK, &pipe, &quiet->before);
}

void maria_quiet_end(const struct maria_quiet *quiet) {
    static const struct timespec now;
    sigset_t pipe;

    if (!quiet->tls)
        return;
    ERR_clear_error();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!quiet->pending && is_pending())
        (void)sigtimedwait(&pipe, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
}
