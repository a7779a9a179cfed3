/*
 * Starts and watches the command. Starting fails as pipe(2) and spawn_start() do.
 */
#include "cli/run/run_child.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

bool cli_has_tty(void) {
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return false;
    close(fd);
    return true;
}

static void run_child_fds_close(int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* fds holds the pipes of stdout and stderr; the even ones are the ends that idem reads. */
static int child_streams_init(struct cli_child *child, int fds[4]) {
    for (int i = 0; i < 2; i++) {
        int from = fds[2 * i];

        fds[2 * i] = -1;
        if (cli_stream_init(&child->streams[i], i + 1, from, i == 0 ? NULL : child->streams) < 0)
            return errno;
    }
    return 0;
}

int cli_child_start(struct cli_child *child, const struct cli_start *how) {
    int fds[4] = {-1, -1, -1, -1}, why = 0;

    *child = (struct cli_child){.own_group = how->own_group, .piped = how->piped};
    child->streams[0].from = child->streams[1].from = -1;
    if (how->piped && (pipe2(fds, O_CLOEXEC) < 0 || pipe2(fds + 2, O_CLOEXEC) < 0))
        why = errno;
    if (why == 0 && how->piped)
        why = child_streams_init(child, fds);
    if (why == 0)
        why = spawn_start(
            &(struct spawn){
                .argv = how->argv,
                .env = how->env,
                .signals = how->signals,
                .fds = {-1, fds[1], fds[3]},
                .own_group = how->own_group,
                .die_with = how->die_with,
                .not_after = how->not_after,
            },
            &child->pid);
    run_child_fds_close(fds, 4);
    if (why != 0)
        cli_child_release(child);
    return why;
}

void cli_child_signal(const struct cli_child *child, int sig) {
    if (child->pid == 0)
        return;
    if (child->own_group)
        kill(-child->pid, sig);
    else if (!child->ended)
        kill(child->pid, sig);
}

void cli_child_look(struct cli_child *child) {
    siginfo_t info = {0};

    if (child->pid == 0 || child->ended ||
        waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
        return;
    child->ended = true;
    child->end = (struct spawn_end){.signalled = info.si_code != CLD_EXITED,
                                    .number = info.si_status & 0xff};
}

void cli_child_release(struct cli_child *child) {
    if (child->pid != 0 && child->ended)
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    child->pid = 0;
    for (int i = 0; i < 2; i++)
        cli_stream_release(&child->streams[i]);
}
