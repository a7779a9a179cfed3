/*
 * The blocking call, as a C program uses it: what each verdict gives back, what
 * each way of failing leaves behind, renewal, waiting, threads, fork.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "idem.h"
#include "temp.h"
#include "test.h"

static struct idem *open_store(const char *options) {
    struct idem_error err = {0};
    struct idem *h;

    if (idem_open(temp_url("store", options), NULL, &h, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return h;
}

static struct idem_guard *guard_of(struct idem *h, struct idem_policy policy) {
    struct idem_error err = {0};
    struct idem_guard *guard;

    if (policy.prefix == NULL)
        policy.prefix = "t:";
    if (policy.scope == NULL)
        policy.scope = IDEM_SCOPE_NONE;
    if (idem_guard_new(h, &policy, &guard, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return guard;
}

/* What a function under test does, and how often it was run. */
struct work {
    enum idem_result say;
    const char *result;
    int32_t status;
    const char *reason;
    int ms;            /* takes that long */
    bool until_cancel; /* runs until it is cancelled, 5 s at most */
    atomic_int runs;
    uint32_t attempt;
    bool cancelled;
};

static void sleep_ms(int64_t ms) {
    struct timespec ts = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&ts, NULL);
}

static enum idem_result do_work(struct idem_run *run, void *data) {
    struct work *work = data;

    work->runs++;
    work->attempt = idem_run_attempt(run);
    if (work->ms > 0)
        sleep_ms(work->ms);
    for (int i = 0; work->until_cancel && i < 500 && !idem_run_cancelled(run); i++)
        sleep_ms(10);
    work->cancelled = idem_run_cancelled(run);
    if (work->result != NULL)
        CHECK_INT(idem_run_set_result(run, work->result, strlen(work->result)), 0);
    idem_run_set_status(run, work->status);
    if (work->reason != NULL)
        idem_run_set_reason(run, work->reason);
    return work->say;
}

static struct idem_outcome call(struct idem *h, const struct idem_guard *guard, const char *key,
                                struct work *work) {
    struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_error err = {0};
    struct idem_outcome out;

    if (idem_call(h, guard, &args, do_work, work, &out, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return out;
}

/* The same, for the verdict alone. */
static enum idem_verdict verdict(struct idem *h, const struct idem_guard *guard, const char *key,
                                 struct work *work) {
    struct idem_outcome out = call(h, guard, key, work);

    idem_outcome_release(&out);
    return out.verdict;
}

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

TEST(a_result_over_result_max_is_not_kept_and_not_run_again) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.result_max = 4});
    struct work work = {.result = "12345", .status = 9};
    struct idem_outcome out;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DUPLICATE);
    CHECK_INT(out.status, 9);
    CHECK_INT(work.runs, 1);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

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

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_BUSY);
    CHECK(out.retry_after_ms > 0 && out.retry_after_ms <= 150);
    idem_outcome_release(&out);
    sleep_ms(200);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.attempt, 2);
    sleep_ms(200);
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

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_BUSY);
    sleep_ms(80);
    work.say = IDEM_RESULT_DONE;
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.attempt, 2);
    idem_guard_free(guard);
    idem_close(h);
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
    CHECK(out.status == 0 && out.attempt == 0); /* nothing is told */
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

TEST(a_run_of_ten_leases_is_renewed) {
    struct idem *h = open_store("sync=off");
    struct idem_policy policy = {.lease_ms = 150, .recover = IDEM_RECOVER_RERUN};
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.ms = 1500};
    struct idem_outcome out = call(h, guard, "k", &work);

    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    CHECK(!work.cancelled);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(run_max_cancels_a_run_that_hangs) {
    struct idem *h = open_store("sync=off");
    struct idem_policy policy = {.lease_ms = 200, .run_max_ms = 100};
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

static void *caller_main(void *data) {
    struct caller *caller = data;

    caller->out = call(caller->h, caller->guard, "k", caller->work);
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
    struct work work = {.ms = 300, .result = "r"};
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
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 20000});
    struct work work = {.ms = 700, .result = "r"};
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
    struct idem_policy policy = {.mode = IDEM_MODE_LOCK, .wait_ms = 30000};
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.ms = 20};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 8, counts);
    CHECK_INT(counts[IDEM_RUN], 8);
    CHECK_INT(work.runs, 8);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_waiter_becomes_the_runner_when_the_first_one_gives_up) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 20000});
    struct work work = {.ms = 200, .say = IDEM_RESULT_RETRY};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 3, counts);
    CHECK_INT(counts[IDEM_RUN], 3);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(waiting_ends_in_busy_when_its_time_is_over) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.wait_ms = 150});
    struct work work = {.ms = 900};
    int counts[IDEM_PROBE + 1] = {0};

    crowd(h, guard, &work, 4, counts);
    CHECK_INT(counts[IDEM_RUN], 1);
    CHECK_INT(counts[IDEM_BUSY], 3);
    idem_guard_free(guard);
    idem_close(h);
}

static int64_t count_of(struct idem *h, enum idem_event event) {
    struct idem_stats stats;

    CHECK_INT(idem_stats(h, &stats, NULL), 0);
    return (int64_t)stats.events[event];
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
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.lease_ms = 150});
    struct work work = {.until_cancel = true};
    struct caller caller = {.h = h, .guard = guard, .work = &work};
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};

    CHECK_INT(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
    while (work.runs == 0)
        sleep_ms(5);
    CHECK_INT(idem_forget(h, &name, true, NULL), 0);
    pthread_join(caller.thread, NULL);
    CHECK(work.cancelled);
    CHECK_INT(caller.out.finish, IDEM_FINISH_LOST);
    CHECK_INT(count_of(h, IDEM_EVENT_LEASE_LOST), 1);
    idem_outcome_release(&caller.out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(operators_see_settle_and_forget) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_args args = {.key = "k", .key_len = 1, .label = "order 4711"};
    struct work work = {.say = IDEM_RESULT_UNKNOWN, .reason = "reset"};
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};
    struct idem_settlement how = {.to = IDEM_DONE, .status = 200, .reason = "seen in the books"};
    struct idem_entry entry;
    struct idem_outcome out;
    struct idem_error err;

    CHECK_INT(idem_lookup(h, &name, &entry, &err), IDEM_E_ABSENT);
    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, NULL), 0);
    idem_outcome_release(&out);
    CHECK_INT(idem_lookup(h, &name, &entry, &err), 0);
    CHECK(entry.state == IDEM_RUNNING && entry.uncertain);
    CHECK_STR(entry.label, "order 4711");
    CHECK_STR(entry.reason, "reset");
    CHECK_STR(entry.hash, out.key_hash);
    idem_entry_release(&entry);
    CHECK_INT(idem_settle(h, &name, &how, &err), 0);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DUPLICATE);
    CHECK_INT(out.status, 200);
    idem_outcome_release(&out);
    CHECK_INT(idem_settle(h, &name, &how, &err), IDEM_E_SETTLED);
    name = (struct idem_name){.prefix = "t:", .hash = out.key_hash};
    CHECK_INT(idem_forget(h, &name, false, &err), 0);
    CHECK_INT(idem_forget(h, &name, false, &err), IDEM_E_ABSENT);
    idem_guard_free(guard);
    idem_close(h);
}

static bool not_the_third(const struct idem_entry *entry, void *data) {
    (*(int *)data)++;
    return strcmp(entry->label, "3") != 0;
}

TEST(many_uncertain_records_are_settled_at_once) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work unknown = {.say = IDEM_RESULT_UNKNOWN}, done = {0};
    struct idem_filter filter = {.prefix = "t:", .uncertain = true};
    struct idem_settlement how = {.to = IDEM_FAILED};
    struct idem_cursor cursor = {0};
    struct idem_entry entries[10];
    size_t n;
    int seen = 0;

    for (int i = 0; i < 5; i++) {
        char key[8];
        struct idem_args args = {.key = key, .label = key};
        struct idem_outcome out;

        args.key_len = (size_t)snprintf(key, sizeof(key), "%d", i);
        CHECK_INT(idem_call(h, guard, &args, do_work, i == 4 ? &done : &unknown, &out, NULL), 0);
        idem_outcome_release(&out);
    }
    CHECK_INT(idem_settle_all(h, &filter, &how, not_the_third, &seen, &n, NULL), 0);
    CHECK_INT(seen, 4);
    CHECK_INT(n, 3);
    CHECK_INT(idem_list(h, &filter, &cursor, entries, 10, &n, NULL), 0);
    CHECK_INT(n, 1);
    CHECK_STR(entries[0].label, "3");
    CHECK(cursor.end);
    CHECK_INT(verdict(h, guard, "0", &done), IDEM_RUN); /* failed, and released by policy */
    idem_guard_free(guard);
    idem_close(h);
}

TEST(an_unguarded_run_is_marked_when_the_store_is_down) {
    struct idem *h = open_store("sync=off&size=1M");
    struct idem_guard *closed = guard_of(h, (struct idem_policy){0});
    struct idem_guard *open =
        guard_of(h, (struct idem_policy){.on_store_error = IDEM_ON_STORE_ERROR_OPEN});
    static char big[100000];
    struct work work = {0};
    struct idem_error err;
    struct idem_outcome out;
    int rc = 0;

    memset(big, 'x', sizeof(big) - 1);
    work.result = big;
    for (int i = 0; i < 100 && rc == 0; i++) {
        char key[16];
        struct idem_args args = {.key = key};

        args.key_len = (size_t)snprintf(key, sizeof(key), "%d", i);
        rc = idem_call(h, closed, &args, do_work, &work, &out, &err);
        if (rc == 0)
            idem_outcome_release(&out);
    }
    CHECK_INT(rc, IDEM_E_FULL);
    out = call(h, open, "another", &work);
    CHECK_INT(out.verdict, IDEM_RUN);
    CHECK(out.unguarded);
    CHECK_INT(out.finish, IDEM_FINISH_UNKNOWN);
    CHECK_INT(count_of(h, IDEM_EVENT_UNGUARDED), 1);
    idem_outcome_release(&out);
    idem_guard_free(open);
    idem_guard_free(closed);
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

TEST(a_settlement_has_a_bounded_life) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work work = {.say = IDEM_RESULT_UNKNOWN};
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};
    struct idem_settlement how = {.to = IDEM_DONE, .ttl_s = INT64_MAX};
    struct idem_error err;

    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(idem_settle(h, &name, &how, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "3650 days");
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_UNCERTAIN);
    idem_guard_free(guard);
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
    idem_outcome_release(&out);
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_DUPLICATE);
    CHECK_INT(out.status, 7);
    CHECK_INT(work.runs, 1);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(the_time_is_the_stores) {
    struct idem *h = open_store("sync=off");
    int64_t ms;

    CHECK_INT(idem_time(h, &ms, NULL), 0);
    CHECK(ms / 1000 >= (int64_t)time(NULL) - 5 && ms / 1000 <= (int64_t)time(NULL) + 5);
    idem_close(h);
}

TEST_MAIN
