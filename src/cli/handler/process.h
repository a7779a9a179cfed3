/*
 * A program that a handler has started: in a group of its own, its end a
 * descriptor on the loop, asked to end and then made to.
 */
#ifndef IDEM_CLI_HANDLER_PROCESS_H
#define IDEM_CLI_HANDLER_PROCESS_H

#include "cli/result.h"
#include "cli/spawn.h"
#include "loop/nest.h"

struct handler_process {
    struct idem_nest *nest;
    int64_t kill_after_ms; /* from SIGTERM to SIGKILL */
    bool whole_group;      /* what is left of its group is ended with it in any case */
    /* Its end, from the loop. It is reaped, and may be started again, or freed. */
    void (*ended)(struct handler_process *self, const struct cli_end *end);

    pid_t pid;         /* 0: there is none */
    struct idem_fd fd; /* its pidfd */
    struct idem_timer kill;
    bool ending; /* was asked to */
};

/*
 * By /bin/sh -c, alone, in a group of its own; `how` says the rest. 0, or what
 * cli_spawn() says: nothing has begun then.
 */
int handler_process_start(struct handler_process *process, char *command, struct cli_spawn *how);

/* Whether it runs still: one that has ended, but was not told yet, does not. */
bool handler_process_runs(const struct handler_process *process);

/* Asks the group to end, and ends it after a while. What is left of the group when the process has
   ended is ended then: others may run what it was at. */
void handler_process_end(struct handler_process *process);
/* The same without asking, at once or after a while. */
void handler_process_kill(struct handler_process *process);
void handler_process_kill_in(struct handler_process *process, int64_t ms);

/* Waits for its end for at most `ms`; true: it is reaped, or there is none, and nothing is told. */
bool handler_process_wait(struct handler_process *process, int64_t ms);

/* Kills and reaps it, if there is one; nothing is told. */
void handler_process_release(struct handler_process *process);

/* "exit status 1", "ended by signal 11 (Segmentation fault)"; returns buf. */
#define HANDLER_END_TEXT 80
const char *handler_end_text(const struct cli_end *end, char buf[HANDLER_END_TEXT]);

#endif
