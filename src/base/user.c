/*
 * Asks for the permissions of another user.
 */
#include "base/user.h"

#include <errno.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

static bool user_become(const struct idem_user *user) {
    return initgroups(user->name, user->gid) == 0 && setgid(user->gid) == 0 &&
           setuid(user->uid) == 0;
}

bool idem_user_may(const struct idem_user *user, bool (*may)(const char *path), const char *path) {
    int status = 0;
    pid_t pid;

    if (user == NULL)
        return may(path);
    pid = fork();
    if (pid == 0)
        _exit(user_become(user) && may(path) ? 0 : (errno == 0 ? EACCES : errno));
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (pid > 0)
        errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return pid > 0 && errno == 0;
}
