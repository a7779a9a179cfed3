/*
 * One process per message. Nothing here blocks: the body is in memory before the process
 * begins, and its end is a descriptor on the loop; its output goes past us. If it cannot be
 * started (fork, memory, descriptors, the lease), nothing was begun, and no attempt is
 * counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "queue/handler/handler_open.h"
#include "queue/handler/handler_process.h"
#include "queue/handler/handler_variables.h"

#define REASON_MAX 160

/* Some systems refuse files in memory without this flag; older ones do not know it. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

struct run {
    struct exec *exec;
    struct handler_process process;
    struct idem_task tell; /* reports a run that was not begun */
    struct queue_work *work;
    bool cancelled;
    char reason[REASON_MAX];
    struct run *next; /* in the list of free runs */
};

struct exec {
    struct idem_loop *loop;
    struct idem_nest nest;
    struct handler_program program;
    char *command;
    struct handler_rules on_exit;
    struct run *free;
    unsigned workers;
    struct run runs[];
};

/* The last access to a run: the callback may begin the next work with it. */
static void run_report(struct run *run, enum queue_result result, int status) {
    struct queue_work *work = run->work;
    struct queue_said said = {.result = result, .status = status};
    char reason[REASON_MAX];

    memcpy(reason, run->reason, sizeof(reason));
    said.reason = result == QUEUE_DONE ? NULL : reason;
    run->work = NULL;
    run->next = run->exec->free;
    run->exec->free = run;
    work->told(work, &said);
}

static void exec_run_unbegun(struct idem_task *task) {
    run_report(idem_container_of(task, struct run, tell), QUEUE_UNBEGUN, 0);
}

static void exec_run_ended(struct handler_process *process, const struct spawn_end *end) {
    struct run *run = idem_container_of(process, struct run, process);
    enum queue_result result = QUEUE_UNKNOWN;
    char how[HANDLER_END_TEXT];

    if (!end->signalled && !run->cancelled)
        result = handler_rule(&run->exec->on_exit, end->number);
    snprintf(run->reason, sizeof(run->reason), "%s%s", run->cancelled ? "it was made to end: " : "",
             handler_process_end_text(end, how));
    run_report(run, result, spawn_end_status(end));
}

static bool exec_write_all(int fd, struct idem_bytes bytes) {
    for (size_t at = 0; at < bytes.len;) {
        ssize_t n = write(fd, bytes.at + at, bytes.len - at);

        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return lseek(fd, 0, SEEK_SET) == 0;
}

/* The body as a private sealed file; -1 with errno. */
static int exec_body_open(struct idem_bytes body) {
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("idem-message", flags | MFD_NOEXEC_SEAL), why;

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("idem-message", flags);
    if (fd < 0)
        return -1;
    if (exec_write_all(fd, body) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0)
        return fd;
    why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int run_spawn(struct run *run, int body) {
    const struct handler_program *program = &run->exec->program;
    char **env = handler_variables(run->work, strlen(run->exec->command));
    struct spawn how = {
        .env = env,
        .signals = program->signals,
        .fds = {body, -1, -1},
        .die_with = program->die_with,
        .not_after = run->work->not_after,
    };
    int why = ENOMEM;

    if (env != NULL)
        why = handler_process_start(&run->process, run->exec->command, &how);
    handler_variables_free(env);
    return why;
}

static void exec_begin(void *data, struct queue_work *work) {
    struct exec *exec = data;
    struct run *run = exec->free;
    int body, why;

    if (run == NULL) /* the caller exceeded `workers` */
        abort();
    exec->free = run->next;
    run->work = work;
    run->cancelled = false;
    work->at = run;
    body = exec_body_open(work->message->body);
    why = body < 0 ? errno : run_spawn(run, body);
    if (body >= 0)
        close(body);
    if (why == 0)
        return;
    snprintf(run->reason, sizeof(run->reason), "it could not be started: %s",
             why == SPAWN_LATE ? "the lease was over before" : strerror(why));
    idem_task_post(exec->loop, &run->tell);
}

static void exec_cancel(void *data, struct queue_work *work) {
    struct run *run = work->at;

    (void)data;
    if (run->cancelled || !handler_process_runs(&run->process))
        return;
    run->cancelled = true;
    handler_process_end(&run->process);
}

static void exec_close(void *data) {
    struct exec *exec = data;

    for (unsigned i = 0; i < exec->workers; i++) {
        handler_process_release(&exec->runs[i].process);
        idem_task_drop(exec->loop, &exec->runs[i].tell);
    }
    idem_nest_close(&exec->nest);
    free(exec->command);
    free(exec);
}

static void exec_runs_init(struct exec *exec) {
    for (unsigned i = exec->workers; i-- > 0;) {
        exec->runs[i] = (struct run){
            .exec = exec,
            .process = {.nest = &exec->nest,
                        .kill_after_ms = exec->program.kill_after_ms,
                        .ended = exec_run_ended},
            .tell.run = exec_run_unbegun,
            .next = exec->free,
        };
        exec->free = &exec->runs[i];
    }
}

static int exec_init(struct exec *exec, const struct handler_exec_config *config,
                     struct idem_error *err) {
    int rc = 0;

    exec->program = config->program;
    exec->workers = config->workers;
    exec->command = strdup(config->program.command);
    if (exec->command == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    if (config->on_exit != NULL)
        exec->on_exit = *config->on_exit;
    else
        rc = handler_on_exit_parse(NULL, &exec->on_exit, err);
    if (rc == 0)
        rc = idem_nest_open(&exec->nest, exec->loop, err);
    exec_runs_init(exec);
    return rc;
}

int handler_exec_open(const struct handler_exec_config *config, struct idem_loop *loop,
                      struct handler *ret, struct idem_error *err) {
    struct exec *exec;
    int rc = handler_open_check_program("--exec", &config->program, config->workers, err);

    if (rc < 0)
        return rc;
    exec = calloc(1, sizeof(*exec) + config->workers * sizeof(exec->runs[0]));
    if (exec == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    exec->loop = loop;
    rc = exec_init(exec, config, err);
    if (rc < 0) {
        exec_close(exec);
        return rc;
    }
    *ret = (struct handler){
        .queue = {.data = exec,
                  .workers = config->workers,
                  .begin = exec_begin,
                  .cancel = exec_cancel},
        .close = exec_close,
    };
    return 0;
}
