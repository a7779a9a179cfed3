/*
 * The consumer when something is wrong: the store is away, other consumers run
 * the same keys, the broker loses messages in hand, a lane is blocked.
 */
#include "rig.h"

static struct rig rig, other;

static int in_hand(void) {
    struct queue_counts counts;

    queue_consumer_counts(rig.consumer, &counts);
    return (int)counts.in_hand;
}

/* One message that is being handled. */
static void begin_one(struct idem_policy policy) {
    rig_start(&rig, policy, 1, NULL);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.open_works, 1);
}

/* The store. */

TEST(a_store_that_fails_while_only_a_finish_goes_on_is_told_and_so_is_its_return) {
    begin_one(rig_policy());
    rig.store = RIG_STORE_REFUSES;
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    RIG_UNTIL(&rig, strstr(rig.states, "the store: the test's store refuses") != NULL);
    CHECK_INT(rig.lines_n, 0);
    rig.store = RIG_STORE_UP;
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "ack");
    CHECK_HAS(rig.states, "the store answers again");
    rig_finish(&rig);
}

TEST(a_store_that_does_not_answer_a_finish_is_told) {
    begin_one(rig_policy());
    rig.h->op_timeout_ms = 100;
    rig.store = RIG_STORE_SILENT;
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    RIG_UNTIL(&rig, strstr(rig.states, "the store did not answer in time") != NULL);
    rig.h->op_timeout_ms = 60000;
    rig.store = RIG_STORE_UP;
    rig_until(&rig, &rig.lines_n, 1);
    rig_finish(&rig);
}

TEST(what_came_of_a_message_is_stored_however_long_the_store_is_away) {
    struct idem_policy policy = rig_policy();

    policy.finish_timeout_ms = 50;
    begin_one(policy);
    rig.store = RIG_STORE_REFUSES;
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    /* sleep: until an attempt has failed; any moment will do */
    rig_turn(&rig, 300);
    rig.store = RIG_STORE_UP;
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_STR(rig.lines[0].what, "ack");
    CHECK_INT(rig.works_n, 1);
    CHECK_INT(rig.reports, 1); /* there was no second claim */
    rig_finish(&rig);
}

TEST(a_run_without_a_store_is_never_the_last_one_and_its_failures_do_not_spin) {
    struct idem_policy policy = rig_policy();

    policy.on_store_error = IDEM_ON_STORE_ERROR_OPEN;
    policy.attempts = 1;
    policy.backoff_min_ms = policy.backoff_max_ms = 1;
    rig.store = RIG_STORE_REFUSES;
    rig_start(&rig, policy, 1, NULL);
    rig.say[0] = (struct queue_outcome){.result = QUEUE_RETRY};
    rig.say[1] = (struct queue_outcome){.result = QUEUE_RETRY, .delay_ms = 5};
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 1);
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    rig_until(&rig, &rig.lines_n, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_STR(rig.lines[i].what, "delay");
        CHECK_INT(rig.lines[i].ms, 1000);
    }
    CHECK_INT(rig.works_n, 2);
    rig_finish(&rig);
}

/* Leases. */

TEST(nothing_may_be_begun_after_the_lease_and_without_a_store_there_is_none) {
    struct idem_policy policy = rig_policy();
    int64_t before = idem_loop_now();

    policy.on_store_error = IDEM_ON_STORE_ERROR_OPEN;
    begin_one(policy);
    CHECK(rig.works[0].work->not_after >= before + policy.lease_ms);
    CHECK(rig.works[0].work->not_after <= idem_loop_now() + policy.lease_ms);
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    rig_until(&rig, &rig.lines_n, 1);
    rig.store = RIG_STORE_REFUSES;
    rig_deliver(&rig, "{\"id\": 2}", NULL);
    rig_until(&rig, &rig.open_works, 1);
    CHECK(rig.works[1].work->not_after == INT64_MAX);
    rig_finish(&rig);
}

/* Other consumers. */

TEST(of_many_that_somebody_else_runs_half_are_kept_in_hand_and_the_rest_make_room) {
    struct idem_policy policy = rig_policy();
    char body[32];

    policy.lease_ms = 600000;
    rig_start(&rig, policy, 8, NULL);
    for (int i = 0; i < 8; i++) {
        snprintf(body, sizeof(body), "{\"id\": %d}", i);
        rig_deliver(&rig, strdup(body), NULL);
    }
    rig_until(&rig, &rig.open_works, 8);
    other.prefetch = 8;
    rig_start(&other, policy, 8, NULL);
    for (int i = 0; i < 8; i++) {
        snprintf(body, sizeof(body), "{\"id\": %d}", i);
        rig_deliver(&other, strdup(body), NULL);
    }
    rig_until(&other, &other.lines_n, 3);
    /* sleep: only time shows that no more lines come */
    rig_turn(&other, 300); /* the rest were claimed again, and are still in hand */
    CHECK_INT(other.lines_n, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_STR(other.lines[i].what, "delay");
        CHECK(other.lines[i].ms > 100000); /* the rest of the lease */
    }
    rig_finish(&other);
    rig_now = &rig;
    rig_finish(&rig);
}

TEST(pauses_begin_anew_behind_a_run) {
    struct idem_policy policy = rig_policy();

    policy.backoff_min_ms = policy.backoff_max_ms = 50;
    rig_start(&rig, policy, 1, "#body.id");
    rig.script[0].result = QUEUE_UNBEGUN;
    rig.script[1].result = QUEUE_RETRY;
    rig.say[0].result = QUEUE_UNBEGUN;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig, rig.reports >= 3);
    CHECK(rig.said[0].again_ms >= 1000 && rig.said[0].again_ms <= 1500);
    CHECK_INT(rig.said[1].again_ms, 50);
    CHECK_STR(rig.said[2].then, "hold");
    CHECK(rig.said[2].again_ms >= 1000 && rig.said[2].again_ms <= 1500);
    rig_finish(&rig);
}

/* Messages that the broker has lost. */

TEST(what_is_gone_while_it_is_claimed_leaves_its_worker_to_others) {
    struct queue_counts counts = {0};

    rig_start(&rig, rig_policy(), 1, NULL);
    rig.store = RIG_STORE_LATE;
    rig_deliver(&rig, "{\"id\": 1}", NULL);
    RIG_UNTIL(&rig, rig.late_op != NULL);
    queue_consumer_counts(rig.consumer, &counts);
    CHECK_INT(counts.working, 1);
    CHECK_INT(rig.works_n, 0);
    rig.store = RIG_STORE_UP;
    rig.events.gone(rig.events.data, &rig.messages[0].m);
    CHECK_STR(rig.lines[0].what, "giveback");
    CHECK(rig.late_op == NULL); /* the claim was cancelled */
    queue_consumer_counts(rig.consumer, &counts);
    CHECK_INT(counts.working, 0);
    rig.say[1].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 2}", NULL);
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[1].what, "ack");
    rig_finish(&rig);
}

TEST(the_broker_is_not_told_that_we_are_at_what_it_has_lost) {
    struct idem_policy policy = rig_policy();

    policy.lease_ms = 1500;
    begin_one(policy);
    RIG_UNTIL(&rig, rig.extended > 0);
    rig.events.gone(rig.events.data, &rig.messages[0].m);
    rig.extended = 0;
    /* sleep: longer than the time between two renewals; only time shows that none comes */
    rig_turn(&rig, (int)policy.lease_ms / 3 + 100);
    CHECK_INT(rig.extended, 0);
    rig_finish(&rig);
}

/* Logs. */

TEST(where_the_message_id_is_the_key_logs_have_the_hash_instead) {
    struct idem_policy policy = rig_policy();
    static const char id[] = "customer-4711-secret";

    policy.key_kind = IDEM_KEY_LITERAL;
    rig.prefetch = 2;
    rig_start(&rig, policy, 1, NULL);
    for (int i = 0; i < 3; i++) /* the third is delayed before it is claimed */
        rig_deliver(&rig, "{}", id);
    rig_until(&rig, &rig.open_works, 1);
    CHECK_STR(rig.works[0].work->trace, id); /* the handler gets the id anyway */
    rig_say(&rig.works[0], (struct queue_outcome){.result = QUEUE_DONE});
    rig_until(&rig, &rig.reports, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(strlen(rig.said[i].trace), 64);
        CHECK_STR(rig.said[i].trace, rig.said[1].hash);
    }
    CHECK_STR(rig.said[0].then, "delay");
    rig_finish(&rig);
}

TEST(a_message_id_that_is_not_the_key_is_the_trace) {
    rig_start(&rig, rig_policy(), 1, NULL);
    rig.say[0].result = QUEUE_DONE;
    rig_deliver(&rig, "{\"id\": 1}", "m-1");
    rig_until(&rig, &rig.reports, 1);
    CHECK_STR(rig.said[0].trace, "m-1");
    rig_finish(&rig);
}

/* Lanes. */

static void lane_block(unsigned prefetch) {
    rig.prefetch = prefetch;
    rig_start(&rig, rig_policy(), 4, "#body.user");
    rig.say[0] = (struct queue_outcome){.result = QUEUE_RETRY, .delay_ms = 60000};
    rig_deliver(&rig, "{\"id\": 0, \"user\": 1}", NULL);
    rig_until(&rig, &rig.reports, 1);
}

static void lane_deliver(int id, int user) {
    char body[64];

    snprintf(body, sizeof(body), "{\"id\": %d, \"user\": %d}", id, user);
    rig_deliver(&rig, strdup(body), NULL);
}

TEST(who_waits_in_a_blocked_lane_does_not_count_for_prefetch) {
    lane_block(4);
    CHECK_INT(rig.widened, 0);
    for (int i = 1; i <= 10; i++) {
        lane_deliver(i, 1);
        CHECK_INT(rig.widened, i);
    }
    CHECK(strstr(rig.states, "--order-by") == NULL); /* there is room */
    rig.say[11].result = QUEUE_DONE;
    lane_deliver(11, 2);
    rig_until(&rig, &rig.lines_n, 1);
    CHECK_INT(rig.lines[0].n, 11);
    CHECK_INT(rig.works_n, 2);
    rig.events.gone(rig.events.data, &rig.messages[10].m);
    CHECK_INT(rig.widened, 9);
    rig_finish(&rig);
}

static int said(const char *text) {
    int n = 0;

    for (const char *at = rig.states; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

TEST(where_a_broker_cannot_give_more_it_is_told_once_that_a_lane_has_all_the_room) {
    static struct queue_broker narrow;

    narrow = rig_broker;
    narrow.widen = NULL;
    rig.broker = &narrow;
    lane_block(4);
    for (int i = 1; i < 3; i++)
        lane_deliver(i, 1);
    CHECK_INT(said("nothing more is fetched"), 0);
    lane_deliver(3, 1);
    CHECK_INT(said("nothing more is fetched: 1 messages in hand are to be tried again later, and 3 "
                   "wait behind them"),
              1);
    CHECK_HAS(rig.states, "--prefetch");
    rig.events.gone(rig.events.data, &rig.messages[3].m);
    lane_deliver(4, 1);
    CHECK_INT(said("nothing more is fetched"), 1); /* the backlog is the same */
    for (int i = 1; i <= 4; i++)
        if (rig.messages[i].out)
            rig.events.gone(rig.events.data, &rig.messages[i].m);
    CHECK_INT(in_hand(), 1);
    for (int i = 5; i < 8; i++)
        lane_deliver(i, 1);
    CHECK_INT(said("nothing more is fetched"), 2);
    rig_finish(&rig);
}

int main(int argc, char **argv) {
    test_at_a_time = 8; /* the tests wait more than they work */
    return test_main(argc, argv);
}
