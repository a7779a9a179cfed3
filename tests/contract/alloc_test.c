/*
 * Fails every allocation in turn, in every blocking call: each ends in a clean
 * error or in success, leaks nothing, and leaves a usable store.
 */
#include "../wait.h"
#include "alloc_each.h"
#include "idem.h"
#include "temp.h"
#include "test.h"

static const struct idem_policy policy = {
    .name = "pay",
    .prefix = "pay:",
    .scope = IDEM_SCOPE_NONE,
    .mode = IDEM_MODE_REPLAY,
    .lease_ms = 60000,
    .finish_timeout_ms = 60,
};

static struct idem *handle;
static struct idem_guard *guard;
static unsigned serial; /* names a new key */

static void handle_open(const char *options) {
    struct idem_error err;

    if (idem_open(temp_url("store", options), NULL, &handle, &err) < 0 ||
        idem_guard_new(handle, &policy, &guard, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}

static void handle_close(void) {
    idem_guard_free(guard);
    idem_close(handle);
}

/* Settings and guards. */

static const char conf[] = "[defaults]\nscope = none\nttl = 10m\n"
                           "[policy pay]\nprefix = pay:\nmode = replay\nmessage = \"wait\"\n";

static int parse_settings(struct idem_error *err) {
    struct idem_settings *settings = NULL;
    int rc = idem_settings_parse("test", conf, sizeof(conf) - 1, &settings, err);

    CHECK((rc == 0) == (settings != NULL));
    idem_settings_free(settings);
    return rc;
}

static char conf_path[300];

static int load_settings(struct idem_error *err) {
    struct idem_settings *settings = NULL;
    int rc = idem_settings_load(conf_path, &settings, err);

    CHECK((rc == 0) == (settings != NULL));
    idem_settings_free(settings);
    return rc;
}

TEST(settings_are_read_or_there_is_no_memory) {
    FILE *file;

    snprintf(conf_path, sizeof(conf_path), "%s/idem.conf", temp_folder());
    file = fopen(conf_path, "w");
    CHECK(file != NULL && fputs(conf, file) >= 0 && fclose(file) == 0);
    alloc_fail_each_both(parse_settings, 1);
    alloc_fail_each_both(load_settings, 1);
}

static struct idem_settings *settings_shared;

static int make_guard(struct idem_error *err) {
    struct idem_guard *made = NULL;
    int rc = idem_guard_new(handle, &policy, &made, err);

    CHECK((rc == 0) == (made != NULL));
    idem_guard_free(made);
    return rc;
}

TEST(a_guard_is_made_or_there_is_no_memory) {
    struct idem_options options = {0};

    CHECK(idem_settings_parse("test", conf, sizeof(conf) - 1, &settings_shared, NULL) == 0);
    options.settings = settings_shared;
    CHECK(idem_open(temp_url("store", "sync=off"), &options, &handle, NULL) == 0);
    alloc_fail_each_both(make_guard, 1);
    idem_close(handle);
    idem_settings_free(settings_shared);
}

/* Open. */

static const char *open_options;

static int open_and_close(struct idem_error *err) {
    struct idem_options options = {.settings = settings_shared};
    struct idem *h = NULL;
    int rc = idem_open(temp_url("store", open_options), &options, &h, err);

    CHECK((rc == 0) == (h != NULL));
    idem_close(h);
    return rc;
}

/* Each run has a directory of its own, so that open() creates everything. */
static int open_anew(struct idem_error *err) {
    struct idem *h = NULL;
    char name[32];
    int rc;

    snprintf(name, sizeof(name), "new%u", serial++);
    rc = idem_open(temp_url(name, open_options), NULL, &h, err);
    CHECK((rc == 0) == (h != NULL));
    idem_close(h);
    return rc;
}

static void open_in_both_ways(const char *options) {
    CHECK(idem_settings_parse("test", conf, sizeof(conf) - 1, &settings_shared, NULL) == 0);
    open_options = options;
    alloc_fail_each_both(open_and_close, 5);
    alloc_fail_each(open_anew, ALLOC_FAIL_ONCE, 5);
    idem_settings_free(settings_shared);
}

TEST(a_store_with_sync_off_is_opened_or_there_is_no_memory) {
    open_in_both_ways("sync=off");
}

TEST(a_store_with_sync_always_is_opened_or_there_is_no_memory) {
    open_in_both_ways("sync=always");
}

TEST(a_second_handle_is_opened_or_there_is_no_memory) {
    open_options = "sync=off";
    handle_open("sync=off");
    alloc_fail_each_both(open_and_close, 3);
    handle_close();
}

/* The blocking call. */

static unsigned runs;
static enum idem_result say;

static enum idem_result function(struct idem_run *run, void *data) {
    (void)data;
    runs++;
    idem_run_set_status(run, 201);
    idem_run_set_reason(run, "because");
    if (idem_run_set_result(run, "the result", 10) != 0)
        return IDEM_RESULT_UNKNOWN;
    return say;
}

static int call_with(const char *key, struct idem_outcome *out, struct idem_error *err) {
    struct idem_args args = {.key = key,
                             .key_len = strlen(key),
                             .fingerprint = "body",
                             .fingerprint_len = 4,
                             .label = "a label"};

    return idem_call(handle, guard, &args, function, NULL, out, err);
}

/* A record to look up. No allocation fails here, so the finish has time for a slow disk. */
static void done_make(void) {
    static const struct idem_policy patience = {.finish_timeout_ms = 120000};
    struct idem_args args = {.key = "done",
                             .key_len = 4,
                             .fingerprint = "body",
                             .fingerprint_len = 4,
                             .label = "a label",
                             .with = &patience};
    struct idem_outcome out;

    CHECK(idem_call(handle, guard, &args, function, NULL, &out, NULL) == 0);
    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    idem_outcome_release(&out);
}

static void call_repeat(const char *key, struct idem_outcome *out, struct idem_error *err) {
    runs = 0;
    CHECK(idem_call(handle, guard, &(struct idem_args){.key = key, .key_len = strlen(key)},
                    function, NULL, out, err) == 0);
}

/* The outcome of the first call decides which outcomes the second may have. */
static void check_after(const char *key, int rc, const struct idem_outcome *first) {
    unsigned ran = runs;
    struct idem_outcome out;
    struct idem_error err;

    /* A claim that the caller gave up is released in the background. */
    WAIT_UNTIL((call_repeat(key, &out, &err), rc != IDEM_E_UNKNOWN || out.verdict != IDEM_BUSY));
    if (rc != 0) {
        CHECK_INT(ran, 0);
        CHECK_INT(out.verdict, IDEM_RUN);
    } else if (first->finish == IDEM_FINISH_STORED && first->said == IDEM_RESULT_DONE) {
        CHECK_INT(out.verdict, IDEM_REPLAY);
        CHECK_INT(out.result_len, 10);
    } else if (first->finish == IDEM_FINISH_STORED && first->said == IDEM_RESULT_RETRY) {
        CHECK_INT(out.verdict, IDEM_RUN); /* the record was released */
    } else {
        CHECK_INT(runs, 0); /* the callback may have run: it does not run again under hold */
    }
    CHECK_INT(runs, out.verdict == IDEM_RUN);
    idem_outcome_release(&out);
}

static char key_now[32];
static int call_rc;
static struct idem_outcome call_out;

static int call_anew(struct idem_error *err) {
    struct idem_outcome out = {0};

    snprintf(key_now, sizeof(key_now), "key %u", serial++);
    runs = 0;
    call_rc = call_with(key_now, &out, err);
    call_out = out;
    CHECK(call_rc == 0 || (out.result == NULL && out.reason == NULL));
    idem_outcome_release(&out);
    return call_rc;
}

/* As alloc_fail_each(); after each failure the test claims the same key again. */
static void fail_each_call(enum alloc_fault how, enum idem_result result) {
    for (long n = 1;; n++) {
        bool failed;

        say = result;
        failed = alloc_run(call_anew, n, how);
        check_after(key_now, call_rc, &call_out);
        if (!failed)
            break;
        CHECK(n < ALLOC_TURNS_MAX);
    }
}

static void calls_fail(const char *options) {
    const enum idem_result results[] = {IDEM_RESULT_DONE, IDEM_RESULT_RETRY, IDEM_RESULT_FINAL,
                                        IDEM_RESULT_UNKNOWN};

    handle_open(options);
    for (unsigned i = 0; i < 4; i++) {
        say = results[i];
        alloc_fail_each_both(call_anew, 3);
        fail_each_call(ALLOC_FAIL_ONCE, results[i]);
        fail_each_call(ALLOC_FAIL_SINCE, results[i]);
    }
    handle_close();
}

TEST(a_call_is_made_or_there_is_no_memory_under_sync_off) {
    calls_fail("sync=off");
}

TEST(a_call_is_made_or_there_is_no_memory_under_sync_always) {
    calls_fail("sync=always");
}

static int call_again(struct idem_error *err) {
    struct idem_outcome out = {0};
    int rc = call_with("done", &out, err);

    CHECK(rc != 0 || (out.verdict == IDEM_REPLAY && out.result_len == 10));
    idem_outcome_release(&out);
    return rc;
}

static int call_mismatched(struct idem_error *err) {
    struct idem_args args = {
        .key = "done", .key_len = 4, .fingerprint = "other", .fingerprint_len = 5};
    struct idem_outcome out = {0};
    int rc = idem_call(handle, guard, &args, function, NULL, &out, err);

    CHECK(rc != 0 || out.verdict == IDEM_MISMATCH);
    idem_outcome_release(&out);
    return rc;
}

TEST(a_replay_is_given_or_there_is_no_memory) {
    handle_open("sync=off");
    done_make();
    runs = 0;
    alloc_fail_each_both(call_again, 2);
    alloc_fail_each_both(call_mismatched, 2);
    CHECK_INT(runs, 0);
    handle_close();
}

static const struct idem_policy patient = {.on_failure = IDEM_ON_FAILURE_RETRY,
                                           .attempts = 5,
                                           .backoff_min_ms = 3600000,
                                           .backoff_max_ms = 3600000,
                                           .wait_ms = 5};

static int call_waiting(struct idem_error *err) {
    struct idem_args args = {.key = "busy", .key_len = 4, .with = &patient};
    struct idem_outcome out = {0};
    int rc = idem_call(handle, guard, &args, function, NULL, &out, err);

    CHECK(rc != 0 || out.verdict == IDEM_BUSY);
    idem_outcome_release(&out);
    return rc;
}

/* The retry of the first failure is due in an hour, so the second caller waits, and then gets a
 * verdict. */
TEST(a_caller_waits_or_there_is_no_memory) {
    struct idem_args args = {.key = "busy", .key_len = 4, .with = &patient};
    struct idem_outcome out;

    handle_open("sync=off");
    say = IDEM_RESULT_RETRY;
    CHECK(idem_call(handle, guard, &args, function, NULL, &out, NULL) == 0);
    CHECK_INT(out.verdict, IDEM_RUN);
    idem_outcome_release(&out);
    runs = 0;
    alloc_fail_each_both(call_waiting, 3);
    CHECK_INT(runs, 0);
    handle_close();
}

/* Operators. */

static const struct idem_name done_name = {.prefix = "pay:", .key = "done", .key_len = 4};

static int look_up(struct idem_error *err) {
    struct idem_entry entry = {0};
    int rc = idem_lookup(handle, &done_name, &entry, err);

    CHECK(rc != 0 || entry.result_len == 10);
    CHECK(rc == 0 || entry.result == NULL);
    idem_entry_release(&entry);
    return rc;
}

static int list(struct idem_error *err) {
    struct idem_filter filter = {.prefix = "pay:"};
    struct idem_cursor cursor = {0};
    struct idem_entry entries[4];
    size_t n = 0;
    int rc = idem_list(handle, &filter, &cursor, entries, 4, &n, err);

    CHECK(rc != 0 || n > 0);
    CHECK(rc == 0 || (cursor.len == 0 && !cursor.end));
    return rc;
}

static int count(struct idem_error *err) {
    struct idem_stats stats = {0};
    int rc = idem_stats(handle, &stats, err);

    CHECK(rc != 0 || stats.done > 0);
    return rc;
}

static int ask_time(struct idem_error *err) {
    int64_t ms = 0;
    int rc = idem_time(handle, &ms, err);

    CHECK((rc == 0) == (ms != 0));
    return rc;
}

/* Settles an attempt that is not the current one. That changes nothing, so the test can repeat
 * it. */
static int settle(struct idem_error *err) {
    struct idem_settlement how = {.to = IDEM_DONE, .reason = "because", .attempt = 99};
    int rc = idem_settle(handle, &done_name, &how, err);

    CHECK(rc != 0);
    return rc == IDEM_E_LIVE ? 0 : rc;
}

static bool leave_out(const struct idem_entry *entry, void *data) {
    (void)entry;
    (void)data;
    return false;
}

static int settle_all(struct idem_error *err) {
    struct idem_settlement how = {.to = IDEM_DONE};
    size_t n = 77;
    int rc = idem_settle_all(handle, NULL, &how, leave_out, NULL, &n, err);

    CHECK_INT(n, rc == 0 ? 0 : 77);
    return rc;
}

static int forget(struct idem_error *err) {
    struct idem_name name = {.prefix = "pay:", .key = "never", .key_len = 5};
    int rc = idem_forget(handle, &name, true, err);

    CHECK(rc != 0);
    return rc == IDEM_E_ABSENT ? 0 : rc;
}

static void operators_fail(const char *options) {
    handle_open(options);
    say = IDEM_RESULT_DONE;
    done_make();
    alloc_fail_each_both(look_up, 2);
    alloc_fail_each_both(list, 2);
    alloc_fail_each_both(count, 1);
    alloc_fail_each_both(ask_time, 1);
    alloc_fail_each_both(settle, 1);
    alloc_fail_each_both(settle_all, 2);
    alloc_fail_each_both(forget, 1);
    handle_close();
}

TEST(operators_are_answered_or_there_is_no_memory_under_sync_off) {
    operators_fail("sync=off");
}

TEST(operators_are_answered_or_there_is_no_memory_under_sync_always) {
    operators_fail("sync=always");
}

TEST_MAIN
