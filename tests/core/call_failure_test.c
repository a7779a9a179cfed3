/*
 * The record and the outcome after each kind of failure: the function's own, and the
 * store's.
 */
#include "calls.h"
#include "loop_clock.h"

TEST(a_retryable_failure_is_released_by_default) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {.say = IDEM_RESULT_RETRY};

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.runs, 2);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_retryable_failure_under_retry_waits_for_its_back_off_and_ends) {
    struct idem *h = open_store("sync=off");
    struct idem_policy policy = {.on_failure = IDEM_ON_FAILURE_RETRY,
                                 .attempts = 2,
                                 .backoff_min_ms = 150,
                                 .backoff_max_ms = 150};
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.say = IDEM_RESULT_RETRY, .status = 5, .reason = "no answer"};
    struct idem_outcome out;

    loop_clock_stop();
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_BUSY);
    CHECK(out.retry_after_ms > 0 && out.retry_after_ms <= 150);
    idem_outcome_release(&out);
    loop_clock_forward(151);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.attempt, 2);
    loop_clock_forward(151);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DEAD);
    CHECK_INT(out.status, 5);
    CHECK_STR(out.reason, "no answer");
    CHECK_INT(work.runs, 2);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_failure_under_keep_is_given_again) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.preset = IDEM_PRESET_PAYMENT});
    struct work work = {.say = IDEM_RESULT_RETRY, .status = 500, .result = "sorry"};
    struct idem_outcome out;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DEAD);
    CHECK_INT(out.status, 500);
    CHECK(out.has_result && out.result_len == 5 && memcmp(out.result, "sorry", 5) == 0);
    CHECK_INT(work.runs, 1);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_final_failure_is_kept_whatever_on_failure_says) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {.say = IDEM_RESULT_FINAL, .status = 422, .reason = "no such account"};
    struct idem_outcome out;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DEAD);
    CHECK_STR(out.reason, "no such account");
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(an_unknown_outcome_is_held) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {.say = IDEM_RESULT_UNKNOWN, .reason = "connection reset"};

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_UNCERTAIN);
    CHECK_INT(work.runs, 1);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(an_unknown_outcome_is_run_again_under_rerun) {
    struct idem *h = open_store("sync=off");
    struct idem_policy policy = {
        .recover = IDEM_RECOVER_RERUN, .backoff_min_ms = 50, .backoff_max_ms = 50};
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.say = IDEM_RESULT_UNKNOWN};

    loop_clock_stop();
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_BUSY);
    loop_clock_forward(51);
    work.say = IDEM_RESULT_DONE;
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.attempt, 2);
    idem_guard_free(guard);
    idem_close(h);
}

/* A store that is full refuses every claim. */
static struct idem *open_full(void) {
    struct idem *h = open_store("sync=off&size=1M");
    struct idem_guard *closed = guard_of(h, (struct idem_policy){0});
    static char big[100000];
    struct work work = {.result = big};
    struct idem_error err;
    struct idem_outcome out;
    int rc = 0;

    memset(big, 'x', sizeof(big) - 1);
    for (int i = 0; i < 100 && rc == 0; i++) {
        char key[16];
        struct idem_args args = {.key = key};

        args.key_len = (size_t)snprintf(key, sizeof(key), "%d", i);
        rc = idem_call(h, closed, &args, do_work, &work, &out, &err);
        if (rc == 0)
            idem_outcome_release(&out);
    }
    CHECK_INT(rc, IDEM_E_FULL);
    idem_guard_free(closed);
    return h;
}

TEST(an_unguarded_run_is_marked_when_the_store_is_down) {
    struct idem *h = open_full();
    struct idem_guard *open =
        guard_of(h, (struct idem_policy){.on_store_error = IDEM_ON_STORE_ERROR_OPEN});
    struct work work = {0};
    struct idem_outcome out = call(h, open, "another", &work);

    CHECK_INT(out.verdict, IDEM_RUN);
    CHECK(out.unguarded);
    CHECK_INT(out.finish, IDEM_FINISH_UNKNOWN);
    CHECK_INT(count_of(h, IDEM_EVENT_UNGUARDED), 1);
    idem_outcome_release(&out);
    idem_guard_free(open);
    idem_close(h);
}

TEST(an_unguarded_run_is_cancelled_when_run_max_is_over) {
    struct idem *h = open_full();
    struct idem_guard *open = guard_of(
        h, (struct idem_policy){.on_store_error = IDEM_ON_STORE_ERROR_OPEN, .run_max_ms = 300});
    struct work hasty = {0}, slow = {.until_cancel = true};
    struct idem_outcome out;

    loop_clock_stop();
    CHECK_INT(verdict(h, open, "hasty", &hasty), IDEM_RUN);
    CHECK(!hasty.cancelled);
    loop_clock_go_on();
    out = call(h, open, "slow", &slow);
    CHECK(out.unguarded && slow.cancelled);
    CHECK_INT(count_of(h, IDEM_EVENT_LEASE_LOST), 1); /* and none for what was over in time */
    idem_outcome_release(&out);
    idem_guard_free(open);
    idem_close(h);
}

TEST(a_result_that_finds_no_room_does_not_make_the_run_uncertain) {
    struct idem *h = open_store("sync=off&size=1M");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.result_max = 8 << 20});
    static char big[4 << 20];
    struct work work = {.result = big, .status = 7};
    struct idem_outcome out;

    memset(big, 'x', sizeof(big) - 1);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    CHECK(!out.result_kept);
    CHECK_INT(count_of(h, IDEM_EVENT_RESULT_DROPPED), 1);
    idem_outcome_release(&out);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DUPLICATE);
    CHECK_INT(out.status, 7);
    idem_outcome_release(&out);
    work.result = "small";
    out = call(h, guard, "other", &work);
    CHECK(out.verdict == IDEM_RUN && out.result_kept);
    CHECK_INT(count_of(h, IDEM_EVENT_RESULT_DROPPED), 1);
    work.runs--;
    CHECK_INT(work.runs, 1);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST_MAIN
