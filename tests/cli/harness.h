/*
 * Black-box tests of idem(1): starts the real binary ($IDEM_EXE) on a store of
 * its own and looks at what it writes and how it ends. Each test has a folder
 * of its own, removed at its end.
 */
#ifndef IDEM_TESTS_CLI_HARNESS_H
#define IDEM_TESTS_CLI_HARNESS_H

#include "temp.h"
#include "test.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>

/* Which descriptor of idem's is --verdict-fd in these tests. */
#define VERDICT_FD "9"

struct proc {
    pid_t pid;
    int out, err, verdict; /* files that can be read while it runs */
};

/* How it ended, and what it wrote; NUL-terminated besides. */
struct ran {
    int status; /* exit status, or -1 */
    int signal; /* it died by, or 0 */
    char *out, *err, *verdict;
    size_t out_len, err_len;
};

/* The folder of this test, made at its first use, where the store is as well. Signals are as a
   person would have them: a script that runs tests with `&` ignores SIGINT and SIGQUIT. */
__attribute__((unused)) static const char *harness_folder(void) {
    char audit[sizeof(temp_path) + 8];

    if (temp_path[0] == '\0') {
        setenv("IDEM_STORE", temp_url("store", NULL), 1);
        snprintf(audit, sizeof(audit), "%s/audit", temp_folder());
        setenv("IDEM_AUDIT", audit, 1);
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
    }
    return temp_folder();
}

/* Remembers what a test has allocated until it ends: tests are short, and free nothing. */
static void *keep(void *block) {
    static struct kept {
        struct kept *next;
        void *block;
    } * kept;
    struct kept *one = malloc(sizeof(*one));

    CHECK(block != NULL && one != NULL);
    *one = (struct kept){kept, block};
    kept = one;
    return block;
}

/* A path inside it; four are valid at a time. */
__attribute__((unused)) static const char *in_folder(const char *name) {
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", harness_folder(), name);
    return path;
}

static int harness_file(void) {
    int fd = open(harness_folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char path[512];

    if (fd >= 0)
        return fd;
    snprintf(path, sizeof(path), "%s/out.XXXXXX", harness_folder());
    fd = mkostemp(path, O_CLOEXEC);
    CHECK(fd >= 0);
    unlink(path);
    return fd;
}

__attribute__((unused)) static const char *harness_exe(void) {
    const char *exe = getenv("IDEM_EXE");

    CHECK(exe != NULL);
    return exe;
}

/* In a child: `from` becomes `to`, and stays open over exec even if it is `to` already. */
static void harness_dup(int from, int to) {
    if (from == to)
        fcntl(to, F_SETFD, 0);
    else
        dup2(from, to);
}

/* `in` is its stdin, -1 for /dev/null. argv ends with NULL and begins behind "idem". */
__attribute__((unused)) static struct proc proc_start_on(int in, const char *const *argv) {
    struct proc proc = {.out = harness_file(), .err = harness_file(), .verdict = harness_file()};
    const char *args[64] = {harness_exe()};

    for (int i = 0; argv[i] != NULL; i++) {
        CHECK(i < 62);
        args[i + 1] = argv[i];
    }
    fflush(NULL);
    proc.pid = fork();
    CHECK(proc.pid >= 0);
    if (proc.pid == 0) {
        setsid(); /* as cron has it: no terminal, whoever runs the tests */
        if (in < 0)
            in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        harness_dup(in, 0);
        harness_dup(proc.out, 1);
        harness_dup(proc.err, 2);
        harness_dup(proc.verdict, 9);
        execv(args[0], (char **)args);
        _exit(99);
    }
    return proc;
}

#define START(...) proc_start_on(-1, (const char *const[]){__VA_ARGS__, NULL})

__attribute__((unused)) static char *slurp(int fd, size_t *ret_len) {
    struct stat stat;
    char *bytes;
    ssize_t n;

    CHECK(fstat(fd, &stat) == 0);
    bytes = keep(malloc((size_t)stat.st_size + 1));
    n = pread(fd, bytes, (size_t)stat.st_size, 0);
    CHECK(n >= 0);
    bytes[n] = '\0';
    if (ret_len != NULL)
        *ret_len = (size_t)n;
    return bytes;
}

__attribute__((unused)) static struct ran proc_wait(struct proc *proc) {
    struct ran ran = {.status = -1};
    int status;

    while (waitpid(proc->pid, &status, 0) < 0)
        CHECK(errno == EINTR);
    if (WIFEXITED(status))
        ran.status = WEXITSTATUS(status);
    else
        ran.signal = WTERMSIG(status);
    ran.out = slurp(proc->out, &ran.out_len);
    ran.err = slurp(proc->err, &ran.err_len);
    ran.verdict = slurp(proc->verdict, NULL);
    close(proc->out);
    close(proc->err);
    close(proc->verdict);
    return ran;
}

__attribute__((unused)) static struct ran run_argv(const char *const *argv) {
    struct proc proc = proc_start_on(-1, argv);

    return proc_wait(&proc);
}

#define RUN(...) run_argv((const char *const[]){__VA_ARGS__, NULL})

/* idem run with a verdict, of a shell command. */
#define RUN_SH(key, script, ...)                                                                   \
    RUN("run", "--verdict-fd", VERDICT_FD, "--key", key, ##__VA_ARGS__, "--", "sh", "-c", script)
#define START_SH(key, script, ...)                                                                 \
    START("run", "--verdict-fd", VERDICT_FD, "--key", key, ##__VA_ARGS__, "--", "sh", "-c", script)

__attribute__((unused)) static void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&t, &t) < 0)
        CHECK(errno == EINTR);
}

/* Waits until `done` holds; the test's own time limit ends a wait in vain. */
#define WAIT_FOR(done)                                                                             \
    do {                                                                                           \
        for (int waited_ = 0; !(done); waited_++) {                                                \
            CHECK(waited_ < 4000);                                                                 \
            sleep_ms(5);                                                                           \
        }                                                                                          \
    } while (0)

__attribute__((unused)) static bool exists(const char *name) {
    return access(in_folder(name), F_OK) == 0;
}

/* Whether what it has written so far contains this. */
__attribute__((unused)) static bool wrote(int fd, const char *part) {
    return strstr(slurp(fd, NULL), part) != NULL;
}

/* What is in a file of the folder; "" if it is not there. */
__attribute__((unused)) static char *file_text(const char *name) {
    int fd = open(in_folder(name), O_RDONLY);
    char *text = fd < 0 ? "" : slurp(fd, NULL);

    if (fd >= 0)
        close(fd);
    return text;
}

/* Lines of a file in the folder: how often a command has run that appends one. */
__attribute__((unused)) static int lines_of(const char *name) {
    int fd = open(in_folder(name), O_RDONLY), n = 0;
    char *bytes;

    if (fd < 0)
        return 0;
    bytes = slurp(fd, NULL);
    close(fd);
    for (char *c = bytes; *c != '\0'; c++)
        n += *c == '\n';
    return n;
}

/* A shell script, as printf() writes it. */
__attribute__((unused, format(printf, 1, 2))) static char *script(const char *fmt, ...) {
    va_list args;
    char *text = NULL;

    va_start(args, fmt);
    CHECK(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    return keep(text);
}

__attribute__((unused)) static bool starts_with(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

#endif
