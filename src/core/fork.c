/*
 * Counts forks with pthread_atfork(). A child made by clone() directly is not
 * seen; such a program must open its own handles anyway.
 */
#include "core/fork.h"

#include <pthread.h>

static unsigned forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Runs in the child, where there is one thread. */
static void forked(void) {
    forks++;
}

static void watch(void) {
    (void)pthread_atfork(NULL, NULL, forked);
}

void idem_fork_watch(void) {
    (void)pthread_once(&once, watch);
}

unsigned idem_fork_count(void) {
    return forks;
}
