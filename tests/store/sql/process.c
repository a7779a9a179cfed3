/*
 * Starting and ending the processes of servers, for tests.
 */
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wait.h"

#define FAMILY_MAX 512

void process_fail(const char *folder, const char *what) {
    char path[600], line[1000];
    FILE *log;

    fprintf(stderr, "# %s: %s\n", folder, what);
    snprintf(path, sizeof(path), "%.500s/log", folder);
    log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof(line), log) != NULL)
        fprintf(stderr, "# %s", line);
    exit(1);
}

/* NULL: the process keeps the test's user. */
static const struct passwd *runner(const char *user) {
    const struct passwd *found;

    if (geteuid() != 0)
        return NULL;
    found = getpwnam(user);
    return found != NULL ? found : getpwnam("nobody");
}

uid_t process_uid(const char *user) {
    const struct passwd *who = runner(user);

    return who == NULL ? geteuid() : who->pw_uid;
}

void process_give(const char *path, const char *user) {
    const struct passwd *who = runner(user);

    if (chmod(path, 0600) < 0 || (who != NULL && chown(path, who->pw_uid, who->pw_gid) < 0))
        process_fail(path, strerror(errno));
}

/* A test's directory is private, but another user has to pass through it. The directories above
 * the temporary ones are not the test's to change. */
static void folder_open(const char *folder) {
    const char *base = getenv("TMPDIR");
    char path[512];
    size_t top;
    struct stat st;

    if (base == NULL || base[0] == '\0')
        base = "/tmp";
    top = strlen(base);
    snprintf(path, sizeof(path), "%s", folder);
    if (strncmp(path, base, top) != 0)
        return;
    for (char *end = strrchr(path, '/'); end != NULL && end > path + top;
         end = strrchr(path, '/')) {
        *end = '\0';
        if (stat(path, &st) == 0 && st.st_uid == geteuid())
            (void)chmod(path, (st.st_mode & 07777) | 0011);
    }
}

void process_folder(const char *folder, const char *user) {
    const struct passwd *who = runner(user);

    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        process_fail(folder, strerror(errno));
    if (who == NULL)
        return;
    folder_open(folder);
    if (chown(folder, who->pw_uid, who->pw_gid) < 0)
        process_fail(folder, strerror(errno));
}

#define CLOCK_COPY "clock.so"

/* Another user may not reach the build directory, and the loader silently skips a preload that
 * it cannot read. */
static void clock_copy(const struct process_how *how) {
    char path[600], bytes[65536];
    int from = open(CLOCK_PRELOAD, O_RDONLY | O_CLOEXEC), to;
    ssize_t n;

    snprintf(path, sizeof(path), "%.500s/" CLOCK_COPY, how->folder);
    to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (from < 0 || to < 0)
        process_fail(how->folder, CLOCK_PRELOAD);
    while ((n = read(from, bytes, sizeof(bytes))) > 0)
        if (write(to, bytes, (size_t)n) != n)
            process_fail(how->folder, path);
    close(from);
    close(to);
}

static void clock_set(const struct process_how *how) {
    char fd[16], path[600];

    if (how->clock_fd < 0)
        return;
    snprintf(fd, sizeof(fd), "%d", how->clock_fd);
    snprintf(path, sizeof(path), "%.500s/" CLOCK_COPY, how->folder);
    setenv("IDEM_CLOCK_FD", fd, 1);
    setenv("LD_PRELOAD", path, 1);
    fcntl(how->clock_fd, F_SETFD, 0);
}

static void child(const struct process_how *how, const char *const *argv, pid_t parent) {
    const struct passwd *who = runner(how->user);
    sigset_t none;
    int in = open("/dev/null", O_RDWR), log;

    if (who != NULL && (initgroups(who->pw_name, who->pw_gid) < 0 || setgid(who->pw_gid) < 0 ||
                        setuid(who->pw_uid) < 0))
        _exit(126);
    /* After setuid(), which clears this setting. */
    prctl(PR_SET_PDEATHSIG, how->death);
    if (getppid() != parent || chdir(how->folder) < 0)
        _exit(126);
    log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(in, 0);
    dup2(log, 1);
    dup2(log, 2);
    setenv("TMPDIR", how->folder, 1); /* another user may not write to the test's TMPDIR */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    clock_set(how);
    execvp(argv[0], (char **)argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

pid_t process_start(const struct process_how *how, const char *const *argv) {
    pid_t parent = getpid(), pid;

    if (how->clock_fd >= 0)
        clock_copy(how);
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        process_fail(how->folder, strerror(errno));
    if (pid == 0)
        child(how, argv, parent);
    return pid;
}

void process_run(const struct process_how *how, const char *const *argv) {
    pid_t pid = process_start(how, argv);
    int status = 0;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        process_fail(how->folder, argv[0]);
}

/* Reads the parent and the state of a process or a thread from its file; false: there is none. */
static bool stat_look(const char *path, long *parent, char *state) {
    char text[512];
    const char *end;
    FILE *file;
    size_t n;

    file = fopen(path, "r");
    if (file == NULL)
        return false;
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    end = strrchr(text, ')'); /* the name may contain blanks */
    if (end == NULL || strlen(end) < 5)
        return false;
    *state = end[2];
    *parent = strtol(end + 4, NULL, 10);
    return true;
}

static bool process_look(long pid, long *parent, char *state) {
    char path[64];

    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    return stat_look(path, parent, state);
}

/* True if all threads of a process stand still; each notices the signal in its own time. */
static bool process_stands(pid_t pid) {
    char path[400], state;
    struct dirent *entry;
    bool stands = true;
    long parent;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    tasks = opendir(path);
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%ld/task/%s/stat", (long)pid, entry->d_name);
        if (entry->d_name[0] != '.' && stat_look(path, &parent, &state) &&
            strchr("TtZX", state) == NULL)
            stands = false;
    }
    if (tasks != NULL)
        closedir(tasks);
    return stands;
}

/* Adds to `family` the children of its members; returns their number. */
static size_t family_find(pid_t *family, size_t n) {
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    long parent;
    char state;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        long pid = strtol(entry->d_name, NULL, 10);
        bool known = false, ours = false;

        if (pid <= 0 || !process_look(pid, &parent, &state))
            continue;
        for (size_t i = 0; i < n; i++) {
            known |= family[i] == pid;
            ours |= family[i] == parent;
        }
        if (ours && !known && n < FAMILY_MAX)
            family[n++] = (pid_t)pid;
    }
    if (proc != NULL)
        closedir(proc);
    return n;
}

/* Stops the whole family; a stopped process has no new children. */
static size_t family_stop(pid_t pid, pid_t *family) {
    size_t n = 1, known = 0;

    family[0] = pid;
    while (known < n) {
        for (; known < n; known++)
            kill(family[known], SIGSTOP);
        n = family_find(family, n);
    }
    return n;
}

static bool process_gone(pid_t pid) {
    long parent;
    char state;

    return !process_look(pid, &parent, &state) || state == 'Z' || state == 'X';
}

void process_kill_all(pid_t pid) {
    pid_t family[FAMILY_MAX];
    size_t n = family_stop(pid, family);

    for (size_t i = 0; i < n; i++)
        kill(family[i], SIGKILL);
    waitpid(pid, NULL, 0);
    for (size_t i = 1; i < n; i++)
        WAIT_UNTIL(process_gone(family[i]));
}

/* process_go_on() closes the other end of `fd`, or the test's exit does. */
static void guard(int fd, const pid_t *family, size_t n) {
    char byte;

    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i < n; i++)
        kill(family[i], SIGCONT);
    _exit(0);
}

void process_pause_all(pid_t pid, struct process_pause *pause) {
    pid_t family[FAMILY_MAX];
    size_t n = family_stop(pid, family);
    int ends[2];

    if (pause->guard != 0)
        return;
    for (size_t i = 0; i < n; i++)
        WAIT_UNTIL(process_stands(family[i]));
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) < 0 || (pause->guard = fork()) < 0)
        process_fail("pause", strerror(errno));
    if (pause->guard == 0) {
        close(ends[1]);
        guard(ends[0], family, n);
    }
    close(ends[0]);
    pause->fd = ends[1];
}

void process_go_on(struct process_pause *pause) {
    if (pause->guard == 0)
        return;
    close(pause->fd);
    waitpid(pause->guard, NULL, 0);
    pause->guard = 0;
}

void process_end(pid_t pid, int signal) {
    int64_t end = wait_now_ms() + WAIT_LIMIT_S * 1000;

    kill(pid, signal);
    while (wait_now_ms() < end) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        wait_step();
    }
    process_kill_all(pid);
}
