/*
 * One long-lived worker: its process, its pipes, its requests and responses. Any output but a
 * response to its request ends the worker, and the outcome of its job is then unknown. The
 * same holds when the worker dies, unless it has read no byte of the message: then the message
 * is still in the pipe, and nothing was begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "queue/handler/handler_jsonl.h"

/* A worker that dies younger, without a response, is started again after a pause, which grows. */
#define YOUNG_MS 10000
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 30000

/* Grace for the end of a worker that has closed its stdout: a worker that ends closes it just
   before. */
#define DEAF_MS 200

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
    idem_nest_unwatch(&worker->jsonl->nest, fd);
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
    free(worker->heard);
    worker->line = worker->heard = NULL;
    worker->heard_len = 0;
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
            worker->writing = idem_nest_watch(&worker->jsonl->nest, &worker->in, IDEM_WRITE) == 0;
            if (!worker->writing)
                worker_break(worker, "its stdin cannot be watched");
            return;
        } else if (errno != EINTR) {
            worker_break(worker, "its stdin cannot be written to: %s", strerror(errno));
            return;
        }
    }
    if (worker->writing)
        idem_nest_unwatch(&worker->jsonl->nest, &worker->in);
    worker->writing = false;
    free(worker->line);
    worker->line = NULL;
}

static void worker_in_ready(struct idem_fd *fd, int events) {
    struct jsonl_worker *worker = idem_container_of(fd, struct jsonl_worker, in);

    (void)events;
    worker_write(worker);
}

void jsonl_worker_give(struct jsonl_worker *worker, struct jsonl_job *job) {
    static const struct queue_said no_memory = {
        .result = QUEUE_UNBEGUN,
        .reason = "there was no memory for the worker's line",
    };
    uint64_t id = ++worker->jsonl->last_id;
    char *line = handler_question(job->work, id, &worker->line_len);

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
static bool worker_take_back_request(struct jsonl_worker *worker) {
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

enum heard { HEARD_NOTHING, HEARD_PART, HEARD_ANSWER, HEARD_WRONG, HEARD_END };

/* Takes one line; heard_len becomes the number of bytes after it. */
static enum heard worker_take_line(struct jsonl_worker *worker, size_t len,
                                   struct handler_answer *ret, struct idem_error *err) {
    if (handler_answer_parse(worker->heard, len, worker->id, ret, err) < 0)
        return HEARD_WRONG;
    worker->heard_len -= len + 1; /* the bytes themselves are not needed */
    return HEARD_ANSWER;
}

static enum heard worker_read(struct jsonl_worker *worker, struct handler_answer *ret,
                              struct idem_error *err) {
    char *at = worker->heard + worker->heard_len, *end;
    ssize_t n;

    do
        n = read(worker->out.fd, at, HANDLER_ANSWER_MAX + 1 - worker->heard_len);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 && errno == EAGAIN ? HEARD_NOTHING : HEARD_END;
    if (worker->job == NULL) {
        snprintf(err->text, sizeof(err->text), "it wrote a response without a request");
        return HEARD_WRONG;
    }
    worker->heard_len += (size_t)n;
    end = memchr(at, '\n', (size_t)n);
    if (end != NULL)
        return worker_take_line(worker, (size_t)(end - worker->heard), ret, err);
    if (worker->heard_len <= HANDLER_ANSWER_MAX)
        return HEARD_PART;
    snprintf(err->text, sizeof(err->text), "its answer is longer than %d bytes",
             HANDLER_ANSWER_MAX);
    return HEARD_WRONG;
}

static void worker_report_response(struct jsonl_worker *worker,
                                   const struct handler_answer *answer) {
    struct queue_said said = {
        .result = answer->result,
        .delay_ms = answer->delay_ms,
        .status = answer->status,
        .reason = answer->reason[0] == '\0' ? NULL : answer->reason,
    };
    struct jsonl_job *job = worker->job;

    worker->job = NULL;
    worker->proven = true;
    jsonl_job_report(job, &said);
}

/* The worker can send no response any more. */
static void worker_deaf(struct jsonl_worker *worker) {
    worker_close_end(worker, &worker->out);
    if (worker->state == JSONL_ENDING) /* it was asked to end, and has its timeout already */
        return;
    worker->deaf = true;
    worker_set(worker, JSONL_ENDING);
    handler_process_kill_in(&worker->process, DEAF_MS);
}

/* A cancelled worker may still respond: a late response is as good as an early one. */
static void worker_out_ready(struct idem_fd *fd, int events) {
    struct jsonl_worker *worker = idem_container_of(fd, struct jsonl_worker, out);
    struct handler_answer answer;
    struct idem_error err;

    (void)events;
    switch (worker_read(worker, &answer, &err)) {
    case HEARD_ANSWER:
        if (worker->state == JSONL_BUSY)
            worker_set(worker, JSONL_IDLE);
        if (worker->state == JSONL_IDLE && (worker->heard_len > 0 || worker->line != NULL))
            worker_break(
                worker,
                "it wrote more than one response, or one before it had read the whole request");
        worker_report_response(worker, &answer);
        break;
    case HEARD_WRONG:
        worker_break(worker, "%.200s", err.text);
        break;
    case HEARD_END:
        worker_deaf(worker);
        break;
    default:
        break;
    }
}

/* The end. */

/* The pause until the next start. */
static int64_t worker_pause(struct jsonl_worker *worker, bool grown) {
    int64_t pause = PAUSE_MIN_MS;

    if (grown) {
        worker->young = 0;
        return 0;
    }
    for (unsigned i = 0; i < worker->young && pause < PAUSE_MAX_MS; i++)
        pause *= 2;
    worker->young++;
    return pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

/* The pipe may hold a last response. */
static bool worker_read_last(struct jsonl_worker *worker, struct handler_answer *ret) {
    enum heard heard = HEARD_NOTHING;
    struct idem_error err;

    if (worker->job == NULL || worker->out.fd < 0)
        return false;
    do
        heard = worker_read(worker, ret, &err);
    while (heard == HEARD_PART);
    if (heard == HEARD_WRONG)
        snprintf(worker->why, sizeof(worker->why), "%.200s", err.text);
    return heard == HEARD_ANSWER;
}

static void worker_report_end(struct jsonl_worker *worker, bool unread,
                              const struct spawn_end *end) {
    char how[HANDLER_END_TEXT], reason[512];
    struct queue_said said = {.result = unread ? QUEUE_UNBEGUN : QUEUE_UNKNOWN, .reason = reason};
    struct jsonl_job *job = worker->job;
    bool made = worker->why[0] != '\0' || worker->cancelled;

    if (!made && worker->deaf && end->signalled && end->number == SIGKILL) {
        made = true;
        snprintf(worker->why, sizeof(worker->why), "it had closed its stdout");
    }
    if (worker->why[0] == '\0' && !unread)
        said.status = spawn_end_status(end);
    snprintf(reason, sizeof(reason), "the worker %s before it %s: %s",
             made ? "was made to end" : "has ended", unread ? "read the message" : "answered",
             worker->why[0] != '\0' ? worker->why : handler_process_end_text(end, how));
    worker->job = NULL;
    jsonl_job_report(job, &said);
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
    bool unread = worker->job != NULL && !answered && worker_take_back_request(worker);
    bool grown = worker->proven || answered || worker->cancelled ||
                 idem_loop_now() - worker->since >= YOUNG_MS;

    worker_close_pipes(worker);
    worker_set(worker, JSONL_OFF);
    idem_timer_set(worker->jsonl->loop, &worker->start, worker_pause(worker, grown));
    if (answered)
        worker_report_response(worker, &answer);
    else if (worker->job != NULL && unread && worker->proven && !worker->cancelled)
        worker_requeue_job(worker);
    else if (worker->job != NULL)
        worker_report_end(worker, unread, end);
}

void jsonl_worker_cancel(struct jsonl_worker *worker) {
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

    worker->heard = malloc(HANDLER_ANSWER_MAX + 1);
    if (worker->heard == NULL)
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
    if (why == 0 && idem_nest_watch(&worker->jsonl->nest, &worker->out, IDEM_READ) < 0)
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
    worker->proven = worker->cancelled = worker->deaf = false;
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

void jsonl_worker_init(struct jsonl_worker *worker, struct jsonl *jsonl) {
    *worker = (struct jsonl_worker){
        .jsonl = jsonl,
        .process = {.nest = &jsonl->nest,
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

void jsonl_worker_hang_up(struct jsonl_worker *worker) {
    idem_timer_clear(worker->jsonl->loop, &worker->start);
    worker_close_end(worker, &worker->in);
}

void jsonl_worker_release(struct jsonl_worker *worker) {
    idem_timer_clear(worker->jsonl->loop, &worker->start);
    handler_process_release(&worker->process);
    worker_close_pipes(worker);
}
