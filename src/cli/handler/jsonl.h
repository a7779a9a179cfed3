/*
 * The inside of --exec-jsonl: works that wait, and the workers that take them.
 *
 *                    pause over            given              the answer
 *              OFF ─────────────► IDLE ─────────────► BUSY ───────────────┐
 *               ▲                  ▲ │                  │                 │
 *               │                  └─┼──────────────────┼─────────────────┘
 *               │                    │ said something   │ cancelled, or said
 *               │   the process      ▼                  ▼ something else
 *               └─────────────── ENDING ◄───────────────┘
 *               └─ has ended, whatever the state
 *
 * What a worker was given is told when its process has ended, not before: nobody
 * else may begin it while it still goes on.
 */
#ifndef IDEM_CLI_HANDLER_JSONL_H
#define IDEM_CLI_HANDLER_JSONL_H

#include "cli/handler/answer.h"
#include "cli/handler/handler.h"
#include "cli/handler/process.h"

/* A work in our hands: waiting, with a worker, or to be told. */
struct jsonl_job {
    struct jsonl *jsonl;
    struct queue_work *work;
    struct jsonl_worker *worker;
    struct idem_task tell; /* what was cancelled before it was given */
    struct jsonl_job *next;
};

enum jsonl_state { JSONL_OFF, JSONL_IDLE, JSONL_BUSY, JSONL_ENDING };

struct jsonl_worker {
    struct jsonl *jsonl;
    enum jsonl_state state;
    struct handler_process process;
    struct idem_timer start;
    struct idem_fd in, out; /* our ends of its stdin and stdout; -1 */
    int unread;             /* the other end of its stdin: what nobody has read is read from here */
    int64_t since;          /* it was started */
    unsigned young;         /* how many have died young, one after the other */
    bool proven;            /* it has answered */
    bool cancelled;
    bool deaf; /* it has closed its stdout */

    struct jsonl_job *job;
    uint64_t id;
    char *line; /* what it is asked; NULL when all of it is written */
    size_t line_at, line_len;
    bool writing; /* more of it, when there is room */
    char *heard;  /* what it has said, up to one line */
    size_t heard_len;
    char why[256]; /* for which we ended it; empty: it has ended by itself, or was cancelled */
};

struct jsonl {
    struct idem_loop *loop;
    struct idem_nest nest;
    struct handler_program program;
    char *command;
    uint64_t last_id;
    struct jsonl_job *jobs, *free, *waiting, **waiting_end;
    struct idem_task dispatch;
    unsigned workers;
    struct jsonl_worker pool[];
};

/* Worker.c. */

void jsonl_worker_init(struct jsonl_worker *worker, struct jsonl *jsonl);
/* An idle one, and a job that may still be begun. */
void jsonl_worker_give(struct jsonl_worker *worker, struct jsonl_job *job);
/* The job that it has. */
void jsonl_worker_cancel(struct jsonl_worker *worker);
/* Closes its stdin, which is how it is asked to end. */
void jsonl_worker_hang_up(struct jsonl_worker *worker);
void jsonl_worker_release(struct jsonl_worker *worker);

/* Jsonl.c. */

/* The job's last moment: it is free when its result is told. */
void jsonl_job_tell(struct jsonl_job *job, const struct queue_said *said);
/* It waits for a worker once more, before all others. */
void jsonl_job_again(struct jsonl_job *job);
/* A worker could not be started. */
void jsonl_stuck(struct jsonl *jsonl, int why, int64_t pause_ms);

#endif
