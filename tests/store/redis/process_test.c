/*
 * Processes that share a server, through the library's own calls: each key runs
 * once, and a process that was paused for too long changes nothing.
 */
#include <fcntl.h>
#include <sys/prctl.h>

#include "idem.h"
#include "server.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

#define PROCESSES 8
#define KEYS 60

static struct server server;
static char url[512];

static void server_begin(void) {
    static const char *const args[] = {"--save", "", NULL};
    char folder[300];

    snprintf(folder, sizeof(folder), "%s/server", temp_folder());
    server_start(&server, folder, "redis-server", true, args, -1);
    snprintf(url, sizeof(url), "redis://localhost:%d/2?connect_timeout=100s&timeout=100s",
             server.port);
}

static struct idem *opened(void) {
    static const struct idem_options options = {.op_timeout_ms = 100000};
    struct idem_error err = {0};
    struct idem *h;

    if (idem_open(url, &options, &h, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return h;
}

static struct idem_guard *guarded(struct idem *h, const struct idem_policy *policy) {
    struct idem_guard *guard;

    CHECK_INT(idem_guard_new(h, policy, &guard, NULL), 0);
    return guard;
}

static struct idem_outcome call(struct idem *h, struct idem_guard *guard, const char *key,
                                idem_fn *fn, void *data) {
    struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_error err = {0};
    struct idem_outcome out;

    if (idem_call(h, guard, &args, fn, data, &out, &err) != 0) {
        fprintf(stderr, "# %s: %s\n", key, err.text);
        exit(1);
    }
    return out;
}

/* Writes a line each time the effect happens. */
static enum idem_result happens(struct idem_run *run, void *data) {
    char line[64];
    int len = snprintf(line, sizeof(line), "%s\n", (const char *)data);
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/../happened", server.folder);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, line, (size_t)len) == len);
    close(fd);
    CHECK_INT(idem_run_set_result(run, data, strlen(data)), 0);
    return IDEM_RESULT_DONE;
}

static void worker(unsigned seed) {
    static const struct idem_policy policy = {.prefix = "p:",
                                              .scope = IDEM_SCOPE_NONE,
                                              .mode = IDEM_MODE_REPLAY,
                                              .ttl_s = 3600,
                                              .finish_timeout_ms = 100000,
                                              .wait_ms = 120000};
    struct idem *h = opened();
    struct idem_guard *guard = guarded(h, &policy);

    for (unsigned i = 0; i < 4 * KEYS; i++) {
        struct idem_outcome out;
        char key[32];

        /* Half of the time all processes use the same key, else any. */
        snprintf(key, sizeof(key), "key%u", i % 2 == 0 ? i / 4 : (unsigned)rand_r(&seed) % KEYS);
        out = call(h, guard, key, happens, key);
        CHECK(out.verdict == IDEM_RUN || out.verdict == IDEM_REPLAY);
        if (out.verdict == IDEM_RUN)
            CHECK_INT(out.finish, IDEM_FINISH_STORED);
        else
            CHECK(out.result_len == strlen(key) && memcmp(out.result, key, out.result_len) == 0);
        idem_outcome_release(&out);
    }
    idem_guard_free(guard);
    idem_close(h);
}

TEST(what_many_processes_want_at_once_happens_once_each) {
    unsigned times[KEYS] = {0}, key, all = 0;
    pid_t pids[PROCESSES];
    char path[300];
    FILE *file;

    server_begin();
    fflush(NULL);
    for (unsigned i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            worker(i + 1);
            exit(0);
        }
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
    snprintf(path, sizeof(path), "%s/../happened", server.folder);
    file = fopen(path, "r");
    CHECK(file != NULL);
    while (fscanf(file, "key%u\n", &key) == 1) {
        CHECK(key < KEYS);
        times[key]++;
        all++;
    }
    fclose(file);
    for (unsigned i = 0; i < KEYS; i++)
        CHECK_INT(times[i], 1);
    CHECK_INT(all, KEYS);
}

/* A paused owner, and one that takes over: only the lease of the first may end. */

#define RERUN(lease)                                                                               \
    {                                                                                              \
        .prefix = "r:", .scope = IDEM_SCOPE_NONE, .mode = IDEM_MODE_REPLAY,                        \
        .recover = IDEM_RECOVER_RERUN, .on_failure = IDEM_ON_FAILURE_RETRY, .attempts = 5,         \
        .ttl_s = 3600, .lease_ms = (lease), .finish_timeout_ms = 100000, .wait_ms = IDEM_NONE      \
    }
static const struct idem_policy brief = RERUN(2000), lasting = RERUN(3600000);

static enum idem_result tell_and_wait(struct idem_run *run, void *data) {
    int *pipes = data;
    char word;

    CHECK(write(pipes[1], "r", 1) == 1);
    CHECK(read(pipes[0], &word, 1) == 1); /* the owner is paused here */
    CHECK_INT(idem_run_set_result(run, "late", 4), 0);
    return IDEM_RESULT_DONE;
}

static void runner(int in, int out) {
    int pipes[2] = {in, out};
    struct idem *h = opened();
    struct idem_guard *guard = guarded(h, &brief);
    struct idem_outcome o = call(h, guard, "k", tell_and_wait, pipes);

    CHECK_INT(o.verdict, IDEM_RUN);
    CHECK_INT(o.finish, IDEM_FINISH_LOST);
    idem_outcome_release(&o);
    idem_guard_free(guard);
    idem_close(h);
}

struct paused {
    pid_t pid;
    int to;
    uint32_t attempt; /* of the owner that took over */
};

/* The paused owner finishes with done while this one runs. */
static enum idem_result take_over(struct idem_run *run, void *data) {
    struct paused *paused = data;
    int status;

    paused->attempt = idem_run_attempt(run);
    CHECK(kill(paused->pid, SIGCONT) == 0);
    CHECK(write(paused->to, "g", 1) == 1);
    CHECK(waitpid(paused->pid, &status, 0) == paused->pid);
    CHECK_INT(status, 0);
    CHECK_INT(idem_run_set_result(run, "new", 3), 0);
    return IDEM_RESULT_DONE;
}

static bool has_taken_over(struct idem *h, struct idem_guard *guard, struct paused *paused) {
    struct idem_outcome out = call(h, guard, "k", take_over, paused);

    CHECK(out.verdict == (paused->attempt == 0 ? IDEM_BUSY : IDEM_RUN));
    CHECK(out.verdict != IDEM_RUN || out.finish == IDEM_FINISH_STORED);
    idem_outcome_release(&out);
    return paused->attempt != 0;
}

TEST(a_process_that_was_paused_beyond_its_lease_changes_nothing_and_is_counted) {
    struct paused paused = {0};
    struct idem_stats stats = {0};
    struct idem_guard *guard;
    struct idem_outcome out;
    int to[2], from[2];
    struct idem *h;
    char word;
    pid_t pid;

    server_begin();
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        runner(to[0], from[1]);
        exit(0);
    }
    CHECK(read(from[0], &word, 1) == 1);
    CHECK(kill(pid, SIGSTOP) == 0);
    h = opened();
    guard = guarded(h, &lasting);
    paused.pid = pid;
    paused.to = to[1];
    WAIT_UNTIL(has_taken_over(h, guard, &paused));
    CHECK_INT(paused.attempt, 2);
    out = call(h, guard, "k", take_over, &paused);
    CHECK_INT(out.verdict, IDEM_REPLAY);
    CHECK(out.result_len == 3 && memcmp(out.result, "new", 3) == 0);
    idem_outcome_release(&out);
    CHECK_INT(idem_stats(h, &stats, NULL), 0);
    CHECK_INT(stats.events[IDEM_EVENT_SUPERSEDED], 1);
    idem_guard_free(guard);
    idem_close(h);
}

TEST_MAIN
