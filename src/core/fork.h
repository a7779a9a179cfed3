/*
 * Whether the process was forked since: cheaper to ask at each call than
 * getpid(), which is a system call.
 */
#ifndef IDEM_CORE_FORK_H
#define IDEM_CORE_FORK_H

/* How many forks lie between the first process and this one; never fails. */
unsigned idem_fork_count(void);

/* Begins to count; called by whoever opens something that must not be inherited. */
void idem_fork_watch(void);

#endif
