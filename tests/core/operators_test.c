/*
 * The operators' functions: look up, list, settle, forget, and the store's time.
 */
#include "calls.h"

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

TEST(of_two_who_have_seen_it_uncertain_one_settles_it) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_settlement as_failed = {.to = IDEM_FAILED, .attempt = 1, .from = IDEM_RUNNING},
                           as_done = {.to = IDEM_DONE, .attempt = 1, .from = IDEM_RUNNING};
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};
    struct work work = {.say = IDEM_RESULT_UNKNOWN};
    struct idem_outcome out = call(h, guard, "k", &work);
    struct idem_error err;

    idem_outcome_release(&out);
    CHECK_INT(idem_settle(h, &name, &as_failed, &err), 0);
    CHECK_INT(idem_settle(h, &name, &as_done, &err), IDEM_E_SETTLED);
    CHECK_HAS(err.text, "was settled since it was seen");
    as_done.from = IDEM_DAMAGED;
    CHECK_INT(idem_settle(h, &name, &as_done, &err), IDEM_E_INVALID);
    as_done.from = IDEM_ABSENT;
    CHECK_INT(idem_settle(h, &name, &as_done, &err), 0);
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

/* Settles the listed record meanwhile, and runs it again with an unknown outcome. */
struct meanwhile {
    struct idem *h;
    struct idem_guard *guard;
    int seen;
};

static bool run_meanwhile(const struct idem_entry *entry, void *data) {
    struct idem_name name = {.prefix = "t:", .hash = entry->hash};
    struct idem_settlement how = {.to = IDEM_FAILED};
    struct work work = {.say = IDEM_RESULT_UNKNOWN};
    struct meanwhile *with = data;

    with->seen++;
    CHECK_INT(entry->attempt, 1);
    CHECK_INT(idem_settle(with->h, &name, &how, NULL), 0);
    CHECK_INT(verdict(with->h, with->guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.attempt, 2);
    return true;
}

TEST(a_record_that_ran_again_since_it_was_listed_is_not_settled_with_the_others) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct work unknown = {.say = IDEM_RESULT_UNKNOWN};
    struct idem_settlement how = {.to = IDEM_DONE};
    struct meanwhile with = {.h = h, .guard = guard};
    size_t n = 77;

    CHECK_INT(verdict(h, guard, "k", &unknown), IDEM_RUN);
    CHECK_INT(idem_settle_all(h, NULL, &how, run_meanwhile, &with, &n, NULL), 0);
    CHECK_INT(with.seen, 1);
    CHECK_INT(n, 0);
    CHECK_INT(verdict(h, guard, "k", &unknown), IDEM_UNCERTAIN);
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

TEST(the_time_is_the_stores) {
    struct idem *h = open_store("sync=off");
    int64_t ms, before = (int64_t)time(NULL);

    CHECK_INT(idem_time(h, &ms, NULL), 0);
    CHECK(ms / 1000 >= before - 5 && ms / 1000 <= (int64_t)time(NULL) + 5);
    idem_close(h);
}

TEST(a_cursor_that_did_not_start_as_zeros_is_refused) {
    struct idem *h = open_store("sync=off");
    struct idem_cursor cursor;
    struct idem_entry entry;
    struct idem_error err;
    size_t n = 77;

    memset(&cursor, 0, sizeof(cursor));
    cursor.len = sizeof(cursor.at) + 1;
    CHECK_INT(idem_list(h, NULL, &cursor, &entry, 1, &n, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "zeros");
    CHECK_INT(n, 77);
    idem_close(h);
}

TEST_MAIN
