/*
 * The contract of finishes: the rows of the second table, and the verdicts of
 * late and repeated finishes.
 */
#include "contract.h"

/* Every finish that an owner can make. */
static struct idem_finish_in finish_of(unsigned owner, enum idem_owner_action action) {
    switch (action) {
    case IDEM_OWNER_DONE:
        return done_by(owner, 299, "other words");
    case IDEM_OWNER_FAIL:
        return fail_by(owner, 599, "other words", 0);
    case IDEM_OWNER_RELEASE:
        return release_by(owner);
    case IDEM_OWNER_UNKNOWN:
        return unknown_by(owner, 0);
    default:
        return renew_by(owner, LEASE_MS);
    }
}

static void check_all_lost(struct conn *c, const char *key, unsigned owner) {
    for (unsigned action = 0; action < IDEM_OWNER_ACTION__COUNT; action++)
        CHECK_INT(finish(c, key, finish_of(owner, (enum idem_owner_action)action)), IDEM_LOST);
}

CONTRACT(done_is_remembered_for_ttl_after_the_finish) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS / 2);
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_ACK);
    CHECK_INT(peek(c, "k").expires, now().wall + TTL_MS);
    advance(TTL_MS - 1);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_REPLAY);
    advance(1);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_RUN);
}

CONTRACT(a_failure_is_remembered_for_ttl_after_the_finish) {
    CHECK_INT(claim(c, "k", rerun_by(1, 1)).verdict, IDEM_RUN);
    advance(LEASE_MS / 2);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 0)), IDEM_ACK);
    advance(TTL_MS - 1);
    CHECK_INT(claim(c, "k", rerun_by(2, 1)).verdict, IDEM_DEAD);
    advance(1);
    CHECK_INT(claim(c, "k", rerun_by(2, 1)).verdict, IDEM_RUN);
}

CONTRACT(an_uncertain_record_is_kept_for_hold_ttl_after_its_lease) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "r", rerun_by(1, 1)).verdict, IDEM_RUN);
    advance(LEASE_MS + HOLD_TTL_MS - 1);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_UNCERTAIN);
    CHECK_INT(peek(c, "r").state, IDEM_RUNNING);
    advance(1);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "r", rerun_by(2, 1)).record.attempt, 1);
}

CONTRACT(a_finish_after_the_record_expired_is_lost) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS + HOLD_TTL_MS);
    CHECK_INT(finish(c, "k", done_by(1, 200, "late")), IDEM_LOST);
    CHECK_INT(finish(c, "k", renew_by(1, LEASE_MS)), IDEM_LOST);
    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
    CHECK_INT(finish(c, "k", release_by(1)), IDEM_ACK);
}

CONTRACT(a_finish_of_what_was_never_claimed_is_lost) {
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_LOST);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "r", 0)), IDEM_LOST);
    CHECK_INT(finish(c, "k", unknown_by(1, 0)), IDEM_LOST);
    CHECK_INT(finish(c, "k", renew_by(1, LEASE_MS)), IDEM_LOST);
    CHECK_INT(finish(c, "k", release_by(1)), IDEM_ACK);
    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
}

CONTRACT(a_late_owner_cannot_complete) {
    CHECK_INT(claim(c, "k", rerun_by(1, 0)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_RUN);
    check_all_lost(c, "k", 1);
    CHECK_INT(finish(c, "k", done_by(2, 200, "second")), IDEM_ACK);
    check_all_lost(c, "k", 1);
    CHECK_STR((const char *)claim(c, "k", claim_by(3)).record.result.at, "second");
}

CONTRACT(nobody_but_the_owner_finishes) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    check_all_lost(c, "k", 2);
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_ACK);
    check_all_lost(c, "k", 2);
    CHECK_INT(claim(c, "f", rerun_by(1, 0)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "f", fail_by(1, 500, "no", 0)), IDEM_ACK);
    check_all_lost(c, "f", 2);
    CHECK(issue(c, "t", 9, 7, TTL_MS));
    check_all_lost(c, "t", 2);
}

/* A late copy of its claim made the same owner run again; a finish of the first run is late. */
CONTRACT(a_word_about_an_earlier_attempt_is_lost) {
    struct idem_finish_in late = done_by(1, 200, "of the first"), due = late;

    CHECK_INT(claim(c, "k", rerun_by(1, 0)).record.attempt, 1);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", rerun_by(1, 0)).record.attempt, 2);
    for (unsigned action = 0; action < IDEM_OWNER_ACTION__COUNT; action++) {
        struct idem_finish_in in = finish_of(1, (enum idem_owner_action)action);

        in.attempt = 1;
        CHECK_INT(finish(c, "k", in), IDEM_LOST);
    }
    late.attempt = 1;
    due.attempt = 2;
    CHECK_INT(finish(c, "k", late), IDEM_LOST);
    CHECK_INT(finish(c, "k", due), IDEM_ACK);
    CHECK_INT(finish(c, "k", due), IDEM_ACK);
    CHECK_INT(finish(c, "k", late), IDEM_LOST);
}

CONTRACT(an_owner_whose_lease_ended_may_still_finish_while_nobody_took_over) {
    CHECK_INT(claim(c, "d", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "f", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "r", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "n", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS + 1);
    CHECK_INT(finish(c, "d", done_by(1, 200, "r")), IDEM_ACK);
    CHECK_INT(finish(c, "f", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(finish(c, "r", release_by(1)), IDEM_ACK);
    CHECK_INT(finish(c, "n", renew_by(1, LEASE_MS)), IDEM_ACK);
    CHECK_INT(claim(c, "n", claim_by(2)).verdict, IDEM_BUSY);
}

CONTRACT(done_said_again_in_the_same_words_is_acknowledged) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_ACK);
    advance(1000);
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_ACK);
    CHECK_INT(peek(c, "k").expires, now().wall - 1000 + TTL_MS);
    CHECK_INT(finish(c, "k", done_by(1, 201, "r")), IDEM_LOST);
    CHECK_INT(finish(c, "k", done_by(1, 200, "s")), IDEM_LOST);
    check_all_lost(c, "k", 1);
}

CONTRACT(fail_said_again_in_the_same_words_is_acknowledged) {
    CHECK_INT(claim(c, "k", rerun_by(1, 0)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 5000)), IDEM_ACK);
    advance(1000);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 5000)), IDEM_ACK);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).left_ms, 4000);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "why", 5000)), IDEM_LOST);
    check_all_lost(c, "k", 1);
}

CONTRACT(release_leaves_nothing_where_nothing_was) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", release_by(1)), IDEM_ACK);
    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
    CHECK_INT(finish(c, "k", release_by(1)), IDEM_ACK);
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_LOST);
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
}

CONTRACT(release_gives_a_token_back_with_its_binding_and_expiry) {
    struct idem_record before, after;

    CHECK(issue(c, "t", 9, 7, 10 * LEASE_MS));
    before = peek(c, "t");
    advance(LEASE_MS);
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "t", release_by(1)), IDEM_ACK);
    after = peek(c, "t");
    CHECK_INT(after.state, IDEM_ISSUED);
    CHECK_INT(after.expires, before.expires);
    CHECK(after.bound);
    CHECK_INT(finish(c, "t", release_by(1)), IDEM_ACK);
    CHECK_INT(claim(c, "t", token_by(2, 8)).verdict, IDEM_NO_TOKEN);
    CHECK_INT(claim(c, "t", token_by(3, 7)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "t", release_by(3)), IDEM_ACK);
    advance(9 * LEASE_MS);
    CHECK_INT(claim(c, "t", token_by(4, 7)).verdict, IDEM_NO_TOKEN);
}

CONTRACT(a_token_released_after_its_expiry_is_gone) {
    CHECK(issue(c, "t", 9, 7, 1000));
    CHECK_INT(claim(c, "t", token_by(1, 7)).verdict, IDEM_RUN);
    advance(1000);
    CHECK_INT(claim(c, "t", token_by(2, 7)).verdict, IDEM_BUSY);
    CHECK_INT(finish(c, "t", release_by(1)), IDEM_ACK);
    CHECK_INT(peek(c, "t").state, IDEM_ABSENT);
    CHECK_INT(claim(c, "t", token_by(2, 7)).verdict, IDEM_NO_TOKEN);
}

CONTRACT(release_gives_a_failure_back_with_its_count) {
    struct idem_finish_in failed = fail_by(1, 500, "no", 1000);
    struct idem_claim_in second = rerun_by(2, 2);
    struct idem_record before, after;

    failed.keep_result = true;
    failed.result = bytes_of("what failed");
    CHECK_INT(claim(c, "k", rerun_by(1, 2)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", failed), IDEM_ACK);
    before = peek(c, "k");
    advance(1000);
    second.fingerprint = fingerprint_of(1, 'x');
    CHECK_INT(claim(c, "k", second).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", release_by(2)), IDEM_ACK);
    after = peek(c, "k");
    CHECK_INT(after.state, IDEM_FAILED);
    CHECK_INT(after.tries, 1);
    CHECK_INT(after.attempt, 2);
    CHECK_INT(after.status, 500);
    CHECK_INT(after.expires, before.expires);
    CHECK_INT(after.fingerprint.definition, 0);
    CHECK_STR((const char *)after.result.at, "what failed");
    CHECK_INT(finish(c, "k", release_by(2)), IDEM_ACK);
    CHECK_INT(finish(c, "k", done_by(2, 200, "r")), IDEM_LOST);
    CHECK_INT(claim(c, "k", rerun_by(3, 2)).record.attempt, 3);
}

/* An owner that takes over the lock of a vanished one, and gives it back, has settled nothing. */
CONTRACT(release_of_a_lock_leaves_an_uncertain_record_uncertain) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS + 1);
    CHECK_INT(claim(c, "k", lock_by(2)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", release_by(2)), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(3)).verdict, IDEM_UNCERTAIN);
}

CONTRACT(release_of_a_lock_frees_it_and_keeps_its_number) {
    CHECK_INT(claim(c, "k", lock_by(1)).record.attempt, 1);
    CHECK_INT(finish(c, "k", release_by(1)), IDEM_ACK);
    CHECK_INT(peek(c, "k").state, IDEM_DONE);
    CHECK_INT(finish(c, "k", release_by(1)), IDEM_ACK);
    CHECK_INT(claim(c, "k", lock_by(1)).record.attempt, 2);
    CHECK_INT(finish(c, "k", done_by(1, 0, NULL)), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(2)).record.attempt, 3);
    CHECK_INT(finish(c, "k", release_by(2)), IDEM_ACK);
    CHECK_INT(claim(c, "k", lock_by(3)).record.attempt, 4);
}

CONTRACT(unknown_under_hold_ends_the_lease_at_once) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", unknown_by(1, 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_UNCERTAIN);
    CHECK_INT(peek(c, "k").expires, now().wall + HOLD_TTL_MS);
    CHECK_INT(finish(c, "k", unknown_by(1, 0)), IDEM_ACK);
    CHECK_INT(finish(c, "k", done_by(1, 200, "it did happen")), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_REPLAY);
}

CONTRACT(unknown_under_rerun_runs_again_after_the_back_off) {
    struct idem_finish_in unknown = unknown_by(1, 5000);

    unknown.reason = bytes_of("time-out");
    CHECK_INT(claim(c, "k", rerun_by(1, 3)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", unknown), IDEM_ACK);
    CHECK_INT(claim(c, "k", rerun_by(2, 3)).left_ms, 5000);
    CHECK_STR((const char *)peek(c, "k").reason.at, "time-out");
    advance(5000);
    CHECK_INT(claim(c, "k", rerun_by(2, 3)).record.attempt, 2);
}

CONTRACT(renewing_extends_the_lease) {
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    for (unsigned i = 0; i < 5; i++) {
        advance(LEASE_MS - 1);
        CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_BUSY);
        CHECK_INT(finish(c, "k", renew_by(1, LEASE_MS)), IDEM_ACK);
        CHECK_INT(peek(c, "k").expires, now().wall + LEASE_MS + HOLD_TTL_MS);
    }
    CHECK_INT(finish(c, "k", renew_by(2, LEASE_MS)), IDEM_LOST);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", renew_by(1, LEASE_MS)), IDEM_LOST);
}

CONTRACT(a_failure_after_a_failure_replaces_what_it_said) {
    struct idem_finish_in first = fail_by(1, 500, "first", 0);

    first.keep_result = true;
    first.result = bytes_of("a long first result");
    CHECK_INT(claim(c, "k", rerun_by(1, 0)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", first), IDEM_ACK);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", fail_by(2, 502, "second", 0)), IDEM_ACK);
    CHECK_INT(peek(c, "k").result.len, 0);
    CHECK_STR((const char *)peek(c, "k").reason.at, "second");
}
