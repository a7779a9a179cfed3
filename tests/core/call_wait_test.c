/*
 * Leases that are renewed or lost while a function runs, and the many threads that wait for it.
 */
#include "calls.h"
#include "loop_clock.h"

#define LEASE_MS 120

static struct idem *other;

static bool is_renewed(void) {
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};
    struct idem_entry entry;
    bool renewed;

    CHECK_INT(idem_lookup(other, &name, &entry, NULL), 0);
    renewed = entry.left_ms == LEASE_MS;
    idem_entry_release(&entry);
    return renewed;
}

/* Time passes only when the lease is as long as it was at first. */
static void ten_leases(void) {
    for (int i = 0; i < 10 * 3; i++) {
        loop_clock_forward(LEASE_MS / 3 + 1);
        WAIT_UNTIL(is_renewed());
    }
}

TEST(a_run_of_ten_leases_is_renewed) {
    struct idem *h = open_store("sync=off");
    struct idem_policy policy = {.lease_ms = LEASE_MS, .recover = IDEM_RECOVER_RERUN};
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.then = ten_leases};
    struct idem_outcome out;

    other = open_store("sync=off");
    loop_clock_stop();
    out = call(h, guard, "k", &work);
    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    CHECK(!work.cancelled);
    idem_outcome_release(&out);
    idem_close(other);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(run_max_cancels_a_run_that_hangs) {
    struct idem *h = open_store("sync=off");
    struct idem_policy policy = {.lease_ms = 60000, .run_max_ms = 100};
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.until_cancel = true, .say = IDEM_RESULT_UNKNOWN};

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK(work.cancelled);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_UNCERTAIN);
    idem_guard_free(guard);
    idem_close(h);
}

struct caller {
    pthread_t thread;
    struct idem *h;
    const struct idem_guard *guard;
    struct work *work;
    struct idem_outcome out;
};

static atomic_int come, gone; /* callers that have asked, and those that have an answer */

static void *caller_main(void *data) {
    struct caller *caller = data;

    come++;
    caller->out = call(caller->h, caller->guard, "k", caller->work);
    gone++;
    return NULL;
}

/* n threads call with one key; how many got each verdict. */
static void crowd(struct idem *h, const struct idem_guard *guard, struct work *work, int n,
                  int counts[IDEM_PROBE + 1]) {
    struct caller callers[32];

    for (int i = 0; i < n; i++) {
        callers[i] = (struct caller){.h = h, .guard = guard, .work = work};
        CHECK_INT(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(callers[i].thread, NULL);
        counts[callers[i].out.verdict]++;
        idem_outcome_release(&callers[i].out);
    }
}

TEST(of_many_threads_one_runs_and_the_others_are_told) {
    struct idem *h = open_store("sync=always");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {.count = &gone, .until = 15, .result = "r"};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 16, counts);
    CHECK_INT(counts[IDEM_RUN], 1);
    CHECK_INT(counts[IDEM_BUSY], 15);
    CHECK_INT(work.runs, 1);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(waiting_duplicates_get_the_first_result) {
    struct idem *h = open_store("sync=always");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 120000});
    struct work work = {.count = &come, .until = 16, .result = "r"};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 16, counts);
    CHECK_INT(counts[IDEM_RUN], 1);
    CHECK_INT(counts[IDEM_REPLAY], 15);
    CHECK_INT(work.runs, 1);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(waiters_for_a_lock_run_one_after_the_other) {
    struct idem *h = open_store("sync=off");
    struct idem_policy policy = {.mode = IDEM_MODE_LOCK, .wait_ms = 120000};
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.count = &come, .until = 8};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 8, counts);
    CHECK_INT(counts[IDEM_RUN], 8);
    CHECK_INT(work.runs, 8);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_waiter_becomes_the_runner_when_the_first_one_gives_up) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 120000});
    struct work work = {.count = &come, .until = 3, .say = IDEM_RESULT_RETRY};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 3, counts);
    CHECK_INT(counts[IDEM_RUN], 3);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(waiting_ends_in_busy_when_its_time_is_over) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 150});
    struct work work = {.count = &gone, .until = 3};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 4, counts);
    CHECK_INT(counts[IDEM_RUN], 1);
    CHECK_INT(counts[IDEM_BUSY], 3);
    idem_guard_free(guard);
    idem_close(h);
}

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *err, void *data) {
    (void)claim;
    (void)rc;
    (void)answer;
    (void)err;
    (*(int *)data)++;
}

/* Its loop is the library's own, and a call that waits does not lend it. */
TEST(a_handle_for_blocking_calls_has_no_claims_even_while_a_call_waits) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 120000});
    struct idem_args args = {.key = "other", .key_len = 5};
    atomic_int looked = 0;
    struct work work = {.count = &looked, .until = 1};
    struct caller run = {.h = h, .guard = guard, .work = &work}, wait = run;
    struct idem_claim *claim = NULL;
    struct idem_error err;
    int answers = 0;

    CHECK_INT(pthread_create(&run.thread, NULL, caller_main, &run), 0);
    WAIT_UNTIL(work.runs > 0);
    CHECK_INT(pthread_create(&wait.thread, NULL, caller_main, &wait), 0);
    WAIT_UNTIL(come == 2);
    usleep(50000); /* sleep: nothing shows that it waits; one that does not is right, too */
    CHECK_INT(idem_claim_new(h, guard, &args, on_answer, &answers, &claim, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem_open_on()");
    looked = 1;
    pthread_join(run.thread, NULL);
    pthread_join(wait.thread, NULL);
    CHECK_INT(wait.out.verdict, IDEM_REPLAY);
    CHECK(claim == NULL && answers == 0);
    idem_outcome_release(&run.out);
    idem_outcome_release(&wait.out);
    idem_guard_free(guard);
    idem_close(h);
}

/* A function that forgets its own record, as an operator would, with force. */
static enum idem_result settle_me(struct idem_run *run, void *data) {
    struct idem *h = data;
    size_t len;
    const void *key = idem_run_key(run, &len);
    struct idem_name name = {.prefix = "t:", .key = key, .key_len = len};
    struct idem_settlement how = {.to = IDEM_FAILED};
    struct idem_error err;

    CHECK_INT(idem_settle(h, &name, &how, &err), IDEM_E_LIVE);
    CHECK_HAS(err.text, "force");
    how.force = true;
    CHECK_INT(idem_settle(h, &name, &how, &err), 0);
    return IDEM_RESULT_DONE;
}

TEST(a_superseded_owner_is_told_so_and_counted) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_outcome out;

    CHECK_INT(idem_call(h, guard, &args, settle_me, h, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_RUN);
    CHECK_INT(out.finish, IDEM_FINISH_LOST);
    CHECK_INT(count_of(h, IDEM_EVENT_SUPERSEDED), 1);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_lost_lease_cancels_the_run) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.lease_ms = 3000});
    struct work work = {.until_cancel = true};
    struct caller caller = {.h = h, .guard = guard, .work = &work};
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};

    CHECK_INT(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
    WAIT_UNTIL(work.runs > 0);
    CHECK_INT(idem_forget(h, &name, true, NULL), 0);
    pthread_join(caller.thread, NULL);
    CHECK(work.cancelled);
    CHECK_INT(caller.out.finish, IDEM_FINISH_LOST);
    CHECK_INT(count_of(h, IDEM_EVENT_LEASE_LOST), 1);
    idem_outcome_release(&caller.out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST_MAIN
