/*
 * The promises of idem.h about signals: blocking calls continue after them, no thread of the
 * library is chosen to handle one, the caller's handlers and masks stay as they are, and a dead
 * peer causes no SIGPIPE.
 */
#include "calls.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static atomic_int handled;
static atomic_long handler_thread;

static void count_one(int number) {
    (void)number;
    handled++;
    handler_thread = syscall(SYS_gettid);
}

static void handle(int number, int flags) {
    struct sigaction action = {.sa_handler = count_one, .sa_flags = flags};

    CHECK_INT(sigaction(number, &action, NULL), 0);
}

/* A thread that interrupts another all the time. */
struct pest {
    pthread_t thread, target;
    atomic_bool stop;
};

static void *pest_main(void *data) {
    struct pest *pest = data;

    while (!pest->stop) {
        pthread_kill(pest->target, SIGUSR1);
        wait_step();
    }
    return NULL;
}

static void pest_begin(struct pest *pest) {
    pest->stop = false;
    pest->target = pthread_self();
    CHECK_INT(pthread_create(&pest->thread, NULL, pest_main, pest), 0);
}

static void pest_end(struct pest *pest) {
    pest->stop = true;
    pthread_join(pest->thread, NULL);
}

struct runner {
    struct idem *h;
    const struct idem_guard *guard;
    struct work work;
};

static void *runner_main(void *data) {
    struct runner *runner = data;

    CHECK_INT(verdict(runner->h, runner->guard, "k", &runner->work), IDEM_RUN);
    return NULL;
}

/* A duplicate waits for a runner, and is interrupted hundreds of times. */
static void wait_interrupted(int flags) {
    struct idem *h = open_store("sync=always");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 120000});
    struct runner runner = {
        .h = h, .guard = guard, .work = {.count = &handled, .until = 21, .result = "r"}};
    struct work none = {0};
    struct pest pest;
    pthread_t thread;

    handle(SIGUSR1, flags);
    CHECK_INT(pthread_create(&thread, NULL, runner_main, &runner), 0);
    WAIT_UNTIL(runner.work.runs > 0);
    pest_begin(&pest);
    CHECK_INT(verdict(h, guard, "k", &none), IDEM_REPLAY);
    pest_end(&pest);
    pthread_join(thread, NULL);
    CHECK_INT(none.runs, 0);
    CHECK(handled > 20);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_waiting_call_goes_on_after_a_signal) {
    wait_interrupted(0);
}

TEST(a_waiting_call_goes_on_after_a_signal_that_restarts) {
    wait_interrupted(SA_RESTART);
}

TEST(stores_are_opened_used_and_closed_under_a_hail_of_signals) {
    struct idem_name name = {.prefix = "t:", .key = "0", .key_len = 1};
    struct work work = {0};
    struct pest pest;
    int i;

    handle(SIGUSR1, 0);
    pest_begin(&pest);
    for (i = 0; i < 30 || handled <= 20; i++) {
        struct idem *h = open_store("sync=always");
        struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
        struct idem_entry entry;
        char key[16];

        snprintf(key, sizeof(key), "%d", i);
        CHECK_INT(verdict(h, guard, key, &work), IDEM_RUN);
        CHECK_INT(verdict(h, guard, key, &work), IDEM_REPLAY);
        CHECK_INT(idem_lookup(h, &name, &entry, NULL), 0);
        idem_entry_release(&entry);
        idem_guard_free(guard);
        idem_close(h);
    }
    pest_end(&pest);
    CHECK_INT(work.runs, i);
}

#define THREADS_MAX 64

static size_t threads_list(long ret[THREADS_MAX]) {
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    size_t n = 0;

    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL && n < THREADS_MAX)
        if (entry->d_name[0] != '.')
            ret[n++] = strtol(entry->d_name, NULL, 10);
    closedir(folder);
    return n;
}

/* The signals that a thread blocks, bit 0 for number 1. */
static uint64_t thread_blocks(long thread) {
    char path[64], line[256];
    uint64_t mask = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/status", thread);
    file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0)
            mask = strtoull(line + 7, NULL, 16);
    fclose(file);
    return mask;
}

/* All but those that cannot be blocked, and the two that glibc keeps for itself. */
static void blocks_all_check(long thread) {
    uint64_t mask = thread_blocks(thread);

    for (int i = 1; i <= SIGRTMAX; i++)
        if (i != SIGKILL && i != SIGSTOP && (i < 32 || i >= SIGRTMIN))
            CHECK((mask >> (i - 1) & 1) == 1);
}

static void *nothing(void *data) {
    return data;
}

TEST(the_librarys_threads_block_every_signal) {
    long before[THREADS_MAX], after[THREADS_MAX];
    size_t known, n, ours = 0;
    struct work work = {0};
    struct idem_guard *guard;
    struct idem *h;
    pthread_t first;

    /* The thread sanitizer starts one of its own beside the first. */
    CHECK_INT(pthread_create(&first, NULL, nothing, NULL), 0);
    pthread_join(first, NULL);
    known = threads_list(before);
    h = open_store("sync=always");
    guard = guard_of(h, (struct idem_policy){0});
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    n = threads_list(after);
    for (size_t i = 0; i < n; i++) {
        bool old = false;

        for (size_t k = 0; k < known; k++)
            old |= before[k] == after[i];
        if (old)
            continue;
        ours++;
        blocks_all_check(after[i]);
    }
    CHECK_INT(ours, 2); /* the loop's thread, and the writer */
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_signal_to_the_process_waits_for_a_thread_of_the_program) {
    struct idem *h = open_store("sync=always");
    struct timespec limit = {.tv_sec = WAIT_LIMIT_S};
    sigset_t one;

    handle(SIGUSR1, 0);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
    CHECK_INT(kill(getpid(), SIGUSR1), 0);
    usleep(20000); /* sleep: nothing shows that no thread takes it */
    CHECK_INT(handled, 0);
    CHECK_INT(sigtimedwait(&one, NULL, &limit), SIGUSR1);
    CHECK_INT(kill(getpid(), SIGUSR1), 0);
    CHECK_INT(pthread_sigmask(SIG_UNBLOCK, &one, NULL), 0);
    CHECK_INT(handled, 1);
    CHECK_INT(handler_thread, syscall(SYS_gettid));
    idem_close(h);
}

/* The caller's mask, and what is done at each signal. */
struct signals {
    sigset_t mask;
    struct sigaction actions[65];
};

static void signals_take(struct signals *ret) {
    memset(ret, 0, sizeof(*ret));
    CHECK_INT(pthread_sigmask(SIG_SETMASK, NULL, &ret->mask), 0);
    for (int i = 1; i <= SIGRTMAX; i++)
        (void)sigaction(i, NULL, &ret->actions[i]);
}

static void signals_check(const struct signals *before) {
    struct signals now;

    signals_take(&now);
    for (int i = 1; i <= SIGRTMAX; i++) {
        CHECK_INT(sigismember(&now.mask, i), sigismember(&before->mask, i));
        CHECK(now.actions[i].sa_handler == before->actions[i].sa_handler);
        CHECK_INT(now.actions[i].sa_flags, before->actions[i].sa_flags);
    }
}

static enum idem_result check_signals(struct idem_run *run, void *data) {
    (void)run;
    signals_check(data);
    return IDEM_RESULT_DONE;
}

TEST(nothing_of_the_callers_signals_is_changed) {
    struct idem_args args = {.key = "k", .key_len = 1};
    struct signals before;
    struct idem_guard *guard;
    struct idem_outcome out;
    struct idem *h;
    sigset_t some;

    handle(SIGHUP, SA_RESTART);
    signal(SIGUSR2, SIG_IGN);
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    sigaddset(&some, SIGRTMIN + 1);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &some, NULL), 0);
    signals_take(&before);
    h = open_store("sync=always");
    signals_check(&before);
    guard = guard_of(h, (struct idem_policy){0});
    CHECK_INT(idem_call(h, guard, &args, check_signals, &before, &out, NULL), 0);
    idem_outcome_release(&out);
    signals_check(&before);
    idem_guard_free(guard);
    idem_close(h);
    signals_check(&before);
    CHECK_INT(idem_open("lmdb:/proc/no/such/place", NULL, &h, NULL) < 0, 1);
    signals_check(&before);
}

/* Another process that waits for the key that this one runs, and is killed meanwhile. */
struct peer {
    pid_t pid;
    int go[2], there[2];
};

static void peer_main(struct peer *peer) {
    struct work none = {0};
    struct idem_guard *guard;
    struct idem *h;
    char byte;

    CHECK_INT(read(peer->go[0], &byte, 1), 1);
    h = open_store("sync=always");
    guard = guard_of(h, (struct idem_policy){.wait_ms = 120000});
    CHECK_INT(write(peer->there[1], "x", 1), 1);
    (void)verdict(h, guard, "k", &none);
}

static enum idem_result kill_peer(struct idem_run *run, void *data) {
    struct peer *peer = data;
    char byte;

    (void)run;
    CHECK_INT(write(peer->go[1], "x", 1), 1);
    CHECK_INT(read(peer->there[0], &byte, 1), 1);
    usleep(100000); /* sleep: nothing shows that it waits; one that does not is right, too */
    CHECK_INT(kill(peer->pid, SIGKILL), 0);
    CHECK_INT(waitpid(peer->pid, NULL, 0), peer->pid);
    return IDEM_RESULT_DONE;
}

TEST(a_waiter_that_died_raises_no_sigpipe) {
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_outcome out;
    struct idem_guard *guard;
    struct peer peer;
    struct idem *h;

    (void)temp_folder();
    CHECK(pipe(peer.go) == 0 && pipe(peer.there) == 0);
    peer.pid = fork();
    CHECK(peer.pid >= 0);
    if (peer.pid == 0) {
        temp_owner = getpid(); /* the same directory; only the parent removes its content */
        peer_main(&peer);
        _exit(0);
    }
    handle(SIGPIPE, 0);
    h = open_store("sync=always");
    guard = guard_of(h, (struct idem_policy){0});
    CHECK_INT(idem_call(h, guard, &args, kill_peer, &peer, &out, NULL), 0);
    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    usleep(20000); /* sleep: nothing shows that no signal comes */
    CHECK_INT(handled, 0);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

static void files_limit(rlim_t bytes) {
    struct rlimit limit = {bytes, RLIM_INFINITY};

    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Runs other keys until that fails; its code. */
static int fill(struct idem *h, const struct idem_guard *guard, struct idem_error *err) {
    static char big[20000];
    struct work work = {.result = big};
    struct idem_outcome out;
    int rc = 0;

    memset(big, 'x', sizeof(big) - 1);
    for (int i = 0; i < 1000 && rc == 0; i++) {
        char key[16];
        struct idem_args args = {.key = key};

        args.key_len = (size_t)snprintf(key, sizeof(key), "%d", i);
        rc = idem_call(h, guard, &args, do_work, &work, &out, err);
        if (rc == 0)
            idem_outcome_release(&out);
    }
    return rc;
}

static void files_limited(const char *options) {
    struct idem *h = open_store(options), *other = NULL;
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {0};
    struct idem_error err;

    signal(SIGXFSZ, SIG_IGN);
    files_limit(1 << 18);
    CHECK_INT(fill(h, guard, &err), IDEM_E_FULL);
    CHECK(err.text[0] != '\0');
    files_limit(1024);
    CHECK_INT(idem_open(temp_url("other", options), NULL, &other, &err), IDEM_E_FULL);
    CHECK(other == NULL);
    files_limit(RLIM_INFINITY);
    CHECK_INT(verdict(h, guard, "another", &work), IDEM_RUN);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(under_a_limit_on_files_who_ignores_sigxfsz_is_told_that_it_is_full) {
    files_limited("sync=always");
}

TEST(under_a_limit_on_files_sync_off_is_told_the_same) {
    files_limited("sync=off");
}

TEST(under_a_limit_on_files_who_does_not_ignore_it_gets_sigxfsz) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});

    handle(SIGXFSZ, 0);
    files_limit(1 << 18);
    CHECK_INT(fill(h, guard, NULL), IDEM_E_FULL);
    CHECK(handled > 0);
    idem_guard_free(guard);
    idem_close(h);
}

TEST_MAIN
