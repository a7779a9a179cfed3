/*
 * Wake-ups between processes: who waits for a key is back soon after it was
 * finished, whatever was said, and long before its own slow poll; more waiters
 * than there are slots all come back in the end; slots of the dead are used
 * again.
 *
 * By the slow poll alone (250 ms, doubling up to 2 s) a waiter asks at 0.25,
 * 0.75, 1.75, 3.75 and 5.75 s. Every run here ends 3.9 s after its waiters
 * began: one that is back by 4.4 s was woken.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "rig.h"
#include "test.h"

#define HOLD_MS 3900
#define SOON_MS 500

static const struct idem_policy policy = {
    .prefix = "wake:", .scope = IDEM_SCOPE_NONE, .wait_ms = 30000, .lease_ms = 60000};

/* Who waits. */

/* In memory that all processes share. */
struct waiter {
    char key[16];
    char url[512];
    _Atomic bool waiting;
    _Atomic int rc; /* of idem_call() */
    _Atomic int verdict;
    _Atomic int64_t back; /* when it was answered; 0: not yet */
};

static struct waiter *waiters_new(size_t n) {
    struct waiter *waiters =
        mmap(NULL, n * sizeof(*waiters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(waiters != MAP_FAILED);
    return waiters;
}

static enum idem_result run_once(struct idem_run *run, void *data) {
    struct waiter *waiter = data;

    (void)run;
    waiter->back = idem_loop_now();
    return IDEM_RESULT_DONE;
}

static void wait_on(struct idem *h, struct waiter *waiter) {
    struct idem_args args = {.key = waiter->key, .key_len = strlen(waiter->key)};
    struct idem_outcome out = {0};
    struct idem_guard *guard;

    NEED(idem_guard_new(h, &policy, &guard, NULL) == 0);
    waiter->waiting = true;
    waiter->rc = idem_call(h, guard, &args, run_once, waiter, &out, NULL);
    waiter->verdict = (int)out.verdict;
    if (waiter->back == 0)
        waiter->back = idem_loop_now();
    idem_outcome_release(&out);
    idem_guard_free(guard);
}

static void wait_alone(void *data) {
    struct waiter *waiter = data;
    struct idem *h = rig_handle(waiter->url);

    wait_on(h, waiter);
    idem_close(h);
}

/* Who runs. */

/* Claims through the store's own door, so that the test decides when and what is said. */
static void runner_claim(struct rig *rig, const char *key, struct rig_claim *claim) {
    rig->prefix = "wake:";
    rig->policy.lease_ms = 60000;
    CHECK_INT(rig_claim(rig, key, claim), 0);
    CHECK_INT(claim->verdict, IDEM_RUN);
}

static void wait_until_waiting(const struct waiter *waiters, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (unsigned tries = 0; !waiters[i].waiting; tries++) {
            CHECK(tries < 2000);
            rig_sleep(10);
        }
}

static void join(const pid_t *pids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
}

/* One outlier is forgiven: the machine may be busy. */
static void check_back_soon(const struct waiter *waiters, size_t n, int64_t said) {
    size_t late = 0;

    for (size_t i = 0; i < n; i++) {
        int64_t after = waiters[i].back - said;

        CHECK_INT(waiters[i].rc, 0);
        CHECK(after >= -50);
        if (after > SOON_MS) {
            fprintf(stderr, "# %s was back after %lld ms\n", waiters[i].key, (long long)after);
            late++;
        }
    }
    CHECK(late <= 1);
}

/* Whatever is said. */

enum { DONE, FAIL, RELEASE, UNKNOWN, SETTLE, FORGET, DONE_TOO, SAYINGS };

static const enum idem_verdict expected[SAYINGS] = {
    [DONE] = IDEM_REPLAY,       [FAIL] = IDEM_DEAD,        [RELEASE] = IDEM_RUN,
    [UNKNOWN] = IDEM_UNCERTAIN, [SETTLE] = IDEM_DUPLICATE, [FORGET] = IDEM_RUN,
    [DONE_TOO] = IDEM_REPLAY,
};

static void operate(struct rig *rig, enum idem_op_kind kind, const struct rig_claim *claim) {
    struct idem_op op = {.kind = kind, .key = claim->key};

    if (kind == IDEM_OP_SETTLE)
        op.in.settle = (struct idem_settle_in){.to = IDEM_DONE, .force = true, .ttl_ms = DAY_MS};
    else
        op.in.forget.force = true;
    CHECK_INT(rig_run(rig, &op, NULL, NULL), 0);
}

static void fail_for_good(struct rig *rig, const struct rig_claim *claim) {
    struct idem_op op = {.kind = IDEM_OP_FINISH, .key = claim->key};

    op.in.finish = (struct idem_finish_in){
        .said = IDEM_SAID_FAIL, .final = true, .ttl_ms = DAY_MS, .hold_ttl_ms = DAY_MS};
    memcpy(op.in.finish.owner, claim->owner, IDEM_OWNER_LEN);
    CHECK_INT(rig_run(rig, &op, NULL, NULL), 0);
}

static void say(struct rig *rig, unsigned what, const struct rig_claim *claim) {
    enum idem_ack ack = IDEM_ACK;

    switch (what) {
    case FAIL:
        fail_for_good(rig, claim);
        break;
    case RELEASE:
        CHECK_INT(rig_finish(rig, claim, IDEM_SAID_RELEASE, NULL, 0, &ack), 0);
        break;
    case UNKNOWN:
        CHECK_INT(rig_finish(rig, claim, IDEM_SAID_UNKNOWN, NULL, 0, &ack), 0);
        break;
    case SETTLE:
        operate(rig, IDEM_OP_SETTLE, claim);
        break;
    case FORGET:
        operate(rig, IDEM_OP_FORGET, claim);
        break;
    default:
        CHECK_INT(rig_finish(rig, claim, IDEM_SAID_DONE, "x", 1, &ack), 0);
    }
    CHECK_INT(ack, IDEM_ACK);
}

static void waiters_spawn(struct waiter *waiters, pid_t *pids, size_t n, const char *url) {
    for (size_t i = 0; i < n; i++) {
        snprintf(waiters[i].url, sizeof(waiters[i].url), "%s", url);
        pids[i] = rig_spawn(wait_alone, &waiters[i]);
    }
    wait_until_waiting(waiters, n);
}

static void finish_case(const char *options) {
    struct waiter *waiters = waiters_new(SAYINGS);
    struct rig_claim claims[SAYINGS];
    pid_t pids[SAYINGS];
    struct rig rig;
    int64_t said;

    rig_open(&rig, rig_url("store", options), NULL);
    for (unsigned i = 0; i < SAYINGS; i++) {
        snprintf(waiters[i].key, sizeof(waiters[i].key), "k%u", i);
        runner_claim(&rig, waiters[i].key, &claims[i]);
    }
    waiters_spawn(waiters, pids, SAYINGS, rig_url("store", options));
    rig_sleep(HOLD_MS);
    said = idem_loop_now();
    for (unsigned i = 0; i < SAYINGS; i++) {
        CHECK_INT(waiters[i].back, 0);
        say(&rig, i, &claims[i]);
    }
    join(pids, SAYINGS);
    check_back_soon(waiters, SAYINGS, said);
    for (unsigned i = 0; i < SAYINGS; i++)
        CHECK_INT(waiters[i].verdict, expected[i]);
    rig_close(&rig);
    CHECK_INT(rig_file_count(rig_path(rig_folder(), "store"), "wake."), 0);
}

TEST_IN(a_waiter_in_another_process_is_woken_by_any_finish_with_sync_off, 120) {
    finish_case("sync=off");
}

TEST_IN(a_waiter_in_another_process_is_woken_by_any_finish_with_sync_always, 120) {
    finish_case("sync=always");
}

/* A crowd. */

#define PROCESSES 20
#define HANDLES 15 /* in each: 300 together, and there are 256 slots */
#define CROWD (PROCESSES * HANDLES)
#define LATE 4

static void *wait_in_thread(void *data) {
    wait_alone(data);
    return NULL;
}

static void wait_in_threads(void *data) {
    struct waiter *waiters = data;
    pthread_t threads[HANDLES];

    for (unsigned i = 0; i < HANDLES; i++)
        NEED(pthread_create(&threads[i], NULL, wait_in_thread, &waiters[i]) == 0);
    for (unsigned i = 0; i < HANDLES; i++)
        NEED(pthread_join(threads[i], NULL) == 0);
}

static struct waiter *crowd_spawn(pid_t pids[PROCESSES], const char *url, const char *key) {
    struct waiter *waiters = waiters_new(CROWD);

    for (unsigned i = 0; i < CROWD; i++) {
        snprintf(waiters[i].key, sizeof(waiters[i].key), "%s", key);
        snprintf(waiters[i].url, sizeof(waiters[i].url), "%s", url);
    }
    for (unsigned i = 0; i < PROCESSES; i++)
        pids[i] = rig_spawn(wait_in_threads, &waiters[i * HANDLES]);
    wait_until_waiting(waiters, CROWD);
    return waiters;
}

TEST_IN(three_hundred_waiters_all_come_back, 120) {
    const char *url = rig_url("store", "sync=off");
    const char *folder = rig_path(rig_folder(), "store");
    struct waiter *waiters;
    struct rig_claim claim;
    pid_t pids[PROCESSES];
    struct rig rig;
    int64_t said;
    size_t soon = 0;

    rig_open(&rig, url, NULL);
    runner_claim(&rig, "all", &claim);
    waiters = crowd_spawn(pids, url, "all");
    rig_sleep(HOLD_MS);
    CHECK(rig_file_count(folder, "wake.") <= 256);
    said = idem_loop_now();
    say(&rig, DONE, &claim);
    join(pids, PROCESSES);
    for (unsigned i = 0; i < CROWD; i++) {
        CHECK_INT(waiters[i].rc, 0);
        CHECK_INT(waiters[i].verdict, IDEM_REPLAY);
        CHECK(waiters[i].back - said < 10000);
        soon += waiters[i].back - said < 1500;
    }
    fprintf(stderr, "# %zu of %d were back soon\n", soon, CROWD);
    CHECK(soon >= 200);
    rig_close(&rig);
    CHECK_INT(rig_file_count(folder, "wake."), 0);
}

/* All slots are held by processes that are killed while the store stays open elsewhere. */
TEST_IN(slots_of_the_dead_are_used_again, 120) {
    const char *url = rig_url("store", "sync=off");
    const char *folder = rig_path(rig_folder(), "store");
    struct waiter *late = waiters_new(LATE);
    struct rig_claim claim, fresh;
    pid_t pids[PROCESSES], late_pids[LATE];
    struct rig rig;
    int64_t said;

    rig_open(&rig, url, NULL);
    runner_claim(&rig, "all", &claim);
    (void)crowd_spawn(pids, url, "all");
    rig_sleep(1500);
    CHECK_INT(rig_file_count(folder, "wake."), 256);
    for (unsigned i = 0; i < PROCESSES; i++)
        CHECK(kill(pids[i], SIGKILL) == 0 && waitpid(pids[i], NULL, 0) == pids[i]);
    runner_claim(&rig, "fresh", &fresh);
    for (unsigned i = 0; i < LATE; i++)
        snprintf(late[i].key, sizeof(late[i].key), "fresh");
    waiters_spawn(late, late_pids, LATE, url);
    rig_sleep(HOLD_MS);
    said = idem_loop_now();
    say(&rig, DONE, &fresh);
    join(late_pids, LATE);
    check_back_soon(late, LATE, said);
    CHECK(rig_file_count(folder, "wake.") <= 256);
    say(&rig, DONE, &claim);
    rig_close(&rig);
    rig_open(&rig, url, NULL);
    rig_close(&rig);
    CHECK_INT(rig_file_count(folder, "wake."), 0);
}

TEST_MAIN
