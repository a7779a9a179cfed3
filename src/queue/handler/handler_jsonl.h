/*
 * The inside of --exec-jsonl: works that wait, and the workers that take them.
 *
 *                    pause over            given              response
 *              OFF ─────────────► IDLE ─────────────► BUSY ───────────────┐
 *               ▲                  ▲ │                  │                 │
 *               │                  └─┼──────────────────┼─────────────────┘
 *               │                    │ unexpected       │ cancelled, or
 *               │   the process      ▼ output           ▼ invalid output
 *               └─────────────── ENDING ◄───────────────┘
 *               └─ has ended, in any state
 *
 * The result of a job whose worker must end is reported when its process has ended, not
 * before: no other consumer may begin it while the process goes on.
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_JSONL_H
#define IDEM_QUEUE_HANDLER_HANDLER_JSONL_H

#include "queue/handler/handler_answer.h"
#include "queue/handler/handler_open.h"
#include "queue/handler/handler_process.h"

/* A work in our hands: waiting, with a worker, or about to be reported. */
struct jsonl_job {
    struct jsonl *jsonl;
    struct queue_work *work;
    struct jsonl_worker *worker;
    struct idem_task tell; /* reports a job that was cancelled before a worker had it */
    struct jsonl_job *next;
};

enum jsonl_state { JSONL_OFF, JSONL_IDLE, JSONL_BUSY, JSONL_ENDING };

struct jsonl_worker {
    struct jsonl *jsonl;
    enum jsonl_state state;
    struct handler_process process;
    struct idem_timer start;
    struct idem_fd in, out; /* our ends of its stdin and stdout; -1: closed */
    int unread;             /* the read end of its stdin: unread bytes are taken back from here */
    int64_t since;          /* time of its start */
    unsigned young;         /* number of early deaths in a row */
    bool proven;            /* it has responded to a job */
    bool cancelled;
    bool deaf; /* it has closed its stdout */

    struct jsonl_job *job;
    uint64_t id;
    char *line; /* the request; NULL when all of it is written */
    size_t line_at, line_len;
    bool writing; /* the rest of the request waits for room in the pipe */
    char *heard;  /* its output so far, up to one line */
    size_t heard_len;
    char why[256]; /* the reason why we ended it; empty: it ended by itself, or was cancelled */
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

/* handler_worker.c. */

void jsonl_worker_init(struct jsonl_worker *worker, struct jsonl *jsonl);
/* The worker is idle, and the job may still be begun. */
void jsonl_worker_give(struct jsonl_worker *worker, struct jsonl_job *job);
/* Cancels its current job. */
void jsonl_worker_cancel(struct jsonl_worker *worker);
/* Closes its stdin, which asks it to end. */
void jsonl_worker_hang_up(struct jsonl_worker *worker);
void jsonl_worker_release(struct jsonl_worker *worker);

/* handler_jsonl.c. */

/* The last access to a job: it is free when its result is reported. */
void jsonl_job_report(struct jsonl_job *job, const struct queue_said *said);
/* The job waits for a worker once more, before all others. */
void jsonl_job_retry(struct jsonl_job *job);
/* A worker could not be started. */
void jsonl_start_failed(struct jsonl *jsonl, int why, int64_t pause_ms);

#endif
