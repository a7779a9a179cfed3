/*
 * The contract of claims: the rows of the first table, one test or more each.
 */
#include "contract.h"

CONTRACT(a_key_that_was_never_seen_is_run) {
    struct told told = claim(c, "new", claim_by(1));

    CHECK_INT(told.verdict, IDEM_RUN);
    CHECK_INT(told.record.state, IDEM_RUNNING);
    CHECK_INT(told.record.attempt, 1);
    CHECK_INT(peek(c, "new").lease_end, now().lease + LEASE_MS);
    CHECK_INT(peek(c, "new").created, now().wall);
}

CONTRACT(an_expired_record_is_as_good_as_none) {
    struct told told;

    run_done(c, "k", 1, "first");
    advance(TTL_MS - 1);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_REPLAY);
    advance(1);
    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
    told = claim(c, "k", claim_by(3));
    CHECK_INT(told.verdict, IDEM_RUN);
    CHECK_INT(told.record.attempt, 1);
    CHECK_INT(peek(c, "k").created, now().wall);
    CHECK_INT(told.record.result.len, 0);
}

CONTRACT(a_token_that_was_never_issued_is_refused) {
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(1, 0)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(peek(c, "t").state, IDEM_ABSENT);
}

CONTRACT(an_expired_token_is_refused_like_one_that_never_was) {
    CHECK(issue(c, "t", 9, 7, 60000));
    advance(60000);
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(peek(c, "t").state, IDEM_ABSENT);
}

CONTRACT(a_token_runs_for_whom_it_was_issued_to) {
    struct told told;

    CHECK(issue(c, "t", 9, 7, 60000));
    CHECK_INT(peek(c, "t").state, IDEM_ISSUED);
    told = claim(c, "t", token_by(1, 7));
    CHECK_INT(told.verdict, IDEM_RUN);
    CHECK_INT(told.record.attempt, 1);
}

CONTRACT(a_token_without_a_binding_runs_for_a_caller_without_one) {
    CHECK(issue(c, "t", 9, 0, 60000));
    CHECK_INT(claim(c, "t", token_by(1, 5)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(2, 0)).verdict, IDEM_RUN);
}

CONTRACT(a_token_of_somebody_else_looks_like_none_in_every_state) {
    struct idem_finish_in failed = fail_by(1, 500, "no", 0);

    CHECK(issue(c, "t", 9, 7, TTL_MS));
    CHECK_INT(claim(c, "t", token_by(2, 8)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(2, 0)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "t", token_by(2, 8)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(finish(c, "t", failed), IDEM_ACK);
    CHECK_INT(claim(c, "t", token_by(2, 8)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(3, 7)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "t", done_by(3, 200, "mine")), IDEM_ACK);
    CHECK_INT(claim(c, "t", token_by(2, 8)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(4, 7)).verdict, IDEM_REPLAY);
}

CONTRACT(a_claim_repeated_under_its_owner_id_gets_its_first_answer) {
    struct told first = claim(c, "k", claim_by(1)), again;

    advance(1000);
    again = claim(c, "k", claim_by(1));
    CHECK_INT(again.verdict, IDEM_RUN);
    CHECK_INT(again.record.attempt, first.record.attempt);
    CHECK_INT(peek(c, "k").lease_end, now().lease + LEASE_MS - 1000);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_BUSY);
}

CONTRACT(a_claim_repeated_after_its_lease_is_still_its_owners) {
    struct idem_claim_in other = rerun_by(1, 1);

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "k", other).verdict, IDEM_RUN);
    CHECK_INT(peek(c, "k").attempt, 1);
}

/* In each state (running live, running over, done, failed) the other fingerprint learns nothing. */
CONTRACT(another_fingerprint_is_told_before_progress) {
    struct idem_claim_in mine = claim_by(1), other = claim_by(2), prober = claim_by(3);
    struct idem_claim_in rerun = rerun_by(4, 0), lock = lock_by(5);

    mine.fingerprint = fingerprint_of(1, 'a');
    other.fingerprint = prober.fingerprint = fingerprint_of(1, 'b');
    rerun.fingerprint = lock.fingerprint = fingerprint_of(1, 'b');
    prober.probe = true;
    CHECK_INT(claim(c, "k", mine).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "k", other).verdict, IDEM_MISMATCH);
    CHECK_INT(claim(c, "k", prober).verdict, IDEM_MISMATCH);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", other).verdict, IDEM_MISMATCH);
    CHECK_INT(claim(c, "k", rerun).verdict, IDEM_MISMATCH);
    CHECK_INT(claim(c, "k", prober).verdict, IDEM_MISMATCH);
    CHECK_INT(finish(c, "k", done_by(1, 200, "secret")), IDEM_ACK);
    CHECK_INT(claim(c, "k", other).verdict, IDEM_MISMATCH);
    CHECK_INT(claim(c, "k", lock).verdict, IDEM_MISMATCH);
    owner_set(mine.owner, 6);
    CHECK_INT(claim(c, "k", mine).verdict, IDEM_REPLAY);
    CHECK_INT(claim(c, "f", mine).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "f", fail_by(6, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "f", other).verdict, IDEM_MISMATCH);
}

CONTRACT(fingerprints_of_two_definitions_are_not_compared) {
    struct idem_claim_in mine = claim_by(1), other = claim_by(2), none = claim_by(3);

    mine.fingerprint = fingerprint_of(1, 'a');
    other.fingerprint = fingerprint_of(2, 'b');
    CHECK_INT(claim(c, "k", mine).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "k", other).verdict, IDEM_BUSY);
    CHECK_INT(claim(c, "k", none).verdict, IDEM_BUSY);
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_ACK);
    CHECK_INT(claim(c, "k", other).verdict, IDEM_REPLAY);
    CHECK_INT(claim(c, "k", none).verdict, IDEM_REPLAY);
}

CONTRACT(a_live_lease_is_busy_with_the_time_left) {
    struct told told;

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS - 1);
    told = claim(c, "k", rerun_by(2, 0));
    CHECK_INT(told.verdict, IDEM_BUSY);
    CHECK_INT(told.left_ms, 1);
    advance(1);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_RUN);
}

CONTRACT(a_run_that_vanished_is_run_again_under_rerun) {
    struct told told;

    CHECK_INT(claim(c, "k", rerun_by(1, 3)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    told = claim(c, "k", rerun_by(2, 3));
    CHECK_INT(told.verdict, IDEM_RUN);
    CHECK_INT(told.record.attempt, 2);
    CHECK_INT(told.record.tries, 2);
    CHECK_INT(claim(c, "k", rerun_by(3, 3)).verdict, IDEM_BUSY);
}

CONTRACT(the_last_attempt_that_vanished_is_buried) {
    struct told told;

    CHECK_INT(claim(c, "k", rerun_by(1, 2)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", rerun_by(2, 2)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    told = claim(c, "k", rerun_by(3, 2));
    CHECK_INT(told.verdict, IDEM_DEAD);
    CHECK_INT(told.record.state, IDEM_FAILED);
    CHECK(told.record.reason.len > 0);
    CHECK_INT(peek(c, "k").expires, now().wall + TTL_MS);
    CHECK_INT(claim(c, "k", rerun_by(4, 0)).verdict, IDEM_DEAD);
    CHECK_INT(finish(c, "k", done_by(2, 200, "late")), IDEM_LOST);
}

CONTRACT(a_run_that_vanished_is_uncertain_under_hold) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_UNCERTAIN);
    CHECK_INT(claim(c, "k", claim_by(3)).verdict, IDEM_UNCERTAIN);
    CHECK_INT(finish(c, "k", done_by(1, 201, "after all")), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_REPLAY);
}

CONTRACT(a_prober_takes_an_uncertain_record_over) {
    struct idem_claim_in prober = claim_by(2), second = claim_by(3);
    struct told told;

    prober.probe = second.probe = true;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "k", prober).verdict, IDEM_BUSY);
    advance(LEASE_MS);
    told = claim(c, "k", prober);
    CHECK_INT(told.verdict, IDEM_PROBE);
    CHECK_INT(told.record.attempt, 2);
    CHECK_INT(told.record.tries, 1);
    CHECK_INT(claim(c, "k", second).verdict, IDEM_BUSY);
    CHECK_INT(claim(c, "k", claim_by(4)).verdict, IDEM_BUSY);
    CHECK_INT(finish(c, "k", done_by(1, 200, "late")), IDEM_LOST);
    CHECK_INT(finish(c, "k", done_by(2, 200, "found out")), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(4)).verdict, IDEM_REPLAY);
}

CONTRACT(a_prober_that_learns_nothing_leaves_it_uncertain) {
    struct idem_claim_in prober = claim_by(2);

    prober.probe = true;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", prober).verdict, IDEM_PROBE);
    CHECK_INT(finish(c, "k", unknown_by(2, 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(3)).verdict, IDEM_UNCERTAIN);
    owner_set(prober.owner, 4);
    CHECK_INT(claim(c, "k", prober).verdict, IDEM_PROBE);
    CHECK_INT(finish(c, "k", release_by(4)), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(3)).verdict, IDEM_UNCERTAIN);
    CHECK_INT(finish(c, "k", done_by(1, 200, "late")), IDEM_LOST);
}

CONTRACT(a_probe_repeated_under_its_owner_id_gets_its_first_answer) {
    struct idem_claim_in prober = claim_by(2);

    prober.probe = true;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", prober).record.attempt, 2);
    advance(LEASE_MS / 2);
    CHECK_INT(claim(c, "k", prober).verdict, IDEM_PROBE);
    CHECK_INT(peek(c, "k").attempt, 2);
    CHECK_INT(claim(c, "k", claim_by(3)).left_ms, LEASE_MS / 2);
}

CONTRACT(a_prober_of_a_key_that_was_never_seen_runs) {
    struct idem_claim_in prober = claim_by(1);

    prober.probe = true;
    CHECK_INT(claim(c, "k", prober).verdict, IDEM_RUN);
}

CONTRACT(a_lock_that_was_freed_runs_again_with_a_higher_number) {
    struct told told;

    CHECK_INT(claim(c, "k", lock_by(1)).record.attempt, 1);
    CHECK_INT(claim(c, "k", lock_by(2)).verdict, IDEM_BUSY);
    CHECK_INT(finish(c, "k", done_by(1, 0, NULL)), IDEM_ACK);
    told = claim(c, "k", lock_by(2));
    CHECK_INT(told.verdict, IDEM_RUN);
    CHECK_INT(told.record.attempt, 2);
    CHECK_INT(told.record.tries, 1);
    CHECK_INT(finish(c, "k", done_by(2, 0, NULL)), IDEM_ACK);
    told = claim(c, "k", claim_by(3));
    CHECK_INT(told.verdict, IDEM_RUN);
    CHECK_INT(told.record.attempt, 3);
    CHECK_INT(finish(c, "k", done_by(3, 200, "r")), IDEM_ACK);
    CHECK_INT(claim(c, "k", lock_by(4)).verdict, IDEM_DUPLICATE);
}

CONTRACT(the_number_of_a_lock_is_remembered_for_its_ttl) {
    CHECK_INT(claim(c, "k", lock_by(1)).record.attempt, 1);
    CHECK_INT(finish(c, "k", done_by(1, 0, NULL)), IDEM_ACK);
    advance(TTL_MS - 1);
    CHECK_INT(claim(c, "k", lock_by(2)).record.attempt, 2);
    CHECK_INT(finish(c, "k", done_by(2, 0, NULL)), IDEM_ACK);
    advance(TTL_MS);
    CHECK_INT(claim(c, "k", lock_by(3)).record.attempt, 1);
}

CONTRACT(a_lock_keeps_no_result) {
    CHECK_INT(claim(c, "k", lock_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", done_by(1, 0, "not kept")), IDEM_ACK);
    CHECK(!peek(c, "k").kept);
    CHECK_INT(peek(c, "k").result.len, 0);
}

CONTRACT(a_kept_result_is_replayed) {
    struct told told;

    run_done(c, "k", 1, "the first answer");
    told = claim(c, "k", claim_by(2));
    CHECK_INT(told.verdict, IDEM_REPLAY);
    CHECK_INT(told.record.status, 200);
    CHECK_STR((const char *)told.record.result.at, "the first answer");
}

CONTRACT(an_empty_result_is_a_result) {
    run_done(c, "k", 1, "");
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_REPLAY);
}

CONTRACT(done_without_a_result_is_a_duplicate_with_its_status) {
    struct idem_claim_in reject = claim_by(3);
    struct told told;

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", done_by(1, 201, NULL)), IDEM_ACK);
    told = claim(c, "k", claim_by(2));
    CHECK_INT(told.verdict, IDEM_DUPLICATE);
    CHECK_INT(told.record.status, 201);
    run_done(c, "kept", 1, "r");
    reject.mode = IDEM_MODE_REJECT;
    CHECK_INT(claim(c, "kept", reject).verdict, IDEM_DUPLICATE);
}

CONTRACT(a_final_failure_is_dead_with_its_status_reason_and_result) {
    struct idem_finish_in failed = fail_by(1, -502, "card refused", 1000);
    struct told told;

    failed.final = true;
    failed.keep_result = true;
    failed.result = bytes_of("the failing answer");
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", failed), IDEM_ACK);
    told = claim(c, "k", rerun_by(2, 0));
    CHECK_INT(told.verdict, IDEM_DEAD);
    CHECK_INT(told.record.status, -502);
    CHECK_STR((const char *)told.record.reason.at, "card refused");
    CHECK_STR((const char *)told.record.result.at, "the failing answer");
}

CONTRACT(a_failure_is_dead_for_a_claim_that_keeps_failures) {
    struct idem_claim_in keeper = claim_by(2);

    keeper.on_failure = IDEM_ON_FAILURE_KEEP;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", keeper).verdict, IDEM_DEAD);
    CHECK_INT(claim(c, "k", rerun_by(3, 0)).verdict, IDEM_RUN);
}

CONTRACT(a_failure_with_no_attempts_left_is_dead) {
    CHECK_INT(claim(c, "k", rerun_by(1, 2)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", rerun_by(2, 2)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", fail_by(2, 501, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", rerun_by(3, 2)).verdict, IDEM_DEAD);
    CHECK_INT(claim(c, "k", rerun_by(3, 3)).verdict, IDEM_RUN);
}

CONTRACT(a_failure_that_is_not_due_is_busy_and_then_runs) {
    struct told told;

    CHECK_INT(claim(c, "k", rerun_by(1, 5)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 5000)), IDEM_ACK);
    advance(4000);
    told = claim(c, "k", rerun_by(2, 5));
    CHECK_INT(told.verdict, IDEM_BUSY);
    CHECK_INT(told.left_ms, 1000);
    advance(1000);
    told = claim(c, "k", rerun_by(2, 5));
    CHECK_INT(told.verdict, IDEM_RUN);
    CHECK_INT(told.record.attempt, 2);
}

CONTRACT(attempts_without_limit_never_end) {
    for (unsigned i = 1; i <= 20; i++) {
        CHECK_INT(claim(c, "k", rerun_by(i, 0)).record.attempt, i);
        CHECK_INT(finish(c, "k", fail_by(i, 500, "no", 0)), IDEM_ACK);
    }
}

CONTRACT(a_label_stays_until_another_run_brings_its_own) {
    struct idem_claim_in labelled = rerun_by(1, 0), other = rerun_by(3, 0);

    labelled.label = bytes_of("order 4711");
    other.label = bytes_of("order 4712");
    CHECK_INT(claim(c, "k", labelled).verdict, IDEM_RUN);
    CHECK_STR((const char *)peek(c, "k").label.at, "order 4711");
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_RUN);
    CHECK_STR((const char *)peek(c, "k").label.at, "order 4711");
    CHECK_INT(claim(c, "k", other).verdict, IDEM_BUSY);
    CHECK_STR((const char *)peek(c, "k").label.at, "order 4711");
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", other).verdict, IDEM_RUN);
    CHECK_STR((const char *)peek(c, "k").label.at, "order 4712");
}
