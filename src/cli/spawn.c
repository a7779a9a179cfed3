/*
 * Fork and exec. Fails as fork(2), socketpair(2) and exec(3) do. The two sides
 * talk: the child waits until it may begin, and the errno of exec comes back, so
 * that "not found" is known before anything is said to have run.
 */
#include "cli/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/loop.h"

/* Async-signal-safe calls only. 0, or -1 with errno. */
static int descriptors_take(const struct cli_spawn *how) {
    for (int i = 0; i < 3; i++)
        if (how->fds[i] >= 0 && dup2(how->fds[i], i) < 0)
            return -1;
    /* Ours have O_CLOEXEC, those of libraries may not. A kernel that does not know the call leaves
       them open. */
    if (how->alone)
        (void)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    return 0;
}

/* Until it may begin; false: it may not. */
static bool child_wait(int report) {
    ssize_t n;
    char go;

    do
        n = read(report, &go, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* Between fork and exec: async-signal-safe calls only. */
_Noreturn static void child_become(const struct cli_spawn *how, const int ends[2], pid_t parent) {
    int report = ends[1], why;

    close(ends[0]); /* or its own read would never see that the other side is gone */
    if (how->own_group)
        setpgid(0, 0);
    if (how->die_with != 0) {
        prctl(PR_SET_PDEATHSIG, how->die_with);
        /* It may be gone already, and then the signal never comes. */
        if (getppid() != parent)
            _exit(127);
    }
    if (descriptors_take(how) < 0)
        goto failed;
    environ = how->env;
    if (!child_wait(report))
        _exit(127);
    if (how->signals != NULL)
        cli_signals_restore(how->signals);
    /* Here, and not before the fork: whatever has held idem up until now counts. */
    if (idem_loop_now() >= how->not_after) {
        why = CLI_SPAWN_LATE;
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

/* Lets it go, and says what exec said: 0 once the other end was closed by its success. */
static int child_release(int report) {
    bool sent = send(report, "", 1, MSG_NOSIGNAL) == 1;
    int why = 0;
    ssize_t n;

    do
        n = read(report, &why, sizeof(why));
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof(why))
        return why;
    return sent ? 0 : ESRCH; /* somebody has killed it before */
}

static int child_prepare(const struct cli_spawn *how, pid_t pid) {
    /* Here as well: whoever comes first, the group is there before it is signalled. */
    if (how->own_group)
        setpgid(pid, pid);
    return how->prepare == NULL ? 0 : how->prepare(how->data, pid);
}

int cli_spawn(const struct cli_spawn *how, pid_t *ret) {
    pid_t parent = getpid(), pid;
    int report[2], why;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, report) < 0)
        return errno;
    pid = fork();
    why = errno;
    if (pid == 0)
        child_become(how, report, parent);
    close(report[1]);
    if (pid > 0) {
        why = child_prepare(how, pid);
        if (why == 0)
            why = child_release(report[0]);
    }
    close(report[0]);
    if (why == 0)
        *ret = pid;
    else if (pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    return why;
}
