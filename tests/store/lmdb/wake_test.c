/*
 * Wake-ups between processes. A waiter for a key returns after each kind of
 * finish, and not because of its own slow poll; if there are more waiters than
 * slots, all of them return in the end; slots of dead processes are used again.
 *
 * The clock of a waiting process stands still: its slow poll never comes, so a
 * waiter that returns was woken.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "loop_clock.h"
#include "rig.h"
#include "test.h"
#include "wait.h"

static const struct idem_policy policy = {
    .prefix = "wake:", .scope = IDEM_SCOPE_NONE, .wait_ms = 120000, .lease_ms = 3600000};

/* The waiters. */

/* In memory that all processes share. */
struct waiter {
    char key[16];
    char url[512];
    _Atomic bool waiting;
    _Atomic int rc; /* of idem_call() */
    _Atomic int verdict;
    _Atomic int64_t back; /* when the call returned, by wait_now_ms(); 0: not yet */
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
    waiter->back = wait_now_ms();
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
        waiter->back = wait_now_ms();
    idem_outcome_release(&out);
    idem_guard_free(guard);
}

static void wait_with_handle(struct waiter *waiter) {
    struct idem *h = rig_handle(waiter->url);

    wait_on(h, waiter);
    idem_close(h);
}

static void wait_alone(void *data) {
    loop_clock_stop();
    loop_clock_forward(10000); /* so that a later finish is not in this clock's future */
    wait_with_handle(data);
}

/* The runners. */

/* Claims through the store's own interface, so that the test chooses the finish and its time. */
static void runner_claim(struct rig *rig, const char *key, struct rig_claim *claim) {
    rig->prefix = "wake:";
    rig->policy.lease_ms = 3600000;
    CHECK_INT(rig_claim(rig, key, claim), 0);
    CHECK_INT(claim->verdict, IDEM_RUN);
}

static void wait_until_waiting(const struct waiter *waiters, size_t n) {
    for (size_t i = 0; i < n; i++)
        WAIT_UNTIL(waiters[i].waiting);
}

static void join(const pid_t *pids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
}

/* The waiters were woken, and not before the finish. */
static void check_woken(const struct waiter *waiters, size_t n, int64_t said) {
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(waiters[i].rc, 0);
        CHECK(waiters[i].back >= said);
    }
}

/* Every kind of finish. */

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
        .action = IDEM_OWNER_FAIL, .final = true, .ttl_ms = DAY_MS, .hold_ttl_ms = DAY_MS};
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
        CHECK_INT(rig_finish(rig, claim, IDEM_OWNER_RELEASE, NULL, 0, &ack), 0);
        break;
    case UNKNOWN:
        CHECK_INT(rig_finish(rig, claim, IDEM_OWNER_UNKNOWN, NULL, 0, &ack), 0);
        break;
    case SETTLE:
        operate(rig, IDEM_OP_SETTLE, claim);
        break;
    case FORGET:
        operate(rig, IDEM_OP_FORGET, claim);
        break;
    default:
        CHECK_INT(rig_finish(rig, claim, IDEM_OWNER_DONE, "x", 1, &ack), 0);
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
    WAIT_UNTIL(rig_file_count(rig_path(rig_folder(), "store"), "wake.") >= SAYINGS);
    said = wait_now_ms();
    for (unsigned i = 0; i < SAYINGS; i++) {
        CHECK_INT(waiters[i].back, 0);
        say(&rig, i, &claims[i]);
    }
    join(pids, SAYINGS);
    check_woken(waiters, SAYINGS, said);
    for (unsigned i = 0; i < SAYINGS; i++)
        CHECK_INT(waiters[i].verdict, expected[i]);
    rig_close(&rig);
    CHECK_INT(rig_file_count(rig_path(rig_folder(), "store"), "wake."), 0);
}

TEST(a_waiter_in_another_process_is_woken_by_any_finish_with_sync_off) {
    finish_case("sync=off");
}

TEST(a_waiter_in_another_process_is_woken_by_any_finish_with_sync_always) {
    finish_case("sync=always");
}

/* A crowd. */

#define PROCESSES 20
#define HANDLES 15 /* in each process: 300 together, more than there are slots */
#define CROWD (PROCESSES * HANDLES)
#define LATE 4
#define SLOTS 256

/* In memory that all processes share. A waiter without a slot looks for one again and again, so
 * time stands still only once all slots are taken. */
static struct {
    _Atomic bool stands, goes_on;
    _Atomic unsigned standing; /* processes */
} * time_is;

static void *wait_in_thread(void *data) {
    wait_with_handle(data);
    return NULL;
}

static size_t back_count(const struct waiter *waiters, size_t n) {
    size_t back = 0;

    for (size_t i = 0; i < n; i++)
        back += waiters[i].back != 0;
    return back;
}

static void wait_in_threads(void *data) {
    struct waiter *waiters = data;
    pthread_t threads[HANDLES];

    for (unsigned i = 0; i < HANDLES; i++)
        NEED(pthread_create(&threads[i], NULL, wait_in_thread, &waiters[i]) == 0);
    WAIT_UNTIL(time_is->stands);
    loop_clock_stop();
    time_is->standing++;
    WAIT_UNTIL(time_is->goes_on);
    loop_clock_go_on();
    for (unsigned i = 0; i < HANDLES; i++)
        NEED(pthread_join(threads[i], NULL) == 0);
}

static struct waiter *crowd_spawn(pid_t pids[PROCESSES], const char *url, const char *key) {
    struct waiter *waiters = waiters_new(CROWD);

    time_is =
        mmap(NULL, sizeof(*time_is), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(time_is != MAP_FAILED);
    for (unsigned i = 0; i < CROWD; i++) {
        snprintf(waiters[i].key, sizeof(waiters[i].key), "%s", key);
        snprintf(waiters[i].url, sizeof(waiters[i].url), "%s", url);
    }
    for (unsigned i = 0; i < PROCESSES; i++)
        pids[i] = rig_spawn(wait_in_threads, &waiters[i * HANDLES]);
    wait_until_waiting(waiters, CROWD);
    return waiters;
}

TEST(three_hundred_waiters_all_come_back) {
    const char *url = rig_url("store", "sync=off");
    const char *folder = rig_path(rig_folder(), "store");
    struct waiter *waiters;
    struct rig_claim claim;
    pid_t pids[PROCESSES];
    struct rig rig;
    int64_t said;

    rig_open(&rig, url, NULL);
    runner_claim(&rig, "all", &claim);
    waiters = crowd_spawn(pids, url, "all");
    WAIT_UNTIL(rig_file_count(folder, "wake.") >= SLOTS);
    CHECK_INT(rig_file_count(folder, "wake."), SLOTS);
    time_is->stands = true;
    WAIT_UNTIL(time_is->standing == PROCESSES);
    said = wait_now_ms();
    say(&rig, DONE, &claim);
    WAIT_UNTIL(back_count(waiters, CROWD) >= SLOTS);
    time_is->goes_on = true; /* the waiters without a slot have their slow poll */
    join(pids, PROCESSES);
    for (unsigned i = 0; i < CROWD; i++)
        CHECK_INT(waiters[i].verdict, IDEM_REPLAY);
    check_woken(waiters, CROWD, said);
    rig_close(&rig);
    CHECK_INT(rig_file_count(folder, "wake."), 0);
}

/* Processes that hold all slots are killed while another one has the store open. */
TEST(slots_of_the_dead_are_used_again) {
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
    WAIT_UNTIL(rig_file_count(folder, "wake.") >= SLOTS);
    CHECK_INT(rig_file_count(folder, "wake."), SLOTS);
    for (unsigned i = 0; i < PROCESSES; i++)
        CHECK(kill(pids[i], SIGKILL) == 0 && waitpid(pids[i], NULL, 0) == pids[i]);
    runner_claim(&rig, "fresh", &fresh);
    for (unsigned i = 0; i < LATE; i++)
        snprintf(late[i].key, sizeof(late[i].key), "fresh");
    waiters_spawn(late, late_pids, LATE, url);
    rig_sleep(300); /* sleep: until they wait, which nothing shows; earlier is right, too */
    said = wait_now_ms();
    say(&rig, DONE, &fresh);
    join(late_pids, LATE);
    check_woken(late, LATE, said);
    CHECK(rig_file_count(folder, "wake.") <= SLOTS);
    say(&rig, DONE, &claim);
    rig_close(&rig);
    rig_open(&rig, url, NULL);
    rig_close(&rig);
    CHECK_INT(rig_file_count(folder, "wake."), 0);
}

TEST_MAIN
