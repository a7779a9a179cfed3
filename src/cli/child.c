/*
 * Starts and watches the command. Starting fails as fork(2), pipe(2) and
 * exec(3) do, and the errno of exec comes back through a pipe of its own, so
 * that "not found" is known before anything is said to have run.
 */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/loop.h"

bool cli_has_tty(void) {
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return false;
    close(fd);
    return true;
}

/* Between fork and exec: async-signal-safe calls only. */
_Noreturn static void child_become(const struct cli_start *how, const int out[2], int report,
                                   pid_t parent) {
    int why;

    if (how->own_group)
        setpgid(0, 0);
    if (how->die_with != 0) {
        prctl(PR_SET_PDEATHSIG, how->die_with);
        /* It may be gone already, and then the signal never comes. */
        if (getppid() != parent)
            _exit(127);
    }
    if (how->piped && (dup2(out[0], STDOUT_FILENO) < 0 || dup2(out[1], STDERR_FILENO) < 0))
        goto failed;
    cli_signals_restore(how->signals);
    environ = how->env;
    /* Here, and not before the fork: whatever has held idem up until now counts. */
    if (idem_loop_now() >= how->not_after) {
        why = CLI_CHILD_LATE;
        goto report;
    }
    execvp(how->argv[0], how->argv);
failed:
    why = errno;
report:
    while (write(report, &why, sizeof(why)) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* What exec said: 0 once the pipe was closed by its success. */
static int report_read(int fd) {
    int why = 0;
    ssize_t n;

    do
        n = read(fd, &why, sizeof(why));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(why) ? why : 0;
}

static void close_all(int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* fds: stdout's pipe, stderr's pipe, the report's pipe; the parent's ends are the even ones. */
static int child_fork(struct cli_child *child, const struct cli_start *how, int fds[6]) {
    int out[2] = {fds[1], fds[3]}, why;
    pid_t parent = getpid();

    child->pid = fork();
    if (child->pid < 0) {
        child->pid = 0;
        return errno;
    }
    if (child->pid == 0)
        child_become(how, out, fds[5], parent);
    /* Here as well: whoever comes first, the group is there before it is signalled. */
    if (how->own_group)
        setpgid(child->pid, child->pid);
    close(fds[5]);
    fds[5] = -1;
    why = report_read(fds[4]);
    if (why != 0) {
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        child->pid = 0;
    }
    return why;
}

static int streams_init(struct cli_child *child, int fds[6]) {
    for (int i = 0; i < 2; i++) {
        int from = fds[2 * i];

        fds[2 * i] = -1;
        if (cli_stream_init(&child->streams[i], i + 1, from, i == 0 ? NULL : child->streams) < 0)
            return errno;
    }
    return 0;
}

int cli_child_start(struct cli_child *child, const struct cli_start *how) {
    int fds[6] = {-1, -1, -1, -1, -1, -1}, why = 0;

    *child = (struct cli_child){.own_group = how->own_group, .piped = how->piped};
    child->streams[0].from = child->streams[1].from = -1;
    if (pipe2(fds + 4, O_CLOEXEC) < 0 ||
        (how->piped && (pipe2(fds, O_CLOEXEC) < 0 || pipe2(fds + 2, O_CLOEXEC) < 0)))
        why = errno;
    if (why == 0 && how->piped)
        why = streams_init(child, fds);
    if (why == 0)
        why = child_fork(child, how, fds);
    close_all(fds, 6);
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
    child->end =
        (struct cli_end){.signalled = info.si_code != CLD_EXITED, .number = info.si_status & 0xff};
}

void cli_child_release(struct cli_child *child) {
    if (child->pid != 0 && child->ended)
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    child->pid = 0;
    for (int i = 0; i < 2; i++)
        cli_stream_release(&child->streams[i]);
}
