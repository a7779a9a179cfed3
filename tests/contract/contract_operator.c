/*
 * The contract of operators' actions: look up, settle, forget, counts, time;
 * and that a store keeps its records when it is closed.
 */
#include "../wait.h"
#include "contract.h"
#include "protocol/record_key.h"

static struct idem_settle_in settle_to(enum idem_state to, int32_t status, const char *reason) {
    return (struct idem_settle_in){
        .to = to, .status = status, .reason = bytes_of(reason), .ttl_ms = TTL_MS};
}

CONTRACT(what_is_not_there_is_absent_for_everybody) {
    struct idem_settle_in done = settle_to(IDEM_DONE, 0, "");

    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
    CHECK_INT(settle(c, "k", done), IDEM_E_ABSENT);
    CHECK_INT(forget(c, "k", false), IDEM_E_ABSENT);
    CHECK_INT(forget(c, "k", true), IDEM_E_ABSENT);
    run_done(c, "k", 1, "r");
    advance(TTL_MS);
    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
    CHECK_INT(settle(c, "k", done), IDEM_E_ABSENT);
    CHECK_INT(forget(c, "k", true), IDEM_E_ABSENT);
}

CONTRACT(an_uncertain_record_settled_done_is_a_duplicate) {
    struct told told;

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(settle(c, "k", settle_to(IDEM_DONE, 207, "seen in the bank's books")), 0);
    told = claim(c, "k", claim_by(2));
    CHECK_INT(told.verdict, IDEM_DUPLICATE);
    CHECK_INT(told.record.status, 207);
    CHECK_STR((const char *)told.record.reason.at, "seen in the bank's books");
    CHECK_INT(finish(c, "k", done_by(1, 200, "late")), IDEM_LOST);
    CHECK_INT(settle(c, "k", settle_to(IDEM_DONE, 0, "")), IDEM_E_SETTLED);
    CHECK_INT(settle(c, "k", settle_to(IDEM_FAILED, 0, "")), IDEM_E_SETTLED);
    advance(TTL_MS);
    CHECK_INT(claim(c, "k", claim_by(3)).verdict, IDEM_RUN);
}

CONTRACT(an_uncertain_record_settled_failed_runs_again_while_attempts_are_left) {
    struct idem_claim_in keeper = claim_by(3);

    keeper.on_failure = IDEM_ON_FAILURE_KEEP;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(settle(c, "k", settle_to(IDEM_FAILED, 500, "never arrived")), 0);
    CHECK_INT(claim(c, "k", rerun_by(2, 1)).verdict, IDEM_DEAD);
    CHECK_INT(claim(c, "k", keeper).verdict, IDEM_DEAD);
    CHECK_INT(claim(c, "k", claim_by(4)).record.attempt, 2);
    CHECK_INT(finish(c, "k", done_by(1, 200, "late")), IDEM_LOST);
}

CONTRACT(a_failed_record_can_be_settled_either_way) {
    struct idem_finish_in failed = fail_by(1, 500, "no", 60000);

    failed.final = true;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", failed), IDEM_ACK);
    CHECK_INT(settle(c, "k", settle_to(IDEM_FAILED, 1, "try again")), 0);
    CHECK_INT(claim(c, "k", rerun_by(2, 5)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", fail_by(2, 500, "no", 60000)), IDEM_ACK);
    CHECK_INT(settle(c, "k", settle_to(IDEM_DONE, 2, "by hand")), 0);
    CHECK_INT(claim(c, "k", rerun_by(3, 5)).verdict, IDEM_DUPLICATE);
}

CONTRACT(a_live_lease_is_settled_and_forgotten_by_force_only) {
    struct idem_settle_in forced = settle_to(IDEM_DONE, 0, "");

    forced.force = true;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(settle(c, "k", settle_to(IDEM_DONE, 0, "")), IDEM_E_LIVE);
    CHECK_INT(forget(c, "k", false), IDEM_E_LIVE);
    CHECK_INT(settle(c, "k", forced), 0);
    CHECK_INT(finish(c, "k", renew_by(1, LEASE_MS)), IDEM_LOST);
    CHECK_INT(finish(c, "k", done_by(1, 200, "late")), IDEM_LOST);
    CHECK_INT(claim(c, "f", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(forget(c, "f", true), 0);
    CHECK_INT(finish(c, "f", done_by(1, 200, "late")), IDEM_LOST);
    CHECK_INT(claim(c, "f", claim_by(2)).record.attempt, 1);
    CHECK_INT(finish(c, "f", renew_by(1, LEASE_MS)), IDEM_LOST);
}

/* Even the operator's own outcome, sent by the old owner, is no repetition. */
CONTRACT(an_operator_clears_the_owner) {
    static const unsigned char nobody[IDEM_OWNER_LEN];

    CHECK_INT(claim(c, "d", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "f", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(settle(c, "d", settle_to(IDEM_DONE, 200, "by hand")), 0);
    CHECK_INT(settle(c, "f", settle_to(IDEM_FAILED, 500, "by hand")), 0);
    CHECK(memcmp(peek(c, "d").owner, nobody, IDEM_OWNER_LEN) == 0);
    CHECK(memcmp(peek(c, "f").owner, nobody, IDEM_OWNER_LEN) == 0);
    CHECK_INT(finish(c, "d", done_by(1, 200, "r")), IDEM_LOST);
    CHECK_INT(finish(c, "f", fail_by(1, 500, "by hand", 0)), IDEM_LOST);
}

CONTRACT(a_settlement_for_another_attempt_settles_nothing) {
    struct idem_settle_in second = settle_to(IDEM_DONE, 0, "");

    second.attempt = 2;
    CHECK_INT(claim(c, "k", rerun_by(1, 0)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(settle(c, "k", second), IDEM_E_LIVE);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).record.attempt, 2);
    advance(LEASE_MS);
    CHECK_INT(settle(c, "k", second), 0);
}

/* Two operators have both seen the record uncertain. The second settles nothing, at the same
 * attempt. */
CONTRACT(a_settlement_for_another_state_settles_nothing) {
    struct idem_settle_in as_failed = settle_to(IDEM_FAILED, 1, "the first"),
                          as_done = settle_to(IDEM_DONE, 0, "the second");

    as_failed.from = as_done.from = IDEM_RUNNING;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(settle(c, "k", as_done), IDEM_E_LIVE);
    advance(LEASE_MS);
    CHECK_INT(settle(c, "k", as_failed), 0);
    CHECK_INT(settle(c, "k", as_done), IDEM_E_SETTLED);
    CHECK_INT(settle(c, "k", as_failed), IDEM_E_SETTLED);
    as_done.force = true;
    CHECK_INT(settle(c, "k", as_done), IDEM_E_SETTLED);
    as_done.from = IDEM_FAILED;
    CHECK_INT(settle(c, "k", as_done), 0);
    CHECK_INT(settle(c, "k", as_done), IDEM_E_SETTLED);
}

CONTRACT(a_settlement_lives_for_its_own_ttl) {
    struct idem_settle_in brief = settle_to(IDEM_DONE, 0, "");

    brief.ttl_ms = 1000;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(settle(c, "k", brief), 0);
    advance(999);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_DUPLICATE);
    advance(1);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_RUN);
}

CONTRACT(what_was_forgotten_runs_as_if_it_never_had) {
    run_done(c, "k", 1, "r");
    CHECK_INT(forget(c, "k", false), 0);
    CHECK_INT(claim(c, "k", claim_by(1)).record.attempt, 1);
    CHECK(issue(c, "t", 9, 7, TTL_MS));
    CHECK_INT(forget(c, "t", false), 0);
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_NO_TOKEN);
}

CONTRACT(errors_name_a_record_by_its_hash_and_never_by_its_key) {
    struct idem_record_key key = key_of("the secret key");
    const enum idem_op_kind kinds[] = {IDEM_OP_LOOKUP, IDEM_OP_SETTLE, IDEM_OP_FORGET};
    char hex[IDEM_HEX_LEN + 1];

    idem_record_key_hex(&key, hex);
    hex[12] = '\0'; /* as errors show the hash */
    for (unsigned i = 0; i < 3; i++) {
        struct call call;

        call_init(&call, c, kinds[i], &key);
        if (kinds[i] == IDEM_OP_SETTLE)
            call.op.in.settle = settle_to(IDEM_DONE, 0, "the secret reason");
        CHECK_INT(call_run(&call), IDEM_E_ABSENT);
        CHECK(strstr(call.op.error.text, "secret") == NULL);
        CHECK(strstr(call.op.error.text, hex) != NULL);
    }
}

CONTRACT(counts_by_state_are_exact) {
    struct idem_stats s;

    CHECK(issue(c, "t", 9, 7, TTL_MS));
    CHECK_INT(claim(c, "u", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "u2", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "r", claim_by(1)).verdict, IDEM_RUN);
    run_done(c, "d1", 1, "r");
    run_done(c, "d2", 1, "r");
    run_done(c, "d3", 1, "r");
    CHECK_INT(claim(c, "f", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "f", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK(once(c, "n", TTL_MS));
    s = stats(c);
    CHECK_INT(s.issued, 1);
    CHECK_INT(s.uncertain, 2);
    CHECK_INT(s.running, 1);
    CHECK_INT(s.done, 3);
    CHECK_INT(s.failed, 1);
    CHECK(s.bytes_max == 0 || s.bytes_used <= s.bytes_max);
    advance(TTL_MS);
    s = stats(c);
    CHECK_INT(s.issued + s.done + s.failed, 0);
}

/* True once all events of the test are counted; one may be counted before another. */
static bool counts_came(const struct idem_stats *before, const struct idem_stats *after) {
    return after->events[IDEM_EVENT_RUN] >= before->events[IDEM_EVENT_RUN] + 5 &&
           after->events[IDEM_EVENT_SUPERSEDED] >= before->events[IDEM_EVENT_SUPERSEDED] + 3;
}

CONTRACT(counts_of_events_outlive_the_connection) {
    struct conn *other = another(HOST_POLL);
    struct idem_stats before = stats(c), after;

    c->store->driver->tally(c->store, IDEM_EVENT_SUPERSEDED, 3);
    c->store->driver->tally(c->store, IDEM_EVENT_RUN, 1);
    other->store->driver->tally(other->store, IDEM_EVENT_RUN, 4);
    TURN_UNTIL(c, (conn_pass(other, 100), after = stats(c), counts_came(&before, &after)));
    CHECK_INT(after.events[IDEM_EVENT_SUPERSEDED] - before.events[IDEM_EVENT_SUPERSEDED], 3);
    CHECK_INT(after.events[IDEM_EVENT_RUN] - before.events[IDEM_EVENT_RUN], 5);
    CHECK_INT(after.events[IDEM_EVENT_BUSY] - before.events[IDEM_EVENT_BUSY], 0);
    conn_close(c);
    conn_close(other);
    after = stats(another(HOST_POLL));
    CHECK_INT(after.events[IDEM_EVENT_SUPERSEDED] - before.events[IDEM_EVENT_SUPERSEDED], 3);
}

CONTRACT(the_time_is_the_stores) {
    struct call call;

    for (unsigned i = 0; i < 3; i++) {
        call_init(&call, c, IDEM_OP_TIME, NULL);
        CHECK_INT(call_run(&call), 0);
        CHECK_INT(call.op.out.time.ms, now().wall);
        advance(12345);
    }
}

CONTRACT(a_store_remembers_over_its_closing) {
    struct idem_record running, done, failed, issued, after;

    CHECK_INT(claim(c, "r", claim_by(1)).verdict, IDEM_RUN);
    run_done(c, "d", 2, "the result");
    CHECK_INT(claim(c, "f", rerun_by(3, 5)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "f", fail_by(3, 500, "why", 90000)), IDEM_ACK);
    CHECK(issue(c, "t", 9, 7, TTL_MS));
    CHECK(once(c, "n", TTL_MS));
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, 7).value, 7);
    running = peek(c, "r");
    done = peek(c, "d");
    failed = peek(c, "f");
    issued = peek(c, "t");
    conn_close(c);
    c = another(HOST_EDGE);
    after = peek(c, "r");
    CHECK(judge_equal(&after, &running, now()));
    after = peek(c, "d");
    CHECK(judge_equal(&after, &done, now()));
    after = peek(c, "f");
    CHECK(judge_equal(&after, &failed, now()));
    after = peek(c, "t");
    CHECK(judge_equal(&after, &issued, now()));
    CHECK(!once(c, "n", TTL_MS));
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, 1).value, 8);
    CHECK_INT(claim(c, "r", claim_by(4)).verdict, IDEM_BUSY);
}
