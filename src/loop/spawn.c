/*
 * Fork and exec. Fails as fork(2), socketpair(2) and exec(3) do. Parent and child share a socket
 * pair: the child waits for permission to start, and sends the errno of a failed exec, so that
 * "not found" is known before the program counts as started.
 */
#include "loop/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/loop.h"

/* Async-signal-safe calls only. 0, or -1 with errno. */
static int spawn_descriptors_take(const struct spawn *how) {
    for (int i = 0; i < 3; i++)
        if (how->fds[i] >= 0 && dup2(how->fds[i], i) < 0)
            return -1;
    /* Our descriptors have O_CLOEXEC; those of libraries may not. A kernel without
       close_range(2) leaves those open. */
    if (how->alone)
        (void)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    return 0;
}

/* Waits for the parent's permission; false: the parent has closed its end. */
static bool spawn_child_wait(int report) {
    ssize_t n;
    char go;

    do
        n = read(report, &go, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* Between fork and exec: async-signal-safe calls only. */
_Noreturn static void spawn_child_exec(const struct spawn *how, const int ends[2], pid_t parent) {
    int report = ends[1], why;

    close(ends[0]); /* or its own read would never detect that the parent has closed its end */
    if (how->own_group)
        setpgid(0, 0);
    if (how->die_with != 0) {
        prctl(PR_SET_PDEATHSIG, how->die_with);
        /* The parent may have died before the prctl(); the signal would then never arrive. */
        if (getppid() != parent)
            _exit(127);
    }
    if (spawn_descriptors_take(how) < 0)
        goto failed;
    environ = how->env;
    if (!spawn_child_wait(report))
        _exit(127);
    if (how->signals != NULL)
        signals_restore(how->signals);
    /* Checked here and not before the fork, so that every delay of idem until now counts. */
    if (idem_loop_now() >= how->not_after) {
        why = SPAWN_LATE;
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

/* Lets the child start, and returns the errno of exec: 0 after its success, which closes the
   child's end. */
static int spawn_child_release(int report) {
    bool sent = send(report, "", 1, MSG_NOSIGNAL) == 1;
    int why = 0;
    ssize_t n;

    do
        n = read(report, &why, sizeof(why));
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof(why))
        return why;
    return sent ? 0 : ESRCH; /* the child was killed before */
}

static int spawn_child_prepare(const struct spawn *how, pid_t pid) {
    /* Both sides set the group, so that it exists before either signals it. */
    if (how->own_group)
        setpgid(pid, pid);
    return how->prepare == NULL ? 0 : how->prepare(how->data, pid);
}

int spawn_start(const struct spawn *how, pid_t *ret) {
    pid_t parent = getpid(), pid;
    int report[2], why;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, report) < 0)
        return errno;
    pid = fork();
    why = errno;
    if (pid == 0)
        spawn_child_exec(how, report, parent);
    close(report[1]);
    if (pid > 0) {
        why = spawn_child_prepare(how, pid);
        if (why == 0)
            why = spawn_child_release(report[0]);
    }
    close(report[0]);
    if (why == 0)
        *ret = pid;
    else if (pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    return why;
}
