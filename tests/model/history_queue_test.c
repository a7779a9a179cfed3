/*
 * The judge of messages, judged: for each of its rules a log that breaks it, and near misses that
 * must pass.
 */
#include "judged.h"

/* A message of lane l, and a run of it with an effect. */
static void message(int64_t ms, const char *key) {
    at(ms, "p %s publish lane=l", key);
}

static void happens(int64_t ms, const char *key, int attempt) {
    at(ms, "w %s claim owner=%s%d", key, key, attempt);
    at(ms + 1, "w %s claimed owner=%s%d verdict=run attempt=%d", key, key, attempt, attempt);
    at(ms + 2, "w %s effect owner=%s%d attempt=%d", key, key, attempt, attempt);
}

#define GUARDED "mode=reject recover=rerun lease_ms=10 effects=once"
#define BRIEF "mode=reject recover=rerun lease_ms=10"

TEST(messages_that_happen_once_and_in_order_pass) {
    policy(GUARDED);
    message(1, "k");
    message(2, "m");
    message(3, "k");
    happens(10, "k", 1);
    happens(20, "m", 1);
    passes();
    CHECK_INT(sum.effects, 2);
}

TEST(a_message_that_is_lost_is_caught) {
    policy(BRIEF);
    message(1, "k");
    message(2, "m");
    happens(10, "m", 1);
    CHECK_INT(judged(), 1);
    CHECK_HAS(report, "invariant 8 is broken for key k: it was published, and is lost");
    CHECK_HAS(report, "  > 2: ");
}

TEST(a_dead_letter_is_not_lost) {
    policy(BRIEF);
    message(1, "k");
    at(50, "p k dead");
    passes();
}

TEST(a_second_effect_is_caught_unless_something_crashed_between) {
    policy(BRIEF);
    message(1, "k");
    happens(10, "k", 1);
    happens(100, "k", 2);
    caught(9, 5, 8);
    at(50, "consumer k crash");
    caught(9, 5, 8);
    at(50, "consumer * crash");
    passes();
    happens(200, "k", 3);
    caught(9, 8, 13);
}

TEST(a_second_effect_of_what_is_guarded_is_caught_in_any_case) {
    policy(GUARDED);
    message(1, "k");
    happens(10, "k", 1);
    at(50, "consumer * crash");
    happens(100, "k", 2);
    caught(9, 5, 9);
}

TEST(a_message_that_overtakes_is_caught) {
    policy(BRIEF);
    message(1, "m");
    message(2, "k");
    happens(10, "k", 1);
    happens(20, "m", 1);
    caught(10, 6, 9);
    CHECK_HAS(report, "it happened before m, which was published before it in lane l");
}

TEST(messages_of_other_lanes_and_second_effects_overtake_nobody) {
    policy(BRIEF);
    message(1, "m");
    message(2, "k");
    at(3, "p o publish lane=other");
    happens(4, "o", 1);
    happens(10, "m", 1);
    happens(20, "k", 1);
    at(50, "consumer * crash");
    happens(100, "m", 2);
    passes();
}

TEST(what_was_never_published_is_not_judged) {
    policy(GUARDED);
    happens(10, "k", 1);
    happens(100, "k", 2);
    passes();
}

TEST_MAIN
