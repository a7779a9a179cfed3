/*
 * Forks: a handle does not survive one and reports that, closing it in the
 * child does not harm the parent, and a child opens a handle of its own. One
 * process has one environment per path, however many threads open and close it.
 */
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "rig.h"
#include "test.h"
#include "wait.h"

static const struct idem_policy policy = {.prefix = "fork:", .scope = IDEM_SCOPE_NONE};

static enum idem_result run_nothing(struct idem_run *run, void *data) {
    (void)run;
    (void)data;
    return IDEM_RESULT_DONE;
}

static void claimed_nothing(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                            const struct idem_error *err, void *data) {
    (void)claim;
    (void)rc;
    (void)answer;
    (void)err;
    (void)data;
}

/* Every call. */

static void check_operators_refused(struct idem *h) {
    struct idem_name name = {.prefix = "fork:", .key = "a", .key_len = 1};
    struct idem_settlement how = {.to = IDEM_DONE};
    struct idem_cursor cursor = {0};
    struct idem_error err = {0};
    struct idem_entry entry;
    struct idem_stats stats;
    int64_t ms;
    size_t n;

    CHECK_INT(idem_lookup(h, &name, &entry, &err), IDEM_E_FORK);
    CHECK_INT(err.code, IDEM_E_FORK);
    CHECK_HAS(err.text, "fork");
    CHECK_INT(idem_list(h, NULL, &cursor, &entry, 1, &n, NULL), IDEM_E_FORK);
    CHECK_INT(idem_settle(h, &name, &how, NULL), IDEM_E_FORK);
    CHECK_INT(idem_settle_all(h, NULL, &how, NULL, NULL, &n, NULL), IDEM_E_FORK);
    CHECK_INT(idem_forget(h, &name, true, NULL), IDEM_E_FORK);
    CHECK_INT(idem_stats(h, &stats, NULL), IDEM_E_FORK);
    CHECK_INT(idem_time(h, &ms, NULL), IDEM_E_FORK);
}

struct inherited {
    struct idem *h;
    struct idem_guard *guard;
};

static void use_inherited(void *data) {
    struct inherited *in = data;
    struct idem_args args = {.key = "a", .key_len = 1};
    struct idem_claim *claim = NULL;
    struct idem_outcome out;
    struct idem_error err = {0};

    CHECK_INT(idem_call(in->h, in->guard, &args, run_nothing, NULL, &out, &err), IDEM_E_FORK);
    CHECK_HAS(err.text, "fork");
    CHECK_INT(idem_claim_new(in->h, in->guard, &args, claimed_nothing, NULL, &claim, &err),
              IDEM_E_FORK);
    CHECK(claim == NULL);
    check_operators_refused(in->h);
    idem_close(in->h);
    idem_guard_free(in->guard);
    _exit(0); /* the child cannot free LMDB's memory, which is the parent's */
}

TEST(an_inherited_handle_answers_fork_to_every_call) {
    static const char *const ways[] = {"sync=off", "sync=always"};

    for (unsigned i = 0; i < 2; i++) {
        struct inherited in = {.h = rig_handle(rig_url(ways[i] + 5, ways[i]))};

        CHECK_INT(idem_guard_new(in.h, &policy, &in.guard, NULL), 0);
        rig_call_runs(in.h, "before", "x", 1);
        rig_child_ok(ways[i], use_inherited, &in);
        CHECK(rig_call_replays(in.h, "before", "x", 1));
        rig_call_runs(in.h, "after", "y", 1);
        idem_guard_free(in.guard);
        idem_close(in.h);
    }
}

static void leave_inherited(void *data) {
    (void)data;
}

/* A grandchild, and a child that never closes the handle. */
static void use_in_grandchild(void *data) {
    rig_child_ok("grandchild", use_inherited, data);
}

TEST(grandchildren_and_children_that_close_nothing_harm_nothing) {
    struct inherited in = {.h = rig_handle(rig_url("store", "sync=always"))};

    CHECK_INT(idem_guard_new(in.h, &policy, &in.guard, NULL), 0);
    for (unsigned i = 0; i < 5; i++) {
        char key[16];

        rig_child_ok("leaving", leave_inherited, &in);
        rig_child_ok("child", use_in_grandchild, &in);
        snprintf(key, sizeof(key), "k%u", i);
        rig_call_runs(in.h, key, "x", 1);
    }
    idem_guard_free(in.guard);
    idem_close(in.h);
}

/* A loop of the caller's own. */

/* An epoll host: a child shares the epoll instance itself with its parent. */
struct host {
    int epoll;
    int64_t deadline; /* on idem_loop_now(); INT64_MAX: none */
    struct idem *h;
};

static int host_watch(void *data, int fd, int events) {
    struct host *host = data;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(host->epoll, events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, fd, &event);
}

static void host_timer(void *data, int64_t ms) {
    ((struct host *)data)->deadline = ms < 0 ? INT64_MAX : idem_loop_now() + ms;
}

static void host_open(struct host *host, const char *url) {
    struct idem_host calls = {host, host_watch, host_timer};

    *host = (struct host){.epoll = epoll_create1(EPOLL_CLOEXEC), .deadline = INT64_MAX};
    CHECK(host->epoll >= 0);
    CHECK_INT(idem_open_on(url, NULL, &calls, &host->h, NULL), 0);
}

static void host_turn(struct host *host, int max_ms) {
    int64_t left = host->deadline == INT64_MAX ? max_ms : host->deadline - idem_loop_now();
    struct epoll_event events[8];
    int n = epoll_wait(host->epoll, events, 8, left < 0 ? 0 : left < max_ms ? (int)left : max_ms);

    for (int i = 0; i < n; i++)
        idem_ready(host->h, events[i].data.fd, IDEM_READ);
    if (host->deadline <= idem_loop_now()) {
        host->deadline = INT64_MAX;
        idem_timeout(host->h);
    }
}

/* The results that the callbacks received: a verdict or a code; 0: none yet. */
struct seen {
    int claimed, finished;
};

static void on_claimed(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                       const struct idem_error *err, void *data) {
    (void)claim;
    (void)err;
    ((struct seen *)data)->claimed = rc != 0 ? rc : (int)answer->verdict;
}

static void on_finished(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                        void *data) {
    (void)claim;
    (void)err;
    ((struct seen *)data)->finished = rc != 0 ? rc : lost ? 2 : 1;
}

static struct idem_claim *host_claim(struct host *host, const char *key, int64_t wait_ms,
                                     struct seen *seen) {
    struct idem_policy mine = policy;
    struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_guard *guard;
    struct idem_claim *claim;

    mine.wait_ms = wait_ms;
    CHECK_INT(idem_guard_new(host->h, &mine, &guard, NULL), 0);
    CHECK_INT(idem_claim_new(host->h, guard, &args, on_claimed, seen, &claim, NULL), 0);
    idem_guard_free(guard);
    return claim;
}

struct shared {
    struct host *host;
    struct idem_claim *claim;
    struct seen *seen;
};

/* In the child no operation is acknowledged, and the child takes no events from the parent's
 * loop. */
static void finish_inherited(void *data) {
    struct shared *shared = data;
    struct seen *seen = shared->seen;

    CHECK_INT(idem_claim_done(shared->claim, 0, "child", 5, on_finished, seen), IDEM_E_FORK);
    CHECK_INT(idem_claim_fail(shared->claim, 0, NULL, NULL, 0, true, on_finished, seen),
              IDEM_E_FORK);
    CHECK_INT(idem_claim_release(shared->claim, on_finished, seen), IDEM_E_FORK);
    CHECK_INT(idem_claim_unknown(shared->claim, NULL, on_finished, seen), IDEM_E_FORK);
    CHECK_INT(idem_claim_renew(shared->claim, on_finished, seen), IDEM_E_FORK);
    idem_claim_free(shared->claim);
    idem_close(shared->host->h);
    CHECK_INT(seen->finished, 0);
    _exit(0); /* the child cannot free LMDB's memory, which is the parent's */
}

TEST(an_inherited_claim_answers_fork_to_every_finish) {
    struct host host;
    struct seen seen = {0};
    struct shared shared = {&host, NULL, &seen};

    host_open(&host, rig_url("store", "sync=off"));
    shared.claim = host_claim(&host, "a", 0, &seen);
    while (seen.claimed == 0)
        host_turn(&host, 1000);
    CHECK_INT(seen.claimed, IDEM_RUN);
    rig_child_ok("child", finish_inherited, &shared);
    CHECK_INT(idem_claim_done(shared.claim, 0, "parent", 6, on_finished, &seen), 0);
    while (seen.finished == 0)
        host_turn(&host, 1000);
    CHECK_INT(seen.finished, 1);
    idem_claim_free(shared.claim);
    idem_close(host.h);
    close(host.epoll);
}

static void close_inherited(void *data) {
    idem_close(((struct host *)data)->h);
}

/* The child turns the parent's loop, which it must not do, until it is killed. */
static void turn_inherited(void *data) {
    for (;;)
        host_turn(data, 10);
}

/* With sync=always the responses come by a descriptor, and with a waiter so do the wake-ups. */
static void parent_goes_on(void (*meanwhile)(void *data)) {
    struct host host;
    struct seen runs = {0}, waits = {0};
    struct idem_claim *run, *wait;
    pid_t child;

    host_open(&host, rig_url("store", "sync=always"));
    run = host_claim(&host, "a", 0, &runs);
    while (runs.claimed == 0)
        host_turn(&host, 1000);
    wait = host_claim(&host, "a", 120000, &waits);
    for (unsigned i = 0; i < 20; i++)
        host_turn(&host, 10);
    child = rig_spawn(meanwhile, &host);
    rig_sleep(100); /* sleep: the child turns meanwhile; any moment will do */
    CHECK_INT(idem_claim_done(run, 0, "x", 1, on_finished, &runs), 0);
    WAIT_UNTIL((host_turn(&host, 10), runs.finished != 0 && waits.claimed != 0));
    CHECK_INT(runs.finished, 1);
    CHECK_INT(waits.claimed, IDEM_REPLAY);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    idem_claim_free(run);
    idem_claim_free(wait);
    idem_close(host.h);
    close(host.epoll);
}

TEST(a_handle_that_a_child_closes_goes_on_in_the_parent) {
    parent_goes_on(close_inherited);
}

TEST(a_loop_that_a_child_goes_on_turning_goes_on_in_the_parent) {
    parent_goes_on(turn_inherited);
}

/* Children that open handles of their own. */

static void child_opens_its_own(void *url) {
    struct idem *h = rig_handle(url);

    CHECK(rig_call_replays(h, "parent", "p", 1));
    rig_call_runs(h, "child", "c", 1);
    idem_close(h);
}

TEST(a_child_opens_its_own_beside_its_parents) {
    struct idem *h = rig_handle(rig_url("store", NULL));

    rig_call_runs(h, "parent", "p", 1);
    rig_child_ok("child", child_opens_its_own, (void *)rig_url("store", NULL));
    CHECK(rig_call_replays(h, "child", "c", 1));
    rig_call_runs(h, "after", "x", 1);
    idem_close(h);
}

static void outlive_the_parent(void *data) {
    char byte;

    CHECK(read(*(int *)data, &byte, 1) == 0);
}

static void open_and_close(void *url) {
    struct idem *h = rig_handle(url);

    rig_call_runs(h, "later", "l", 1);
    idem_close(h);
}

/* The child has copies of the parent's descriptors, and so of its locks. */
TEST(a_child_that_lives_on_does_not_keep_the_store_from_others) {
    struct idem *h = rig_handle(rig_url("store", "sync=off"));
    int ends[2], status;
    pid_t pid;

    CHECK(pipe(ends) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[1]);
        outlive_the_parent(&ends[0]);
        _exit(0);
    }
    rig_call_runs(h, "before", "b", 1);
    idem_close(h);
    rig_child_ok("another process", open_and_close, (void *)rig_url("store", "sync=off"));
    h = rig_handle(rig_url("store", "sync=off"));
    CHECK(rig_call_replays(h, "before", "b", 1));
    CHECK(rig_call_replays(h, "later", "l", 1));
    idem_close(h);
    close(ends[1]);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

#define WORKERS 6
#define KEYS 40

struct tally {
    _Atomic unsigned runs[KEYS];
};

static enum idem_result run_counted(struct idem_run *run, void *data) {
    _Atomic unsigned *runs = data;

    (*runs)++;
    (void)idem_run_set_result(run, "done", 4);
    return IDEM_RESULT_DONE;
}

static struct tally *tally;

static void worker(void *url) {
    struct idem_policy mine = policy;
    struct idem *h = rig_handle(url);
    struct idem_guard *guard;

    mine.wait_ms = 120000;
    CHECK_INT(idem_guard_new(h, &mine, &guard, NULL), 0);
    for (unsigned i = 0; i < KEYS; i++) {
        struct idem_outcome out;
        char key[16];
        struct idem_args args = {.key = key};

        args.key_len = (size_t)snprintf(key, sizeof(key), "k%u", i);
        CHECK_INT(idem_call(h, guard, &args, run_counted, &tally->runs[i], &out, NULL), 0);
        CHECK(out.verdict == IDEM_RUN || out.verdict == IDEM_REPLAY);
        CHECK(out.result_len == 4 && memcmp(out.result, "done", 4) == 0);
        idem_outcome_release(&out);
    }
    idem_guard_free(guard);
    idem_close(h);
}

static void workers_case(const char *options) {
    const char *url = rig_url("store", options);
    pid_t pids[WORKERS];

    tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(tally != MAP_FAILED);
    for (unsigned i = 0; i < WORKERS; i++)
        pids[i] = rig_spawn(worker, (void *)url);
    for (unsigned i = 0; i < WORKERS; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
    for (unsigned i = 0; i < KEYS; i++)
        CHECK_INT(tally->runs[i], 1);
}

TEST(workers_that_open_after_the_fork_run_each_key_once_with_sync_off) {
    workers_case("sync=off");
}

TEST(workers_that_open_after_the_fork_run_each_key_once_with_sync_always) {
    workers_case("sync=always");
}

/* Threads. */

static size_t maps_of(const char *name) {
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "re");
    size_t n = 0;

    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL)
        n += strstr(line, name) != NULL;
    fclose(maps);
    return n;
}

TEST(all_handles_of_a_process_share_one_environment) {
    struct idem *handles[20];
    size_t fds = rig_fd_count();

    for (unsigned i = 0; i < 20; i++)
        handles[i] = rig_handle(rig_url(i % 2 == 0 ? "store" : "./store", "sync=off"));
    CHECK_INT(maps_of("store/data.mdb"), 1);
    for (unsigned i = 0; i < 20; i++) {
        char key[16];

        snprintf(key, sizeof(key), "k%u", i);
        rig_call_runs(handles[i], key, "x", 1);
        CHECK(rig_call_replays(handles[(i + 7) % 20], key, "x", 1));
    }
    for (unsigned i = 0; i < 20; i++)
        idem_close(handles[i]);
    CHECK_INT(maps_of("store/data.mdb"), 0);
    CHECK_INT(rig_fd_count(), fds);
}

#define THREADS 8
#define TURNS 60

struct opener {
    pthread_t thread;
    const char *url;
    unsigned index;
};

static void *open_use_close(void *data) {
    const struct opener *opener = data;

    for (unsigned i = 0; i < TURNS; i++) {
        struct idem *h = rig_handle(opener->url);
        char key[32];

        snprintf(key, sizeof(key), "t%u.%u", opener->index, i);
        rig_call_runs(h, key, "x", 1);
        CHECK(rig_call_replays(h, key, "x", 1));
        CHECK(maps_of("store/data.mdb") <= 1);
        idem_close(h);
    }
    return NULL;
}

static void threads_case(const char *options) {
    struct opener openers[THREADS];
    size_t fds = rig_fd_count();
    struct idem_stats stats;
    struct idem *h;

    for (unsigned i = 0; i < THREADS; i++) {
        openers[i] = (struct opener){.url = rig_url("store", options), .index = i};
        openers[i].url = strdup(openers[i].url);
        CHECK(pthread_create(&openers[i].thread, NULL, open_use_close, &openers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(openers[i].thread, NULL) == 0);
        free((void *)openers[i].url);
    }
    CHECK_INT(rig_fd_count(), fds);
    h = rig_handle(rig_url("store", options));
    CHECK_INT(idem_stats(h, &stats, NULL), 0);
    CHECK_INT(stats.done, THREADS * TURNS);
    idem_close(h);
    CHECK_INT(rig_file_count(rig_path(rig_folder(), "store"), "wake."), 0);
}

TEST(many_threads_open_and_close_one_path_at_once_with_sync_off) {
    threads_case("sync=off");
}

TEST(many_threads_open_and_close_one_path_at_once_with_sync_always) {
    threads_case("sync=always");
}

TEST_MAIN
