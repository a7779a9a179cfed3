/*
 * Counts forks with pthread_atfork(). A child that is created by clone() directly is not counted;
 * such a program must open its own handles anyway.
 */
#include "base/fork.h"

#include <pthread.h>

static unsigned forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Runs in the child, which has one thread. */
static void fork_count_child(void) {
    forks++;
}

static void fork_watch_once(void) {
    (void)pthread_atfork(NULL, NULL, fork_count_child);
}

void idem_fork_watch(void) {
    (void)pthread_once(&once, fork_watch_once);
}

unsigned idem_fork_count(void) {
    return forks;
}
