/*
 * Detects whether the process was forked. Cheaper at each call than getpid(), which is a system
 * call.
 */
#ifndef IDEM_BASE_FORK_H
#define IDEM_BASE_FORK_H

/* Returns the number of forks between the first process and this one; never fails. */
unsigned idem_fork_count(void);

/* Starts the count. Each function that opens a resource which a child must not inherit calls it. */
void idem_fork_watch(void);

#endif
