/*
 * Black-box tests of idem(1): starts the real binary ($IDEM_EXE) on a store of
 * its own and checks its output and its exit. Each test has a directory of its
 * own, which is removed at its end.
 */
#ifndef IDEM_TESTS_CLI_HARNESS_H
#define IDEM_TESTS_CLI_HARNESS_H

#include "lease_clock.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

/* The descriptor for --verdict-fd in these tests. */
#define VERDICT_FD "9"

struct proc {
    pid_t pid;
    int out, err, verdict; /* files that the test can read while the program runs */
};

/* The program's exit and its output; each text also ends with a NUL. */
struct ran {
    int status; /* exit status, or -1 */
    int signal; /* the signal that killed it, or 0 */
    char *out, *err, *verdict;
    size_t out_len, err_len;
};

/* The lease clock of all programs that are started from now on: lease_clock.c. A test that moves
 * no clock starts its programs without that library. */
static volatile struct lease_clock *harness_clock;

static void clock_make(void) {
    const char *library = getenv("IDEM_LEASE_CLOCK_LIBRARY");
    char path[sizeof(temp_path) + 8];
    void *at;
    int fd;

    if (library == NULL)
        return;
    snprintf(path, sizeof(path), "%s/clock", temp_path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(*harness_clock)) == 0);
    at = mmap(NULL, sizeof(*harness_clock), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    close(fd);
    harness_clock = at;
    setenv("IDEM_LEASE_CLOCK", path, 1);
    setenv("LD_PRELOAD", library, 1);
}

/* The directory of this test, which also holds the store, made at its first use. Signals are as
 * in an interactive shell: a script that runs tests with `&` ignores SIGINT and SIGQUIT. */
__attribute__((unused)) static const char *harness_folder(void) {
    char audit[sizeof(temp_path) + 8];

    if (temp_path[0] == '\0') {
        setenv("IDEM_STORE", temp_url("store", NULL), 1);
        snprintf(audit, sizeof(audit), "%s/audit", temp_folder());
        setenv("IDEM_AUDIT", audit, 1);
        clock_make();
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
    }
    return temp_folder();
}

/* Keeps a block reachable until the test ends: tests are short, and free nothing. */
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

/* A path in the directory; four are valid at a time. */
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

/* In a child: makes `to` a copy of `from` that stays open over exec, even if both are equal. */
static void harness_dup(int from, int to) {
    if (from == to)
        fcntl(to, F_SETFD, 0);
    else
        dup2(from, to);
}

/* `in` is its stdin, -1 for /dev/null. argv ends with NULL and begins after "idem". */
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
        setsid(); /* as under cron: no terminal, however the tests are run */
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

/* idem run of a shell command, with a verdict. */
#define RUN_SH(key, script, ...)                                                                   \
    RUN("run", "--verdict-fd", VERDICT_FD, "--key", key, ##__VA_ARGS__, "--", "sh", "-c", script)
#define START_SH(key, script, ...)                                                                 \
    START("run", "--verdict-fd", VERDICT_FD, "--key", key, ##__VA_ARGS__, "--", "sh", "-c", script)

__attribute__((unused)) static bool exists(const char *name) {
    return access(in_folder(name), F_OK) == 0;
}

/* True if the output so far contains this text. */
__attribute__((unused)) static bool wrote(int fd, const char *part) {
    return strstr(slurp(fd, NULL), part) != NULL;
}

/* The content of a file in the directory; "" if it is missing. */
__attribute__((unused)) static char *file_text(const char *name) {
    int fd = open(in_folder(name), O_RDONLY);
    char *text = fd < 0 ? "" : slurp(fd, NULL);

    if (fd >= 0)
        close(fd);
    return text;
}

/* The number of lines of a file in the directory: how often a command that appends one has run. */
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

/* A shell script, formatted as by printf(). */
__attribute__((unused, format(printf, 1, 2))) static char *script(const char *fmt, ...) {
    va_list args;
    char *text = NULL;

    va_start(args, fmt);
    CHECK(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    return keep(text);
}

__attribute__((unused)) static void wait_ms(long ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&left, &left) < 0) /* sleep: the caller gives the reason */
        CHECK(errno == EINTR);
}

/* Part of a script: waits until this file exists, or the directory does not. */
__attribute__((unused)) static const char *until_there(const char *name) {
    return script("while [ ! -e %s ] && [ -e %s ]; do sleep .02; done", in_folder(name),
                  harness_folder());
}

__attribute__((unused)) static void make_there(const char *name) {
    int fd = creat(in_folder(name), 0600);

    CHECK(fd >= 0);
    close(fd);
}

/* The content of a file in /proc/PID; "" if there is no such process. */
__attribute__((unused)) static char *proc_text(pid_t pid, const char *name) {
    static char text[65536];
    char path[64];
    FILE *file;
    size_t n = 0;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    file = fopen(path, "r");
    if (file != NULL) {
        n = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

/* The state of a process: a letter, 'X' if there is none. */
__attribute__((unused)) static char proc_state(pid_t pid) {
    const char *end = strrchr(proc_text(pid, "stat"), ')');

    return end == NULL ? 'X' : end[2];
}

/* True if the process has opened the test's store. */
__attribute__((unused)) static bool has_store(pid_t pid) {
    return strstr(proc_text(pid, "maps"), in_folder("store")) != NULL;
}

/* The rest of a record's lease, in ms; 0: none. */
__attribute__((unused)) static long lease_left(const char *key) {
    const char *left = strstr(RUN("show", "--json", key).out, "\"left_ms\":");

    return left == NULL ? 0 : strtol(left + strlen("\"left_ms\":"), NULL, 10);
}

/* A lease that lasts longer than any pause of a machine; it ends when the test moves the clock. */
#define LEASE "10m"
#define LEASE_S 600

/* Moves the clock of all programs that this test has started and will start. */
__attribute__((unused)) static void clock_forward(int64_t seconds) {
    harness_folder();
    harness_clock->ahead_s += seconds;
}

/* Stops the clock. */
__attribute__((unused)) static void clock_stop(void) {
    struct timespec now;

    harness_folder();
    CHECK(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    harness_clock->stopped_s = now.tv_sec;
}

/* Moves the clock, and makes an idem run read it. The run passes the signal on to its command,
 * which ignores it. */
__attribute__((unused)) static void clock_forward_for(pid_t pid, int64_t seconds) {
    clock_forward(seconds);
    kill(pid, SIGCONT);
}

/* Ends all leases. */
__attribute__((unused)) static void leases_end(void) {
    clock_forward(LEASE_S + 1);
}

/* The store shows about the full length of the lease. */
__attribute__((unused)) static bool is_renewed(const char *key) {
    return lease_left(key) > LEASE_S * 1000L * 3 / 4;
}

/* Moves the clock by half a lease, twice, and waits for the renewal each time. */
__attribute__((unused)) static void renewals_wait(const char *key, pid_t pid) {
    for (int i = 0; i < 2; i++) {
        clock_forward_for(pid, LEASE_S / 2);
        WAIT_UNTIL(is_renewed(key));
    }
}

__attribute__((unused)) static bool starts_with(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

#endif
