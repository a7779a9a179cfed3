/*
 * The judge of histories, judged: for each invariant a log that breaks it, which
 * must be caught with the right lines shown, and near misses that some order of
 * the operations excuses, which must pass.
 */
#include "judged.h"

TEST(a_run_that_is_done_and_replayed_passes) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(25, "pa k effect owner=a attempt=1");
    at(30, "pa k finish owner=a said=done digest=d1");
    at(40, "pa k finished owner=a said=done ack=ack");
    claimed(50, 60, "b", "replay digest=d1");
    passes();
    CHECK_INT(sum.keys, 1);
    CHECK_INT(sum.claims, 2);
    CHECK_INT(sum.runs, 1);
    CHECK_INT(sum.replays, 1);
    CHECK_INT(sum.acknowledged, 1);
    CHECK_INT(sum.effects, 1);
}

/* 1: leases */

TEST(two_live_leases_at_one_moment_are_caught) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    claimed(30, 40, "b", "run attempt=2");
    caught(1, 3, 5);
    CHECK_HAS(report, "owner b was let in while the lease of owner a was live");
}

TEST(two_live_leases_of_claims_that_crossed_are_caught) {
    policy(RERUN);
    at(10, "pa k claim owner=a");
    at(11, "pb k claim owner=b");
    at(20, "pa k claimed owner=a verdict=run attempt=1");
    at(21, "pb k claimed owner=b verdict=run attempt=2");
    caught(1, 4, 5);
}

TEST(a_take_over_when_the_lease_may_be_over_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    claimed(900, 1010, "b", "run attempt=2");
    passes();
}

TEST(a_take_over_just_before_the_lease_can_be_over_is_caught) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    claimed(900, 1000, "b", "run attempt=2");
    caught(1, 3, 5);
}

TEST(a_take_over_inside_a_renewed_lease_is_caught) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    finished(700, 710, "a", "renew", "ack");
    claimed(1500, 1510, "b", "run attempt=2");
    caught(1, 3, 7);
}

TEST(a_take_over_after_a_renewal_without_an_answer_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    finished(700, 710, "a", "renew", "error");
    claimed(1500, 1510, "b", "run attempt=2");
    passes();
}

TEST(the_next_runner_while_a_failure_is_on_its_way_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k finish owner=a said=fail");
    claimed(35, 40, "b", "run attempt=2");
    at(50, "pa k finished owner=a said=fail ack=ack");
    passes();
}

TEST(a_lease_whose_length_is_not_known_condemns_nobody) {
    policy("mode=reject recover=rerun");
    claimed(10, 20, "a", "run attempt=1");
    claimed(30, 40, "b", "run attempt=2");
    passes();
}

TEST(one_attempt_given_to_two_owners_is_caught) {
    policy("mode=reject recover=rerun");
    claimed(10, 20, "a", "run attempt=3");
    claimed(30, 40, "b", "run attempt=3");
    caught(1, 3, 5);
    CHECK_HAS(report, "attempt 3 was given to owner a and to owner b");
}

TEST(the_first_attempt_again_after_a_release_passes) {
    policy("mode=reject recover=rerun");
    claimed(10, 20, "a", "run attempt=1");
    at(25, "pa k finish owner=a said=release");
    claimed(30, 40, "b", "run attempt=1");
    passes();
}

/* 2: done */

TEST(a_run_after_an_acknowledged_done_is_caught) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    finished(30, 40, "a", "done", "ack");
    claimed(50, 60, "b", "run attempt=2");
    caught(2, 5, 7);
    CHECK_HAS(report, "sent after the done of owner a was acknowledged");
}

TEST(a_run_that_was_asked_for_before_done_was_acknowledged_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    at(1100, "pb k claim owner=b");
    at(1200, "pa k finish owner=a said=done");
    at(1300, "pa k finished owner=a said=done ack=lost");
    at(1400, "pb k claimed owner=b verdict=run attempt=2");
    passes();
}

TEST(a_run_after_a_done_that_nobody_acknowledged_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k finish owner=a said=done");
    at(35, "pa k crash");
    claimed(1100, 1110, "b", "run attempt=2");
    passes();
}

TEST(a_run_after_expiry_or_an_operator_passes) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    finished(30, 40, "a", "done", "ack");
    at(100, "- k expire");
    claimed(110, 120, "b", "run attempt=1");
    finished(130, 140, "b", "done", "ack");
    at(145, "op k forget");
    claimed(150, 160, "c", "run attempt=1");
    at(170, "op k forgot");
    passes();
}

TEST(what_an_operator_forgot_before_the_done_excuses_nothing) {
    policy(HOLD);
    at(1, "op k forget");
    at(2, "op k forgot");
    claimed(10, 20, "a", "run attempt=1");
    finished(30, 40, "a", "done", "ack");
    claimed(50, 60, "b", "probe attempt=2");
    caught(2, 7, 9);
}

/* 3: hold */

TEST(two_runs_under_hold_are_caught) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k crash");
    claimed(5000, 5010, "b", "run attempt=2");
    caught(3, 3, 6);
}

TEST(a_second_run_under_hold_after_unknown_is_caught) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    finished(30, 40, "a", "unknown", "ack");
    claimed(50, 60, "b", "run attempt=2");
    caught(3, 3, 7);
}

TEST(a_second_run_under_hold_after_a_fail_that_was_lost_is_caught) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    finished(2000, 2010, "a", "fail", "lost");
    claimed(3000, 3010, "b", "run attempt=2");
    caught(3, 3, 7);
}

TEST(a_second_run_under_hold_after_a_fail_or_release_passes) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k finish owner=a said=fail");
    claimed(40, 50, "b", "run attempt=2");
    finished(60, 70, "b", "release", "ack");
    claimed(80, 90, "c", "run attempt=3");
    passes();
}

TEST(the_same_run_told_twice_passes) {
    policy(HOLD);
    at(10, "pa k claim owner=a");
    at(15, "pa k claimed owner=a verdict=error");
    claimed(20, 30, "a", "run attempt=1");
    claimed(40, 50, "a", "run attempt=1");
    passes();
}

TEST(a_prober_that_settles_a_vanished_run_passes) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "p", "probe attempt=2");
    at(1115, "pp k finish owner=p said=fail");
    at(1120, "pp k finished owner=p said=fail ack=ack");
    claimed(1130, 1140, "b", "run attempt=3");
    passes();
}

TEST(a_prober_that_only_releases_excuses_no_second_run) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "p", "probe attempt=2");
    finished(1115, 1120, "p", "release", "ack");
    claimed(1130, 1140, "b", "run attempt=3");
    caught(3, 3, 9);
}

TEST(an_effect_that_happens_twice_under_hold_is_caught) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k effect owner=a attempt=1");
    claimed(1100, 1110, "p", "probe attempt=2");
    at(1120, "pp k effect owner=p attempt=2");
    caught(3, 4, 7);
    CHECK_HAS(report, "it happened twice");
}

TEST(an_effect_that_happens_twice_under_rerun_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k effect owner=a attempt=1");
    claimed(1100, 1110, "b", "run attempt=2");
    at(1120, "pb k effect owner=b attempt=2");
    passes();
}

/* 4: superseded owners */

TEST(a_done_acknowledged_to_a_superseded_owner_is_caught) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "b", "run attempt=2");
    finished(1120, 1130, "a", "done", "ack");
    caught(4, 5, 7);
    CHECK_HAS(report, "after owner b had superseded it");
}

TEST(a_release_acknowledged_while_somebody_else_runs_is_caught) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "b", "run attempt=2");
    finished(1120, 1130, "a", "release", "ack");
    caught(4, 5, 7);
}

TEST(a_release_acknowledged_where_nothing_may_be_left_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "b", "run attempt=2");
    at(1115, "pb k finish owner=b said=release");
    finished(1120, 1130, "a", "release", "ack");
    passes();
}

TEST(a_superseded_owner_that_is_told_so_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "b", "run attempt=2");
    finished(1120, 1130, "a", "done", "lost");
    finished(1140, 1150, "b", "done", "ack");
    passes();
    CHECK_INT(sum.lost, 1);
}

TEST(a_done_that_was_sent_before_the_take_over_was_answered_passes) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    at(1100, "pb k claim owner=b");
    at(1105, "pa k finish owner=a said=done");
    at(1110, "pb k claimed owner=b verdict=duplicate");
    at(1115, "pa k finished owner=a said=done ack=ack");
    passes();
}

TEST(owners_whose_order_only_the_attempts_tell_are_told_apart) {
    policy(RERUN);
    at(5, "pb k claim owner=b"); /* it waits */
    claimed(10, 20, "a", "run attempt=1");
    at(1100, "pb k claimed owner=b verdict=run attempt=2");
    finished(1120, 1130, "a", "fail", "ack");
    caught(4, 5, 7);
}

TEST(an_owner_that_a_lost_claim_may_have_let_in_again_passes) {
    policy(RERUN);
    at(5, "pa k claim owner=a");
    at(6, "pa k claimed owner=a verdict=error");
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "b", "run attempt=2");
    finished(1120, 1130, "b", "fail", "ack");
    finished(1140, 1150, "a", "done", "ack");
    passes();
}

TEST(a_done_of_somebody_who_was_refused_is_caught) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    claimed(30, 40, "b", "busy");
    finished(50, 60, "b", "done", "ack");
    caught(4, 6, 7);
    CHECK_HAS(report, "never let in");
}

/* 5: replays */

TEST(a_replay_of_something_else_is_caught) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k finish owner=a said=done digest=d1");
    at(40, "pa k finished owner=a said=done ack=ack");
    claimed(50, 60, "b", "replay digest=d2");
    caught(5, 4, 7);
    CHECK_HAS(report, "was given d2, and owner a had stored d1");
}

TEST(a_replay_before_anything_was_stored_is_caught) {
    policy(HOLD);
    claimed(10, 20, "b", "replay digest=d1");
    caught(5, 2, 3);
}

TEST(a_replay_of_a_done_whose_answer_was_lost_passes) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k finish owner=a said=done digest=d1");
    claimed(31, 60, "b", "replay digest=d1");
    passes();
}

TEST(a_replay_of_a_done_that_was_lost_is_caught) {
    policy(RERUN " lease_ms=1");
    claimed(10, 20, "a", "run attempt=1");
    claimed(50, 60, "b", "run attempt=2");
    at(70, "pa k finish owner=a said=done digest=d1");
    at(80, "pa k finished owner=a said=done ack=lost");
    at(90, "pb k finish owner=b said=done digest=d2");
    claimed(100, 110, "c", "replay digest=d1");
    caught(5, 9, 10);
}

/* 6: fingerprints */

TEST(a_run_for_another_fingerprint_is_caught) {
    policy(RERUN);
    at(10, "pa k claim owner=a fp=f1");
    at(20, "pa k claimed owner=a verdict=run attempt=1");
    finished(30, 40, "a", "fail", "ack");
    at(50, "pb k claim owner=b fp=f2");
    at(60, "pb k claimed owner=b verdict=run attempt=2");
    caught(6, 3, 7);
}

TEST(a_run_for_another_fingerprint_after_a_release_passes) {
    policy(RERUN);
    at(10, "pa k claim owner=a fp=f1");
    at(20, "pa k claimed owner=a verdict=run attempt=1");
    at(30, "pa k finish owner=a said=release");
    at(35, "pb k claim owner=b fp=f2");
    at(60, "pb k claimed owner=b verdict=run attempt=1");
    passes();
}

TEST(a_replay_for_another_fingerprint_is_caught) {
    policy(HOLD);
    at(10, "pa k claim owner=a fp=f1");
    at(20, "pa k claimed owner=a verdict=run attempt=1");
    finished(30, 40, "a", "done", "ack");
    at(50, "pb k claim owner=b fp=f2");
    at(60, "pb k claimed owner=b verdict=replay");
    caught(6, 4, 7);
}

TEST(a_mismatch_for_another_fingerprint_passes) {
    policy(HOLD);
    at(10, "pa k claim owner=a fp=f1");
    at(20, "pa k claimed owner=a verdict=run attempt=1");
    at(50, "pb k claim owner=b fp=f2");
    at(60, "pb k claimed owner=b verdict=mismatch");
    passes();
}

/* 7: effects */

TEST(a_refused_call_that_runs_all_the_same_is_caught) {
    policy(HOLD);
    claimed(10, 20, "a", "busy");
    at(30, "pa k effect owner=a");
    caught(7, 4, 4);
}

TEST(an_effect_twice_under_one_attempt_is_caught) {
    policy(RERUN);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k effect owner=a attempt=1");
    at(31, "pa k effect owner=a attempt=1");
    caught(7, 4, 5);
}

TEST(an_effect_that_a_store_that_was_down_let_run_passes) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pa k effect owner=a attempt=1");
    claimed(40, 50, "b", "run unguarded=1");
    at(60, "pb k effect owner=b");
    passes();
}

/* mode=lock */

TEST(critical_sections_that_overlap_are_caught) {
    policy("mode=lock");
    claimed(10, 20, "a", "run attempt=1");
    at(21, "pa k enter owner=a");
    claimed(30, 40, "b", "run attempt=2");
    at(41, "pb k enter owner=b");
    at(42, "pa k leave owner=a");
    at(43, "pb k leave owner=b");
    caught(1, 4, 7);
}

TEST(a_critical_section_after_the_lease_of_one_who_stayed_passes) {
    policy(LOCK);
    claimed(10, 20, "a", "run attempt=1");
    at(21, "pa k enter owner=a");
    claimed(1030, 1040, "b", "run attempt=2");
    at(1041, "pb k enter owner=b");
    at(1050, "pa k leave owner=a");
    at(1060, "pb k leave owner=b");
    passes();
}

TEST(a_lock_that_is_used_again_and_again_passes) {
    policy(LOCK);
    for (int i = 1; i <= 20; i++) {
        char owner[16], verdict[32];

        snprintf(owner, sizeof(owner), "o%d", i);
        snprintf(verdict, sizeof(verdict), "run attempt=%d", i);
        claimed(i * 100, i * 100 + 10, owner, verdict);
        at(i * 100 + 20, "p k enter owner=%s", owner);
        at(i * 100 + 30, "p k effect owner=%s", owner);
        at(i * 100 + 40, "p k leave owner=%s", owner);
        finished(i * 100 + 50, i * 100 + 60, owner, i % 2 == 0 ? "done" : "release", "ack");
    }
    passes();
    CHECK_INT(sum.runs, 20);
}

TEST(a_lock_is_excepted_from_two_three_and_five_only) {
    policy(LOCK);
    claimed(10, 20, "a", "run attempt=1");
    claimed(1100, 1110, "b", "run attempt=2");
    finished(1120, 1130, "a", "done", "ack");
    caught(4, 5, 7);
}

TEST_MAIN
