/*
 * The test frame: TEST(a_sentence) { ... } bodies with CHECK, in one program
 * per file, ending with TEST_MAIN. Each test runs in a child process of its
 * own under a time limit, so that a crash or a hang is one failed test; the
 * output is TAP. `program NAME...` runs the named tests only, `--no-fork` runs
 * them in the program itself, for a debugger.
 */
#ifndef IDEM_TEST_H
#define IDEM_TEST_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct test {
    const char *name;
    void (*run)(void);
    unsigned seconds;
    struct test *next;
};

static struct test *test_first, **test_last = &test_first;

#define TEST_IN(name, limit)                                                                       \
    static void name(void);                                                                        \
    __attribute__((constructor)) static void name##_register(void) {                               \
        static struct test t = {#name, name, limit, NULL};                                         \
        *test_last = &t;                                                                           \
        test_last = &t.next;                                                                       \
    }                                                                                              \
    static void name(void)
#define TEST(name) TEST_IN(name, 60)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "# %s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #cond);             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_) {                                                                       \
            fprintf(stderr, "# %s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_,     \
                    want_);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (got_ == NULL || strcmp(got_, want_) != 0) {                                            \
            fprintf(stderr, "# %s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #got,       \
                    got_ == NULL ? "(null)" : got_, want_);                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *text_ = (text);                                                                \
        if (strstr(text_, (part)) == NULL) {                                                       \
            fprintf(stderr, "# %s:%d: \"%s\" does not contain \"%s\"\n", __FILE__, __LINE__,       \
                    text_, (part));                                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static bool test_run(const struct test *t) {
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0) {
        alarm(t->seconds);
        t->run();
        exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        fprintf(stderr, "# %s: died by signal %d%s\n", t->name, WTERMSIG(status),
                WTERMSIG(status) == SIGALRM ? " (time limit)" : "");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* nohup and a shell's `&` leave signals ignored, which every process under them inherits. */
static void test_signals(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)signal(signals[i], SIG_DFL);
}

static int test_main(int argc, char **argv) {
    bool forked = true;
    int chosen = 0, failed = 0, n = 0;
    struct test *t;

    test_signals();
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-fork") == 0)
            forked = false;
        else
            chosen++;
    }
    for (t = test_first; t != NULL; t = t->next) {
        bool wanted = chosen == 0, ok = true;

        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], t->name) == 0;
        if (!wanted)
            continue;
        if (forked)
            ok = test_run(t);
        else
            t->run();
        printf("%s %d - %s\n", ok ? "ok" : "not ok", ++n, t->name);
        failed += !ok;
    }
    printf("1..%d\n", n);
    if (n < chosen)
        fprintf(stderr, "# there is no test of that name\n");
    return failed != 0 || n < chosen;
}

#define TEST_MAIN                                                                                  \
    int main(int argc, char **argv) {                                                              \
        return test_main(argc, argv);                                                              \
    }

#endif
