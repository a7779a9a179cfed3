/*
 * A fork while calls are under way: the child gets an error, waits for no thread of the parent,
 * and touches nothing that is the parent's. How the store handles forks is tested in
 * tests/store/lmdb.
 */
#include <dlfcn.h>

#include "calls.h"
#include "core/handle.h"
#include "protocol/record_key.h"

/* OpenSSL's locks, in place of the C library's functions: how often one was taken. */
static atomic_int locked;

static int lock_counted(const char *name, pthread_rwlock_t *lock) {
    int (*real)(pthread_rwlock_t *);

    *(void **)&real = dlsym(RTLD_NEXT, name);
    locked++;
    return real(lock);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
    return lock_counted("pthread_rwlock_rdlock", lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock) {
    return lock_counted("pthread_rwlock_wrlock", lock);
}

static atomic_bool held, let_go;

/* The process that a function forked; 0 in the child itself. */
static pid_t forked = -1;

static void *lock_holder(void *data) {
    struct idem *h = data;

    pthread_mutex_lock(&h->service->lock);
    held = true;
    WAIT_UNTIL(let_go);
    pthread_mutex_unlock(&h->service->lock);
    return NULL;
}

/* Forks while another thread, which the child will not have, holds the handle's lock. */
static enum idem_result fork_inside(struct idem_run *run, void *data) {
    pthread_t thread;

    CHECK_INT(idem_run_set_result(run, "r", 1), 0);
    CHECK_INT(pthread_create(&thread, NULL, lock_holder, data), 0);
    WAIT_UNTIL(held);
    forked = fork();
    CHECK(forked >= 0);
    if (forked == 0) {
        alarm(TEST_LIMIT_S); /* the frame's limit is the parent's */
    } else {
        let_go = true;
        pthread_join(thread, NULL);
    }
    return IDEM_RESULT_DONE;
}

TEST(a_child_that_was_forked_inside_a_call_gets_out_of_it) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_outcome out;
    int status, rc;

    rc = idem_call(h, guard, &args, fork_inside, h, &out, NULL);
    if (forked == 0)
        _exit(rc == 0 && out.verdict == IDEM_RUN && out.finish == IDEM_FINISH_UNKNOWN ? 0 : 1);
    CHECK_INT(rc, 0);
    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    CHECK_INT(waitpid(forked, &status, 0), forked);
    CHECK_INT(status, 0);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

/* A host whose timer is a descriptor would share it with the parent. */
struct host {
    int calls;
    int64_t timer;
};

static int host_watch(void *data, int fd, int events) {
    (void)fd;
    (void)events;
    ((struct host *)data)->calls++;
    return 0;
}

static void host_timer(void *data, int64_t ms) {
    ((struct host *)data)->calls++;
    ((struct host *)data)->timer = ms;
}

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *err, void *data) {
    (void)claim;
    (void)rc;
    (void)answer;
    (void)err;
    (void)data;
}

/* Frees everything, as a child does before it exits. */
static void child_cleans_up(struct idem *h, struct idem_claim *claim, struct host *host) {
    int calls = host->calls;

    idem_claim_free(claim);
    idem_timeout(h);
    idem_close(h);
    _exit(host->calls == calls ? 0 : 1);
}

TEST(a_child_leaves_the_hosts_timer_alone) {
    struct host host = {.timer = -1};
    struct idem_host hooks = {.data = &host, .watch = host_watch, .timer = host_timer};
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){0});
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_claim *claim;
    struct idem *h;
    int status;
    pid_t pid;

    CHECK_INT(idem_open_on(temp_url("store", "sync=off"), NULL, &hooks, &h, NULL), 0);
    CHECK_INT(idem_claim_new(h, guard, &args, on_answer, NULL, &claim, NULL), 0);
    for (int i = 0; i < 5 && host.timer == 0; i++)
        idem_timeout(h);
    CHECK(host.timer > 0); /* it runs, and its lease is to be renewed */
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child_cleans_up(h, claim, &host);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    idem_claim_free(claim);
    idem_guard_free(guard);
    idem_close(h);
}

/* Another thread of the parent may hold one at the fork; in the child it is never released. */
TEST(hashing_takes_none_of_openssls_locks_even_for_the_first_time) {
    struct idem_bytes text = {(const unsigned char *)"abc", 3};
    unsigned char hash[IDEM_HASH_LEN];
    struct idem_record_key key;
    struct idem_sha sha;

    locked = 0;
    CHECK_INT(idem_sha256(text, hash), 0);
    CHECK(hash[0] == 0xba && hash[IDEM_HASH_LEN - 1] == 0xad);
    CHECK_INT(idem_record_key_make(&key, IDEM_NAME_RECORD, text, text, text), 0);
    idem_sha_begin(&sha);
    idem_sha_add(&sha, "a", 1);
    idem_sha_add(&sha, "bc", 2);
    CHECK_INT(idem_sha_end(&sha, hash), 0);
    CHECK(hash[0] == 0xba && hash[IDEM_HASH_LEN - 1] == 0xad);
    CHECK_INT(locked, 0);
}

/* Lists and heaps may be half changed in the child, where the thread that changed them is not. */
TEST(closing_an_inherited_handle_follows_none_of_its_pointers) {
    struct idem *h = open_store("sync=off");
    void *astray = (void *)16;
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        h->claims = astray;
        h->release_retries = astray;
        h->loop.timers = astray;
        h->loop.tasks = astray;
        h->loop.fds = astray;
        h->store = astray;
        idem_close(h);
        idem_close(h);
        _exit(0);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    idem_close(h);
}

TEST_MAIN
