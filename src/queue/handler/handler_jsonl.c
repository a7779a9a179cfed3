/*
 * Long-lived workers: runs wait until a worker is idle. A run that cannot be begun (no
 * worker can be started, the lease is over) is reported as unbegun, and counts as no attempt.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/list.h"
#include "queue/handler/handler_answer.h"
#include "queue/handler/handler_open.h"
#include "queue/handler/handler_process.h"

/*
 * The inside of --exec-jsonl: runs that wait, and the workers that take them.
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

/* A run in our hands: waiting, with a worker, or about to be reported. */
struct jsonl_job {
    struct jsonl *jsonl;
    struct queue_run *run;
    struct jsonl_worker *worker;
    struct idem_task report_task;   /* reports a job that was cancelled before a worker had it */
    struct jsonl_job *next, **link; /* link NULL: it does not wait */
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
    unsigned early_deaths;  /* in a row */
    bool proven;            /* it has responded to a job */
    bool cancelled;
    bool stdout_closed;

    struct jsonl_job *job;
    uint64_t id;
    char *line; /* the request; NULL when all of it is written */
    size_t line_at, line_len;
    bool writing; /* the rest of the request waits for room in the pipe */
    char *output; /* so far, up to one line */
    size_t output_len;
    char why[256]; /* the reason why we ended it; empty: it ended by itself, or was cancelled */
};

struct jsonl {
    struct idem_loop *loop;
    struct idem_epoll_set epoll_set;
    struct handler_program program;
    char *command;
    uint64_t last_id;
    struct jsonl_job *jobs, *free, *waiting, **waiting_end;
    struct idem_task dispatch;
    unsigned workers;
    struct jsonl_worker pool[];
};

/* The last access to a job: it is free when its result is reported. */
static void jsonl_job_report(struct jsonl_job *job, const struct queue_outcome *outcome);
/* The job waits for a worker once more, before all others. */
static void jsonl_job_retry(struct jsonl_job *job);
/* A worker could not be started. */
static void jsonl_start_failed(struct jsonl *jsonl, int why, int64_t pause_ms);

/*
 * One long-lived worker: its process, its pipes, its requests and responses. Any output but a
 * response to its request ends the worker, and the outcome of its job is then unknown. The
 * same holds when the worker dies, unless it has read no byte of the message: then the message
 * is still in the pipe, and nothing was begun.
 */

/* A worker that dies before this age, without a response, is started again after a pause, which
   grows. */
#define EARLY_DEATH_MS 10000
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 30000

/* Grace for the end of a worker that has closed its stdout: a worker that ends closes it just
   before. */
#define CLOSED_GRACE_MS 200

static void worker_set(struct jsonl_worker *worker, enum jsonl_state state) {
    static const unsigned from[] = {
#define IN(state) 1u << JSONL_##state
        [JSONL_OFF] = IN(OFF) | IN(IDLE) | IN(BUSY) | IN(ENDING),
        [JSONL_IDLE] = IN(OFF) | IN(BUSY),
        [JSONL_BUSY] = IN(IDLE),
        [JSONL_ENDING] = IN(IDLE) | IN(BUSY) | IN(ENDING),
#undef IN
    };

    if ((from[state] & 1u << worker->state) == 0)
        abort();
    worker->state = state;
}

static void worker_close_end(struct jsonl_worker *worker, struct idem_fd *fd) {
    if (fd->fd < 0)
        return;
    idem_epoll_set_unwatch(&worker->jsonl->epoll_set, fd);
    close(fd->fd);
    fd->fd = -1;
}

static void worker_close_pipes(struct jsonl_worker *worker) {
    worker_close_end(worker, &worker->in);
    worker_close_end(worker, &worker->out);
    if (worker->unread >= 0)
        close(worker->unread);
    worker->unread = -1;
    free(worker->line);
    free(worker->output);
    worker->line = worker->output = NULL;
    worker->output_len = 0;
}

/* The worker has broken the protocol. */
__attribute__((format(printf, 2, 3))) static void worker_break(struct jsonl_worker *worker,
                                                               const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    vsnprintf(worker->why, sizeof(worker->why), fmt, args);
    va_end(args);
    worker_close_end(worker, &worker->out);
    worker_set(worker, JSONL_ENDING);
    handler_process_kill(&worker->process);
}

/* The request. */

static void worker_write(struct jsonl_worker *worker) {
    while (worker->line_at < worker->line_len) {
        ssize_t n = write(worker->in.fd, worker->line + worker->line_at,
                          worker->line_len - worker->line_at);

        if (n > 0) {
            worker->line_at += (size_t)n;
        } else if (errno == EAGAIN) {
            worker->writing =
                idem_epoll_set_watch(&worker->jsonl->epoll_set, &worker->in, IDEM_WRITE) == 0;
            if (!worker->writing)
                worker_break(worker, "its stdin cannot be watched");
            return;
        } else if (errno != EINTR) {
            worker_break(worker, "its stdin cannot be written to: %s", strerror(errno));
            return;
        }
    }
    if (worker->writing)
        idem_epoll_set_unwatch(&worker->jsonl->epoll_set, &worker->in);
    worker->writing = false;
    free(worker->line);
    worker->line = NULL;
}

static void worker_in_ready(struct idem_fd *fd, int events) {
    struct jsonl_worker *worker = idem_container_of(fd, struct jsonl_worker, in);

    (void)events;
    worker_write(worker);
}

/* The worker is idle, and the job may still be begun. */
static void jsonl_worker_assign(struct jsonl_worker *worker, struct jsonl_job *job) {
    static const struct queue_outcome no_memory = {
        .result = QUEUE_UNBEGUN,
        .reason = "there was no memory for the worker's line",
    };
    uint64_t id = ++worker->jsonl->last_id;
    char *line = handler_request_line(job->run, id, &worker->line_len);

    if (line == NULL) {
        jsonl_job_report(job, &no_memory);
        return;
    }
    worker->id = id;
    worker->job = job;
    worker->line = line;
    worker->line_at = 0;
    worker->cancelled = false;
    job->worker = worker;
    worker_set(worker, JSONL_BUSY);
    worker_write(worker);
}

/* True if the worker has read no byte of its request; then no process will read it any more.
   The pipe is opened a second time, since O_NONBLOCK on the first descriptor would apply to the
   worker's end too. */
static bool worker_recall_request(struct jsonl_worker *worker) {
    char path[32], bytes[4096];
    size_t all = 0;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", worker->unread);
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    while ((n = read(fd, bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR))
        all += n > 0 ? (size_t)n : 0;
    close(fd);
    return all >= worker->line_at;
}

/* The response. */

enum read_result { READ_NOTHING, READ_PART, READ_ANSWER, READ_WRONG, READ_END };

/* Takes one line; output_len becomes the number of bytes after it. */
static enum read_result worker_take_line(struct jsonl_worker *worker, size_t len,
                                         struct handler_answer *ret, struct idem_error *err) {
    if (handler_answer_parse(worker->output, len, worker->id, ret, err) < 0)
        return READ_WRONG;
    worker->output_len -= len + 1; /* the bytes themselves are not needed */
    return READ_ANSWER;
}

static enum read_result worker_read(struct jsonl_worker *worker, struct handler_answer *ret,
                                    struct idem_error *err) {
    char *at = worker->output + worker->output_len, *end;
    ssize_t n;

    do
        n = read(worker->out.fd, at, HANDLER_ANSWER_MAX + 1 - worker->output_len);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 && errno == EAGAIN ? READ_NOTHING : READ_END;
    if (worker->job == NULL) {
        snprintf(err->text, sizeof(err->text), "it wrote a response without a request");
        return READ_WRONG;
    }
    worker->output_len += (size_t)n;
    end = memchr(at, '\n', (size_t)n);
    if (end != NULL)
        return worker_take_line(worker, (size_t)(end - worker->output), ret, err);
    if (worker->output_len <= HANDLER_ANSWER_MAX)
        return READ_PART;
    snprintf(err->text, sizeof(err->text), "its response is longer than %d bytes",
             HANDLER_ANSWER_MAX);
    return READ_WRONG;
}

static void worker_report_response(struct jsonl_worker *worker,
                                   const struct handler_answer *answer) {
    struct queue_outcome outcome = {
        .result = answer->result,
        .delay_ms = answer->delay_ms,
        .status = answer->status,
        .reason = answer->reason[0] == '\0' ? NULL : answer->reason,
    };
    struct jsonl_job *job = worker->job;

    worker->job = NULL;
    worker->proven = true;
    jsonl_job_report(job, &outcome);
}

/* The worker can send no response any more. */
static void worker_stdout_closed(struct jsonl_worker *worker) {
    worker_close_end(worker, &worker->out);
    if (worker->state == JSONL_ENDING) /* it was asked to end, and has its timeout already */
        return;
    worker->stdout_closed = true;
    worker_set(worker, JSONL_ENDING);
    handler_process_kill_in(&worker->process, CLOSED_GRACE_MS);
}

/* A cancelled worker may still respond: a late response is as good as an early one. */
static void worker_out_ready(struct idem_fd *fd, int events) {
    struct jsonl_worker *worker = idem_container_of(fd, struct jsonl_worker, out);
    struct handler_answer answer;
    struct idem_error err;

    (void)events;
    switch (worker_read(worker, &answer, &err)) {
    case READ_ANSWER:
        if (worker->state == JSONL_BUSY)
            worker_set(worker, JSONL_IDLE);
        if (worker->state == JSONL_IDLE && (worker->output_len > 0 || worker->line != NULL))
            worker_break(
                worker,
                "it wrote more than one response, or one before it had read the whole request");
        worker_report_response(worker, &answer);
        break;
    case READ_WRONG:
        worker_break(worker, "%.200s", err.text);
        break;
    case READ_END:
        worker_stdout_closed(worker);
        break;
    default:
        break;
    }
}

/* The end. */

/* The pause until the next start. */
static int64_t worker_pause(struct jsonl_worker *worker, bool at_once) {
    int64_t pause = PAUSE_MIN_MS;

    if (at_once) {
        worker->early_deaths = 0;
        return 0;
    }
    for (unsigned i = 0; i < worker->early_deaths && pause < PAUSE_MAX_MS; i++)
        pause *= 2;
    worker->early_deaths++;
    return pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

/* The pipe may hold a last response. */
static bool worker_read_last(struct jsonl_worker *worker, struct handler_answer *ret) {
    enum read_result result = READ_NOTHING;
    struct idem_error err;

    if (worker->job == NULL || worker->out.fd < 0)
        return false;
    do
        result = worker_read(worker, ret, &err);
    while (result == READ_PART);
    if (result == READ_WRONG)
        snprintf(worker->why, sizeof(worker->why), "%.200s", err.text);
    return result == READ_ANSWER;
}

static void worker_report_end(struct jsonl_worker *worker, bool unread,
                              const struct spawn_end *end) {
    char how[HANDLER_END_TEXT], reason[512];
    struct queue_outcome outcome = {.result = unread ? QUEUE_UNBEGUN : QUEUE_UNKNOWN,
                                    .reason = reason};
    struct jsonl_job *job = worker->job;
    bool made = worker->why[0] != '\0' || worker->cancelled;

    if (!made && worker->stdout_closed && end->signalled && end->number == SIGKILL) {
        made = true;
        snprintf(worker->why, sizeof(worker->why), "it had closed its stdout");
    }
    if (worker->why[0] == '\0' && !unread)
        outcome.status = spawn_end_status(end);
    snprintf(reason, sizeof(reason), "the worker %s before it %s: %s",
             made ? "was made to end" : "has ended", unread ? "read the message" : "answered",
             worker->why[0] != '\0' ? worker->why : handler_process_end_text(end, how));
    worker->job = NULL;
    jsonl_job_report(job, &outcome);
}

/* A worker that has responded before has ended: another one may take the unread job. */
static void worker_requeue_job(struct jsonl_worker *worker) {
    struct jsonl_job *job = worker->job;

    worker->job = NULL;
    jsonl_job_retry(job);
}

static void worker_ended(struct handler_process *process, const struct spawn_end *end) {
    struct jsonl_worker *worker = idem_container_of(process, struct jsonl_worker, process);
    struct handler_answer answer;
    bool answered = worker_read_last(worker, &answer);
    bool unread = worker->job != NULL && !answered && worker_recall_request(worker);
    bool at_once = worker->proven || answered || worker->cancelled ||
                   idem_loop_now() - worker->since >= EARLY_DEATH_MS;

    worker_close_pipes(worker);
    worker_set(worker, JSONL_OFF);
    idem_timer_set(worker->jsonl->loop, &worker->start, worker_pause(worker, at_once));
    if (answered)
        worker_report_response(worker, &answer);
    else if (worker->job != NULL && unread && worker->proven && !worker->cancelled)
        worker_requeue_job(worker);
    else if (worker->job != NULL)
        worker_report_end(worker, unread, end);
}

/* Cancels its current job. */
static void jsonl_worker_cancel(struct jsonl_worker *worker) {
    if (worker->cancelled || !handler_process_runs(&worker->process))
        return;
    worker->cancelled = true;
    worker_set(worker, JSONL_ENDING);
    handler_process_end(&worker->process);
}

/* The start. */

/* fds: the worker's ends of its stdin and stdout; ours are the other two. 0, or an errno. */
static int worker_open_pipes(struct jsonl_worker *worker, int fds[2]) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, why = 0;

    worker->output = malloc(HANDLER_ANSWER_MAX + 1);
    if (worker->output == NULL)
        return ENOMEM;
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        why = errno;
    worker->in = (struct idem_fd){.fd = in[1], .ready = worker_in_ready};
    worker->out = (struct idem_fd){.fd = out[0], .ready = worker_out_ready};
    worker->unread = in[0];
    fds[0] = in[0];
    fds[1] = out[1];
    if (why == 0 &&
        (fcntl(in[1], F_SETFL, O_NONBLOCK) < 0 || fcntl(out[0], F_SETFL, O_NONBLOCK) < 0))
        why = errno;
    if (why == 0 && idem_epoll_set_watch(&worker->jsonl->epoll_set, &worker->out, IDEM_READ) < 0)
        why = ENOMEM;
    return why;
}

static int worker_spawn(struct jsonl_worker *worker) {
    const struct handler_program *program = &worker->jsonl->program;
    int fds[2] = {-1, -1}, why = worker_open_pipes(worker, fds);
    struct spawn how = {
        .env = environ,
        .signals = program->signals,
        .fds = {fds[0], fds[1], -1},
        .die_with = program->die_with,
        .not_after = INT64_MAX,
    };

    if (why == 0)
        why = handler_process_start(&worker->process, worker->jsonl->command, &how);
    if (fds[1] >= 0)
        close(fds[1]);
    if (why != 0)
        worker_close_pipes(worker);
    return why;
}

static void worker_start(struct idem_timer *timer) {
    struct jsonl_worker *worker = idem_container_of(timer, struct jsonl_worker, start);
    int why = worker_spawn(worker);
    int64_t pause;

    worker->why[0] = '\0';
    worker->proven = worker->cancelled = worker->stdout_closed = false;
    worker->since = idem_loop_now();
    if (why == 0) {
        worker_set(worker, JSONL_IDLE);
        idem_task_post(worker->jsonl->loop, &worker->jsonl->dispatch);
        return;
    }
    pause = worker_pause(worker, false);
    idem_timer_set(worker->jsonl->loop, timer, pause);
    jsonl_start_failed(worker->jsonl, why, pause);
}

static void jsonl_worker_init(struct jsonl_worker *worker, struct jsonl *jsonl) {
    *worker = (struct jsonl_worker){
        .jsonl = jsonl,
        .process = {.epoll_set = &jsonl->epoll_set,
                    .kill_after_ms = jsonl->program.kill_after_ms,
                    .whole_group = true,
                    .ended = worker_ended},
        .start.fire = worker_start,
        .in.fd = -1,
        .out.fd = -1,
        .unread = -1,
    };
    idem_timer_set(jsonl->loop, &worker->start, 0);
}

/* Closes its stdin, which asks it to end. */
static void jsonl_worker_hang_up(struct jsonl_worker *worker) {
    idem_timer_clear(worker->jsonl->loop, &worker->start);
    worker_close_end(worker, &worker->in);
}

static void jsonl_worker_release(struct jsonl_worker *worker) {
    idem_timer_clear(worker->jsonl->loop, &worker->start);
    handler_process_release(&worker->process);
    worker_close_pipes(worker);
}

/* Time for workers to end by themselves after their stdin is closed. */
#define END_GRACE_MS 1000

/* Jobs. */

static void jsonl_job_report(struct jsonl_job *job, const struct queue_outcome *outcome) {
    struct queue_run *run = job->run;

    job->run = NULL;
    job->worker = NULL;
    job->next = job->jsonl->free;
    job->jsonl->free = job;
    /* Its worker, or another, may take the next job. */
    idem_task_post(job->jsonl->loop, &job->jsonl->dispatch);
    run->finished(run, outcome);
}

static void jsonl_job_retry(struct jsonl_job *job) {
    struct jsonl *jsonl = job->jsonl;

    job->worker = NULL;
    idem_link_prepend(&jsonl->waiting, &jsonl->waiting_end, job);
    idem_task_post(jsonl->loop, &jsonl->dispatch);
}

static void jsonl_job_unbegun(struct jsonl_job *job, const char *reason) {
    struct queue_outcome outcome = {.result = QUEUE_UNBEGUN, .reason = reason};

    jsonl_job_report(job, &outcome);
}

static void jsonl_report_cancelled(struct idem_task *task) {
    jsonl_job_unbegun(idem_container_of(task, struct jsonl_job, report_task),
                      "it was cancelled before a worker had it");
}

/* Dispatch. */

static struct jsonl_worker *jsonl_find_idle(struct jsonl *jsonl) {
    for (unsigned i = 0; i < jsonl->workers; i++)
        if (jsonl->pool[i].state == JSONL_IDLE)
            return &jsonl->pool[i];
    return NULL;
}

static void jsonl_dispatch(struct idem_task *task) {
    struct jsonl *jsonl = idem_container_of(task, struct jsonl, dispatch);
    struct jsonl_worker *worker;
    struct jsonl_job *job;

    while (jsonl->waiting != NULL && (worker = jsonl_find_idle(jsonl)) != NULL) {
        job = jsonl->waiting;
        idem_link_remove_end(&jsonl->waiting_end, job);
        if (idem_loop_now() >= job->run->not_after)
            jsonl_job_unbegun(job, "the lease was over before a worker was free");
        else
            jsonl_worker_assign(worker, job);
    }
}

static void jsonl_start_failed(struct jsonl *jsonl, int why, int64_t pause_ms) {
    struct jsonl_job *job = jsonl->waiting;
    char reason[256];

    for (unsigned i = 0; i < jsonl->workers; i++)
        if (jsonl->pool[i].state != JSONL_OFF)
            return; /* the waiting jobs can wait for this worker */
    if (job == NULL)
        return;
    idem_link_remove_end(&jsonl->waiting_end, job);
    snprintf(reason, sizeof(reason), "no worker can be started: %s; it is tried again in %lld ms",
             strerror(why), (long long)pause_ms);
    jsonl_job_unbegun(job, reason);
}

static void jsonl_begin(void *data, struct queue_run *run) {
    struct jsonl *jsonl = data;
    struct jsonl_job *job = jsonl->free;

    if (job == NULL) /* the caller exceeded `workers` */
        abort();
    jsonl->free = job->next;
    job->run = run;
    run->data = job;
    idem_link_append(&jsonl->waiting_end, job);
    idem_task_post(jsonl->loop, &jsonl->dispatch);
}

static void jsonl_cancel(void *data, struct queue_run *run) {
    struct jsonl *jsonl = data;
    struct jsonl_job *job = run->data;

    if (job->worker != NULL) {
        jsonl_worker_cancel(job->worker);
    } else if (job->link != NULL) {
        idem_link_remove_end(&jsonl->waiting_end, job);
        idem_task_post(jsonl->loop, &job->report_task);
    }
}

/* Creation and release. */

/* All workers are asked at once, so that they share one timeout. */
static void jsonl_end_workers(struct jsonl *jsonl) {
    int64_t until = idem_loop_now() + END_GRACE_MS;

    for (unsigned i = 0; i < jsonl->workers; i++)
        jsonl_worker_hang_up(&jsonl->pool[i]);
    for (unsigned i = 0; i < jsonl->workers; i++)
        if (!handler_process_wait(&jsonl->pool[i].process, until - idem_loop_now()))
            handler_process_end(&jsonl->pool[i].process);
    until = idem_loop_now() + jsonl->program.kill_after_ms;
    for (unsigned i = 0; i < jsonl->workers; i++)
        (void)handler_process_wait(&jsonl->pool[i].process, until - idem_loop_now());
    for (unsigned i = 0; i < jsonl->workers; i++)
        jsonl_worker_release(&jsonl->pool[i]);
}

static void jsonl_close(void *data) {
    struct jsonl *jsonl = data;

    if (jsonl->epoll_set.batch != NULL)
        jsonl_end_workers(jsonl);
    for (unsigned i = 0; jsonl->jobs != NULL && i < jsonl->workers; i++)
        idem_task_drop(jsonl->loop, &jsonl->jobs[i].report_task);
    idem_task_drop(jsonl->loop, &jsonl->dispatch);
    idem_epoll_set_close(&jsonl->epoll_set);
    free(jsonl->jobs);
    free(jsonl->command);
    free(jsonl);
}

static int jsonl_init(struct jsonl *jsonl, const struct handler_jsonl_config *config,
                      struct idem_error *err) {
    int rc;

    jsonl->program = config->program;
    jsonl->workers = config->workers;
    jsonl->waiting_end = &jsonl->waiting;
    jsonl->dispatch.run = jsonl_dispatch;
    jsonl->command = strdup(config->program.command);
    jsonl->jobs = calloc(config->workers, sizeof(*jsonl->jobs));
    if (jsonl->command == NULL || jsonl->jobs == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    rc = idem_epoll_set_open(&jsonl->epoll_set, jsonl->loop, err);
    if (rc < 0)
        return rc;
    for (unsigned i = config->workers; i-- > 0;) {
        jsonl->jobs[i] = (struct jsonl_job){
            .jsonl = jsonl, .report_task.run = jsonl_report_cancelled, .next = jsonl->free};
        jsonl->free = &jsonl->jobs[i];
        jsonl_worker_init(&jsonl->pool[i], jsonl);
    }
    return 0;
}

int handler_jsonl_open(const struct handler_jsonl_config *config, struct idem_loop *loop,
                       struct handler *ret, struct idem_error *err) {
    struct jsonl *jsonl;
    int rc = handler_open_check_program("--exec-jsonl", &config->program, config->workers, err);

    if (rc < 0)
        return rc;
    jsonl = calloc(1, sizeof(*jsonl) + config->workers * sizeof(jsonl->pool[0]));
    if (jsonl == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    jsonl->loop = loop;
    rc = jsonl_init(jsonl, config, err);
    if (rc < 0) {
        jsonl_close(jsonl);
        return rc;
    }
    *ret = (struct handler){
        .queue = {.data = jsonl,
                  .workers = config->workers,
                  .begin = jsonl_begin,
                  .cancel = jsonl_cancel},
        .close = jsonl_close,
    };
    return 0;
}
