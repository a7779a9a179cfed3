/*
 * The contract of tokens, nonces and counters.
 */
#include "base/hash.h"
#include "contract.h"

CONTRACT(a_token_is_issued_once_by_name) {
    CHECK(issue(c, "t", 1, 7, TTL_MS));
    CHECK(!issue(c, "t", 2, 7, TTL_MS));
    CHECK(!issue(c, "t", 2, 8, TTL_MS));
    CHECK_INT(claim(c, "t", token_by(3, 7)).verdict, IDEM_RUN);
    CHECK(!issue(c, "t", 2, 7, TTL_MS));
    CHECK_INT(finish(c, "t", done_by(3, 200, "r")), IDEM_ACK);
    CHECK(!issue(c, "t", 2, 7, TTL_MS));
}

CONTRACT(an_issue_repeated_under_its_owner_id_gets_its_first_answer) {
    CHECK(issue(c, "t", 1, 7, TTL_MS));
    advance(1000);
    CHECK(issue(c, "t", 1, 7, TTL_MS));
    CHECK_INT(peek(c, "t").expires, now().wall - 1000 + TTL_MS);
}

CONTRACT(the_name_of_an_expired_token_is_free_again) {
    CHECK(issue(c, "t", 1, 7, 1000));
    advance(1000);
    CHECK(issue(c, "t", 2, 8, 1000));
    CHECK_INT(claim(c, "t", token_by(3, 7)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(3, 8)).verdict, IDEM_RUN);
}

CONTRACT(a_token_keeps_its_label) {
    struct idem_record_key key = key_of("t");
    struct call call;

    call_init(&call, c, IDEM_OP_ISSUE, &key);
    call.op.in.issue = (struct idem_issue_in){.ttl_ms = TTL_MS, .label = bytes_of("for Ada")};
    owner_set(call.op.in.issue.owner, 1);
    CHECK_INT(call_run(&call), 0);
    CHECK(call.op.out.issue.issued);
    CHECK_STR((const char *)peek(c, "t").label.at, "for Ada");
    CHECK_INT(claim(c, "t", token_by(2, 0)).verdict, IDEM_RUN);
    CHECK_STR((const char *)peek(c, "t").label.at, "for Ada");
}

CONTRACT(a_token_lives_like_a_key_once_it_is_used) {
    CHECK(issue(c, "t", 9, 7, 1000));
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "t", token_by(2, 7)).verdict, IDEM_BUSY);
    CHECK_INT(finish(c, "t", done_by(1, 200, "r")), IDEM_ACK);
    advance(TTL_MS - 1);
    CHECK_INT(claim(c, "t", token_by(2, 7)).verdict, IDEM_REPLAY);
    advance(1);
    CHECK_INT(claim(c, "t", token_by(2, 7)).verdict, IDEM_NO_TOKEN);
}

CONTRACT(a_token_survives_a_failed_run) {
    CHECK(issue(c, "t", 9, 7, 1000));
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "t", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "t", token_by(2, 7)).record.attempt, 2);
}

CONTRACT(a_nonce_is_accepted_once) {
    CHECK(once(c, "n", 10000));
    CHECK(!once(c, "n", 10000));
    CHECK(once(c, "m", 10000));
    CHECK(!once(another(HOST_POLL), "n", 10000));
}

CONTRACT(a_nonce_is_remembered_for_the_life_it_was_first_given) {
    CHECK(once(c, "n", 10000));
    advance(5000);
    CHECK(!once(c, "n", 1));
    advance(4999);
    CHECK(!once(c, "n", 10000));
    advance(1);
    CHECK(once(c, "n", 10000));
    advance(9999);
    CHECK(!once(c, "n", 10000));
}

CONTRACT(of_many_who_bring_one_nonce_at_once_one_is_the_first) {
    struct conn *others[4] = {c, another(HOST_POLL), another(HOST_EDGE), another(HOST_EDGE)};
    struct idem_record_key key = key_of("n");
    struct call calls[40];
    unsigned first = 0;

    for (unsigned i = 0; i < 40; i++) {
        call_init(&calls[i], others[i % 4], IDEM_OP_ONCE, &key);
        calls[i].op.in.once.ttl_ms = TTL_MS;
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < 40; i++) {
        CHECK_INT(call_wait(&calls[i]), 0);
        first += calls[i].op.out.once.first;
    }
    CHECK_INT(first, 1);
}

CONTRACT(a_counter_begins_at_nothing_and_adds) {
    struct counted counted = count(c, "n", IDEM_COUNT_ADD, 1);

    CHECK(counted.changed);
    CHECK_INT(counted.value, 1);
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, 41).value, 42);
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, -50).value, -8);
    CHECK_INT(count(another(HOST_POLL), "n", IDEM_COUNT_ADD, 8).value, 0);
    CHECK_INT(count(c, "other", IDEM_COUNT_ADD, 1).value, 1);
}

CONTRACT(a_counter_is_raised_only_to_what_is_higher) {
    CHECK(count(c, "n", IDEM_COUNT_RAISE, 10).changed);
    CHECK(!count(c, "n", IDEM_COUNT_RAISE, 10).changed);
    CHECK(!count(c, "n", IDEM_COUNT_RAISE, 9).changed);
    CHECK_INT(count(c, "n", IDEM_COUNT_RAISE, 9).value, 10);
    CHECK_INT(count(c, "n", IDEM_COUNT_RAISE, INT64_MAX).value, INT64_MAX);
}

CONTRACT(a_sequence_takes_the_next_number_only) {
    CHECK(!count(c, "n", IDEM_COUNT_NEXT, 2).changed);
    CHECK(count(c, "n", IDEM_COUNT_NEXT, 1).changed);
    CHECK(!count(c, "n", IDEM_COUNT_NEXT, 1).changed);
    CHECK(!count(c, "n", IDEM_COUNT_NEXT, 3).changed);
    CHECK_INT(count(c, "n", IDEM_COUNT_NEXT, 3).value, 1);
    CHECK_INT(count(c, "n", IDEM_COUNT_NEXT, 2).value, 2);
}

CONTRACT(a_counter_lives_on_from_its_last_change) {
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, 5).value, 5);
    advance(TTL_MS - 1);
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, 5).value, 10);
    advance(TTL_MS - 1);
    CHECK(!count(c, "n", IDEM_COUNT_RAISE, 3).changed);
    advance(1);
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, 5).value, 5);
}

CONTRACT(a_counter_does_not_wrap) {
    struct idem_record_key key = key_of("n");
    struct call call;

    for (int i = 0; i < 2; i++) {
        call_init(&call, c, IDEM_OP_COUNT, &key);
        call.op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, INT64_MAX, TTL_MS};
        CHECK_INT(call_run(&call), i == 0 ? 0 : IDEM_E_INVALID);
    }
    call_init(&call, c, IDEM_OP_COUNT, &key);
    call.op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 0, TTL_MS};
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.count.value, INT64_MAX);
}

CONTRACT(no_number_of_a_counter_is_given_out_twice) {
    struct conn *others[3] = {c, another(HOST_POLL), another(HOST_EDGE)};
    struct idem_record_key key = key_of("n");
    struct call calls[60];
    bool seen[61] = {false};

    for (unsigned i = 0; i < 60; i++) {
        call_init(&calls[i], others[i % 3], IDEM_OP_COUNT, &key);
        calls[i].op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, TTL_MS};
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < 60; i++) {
        int64_t value;

        CHECK_INT(call_wait(&calls[i]), 0);
        value = calls[i].op.out.count.value;
        CHECK(value >= 1 && value <= 60 && !seen[value]);
        seen[value] = true;
    }
}

CONTRACT(nonces_and_counters_are_no_records) {
    CHECK(once(c, "k", TTL_MS));
    CHECK_INT(count(c, "k", IDEM_COUNT_ADD, 1).value, 1);
    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
    CHECK_INT(list_all(c, "", (struct idem_list_in){0}, 10).n, 0);
    CHECK_INT(claim(c, "k", claim_by(1)).record.attempt, 1);
    CHECK_INT(forget(c, "k", true), 0);
    CHECK(!once(c, "k", TTL_MS));
    CHECK_INT(count(c, "k", IDEM_COUNT_ADD, 1).value, 2);
}
