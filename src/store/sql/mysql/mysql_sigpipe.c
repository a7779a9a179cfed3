/*
 * Shields the host from the library's side effects. On first use the library sets SIGPIPE to be
 * ignored in the whole program. Its TLS writes can raise SIGPIPE, leave errors in the thread's
 * OpenSSL queue, and take errors that the host left there for their own.
 */
#include <openssl/err.h>
#include <pthread.h>
#include <time.h>

#include "store/sql/mysql/mysql.h"

static void sigpipe_init_library(void) {
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

    (void)pthread_once(&once, sigpipe_init_library);
}

static bool sigpipe_is_pending(void) {
    sigset_t set;

    return sigpending(&set) == 0 && sigismember(&set, SIGPIPE) == 1;
}

/* Without TLS the library writes with MSG_NOSIGNAL, and nothing is to be done. */
void maria_quiet_begin(struct maria_quiet *quiet, bool tls) {
    sigset_t pipe;

    quiet->tls = tls;
    if (!tls)
        return;
    ERR_clear_error();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    quiet->pending = sigpipe_is_pending();
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
    if (!quiet->pending && sigpipe_is_pending())
        (void)sigtimedwait(&pipe, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
}
