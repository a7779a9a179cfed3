/*
 * A program started by a handler: in a group of its own, its end a descriptor on the loop. It
 * is asked to end first, and killed later.
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_PROCESS_H
#define IDEM_QUEUE_HANDLER_HANDLER_PROCESS_H

#include "loop/epoll_set.h"
#include "loop/spawn.h"

struct handler_process {
    struct idem_epoll_set *epoll_set;
    int64_t kill_after_ms; /* from SIGTERM to SIGKILL */
    bool whole_group;      /* kills the rest of its group when it ends, in any case */
    /* Called from the loop when it has ended. It is reaped, and may be started again, or freed. */
    void (*ended)(struct handler_process *self, const struct spawn_end *end);

    pid_t pid;         /* 0: no process */
    struct idem_fd fd; /* its pidfd */
    struct idem_timer kill;
    bool ending; /* it was asked to end */
};

/*
 * Starts the command by /bin/sh -c, in a group of its own; `how` has the rest. Returns 0 or
 * the error of spawn_start(): nothing has begun then.
 */
int handler_process_start(struct handler_process *process, char *command, struct spawn *how);

/* True if it still runs. False for a process whose end is not reported yet. */
bool handler_process_runs(const struct handler_process *process);

/* Asks the group to end, and kills it after a while. When the process has ended, the rest of
   its group is killed: the message may be run by another consumer then. */
void handler_process_end(struct handler_process *process);
/* The same without asking, at once or after a while. */
void handler_process_kill(struct handler_process *process);
void handler_process_kill_in(struct handler_process *process, int64_t ms);

/* Waits for its end for at most `ms`. True: it is reaped, or there is none; no callback runs. */
bool handler_process_wait(struct handler_process *process, int64_t ms);

/* Kills and reaps the process, if there is one; no callback runs. */
void handler_process_release(struct handler_process *process);

/* "exit status 1", "ended by signal 11 (Segmentation fault)"; returns buf. */
#define HANDLER_END_TEXT 80
const char *handler_process_end_text(const struct spawn_end *end, char buf[HANDLER_END_TEXT]);

#endif
