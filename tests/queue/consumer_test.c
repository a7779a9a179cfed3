/*
 * The consumer with a broker and a handler of the test's own: its calls to the
 * broker, their times, and their order.
 */
#include "loop_clock.h"
#include "queue/delivery.h"
#include "rig.h"

static struct rig rig;

TEST(a_message_is_acknowledged_when_it_is_done_and_stored) {
    struct queue_counts counts;

    rig_start(&rig, rig_policy(), 4, NULL);
    rig.say[0].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    CHECK_INT(rig.lines_n, 0);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "ack");
    CHECK_INT(rig.works[0].attempt, 1);
    queue_consumer_counts(rig.consumer, &counts);
    CHECK_INT(counts.done, 1);
    CHECK_INT(counts.in_hand, 0);
    CHECK_INT(counts.working, 0);
    CHECK_INT(rig.reports, 1);
    rig_finish(&rig);
}

TEST(a_duplicate_of_a_finished_message_is_acknowledged_and_not_handled) {
    struct queue_counts counts;

    rig_start(&rig, rig_policy(), 4, NULL);
    rig.say[0].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "ack");
    CHECK_INT(rig.works_n, 1);
    queue_consumer_counts(rig.consumer, &counts);
    CHECK_INT(counts.duplicates, 1);
    rig_finish(&rig);
}

TEST(messages_of_one_key_are_handled_one_after_the_other) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_deliver(&rig, "{\"id\": 2}", NULL);
    rig_until(&rig, &rig.open_works, 2);
    /* sleep: only time shows that no third one begins */
    rig_turn(&rig, 50);
    CHECK_INT(rig.works_n, 2);
    CHECK_INT(rig.works[1].n, 2);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "ack"); /* the second one, as a duplicate */
    CHECK_INT(rig.lines[1].n, 1);
    CHECK_INT(rig.works_n, 2);
    rig_finish(&rig);
}

TEST(no_more_are_handled_at_a_time_than_there_are_workers) {
    char body[32];

    rig_start(&rig, rig_policy(), 3, NULL);
    for (int i = 0; i < 20; i++) {
        snprintf(body, sizeof(body), "{\"id\": %d}", i);
        rig.say[i].result = QUEUE_DONE;
        rig_deliver(&rig, strdup(body), NULL);
    }
    rig_until(&rig, &rig.lines_n, 20);
    CHECK(rig.most_works <= 3);
    CHECK_INT(rig.works_n, 20);
    rig_finish(&rig);
}

TEST(a_failure_is_delayed_and_counted_and_at_the_limit_buried_before_it_is_acknowledged) {
    struct idem_policy policy = rig_policy();

    policy.attempts = 2;
    policy.backoff_min_ms = policy.backoff_max_ms = 300;
    rig_start(&rig, policy, 4, NULL);
    rig.say[0] = rig.say[1] =
        (struct queue_outcome){.result = QUEUE_RETRY, .status = 3, .reason = "no such account"};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "delay");
    CHECK_INT(rig.lines[0].ms, 300);
    /* sleep: the back-off, which the store's clock decides */
    rig_turn(&rig, 350);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 3);
    CHECK_STR(rig.lines[1].what, "bury");
    CHECK_STR(rig.lines[1].verdict, "dead");
    CHECK_STR(rig.lines[1].reason, "no such account");
    CHECK_INT(rig.lines[1].attempts, 2);
    CHECK_INT(strlen(rig.lines[1].hash), 64);
    CHECK_STR(rig.lines[2].what, "ack");
    CHECK_INT(rig.works[1].attempt, 2);
    /* A copy that comes later is dead, too: it is buried again, and not handled. */
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 5);
    CHECK_STR(rig.lines[3].what, "bury");
    CHECK_STR(rig.lines[3].verdict, "dead");
    CHECK_STR(rig.lines[4].what, "ack");
    CHECK_INT(rig.works_n, 2);
    rig_finish(&rig);
}

TEST(a_failure_that_is_not_due_yet_is_delayed_until_it_is) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig.say[0] = (struct queue_outcome){.result = QUEUE_RETRY, .delay_ms = 3600000};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_INT(rig.lines[0].ms, 3600000);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "delay");
    CHECK(rig.lines[1].ms > 3000000 && rig.lines[1].ms <= 3600000);
    CHECK_INT(rig.works_n, 1);
    rig_finish(&rig);
}

TEST(what_a_handler_refuses_is_buried_at_once_and_is_dead) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig.say[0] = (struct queue_outcome){.result = QUEUE_REFUSED, .status = 404, .reason = "gone"};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[0].what, "bury");
    CHECK_STR(rig.lines[0].verdict, "refused");
    CHECK_STR(rig.lines[1].what, "ack");
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 4);
    CHECK_STR(rig.lines[2].verdict, "dead");
    rig_finish(&rig);
}

TEST(a_dead_letter_that_is_not_taken_is_kept_and_tried_again) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig.no_bury = true;
    rig.say[0].result = QUEUE_REFUSED;
    rig.say[1].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig, rig_count("bury") >= 2); /* the consumer tries again, after a second or more */
    CHECK_INT(rig_count("ack"), 0);
    CHECK(rig.messages[0].out);
    CHECK_HAS(rig.states, "the test says no");
    rig_deliver(&rig, "{\"id\": 2}", NULL); /* other messages are not held up */
    RIG_UNTIL(&rig, rig_count("ack") == 1);
    CHECK(rig.messages[0].out && !rig.messages[1].out);
    rig.no_bury = false;
    RIG_UNTIL(&rig, rig_count("ack") == 2);
    CHECK_STR(rig.lines[rig.lines_n - 2].what, "bury");
    CHECK_STR(rig.lines[rig.lines_n - 1].what, "ack");
    CHECK_INT(rig.lines[rig.lines_n - 1].n, 0);
    CHECK_INT(rig.works_n, 2);
    rig_finish(&rig);
}

TEST(a_message_without_a_key_is_buried_and_says_why) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig_deliver(&rig, "{\"other\": 1}", NULL);
    rig_deliver(&rig, "\xff\xfe", NULL);
    rig_until(&rig, &rig.lines_n, 4);
    CHECK_STR(rig.lines[0].what, "bury");
    CHECK_STR(rig.lines[0].verdict, "key");
    CHECK_HAS(rig.lines[0].reason, "key_expr");
    CHECK_STR(rig.lines[0].hash, "");
    CHECK_INT(rig.works_n, 0);
    rig_finish(&rig);
}

TEST(two_messages_under_one_chosen_key_are_a_mismatch_and_the_second_is_buried) {
    struct idem_policy policy = rig_policy();

    policy.key_kind = IDEM_KEY_LITERAL;
    rig_start(&rig, policy, 4, NULL);
    rig.say[0].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"a\": 1, \"b\": 2}", "m-1");
    rig_until(&rig, &rig.lines_n, 1);
    rig_deliver(&rig, "{\"b\":2,\"a\":1}", "m-1"); /* the same object */
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "ack");
    rig_deliver(&rig, "{\"a\": 2}", "m-1");
    rig_deliver(&rig, "a: 1", "m-1"); /* not JSON, and compared all the same */
    rig_until(&rig, &rig.lines_n, 6);
    CHECK_STR(rig.lines[2].what, "bury");
    CHECK_STR(rig.lines[2].verdict, "mismatch");
    CHECK_STR(rig.lines[4].verdict, "mismatch");
    CHECK_INT(rig.works_n, 1);
    rig_finish(&rig);
}

TEST(what_somebody_else_runs_is_held_and_neither_acknowledged_nor_delayed) {
    static struct rig other;
    int64_t began;

    rig_start(&rig, rig_policy(), 4, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.open_works, 1);
    rig_start(&other, rig_policy(), 4, NULL);
    began = idem_loop_now();
    rig_deliver(&other, "{\"id\": 1}", NULL);
    RIG_UNTIL(&other, other.reports >= 3);
    CHECK_INT(other.lines_n, 0);
    CHECK_INT(other.works_n, 0);
    CHECK(other.messages[0].out);
    CHECK(idem_loop_now() - began >= 300); /* retries after 100 and 200 ms, without spinning */
    for (int i = 0; i < 3; i++) {
        CHECK_STR(other.said[i].then, "hold");
        CHECK(other.said[i].again_ms >= 100 << i);
    }
    rig_now = &rig;
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    rig_until(&rig, &rig.lines_n, 1);
    rig_now = &other;
    rig_until(&other, &other.lines_n, 1);
    CHECK_STR(other.lines[0].what, "ack");
    rig_finish(&other);
    rig_now = &rig;
    rig_finish(&rig);
}

TEST(an_unknown_outcome_is_run_again_under_rerun) {
    struct idem_policy policy = rig_policy();

    policy.backoff_min_ms = policy.backoff_max_ms = 300;
    rig_start(&rig, policy, 4, NULL);
    rig.say[0] = (struct queue_outcome){.result = QUEUE_UNKNOWN, .reason = "killed"};
    rig.say[1].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "delay");
    /* sleep: the back-off, which the store's clock decides */
    rig_turn(&rig, 350);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "ack");
    CHECK_INT(rig.works[1].attempt, 2);
    rig_finish(&rig);
}

TEST(an_unknown_outcome_is_parked_under_hold) {
    struct idem_policy policy = rig_policy();

    policy.recover = IDEM_RECOVER_HOLD;
    rig_start(&rig, policy, 4, NULL);
    rig.say[0] = (struct queue_outcome){.result = QUEUE_UNKNOWN, .reason = "killed"};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    /* Without a wait the record is uncertain at once, and the consumer soon checks it again. */
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[0].what, "bury");
    CHECK_STR(rig.lines[0].verdict, "uncertain");
    CHECK_STR(rig.lines[1].what, "ack");
    CHECK_INT(rig.works_n, 1);
    rig_finish(&rig);
}

TEST(a_failure_that_is_released_comes_again_after_the_back_off_and_not_at_once) {
    struct idem_policy policy = rig_policy();

    policy.on_failure = IDEM_ON_FAILURE_RELEASE;
    policy.backoff_min_ms = policy.backoff_max_ms = 400;
    rig_start(&rig, policy, 4, NULL);
    rig.say[0].result = QUEUE_RETRY;
    rig.say[1] = (struct queue_outcome){.result = QUEUE_RETRY, .delay_ms = 7000};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "delay");
    CHECK_INT(rig.lines[0].ms, 400);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_INT(rig.lines[1].ms, 7000);
    CHECK_INT(rig.works[1].attempt, 1);
    rig_finish(&rig);
}

TEST(a_delay_beyond_the_life_of_the_record_is_cut) {
    struct idem_policy policy = rig_policy();

    policy.ttl_s = 60;
    rig_start(&rig, policy, 4, NULL);
    rig.say[0] = (struct queue_outcome){.result = QUEUE_RETRY, .delay_ms = 86400000};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_INT(rig.lines[0].ms, 30000);
    rig_finish(&rig);
}

TEST(a_dead_one_whose_connection_is_lost_is_dead_when_it_comes_again) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig.silent_bury = true;
    rig.say[0].result = QUEUE_REFUSED;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    rig.events.gone(rig.events.data, &rig.messages[0].m);
    rig.told(rig.told_data, false, "lost");
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "giveback");
    rig.silent_bury = false;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 4);
    CHECK_STR(rig.lines[2].what, "bury");
    CHECK_STR(rig.lines[2].verdict, "dead");
    CHECK_STR(rig.lines[3].what, "ack");
    CHECK_INT(rig.works_n, 1);
    rig_finish(&rig);
}

TEST(duplicates_of_a_slow_one_leave_room_for_others) {
    rig_start(&rig, rig_policy(), 4, NULL);
    for (int i = 0; i < 60; i++)
        rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig,
              rig.works_n == 1 && rig.lines_n >= 25); /* of 64 that may be in hand, half stay */
    CHECK_STR(rig.lines[0].what, "delay");
    CHECK_INT(rig.works_n, 1);
    rig_finish(&rig);
}

/* 60 messages of one key, many more than are kept; the first is done while the others are being
 * delayed. */
static void burst(bool *broker) {
    rig_start(&rig, rig_policy(), 4, NULL);
    *broker = true;
    for (int i = 0; i < 60; i++)
        rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig, rig.works_n == 1 && rig.lines_n >= 25);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
}

TEST(a_duplicate_is_not_claimed_while_the_broker_is_asked_to_delay_it) {
    burst(&rig.silent_delay);
    RIG_UNTIL(&rig, rig_count("ack") == 60 - rig_count("delay"));
    /* sleep: only time shows that no more lines come */
    rig_turn(&rig, 200);
    CHECK_INT(rig_count("ack"), 60 - rig_count("delay"));
    CHECK_INT(rig.works_n, 1);
    rig_finish(&rig);
}

TEST(duplicates_that_the_broker_does_not_delay_are_kept_and_acknowledged_in_the_end) {
    burst(&rig.no_delay);
    RIG_UNTIL(&rig, rig_count("ack") == 60);
    CHECK_INT(rig.works_n, 1);
    rig_finish(&rig);
}

TEST(a_stop_gives_back_in_the_order_of_arrival) {
    rig_start(&rig, rig_policy(), 1, "#body.user");
    for (int i = 0; i < 6; i++)
        rig_deliver(&rig, i % 2 == 0 ? "{\"id\": 1, \"user\": 1}" : "{\"id\": 2, \"user\": 2}",
                    NULL);
    rig_until(&rig, &rig.open_works, 1);
    queue_consumer_stop(rig.consumer, 10000);
    CHECK_INT(rig.lines_n, 5);
    for (int i = 0; i < 5; i++)
        CHECK_INT(rig.lines[i].n, i + 1);
    rig_finish(&rig);
}

TEST(what_was_not_begun_counts_as_no_attempt_and_is_kept) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig.say[0] = (struct queue_outcome){.result = QUEUE_UNBEGUN, .reason = "connection refused"};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.works_n, 1);
    /* sleep: only time shows that no line comes meanwhile */
    rig_turn(&rig, 100);
    CHECK_INT(rig.lines_n, 0);
    rig.say[0].result = QUEUE_DONE;
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "ack");
    CHECK_INT(rig.works[1].attempt, 1);
    rig_finish(&rig);
}

TEST(where_an_order_is_asked_for_a_failure_holds_its_lane_and_no_other) {
    struct idem_policy policy = rig_policy();

    policy.attempts = 100;
    policy.backoff_min_ms = policy.backoff_max_ms = 300;
    rig_start(&rig, policy, 4, "#body.user");
    rig.say[0].result = QUEUE_RETRY;
    rig.say[1].result = rig.say[2].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 1, \"user\": \"a\"}", NULL);
    rig_deliver(&rig, "{\"id\": 2, \"user\": \"a\"}", NULL);
    rig_deliver(&rig, "{\"id\": 3, \"user\": \"b\"}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_INT(rig.lines[0].n, 2);
    RIG_UNTIL(&rig, rig.reports >= 3); /* the first of lane a has failed again */
    for (int i = 0; i < rig.works_n; i++)
        CHECK(rig.works[i].n != 1); /* the second of lane a did not begin */
    rig.say[0].result = QUEUE_DONE;
    rig_until(&rig, &rig.lines_n, 3);
    CHECK_INT(rig.lines[1].n, 0);
    CHECK_INT(rig.lines[2].n, 1);
    CHECK_INT(rig.works[rig.works_n - 1].n, 1);
    CHECK_INT(rig.works[rig.works_n - 2].n, 0);
    CHECK(rig.works[rig.works_n - 2].attempt >= 3);
    rig_finish(&rig);
}

TEST(what_the_broker_has_lost_is_dropped_unless_it_is_handled) {
    struct queue_counts counts;

    rig_start(&rig, rig_policy(), 1, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.open_works, 1);
    rig_deliver(&rig, "{\"id\": 2}", NULL);
    /* sleep: until the second waits, which nothing shows; earlier is right, too */
    rig_turn(&rig, 20);
    rig.events.gone(rig.events.data, &rig.messages[0].m);
    rig.events.gone(rig.events.data, &rig.messages[1].m);
    CHECK_INT(rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "giveback"); /* frees the message, and no more */
    CHECK_INT(rig.lines[0].n, 1);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    rig_until(&rig, &rig.lines_n, 2);
    rig_deliver(&rig, "{\"id\": 1}", NULL); /* a redelivery is a duplicate */
    rig_until(&rig, &rig.lines_n, 3);
    CHECK_INT(rig.works_n, 1);
    queue_consumer_counts(rig.consumer, &counts);
    CHECK_INT(counts.in_hand, 0);
    rig_finish(&rig);
}

TEST(a_run_whose_lease_somebody_took_is_cancelled_and_its_late_word_refused) {
    struct idem_policy policy = rig_policy();
    struct idem_error err;
    struct idem *operator;
    struct idem_name name = {.prefix = "q:", .key = "1", .key_len = 1};

    rig_start(&rig, policy, 4, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.open_works, 1);
    CHECK_INT(idem_open(temp_url("store", "sync=off"), NULL, &operator, & err), 0);
    CHECK_INT(idem_settle(operator, & name,
                          &(struct idem_settlement){.to = IDEM_DONE, .force = true}, &err),
              0);
    loop_clock_forward(policy.lease_ms / 3); /* so that the lease is to be renewed */
    RIG_UNTIL(&rig, rig.works[0].cancelled);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_REFUSED});
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "ack"); /* a duplicate, because the operator settled it as done */
    idem_close(operator);
    rig_finish(&rig);
}

TEST(a_handler_that_takes_longer_than_its_lease_keeps_it_and_the_broker_is_told) {
    struct idem_policy policy = rig_policy();
    int64_t until;

    rig_start(&rig, policy, 4, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.open_works, 1);
    for (int i = 0; i < 7; i++) { /* more than two leases */
        rig.extended = 0;
        until = idem_claim_lease_until(rig.consumer->all->claim);
        loop_clock_forward(policy.lease_ms / 3);
        RIG_UNTIL(&rig,
                  rig.extended > 0 && idem_claim_lease_until(rig.consumer->all->claim) > until);
    }
    CHECK(!rig.works[0].cancelled);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "ack");
    rig_finish(&rig);
}

TEST(a_stop_gives_back_what_was_not_begun_and_waits_for_the_rest) {
    rig_start(&rig, rig_policy(), 1, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.open_works, 1);
    rig_deliver(&rig, "{\"id\": 2}", NULL);
    /* sleep: until the second waits, which nothing shows; earlier is right, too */
    rig_turn(&rig, 20);
    queue_consumer_stop(rig.consumer, 10000);
    CHECK(!rig.fetching);
    CHECK_INT(rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "giveback");
    CHECK_INT(rig.lines[0].n, 1);
    rig_deliver(&rig, "{\"id\": 3}", NULL); /* the message was on its way */
    CHECK_STR(rig.lines[1].what, "giveback");
    /* sleep: only time shows that it does not stop */
    rig_turn(&rig, 50);
    CHECK(!rig.stopped);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    rig_until(&rig, &rig.lines_n, 3);
    CHECK_STR(rig.lines[2].what, "ack");
    RIG_UNTIL(&rig, rig.stopped);
    rig_finish(&rig);
}

TEST(a_stop_does_not_wait_for_a_dead_letter_that_is_not_taken) {
    rig_start(&rig, rig_policy(), 4, NULL);
    rig.no_bury = true;
    rig.say[0].result = QUEUE_REFUSED;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig, rig.lines_n >= 1); /* the consumer may have tried again by then */
    CHECK_STR(rig.lines[0].what, "bury");
    RIG_UNTIL(&rig, strstr(rig.states, "the test says no") != NULL);
    rig_deliver(&rig, "{}", NULL); /* this message has no key, and is being buried at the stop */
    queue_consumer_stop(rig.consumer, 600000);
    RIG_UNTIL(&rig, rig.stopped);
    CHECK_INT(rig_count("giveback"), 2);
    CHECK_INT(rig_count("ack"), 0);
    rig_finish(&rig);
}

TEST(a_claim_that_is_under_way_at_a_stop_is_given_back_and_counts_as_no_attempt) {
    struct idem_name name = {.prefix = "q:", .key = "1", .key_len = 1};
    struct queue_counts counts = {0};
    struct idem_error err;
    struct idem_entry entry;
    struct idem *operator;

    rig_start(&rig, rig_policy(), 1, NULL);
    rig.store = RIG_STORE_LATE;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig, rig.late_op != NULL);
    queue_consumer_counts(rig.consumer, &counts);
    CHECK_INT(counts.working, 1);
    CHECK_INT(rig.works_n, 0);
    queue_consumer_stop(rig.consumer, RIG_LONG_MS);
    CHECK_INT(rig.lines_n, 0);
    rig_store_go_on(&rig);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "giveback");
    CHECK_INT(rig.works_n, 0);
    RIG_UNTIL(&rig, rig.stopped);
    rig_finish(&rig);
    CHECK_INT(idem_open(temp_url("store", "sync=off"), NULL, &operator, & err), 0);
    CHECK_INT(idem_lookup(operator, & name, &entry, &err), IDEM_E_ABSENT);
    idem_close(operator);
}

TEST(a_forced_stop_cancels_and_says_unknown_never_failed) {
    struct idem_policy policy = rig_policy();
    struct idem_error err;
    struct idem_entry entry;
    struct idem *operator;
    struct idem_name name = {.prefix = "q:", .key = "1", .key_len = 1};

    rig_start(&rig, policy, 1, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.open_works, 1);
    queue_consumer_stop(rig.consumer, 100);
    RIG_UNTIL(&rig, rig.works[0].cancelled);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_RETRY, .reason = "SIGTERM"});
    rig_until(&rig, &rig.lines_n, 1);
    RIG_UNTIL(&rig, rig.stopped);
    rig_finish(&rig);
    CHECK_INT(idem_open(temp_url("store", "sync=off"), NULL, &operator, & err), 0);
    CHECK_INT(idem_lookup(operator, & name, &entry, &err), 0);
    CHECK_INT(entry.state, IDEM_RUNNING);
    idem_entry_release(&entry);
    idem_close(operator);
}

TEST(without_a_store_messages_are_kept_and_nothing_is_acknowledged) {
    struct queue_counts counts;

    rig_start_on(&rig, "redis://127.0.0.1:1?timeout=200ms&connect_timeout=100ms", rig_policy(), 4,
                 NULL);
    rig.say[0].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig, (queue_consumer_counts(rig.consumer, &counts), counts.store_errors >= 2));
    CHECK_INT(rig.lines_n, 0);
    CHECK_INT(rig.works_n, 0);
    CHECK(rig.messages[0].out);
    CHECK_HAS(rig.states, "the store:");
    queue_consumer_stop(rig.consumer, 1000);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "giveback");
    rig_finish(&rig);
}

TEST(a_delay_that_the_broker_does_not_take_is_waited_for_here) {
    struct idem_policy policy = rig_policy();

    policy.backoff_min_ms = policy.backoff_max_ms = 300;
    rig_start(&rig, policy, 4, NULL);
    rig.no_delay = true;
    rig.say[0].result = QUEUE_RETRY;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "delay");
    rig.say[0].result = QUEUE_DONE;
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "ack");
    CHECK_INT(rig.works[1].attempt, 2);
    rig_finish(&rig);
}

TEST(the_longest_redelivery_counts_attempts_backoff_leases_and_the_broker) {
    struct idem_policy policy = {.attempts = 5, .backoff_max_ms = 1000, .lease_ms = 100};

    CHECK_INT(queue_redelivery_ms(&policy, &rig_broker, NULL), 1000 + 5 * 1100);
    policy.attempts = IDEM_NONE;
    CHECK_INT(queue_redelivery_ms(&policy, &rig_broker, NULL), 1000 + 1100);
}

int main(int argc, char **argv) {
    test_at_a_time = 8; /* the tests wait more than they work */
    return test_main(argc, argv);
}
