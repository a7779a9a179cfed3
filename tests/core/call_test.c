/*
 * The blocking call, as a C program uses it: what each verdict gives back, and what a call may
 * bring of its own.
 */
#include "calls.h"

TEST(the_second_call_gets_the_first_result) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {.result = "receipt", .status = 201};
    struct idem_outcome first = call(h, guard, "k", &work), second = call(h, guard, "k", &work);

    CHECK_INT(first.verdict, IDEM_RUN);
    CHECK_INT(first.finish, IDEM_FINISH_STORED);
    CHECK_INT(first.attempt, 1);
    CHECK_INT(first.said, IDEM_RESULT_DONE);
    CHECK_INT(second.verdict, IDEM_REPLAY);
    CHECK_INT(second.finish, IDEM_FINISH_NONE);
    CHECK_INT(second.status, 201);
    CHECK(second.has_result && second.result_len == 7 && memcmp(second.result, "receipt", 7) == 0);
    CHECK_INT(work.runs, 1);
    CHECK_STR(first.key_hash, second.key_hash);
    idem_outcome_release(&first);
    idem_outcome_release(&second);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_result_survives_the_process) {
    struct work work = {.result = "kept", .status = 7};
    struct idem *h = open_store("sync=always");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    idem_close(h);
    h = open_store("sync=always");
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_REPLAY);
    CHECK_INT(work.runs, 1);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_function_without_a_result_has_an_empty_one) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {.status = 3};
    struct idem_outcome out;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_REPLAY);
    CHECK(out.has_result && out.result_len == 0);
    CHECK_INT(out.status, 3);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(mode_reject_refuses_with_the_first_status) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.mode = IDEM_MODE_REJECT});
    struct work work = {.result = "x", .status = 42};
    struct idem_outcome out;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DUPLICATE);
    CHECK_INT(out.status, 42);
    CHECK(!out.has_result);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(mode_lock_runs_again_with_a_higher_number) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.mode = IDEM_MODE_LOCK});
    struct work work = {0};

    for (uint32_t i = 1; i <= 3; i++) {
        CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
        CHECK_INT(work.attempt, i);
    }
    work.say = IDEM_RESULT_RETRY; /* released: and yet its number is not given out again */
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    work.say = IDEM_RESULT_DONE;
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.attempt, 5);
    idem_guard_free(guard);
    idem_close(h);
}

/* The result comes at once and again; the second time it is not run. */
static void check_kept(enum idem_result say, const char *result, enum idem_verdict want,
                       bool kept) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.result_max = 4});
    struct work work = {.say = say, .result = result, .status = 9};
    struct idem_outcome out;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, want);
    CHECK_INT(out.has_result, kept);
    CHECK(!kept || (out.result_len == strlen(result) && memcmp(out.result, result, 4) == 0));
    CHECK_INT(out.status, 9);
    CHECK_INT(work.runs, 1);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_result_over_result_max_is_not_kept_and_not_run_again) {
    check_kept(IDEM_RESULT_DONE, "12345", IDEM_DUPLICATE, false);
}

TEST(a_result_of_exactly_result_max_is_kept) {
    check_kept(IDEM_RESULT_DONE, "1234", IDEM_REPLAY, true);
}

TEST(a_failures_result_is_kept_up_to_result_max) {
    check_kept(IDEM_RESULT_FINAL, "1234", IDEM_DEAD, true);
}

TEST(a_failures_result_over_result_max_is_not_kept) {
    check_kept(IDEM_RESULT_FINAL, "12345", IDEM_DEAD, false);
}

TEST(another_fingerprint_is_a_mismatch_and_another_scope_another_record) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_args args = {.key = "k", .key_len = 1, .fingerprint = "a", .fingerprint_len = 1};
    struct work work = {.result = "secret", .status = 402, .reason = "declined"};
    struct idem_outcome out;

    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_RUN);
    idem_outcome_release(&out);
    args.fingerprint = "b";
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_MISMATCH);
    CHECK(!out.has_result && out.result == NULL && out.reason == NULL);
    CHECK(out.status == 0 && out.attempt == 0); /* a mismatch reveals nothing about the record */
    idem_outcome_release(&out);
    args.scope = "none"; /* the bytes, which are not the word of the policy */
    args.scope_len = 4;
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_RUN);
    idem_outcome_release(&out);
    CHECK_INT(work.runs, 2);
    idem_guard_free(guard);
    idem_close(h);
}

static long key_from_data(void *data, char *buf, size_t size) {
    const char *key = data;

    if (key == NULL)
        return 0;
    return snprintf(buf, size, "order-%s", key);
}

TEST(a_policy_may_bring_its_own_key_resolver) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.key_fn = key_from_data});
    struct idem_args args = {.data = "1"};
    struct work work = {0};
    struct idem_error err;
    struct idem_outcome out;

    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, &err), 0);
    CHECK_INT(out.verdict, IDEM_RUN);
    idem_outcome_release(&out);
    args = (struct idem_args){.key = "order-1", .key_len = 7};
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, &err), 0);
    CHECK_INT(out.verdict, IDEM_REPLAY);
    idem_outcome_release(&out);
    args = (struct idem_args){0};
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "key");
    idem_guard_free(guard);
    idem_close(h);
}

/* Asks the store itself, as a key made of its clock would. */
static long key_from_store(void *data, char *buf, size_t size) {
    int64_t ms;

    CHECK_INT(idem_time(data, &ms, NULL), 0);
    return snprintf(buf, size, "%d", ms > 0);
}

TEST(a_key_resolver_may_use_the_handle) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.key_fn = key_from_store});
    struct idem_args args = {.data = h};
    struct work work = {0};
    struct idem_outcome out;

    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_RUN);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_call_may_have_values_of_its_own) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_policy with = {.mode = IDEM_MODE_REJECT};
    struct idem_args args = {.key = "k", .key_len = 1};
    struct work work = {0};
    struct idem_outcome out;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    args.with = &with;
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_DUPLICATE);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(bad_arguments_are_named) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    static char big[IDEM_KEY_MAX + 1];
    struct idem_args args = {.key = big, .key_len = sizeof(big)};
    struct work work = {0};
    struct idem_error err;
    struct idem_outcome out = {.attempt = 77};

    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "4097");
    args = (struct idem_args){.key = "k", .key_len = 1, .scope = big, .scope_len = sizeof(big)};
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, &err), IDEM_E_INVALID);
    memset(big, 'l', 300);
    args = (struct idem_args){.key = "k", .key_len = 1, .label = big};
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "label");
    CHECK_INT(out.attempt, 77);
    CHECK_INT(work.runs, 0);
    idem_guard_free(guard);
    idem_close(h);
}

TEST_MAIN
