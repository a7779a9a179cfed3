/*
 * The test frame: TEST(a_sentence) { ... } bodies with CHECK, in one program
 * per file, ending with TEST_MAIN. Each test runs in a child process of its
 * own under a time limit, so that a crash or a hang is one failed test; the
 * output is TAP. SKIP("why") ends a test that cannot run on this machine. `program
 * NAME...` runs the named tests only, `--no-fork` runs them in the program itself,
 * for a debugger. A program whose tests wait more than they work, and are
 * independent of each other, may run several at a time.
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
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct test {
    const char *name;
    void (*run)(void);
    unsigned seconds;
    bool alone;
    struct test *next;
    pid_t pid;     /* 0: not running */
    char *skipped; /* the reason; shared with the test's process */
};
#define TEST_WHY_SIZE 256

/* A part of a test program that has no tests of its own uses CHECK alone. */
#define TEST_UNUSED __attribute__((unused))

static struct test *test_first TEST_UNUSED, **test_last TEST_UNUSED = &test_first;
static struct test *test_now TEST_UNUSED; /* in its own process */
static int test_at_a_time = 1, test_running, test_n, test_failed;

#define TEST_AS(name, limit, alone)                                                                \
    static void name(void);                                                                        \
    __attribute__((constructor)) static void name##_register(void) {                               \
        static struct test t = {#name, name, limit, alone, NULL, 0, NULL};                         \
        *test_last = &t;                                                                           \
        test_last = &t.next;                                                                       \
    }                                                                                              \
    static void name(void)
/* Only a test that hangs reaches it. */
#define TEST_LIMIT_S 300
#define TEST_IN(name, limit) TEST_AS(name, limit, false)
#define TEST(name) TEST_AS(name, TEST_LIMIT_S, false)
/* The test runs alone. */
#define TEST_ALONE(name) TEST_AS(name, TEST_LIMIT_S, true)

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

/* In the test's own function: ends the test, which counts as skipped. */
#define SKIP(why)                                                                                  \
    do {                                                                                           \
        snprintf(test_now->skipped, TEST_WHY_SIZE, "%s", (why));                                   \
        return;                                                                                    \
    } while (0)

static void test_tell(const struct test *t, bool ok) {
    bool skipped = ok && t->skipped[0] != '\0';

    printf("%s %d - %s%s%s\n", ok ? "ok" : "not ok", ++test_n, t->name, skipped ? " # SKIP " : "",
           skipped ? t->skipped : "");
    test_failed += !ok;
}

static void test_do(struct test *t) {
    test_now = t;
    t->run();
}

static void test_prepare(struct test *t) {
    t->skipped =
        mmap(NULL, TEST_WHY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t->skipped == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
}

static void test_begin(struct test *t) {
    fflush(NULL);
    t->pid = fork();
    if (t->pid == 0) {
        alarm(t->seconds);
        test_do(t);
        exit(0);
    }
    if (t->pid < 0)
        test_tell(t, false);
    else
        test_running++;
}

/* Waits for the next test that ends; other children of this process are not tests. */
static void test_end_one(void) {
    int status;
    pid_t pid = waitpid(-1, &status, 0);

    if (pid < 0 && errno != EINTR)
        exit(1);
    for (struct test *t = test_first; t != NULL; t = t->next) {
        if (pid <= 0 || t->pid != pid)
            continue;
        t->pid = 0;
        test_running--;
        if (WIFSIGNALED(status))
            fprintf(stderr, "# %s: died by signal %d%s\n", t->name, WTERMSIG(status),
                    WTERMSIG(status) == SIGALRM ? " (time limit)" : "");
        test_tell(t, WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return;
    }
}

static void test_run(struct test *t) {
    while (test_running >= (t->alone ? 1 : test_at_a_time))
        test_end_one();
    test_begin(t);
    while (t->alone && test_running > 0)
        test_end_one();
}

/* nohup and a shell's `&` leave signals ignored, and all processes started below them inherit
 * that. */
static void test_signals(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)signal(signals[i], SIG_DFL);
}

TEST_UNUSED static int test_main(int argc, char **argv) {
    bool forked = true;
    int chosen = 0;

    test_signals();
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-fork") == 0)
            forked = false;
        else
            chosen++;
    }
    for (struct test *t = test_first; t != NULL; t = t->next) {
        bool wanted = chosen == 0;

        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], t->name) == 0;
        if (!wanted)
            continue;
        test_prepare(t);
        if (forked) {
            test_run(t);
        } else {
            test_do(t);
            test_tell(t, true);
        }
    }
    while (test_running > 0)
        test_end_one();
    printf("1..%d\n", test_n);
    if (test_n < chosen)
        fprintf(stderr, "# there is no test of that name\n");
    return test_failed != 0 || test_n < chosen;
}

#define TEST_MAIN                                                                                  \
    int main(int argc, char **argv) {                                                              \
        return test_main(argc, argv);                                                              \
    }

#endif
