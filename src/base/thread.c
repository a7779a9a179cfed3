/*
 * Starts threads. A thread inherits the mask of the one that creates it.
 */
#include "base/thread.h"

#include <signal.h>

int idem_thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *data),
                      void *data) {
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(ret, attr, run, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
