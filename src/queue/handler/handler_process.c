/*
 * Processes of handlers. Starting fails as spawn_start() does, or without a descriptor for the
 * process's end. That descriptor is watched before the program begins, so that every end is
 * noticed. The process is reaped only after the last signal to its group, so that no other
 * group gets its number before.
 */
#include "queue/handler/handler_process.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Limit for the wait for the end of a killed process: it may hang in the kernel. */
#define REAP_MS 1000

static void process_signal(const struct handler_process *process, int sig) {
    if (process->pid != 0)
        kill(-process->pid, sig);
}

static void process_forget(struct handler_process *process) {
    idem_timer_clear(process->epoll_set->loop, &process->kill);
    idem_epoll_set_unwatch(process->epoll_set, &process->fd);
    close(process->fd.fd);
    process->fd.fd = -1;
    process->pid = 0;
    process->ending = false;
}

/* True if the process has ended. Does not reap it. */
static bool process_has_ended(const struct handler_process *process, struct spawn_end *ret) {
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
        if (errno != ECHILD)
            return false;
        /* Where SIGCHLD is ignored, children vanish without a status. */
        *ret = (struct spawn_end){.signalled = true};
        return true;
    }
    if (info.si_pid == 0)
        return false;
    *ret = (struct spawn_end){.signalled = info.si_code != CLD_EXITED,
                              .number = info.si_status & 0xff};
    return true;
}

static bool process_reap(struct handler_process *process, struct spawn_end *ret) {
    if (!process_has_ended(process, ret))
        return false;
    if (process->ending || process->whole_group)
        process_signal(process, SIGKILL);
    while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    process_forget(process);
    return true;
}

static void process_ready(struct idem_fd *fd, int events) {
    struct handler_process *process = idem_container_of(fd, struct handler_process, fd);
    struct spawn_end end;

    (void)events;
    if (process_reap(process, &end))
        process->ended(process, &end);
}

static void process_kill_late(struct idem_timer *timer) {
    process_signal(idem_container_of(timer, struct handler_process, kill), SIGKILL);
}

/* Runs before the program begins. */
static int process_prepare(void *data, pid_t pid) {
    struct handler_process *process = data;

    process->fd = (struct idem_fd){.fd = pidfd_open(pid, 0), .ready = process_ready};
    if (process->fd.fd < 0)
        return errno;
    if (idem_epoll_set_watch(process->epoll_set, &process->fd, IDEM_READ) == 0)
        return 0;
    close(process->fd.fd);
    process->fd.fd = -1;
    return ENOMEM;
}

int handler_process_start(struct handler_process *process, char *command, struct spawn *how) {
    char shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = {shell, option, command, NULL};
    int why;

    process->fd.fd = -1;
    process->kill.fire = process_kill_late;
    process->ending = false;
    how->argv = argv;
    how->own_group = how->alone = true;
    how->prepare = process_prepare;
    how->data = process;
    why = spawn_start(how, &process->pid);
    if (why != 0 && process->fd.fd >= 0)
        process_forget(process);
    return why;
}

bool handler_process_runs(const struct handler_process *process) {
    struct spawn_end end;

    return process->pid != 0 && !process_has_ended(process, &end);
}

void handler_process_end(struct handler_process *process) {
    if (process->pid == 0 || process->ending)
        return;
    process->ending = true;
    process_signal(process, SIGTERM);
    process_signal(process, SIGCONT); /* a stopped process would not handle SIGTERM */
    handler_process_kill_in(process, process->kill_after_ms);
}

void handler_process_kill_in(struct handler_process *process, int64_t ms) {
    process->ending = true;
    idem_timer_set(process->epoll_set->loop, &process->kill, ms);
}

void handler_process_kill(struct handler_process *process) {
    process->ending = true;
    process_signal(process, SIGKILL);
}

bool handler_process_wait(struct handler_process *process, int64_t ms) {
    int64_t until = idem_loop_now() + ms;
    struct spawn_end end;

    while (process->pid != 0 && !process_reap(process, &end)) {
        struct pollfd fd = {.fd = process->fd.fd, .events = POLLIN};
        int64_t left = until - idem_loop_now();

        if (left <= 0)
            return false;
        poll(&fd, 1, (int)(left < 1000 ? left : 1000));
    }
    return true;
}

void handler_process_release(struct handler_process *process) {
    if (process->pid == 0)
        return;
    handler_process_kill(process);
    if (!handler_process_wait(process, REAP_MS))
        process_forget(process);
}

const char *handler_process_end_text(const struct spawn_end *end, char buf[HANDLER_END_TEXT]) {
    if (end->signalled)
        snprintf(buf, HANDLER_END_TEXT, "ended by signal %d (%s)", end->number,
                 strsignal(end->number));
    else
        snprintf(buf, HANDLER_END_TEXT, "exit status %d", end->number);
    return buf;
}
