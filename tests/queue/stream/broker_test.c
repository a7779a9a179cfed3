/*
 * The Redis Streams broker on a real server: the promises of broker.h, and
 * which consumer gets which message.
 */
#include <sys/wait.h>

#include "test_consumer.h"

TEST(messages_come_in_order_and_no_more_of_them_than_prefetch) {
    struct test_consumer t;

    server_begin();
    add_n(40, 0);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 7});
    test_consumer_until(&t, 7);
    /* sleep: only time shows that no more messages come */
    test_consumer_idle(&t, 300);
    CHECK_INT(t.n, 7);
    CHECK_INT(pending("me"), 7);
    for (unsigned i = 0; i < 40; i++) {
        test_consumer_until(&t, i + 1);
        CHECK_STR(body_of(&t, i), numbered("m", i));
        CHECK_STR(t.got[i]->queue, "q");
        CHECK(!t.got[i]->redelivered);
        test_consumer_ack(&t, i);
    }
    pending_until(&t, "", 0);
    add("one more");
    test_consumer_until(&t, 41);
    CHECK_STR(body_of(&t, 40), "one more");
    test_consumer_close(&t);
}

TEST(more_than_prefetch_come_where_some_wait_for_others) {
    struct test_consumer t;

    server_begin();
    add_n(20, 0);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 4});
    test_consumer_until(&t, 4);
    t.prefetch = 10;
    queue_broker_stream.widen(t.link, 6);
    test_consumer_until(&t, 10);
    /* sleep: only time shows that no more messages come */
    test_consumer_idle(&t, 200);
    CHECK_INT(t.n, 10);
    for (unsigned i = 0; i < 10; i++)
        CHECK_STR(body_of(&t, i), numbered("m", i));
    queue_broker_stream.widen(t.link, 2);
    for (size_t i = 0; i < 4; i++)
        test_consumer_ack(&t, i);
    /* sleep: only time shows that no more messages come */
    test_consumer_idle(&t, 200);
    CHECK_INT(t.n, 10); /* six are out */
    test_consumer_ack(&t, 4);
    test_consumer_until(&t, 11);
    test_consumer_close(&t);
}

TEST(a_group_that_is_not_there_is_made_from_the_beginning_and_that_is_told) {
    struct test_consumer t;

    server_begin();
    add("before");
    test_consumer_open(&t, &(struct queue_config){.group = "idem"});
    CHECK_HAS(t.text, "group idem was not there; it was made");
    CHECK_HAS(t.text, "stream q, group idem, consumer me");
    test_consumer_until(&t, 1);
    test_consumer_close(&t);
    test_consumer_open(&t, &(struct queue_config){.group = "idem"});
    CHECK(strstr(t.text, "was not there") == NULL);
    test_consumer_close(&t);
    test_consumer_open(&t, &(struct queue_config){.queue = "nothing yet", .group = "g"});
    CHECK_HAS(t.text, "it was made");
    CHECK(say("XADD", "nothing yet", "*", "a", "b", NULL)[0] == '$');
    test_consumer_until(&t, 1);
    test_consumer_close(&t);
}

TEST(nothing_is_fetched_before_it_is_said_nor_after_it_is_stopped) {
    struct test_consumer t;

    server_begin();
    add_n(3, 0);
    test_consumer_begin(&t, &(struct queue_config){.prefetch = 2});
    test_consumer_until_text(&t, "connected");
    /* sleep: only time shows that no message comes */
    test_consumer_idle(&t, 300);
    CHECK_INT(t.n, 0);
    CHECK_INT(pending(""), 0);
    queue_broker_stream.fetch(t.link, true);
    test_consumer_until(&t, 2);
    test_consumer_ack(&t, 0);
    test_consumer_ack(&t, 1);
    test_consumer_until(&t, 3);
    blocked_until(&t, 1);
    queue_broker_stream.fetch(t.link, false);
    blocked_until(&t, 0);
    add("late");
    /* sleep: only time shows that no more messages come */
    test_consumer_idle(&t, 500);
    CHECK_INT(t.n, 3);
    CHECK_INT(pending(""), 1);
    queue_broker_stream.fetch(t.link, true);
    test_consumer_until(&t, 4);
    test_consumer_close(&t);
}

TEST(acks_are_sent_before_it_is_closed) {
    struct test_consumer t;

    server_begin();
    add_n(500, 0);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 600});
    test_consumer_until(&t, 500);
    for (size_t i = 0; i < 499; i++)
        test_consumer_ack(&t, i);
    test_consumer_give(&t, 499);
    stream_close_ms = TEST_LIMIT_S * 1000;
    test_consumer_close(&t); /* as soon as the server has responded */
    CHECK_INT(pending(""), 1);
    CHECK_INT(pending(STREAM_NOBODY), 1);
}

/* Restarts. */

/* A consumer in a process of its own, which ends abruptly when `does` returns. */
static void in_a_process(void (*does)(struct test_consumer *consumer)) {
    static struct test_consumer t;
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        test_consumer_open_as(&t, "me");
        does(&t);
        kill(getpid(), SIGKILL);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void takes_ten(struct test_consumer *t) {
    test_consumer_until(t, 10);
    test_consumer_ack(t, 3);
    pending_until(t, "me", 9);
}

TEST(who_dies_gets_its_own_messages_again_in_order_before_new_ones) {
    struct test_consumer t;

    server_begin();
    add_n(10, 0);
    in_a_process(takes_ten);
    CHECK_INT(pending("me"), 9);
    add_n(5, 10);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 4});
    for (unsigned i = 0; i < 14; i++) {
        unsigned m = i < 3 ? i : i + 1;

        test_consumer_until(&t, i + 1);
        CHECK_STR(body_of(&t, i), numbered("m", m));
        CHECK_INT(t.got[i]->redelivered, m < 10);
        CHECK_STR(property_of(&t, i, "deliveries"), m < 10 ? "2" : "1");
        test_consumer_ack(&t, i);
    }
    pending_until(&t, "", 0);
    test_consumer_close(&t);
}

static void delays_one(struct test_consumer *t) {
    test_consumer_until(t, 1);
    CHECK(test_consumer_delay(t, 0, 3600000));
}

TEST(a_delayed_message_of_a_process_that_died_comes_at_once_and_the_record_decides) {
    struct test_consumer t;

    server_begin();
    add("a");
    in_a_process(delays_one);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 1);
    CHECK_STR(body_of(&t, 0), "a");
    CHECK_STR(property_of(&t, 0, "deliveries"), "2");
    test_consumer_close(&t);
}

/* Taking over. */

TEST(what_another_left_idle_is_taken_after_min_idle_and_not_before) {
    struct test_consumer a, b;

    server_begin_timed();
    add_n(3, 0);
    test_consumer_open_as(&a, "a");
    test_consumer_until(&a, 3);
    queue_broker_stream.fetch(a.link, false);
    blocked_until(&a, 0);
    test_consumer_open_as(&b, "b");
    test_consumer_hurry(&b);
    time_pass(2990);
    calls_until(&b, "xautoclaim", 2);
    test_consumer_sync(&b);
    CHECK_INT(b.n, 0);
    time_pass(20);
    test_consumer_until(&b, 3);
    for (size_t i = 0; i < 3; i++) {
        CHECK_STR(body_of(&b, i), numbered("m", (unsigned)i));
        CHECK_STR(b.ids[i], a.ids[i]);
        CHECK_STR(property_of(&b, i, "deliveries"), "2");
    }
    CHECK_INT(pending("b"), 3);
    test_consumer_close(&a);
    test_consumer_close(&b);
}

TEST(extending_keeps_others_from_taking_it) {
    struct test_consumer a, b;

    server_begin_timed();
    add_n(2, 0);
    test_consumer_open_as(&a, "a");
    test_consumer_until(&a, 2);
    queue_broker_stream.fetch(a.link, false);
    blocked_until(&a, 0);
    test_consumer_open_as(&b, "b");
    test_consumer_hurry(&b);
    for (int i = 0; i < 4; i++) {
        time_pass(1500);
        test_consumer_extend(&a, 1);
        test_consumer_sync(&a);
        calls_until(&b, "xautoclaim", 2);
    }
    test_consumer_until(&b, 1);
    calls_until(&b, "xautoclaim", 2);
    test_consumer_sync(&b);
    CHECK_INT(b.n, 1);
    CHECK_STR(b.ids[0], a.ids[0]);
    CHECK_STR(property_of(&b, 0, "deliveries"), "2");
    CHECK_INT(pending("a"), 1);
    test_consumer_close(&a);
    test_consumer_close(&b);
}

TEST(what_is_delayed_is_kept_from_others_by_itself) {
    struct test_consumer a, b;

    server_begin_timed();
    add("m");
    test_consumer_open_as(&a, "a");
    test_consumer_until(&a, 1);
    test_consumer_hurry(&a);
    CHECK(test_consumer_delay(&a, 0, 100));
    queue_broker_stream.fetch(a.link, false); /* nor would its own XAUTOCLAIM keep it */
    test_consumer_open_as(&b, "b");
    test_consumer_hurry(&b);
    for (int i = 0; i < 5; i++) {
        time_pass(1500);
        calls_until(&a, "xclaim", 2); /* the first one may have been on its way before */
        calls_until(&b, "xautoclaim", 2);
        test_consumer_sync(&b);
    }
    CHECK_INT(b.n, 0);
    CHECK_INT(a.n, 1);
    queue_broker_stream.fetch(a.link, true);
    test_consumer_until(&a, 2);
    CHECK_STR(a.ids[1], a.ids[0]);
    test_consumer_close(&a);
    test_consumer_close(&b);
}

TEST(a_message_that_another_took_over_is_acked_all_the_same_and_not_taken_back) {
    struct test_consumer a, b;

    server_begin_timed();
    add_n(3, 0);
    test_consumer_open_as(&a, "a");
    test_consumer_until(&a, 3);
    queue_broker_stream.fetch(a.link, false);
    blocked_until(&a, 0);
    test_consumer_open_as(&b, "b");
    test_consumer_hurry(&b);
    time_pass(4000);
    test_consumer_until(&b, 3);
    for (size_t i = 0; i < 3; i++)
        test_consumer_extend(&a, i);
    test_consumer_sync(&a);
    CHECK_INT(pending("b"), 3);
    CHECK_INT(a.gone, 0);
    test_consumer_ack(&a, 0);
    test_consumer_give(&a, 1);
    CHECK(test_consumer_delay(&a, 2, 100));
    pending_until(&a, "", 2);
    /* sleep: only time shows that no more messages come */
    test_consumer_idle(&a, 500);
    CHECK_INT(a.n, 3);
    CHECK_INT(pending("b"), 2);
    test_consumer_close(&a);
    test_consumer_close(&b);
}

/* Delays. */

TEST(a_delayed_message_comes_again_when_it_is_due_and_takes_no_room_meanwhile) {
    struct test_consumer t;
    int64_t before;
    long unblocked;

    server_begin();
    add_n(3, 0);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 1, .lease_ms = 600000});
    test_consumer_block(&t, 600000);
    test_consumer_until(&t, 1);
    CHECK(test_consumer_delay(&t, 0, 600000));
    test_consumer_until(&t, 2);
    CHECK_STR(body_of(&t, 1), "m1");
    test_consumer_ack(&t, 1);
    test_consumer_until(&t, 3);
    test_consumer_ack(&t, 2);
    pending_until(&t, "", 1);
    blocked_until(&t, 1);
    unblocked = calls_of("client|unblock");
    test_consumer_due(&t);
    test_consumer_until(&t, 4); /* although a blocking read has all the room */
    CHECK(calls_of("client|unblock") > unblocked);
    CHECK_STR(body_of(&t, 3), "m0");
    CHECK_STR(t.ids[3], t.ids[0]);
    CHECK(t.got[3]->redelivered);
    CHECK_STR(property_of(&t, 3, "deliveries"), "2");
    before = idem_loop_now();
    CHECK(test_consumer_delay(&t, 3, 500));
    test_consumer_until(&t, 5);
    CHECK(idem_loop_now() - before >= 500);
    CHECK_STR(t.ids[4], t.ids[0]);
    test_consumer_ack(&t, 4);
    pending_until(&t, "", 0);
    test_consumer_close(&t);
}

TEST(a_delayed_message_that_is_not_ours_when_it_is_due_does_not_come) {
    struct test_consumer t;

    server_begin();
    add_n(4, 0);
    test_consumer_open(&t, &(struct queue_config){.lease_ms = 600000});
    test_consumer_until(&t, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK(test_consumer_delay(&t, i, 600000));
    /* The messages were renewed, and the next renewal is not soon. */
    while (stream_link_of(t.link)->waiting == NULL || stream_link_of(t.link)->waiting->renewed == 0)
        test_consumer_turn(&t, 100);
    test_consumer_sync(&t);
    say("XCLAIM", "q", "idem", "somebody", "0", t.ids[0], NULL);
    say("XDEL", "q", t.ids[1], NULL);
    say("XACK", "q", "idem", t.ids[2], NULL);
    test_consumer_due(&t);
    test_consumer_until(&t, 6);
    CHECK_STR(t.ids[4], t.ids[1]); /* from memory: no other consumer can deliver it */
    CHECK_STR(t.ids[5], t.ids[3]);
    /* sleep: only time shows that no more messages come */
    test_consumer_idle(&t, 300);
    CHECK_INT(t.n, 6);
    CHECK_INT(pending("somebody"), 1);
    CHECK_INT(pending(""), 2);
    CHECK_HAS(t.text, "(1 so far)");
    test_consumer_close(&t);
}

TEST(no_more_are_delayed_than_can_be_remembered) {
    struct test_consumer t;

    server_begin();
    add_n(2, 0);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 2);
    ((struct stream_link *)(void *)t.link)->waiting_n +=
        STREAM_WAITING_MAX; /* as if so many were delayed */
    CHECK(!test_consumer_delay(&t, 0, 60000));
    CHECK_HAS(t.why, "100000 messages wait");
    ((struct stream_link *)(void *)t.link)->waiting_n -= STREAM_WAITING_MAX;
    CHECK(test_consumer_delay(&t, 0, 60000));
    test_consumer_ack(&t, 1);
    pending_until(&t, "", 1);
    test_consumer_close(&t);
}

/* Giving back. */

TEST(what_is_given_back_reaches_another_at_once_and_its_delivery_is_not_counted) {
    struct test_consumer a, b;

    server_begin();
    add_n(2, 0);
    test_consumer_open(&a, &(struct queue_config){.consumer = "a", .lease_ms = 600000});
    test_consumer_until(&a, 2);
    queue_broker_stream.fetch(a.link, false);
    blocked_until(&a, 0);
    /* Long before the messages would be idle for long enough. */
    test_consumer_open(&b,
                       &(struct queue_config){.consumer = "b", .lease_ms = 600000, .prefetch = 1});
    calls_until(&b, "xautoclaim", 1); /* the second has looked for idle messages, */
    blocked_until(&b, 1);             /* and has a read that blocks */
    test_consumer_give(&a, 0);
    test_consumer_give(&a, 1);
    pending_until(&a, "a", 0);
    test_consumer_until(&b, 1);
    CHECK_STR(body_of(&b, 0), "m0");
    CHECK_STR(property_of(&b, 0, "deliveries"), "1");
    CHECK(!b.got[0]->redelivered);
    test_consumer_ack(&b, 0);
    test_consumer_until(&b, 2);
    test_consumer_ack(&b, 1);
    pending_until(&b, "", 0);
    test_consumer_close(&a);
    test_consumer_close(&b);
}

TEST(what_waits_here_reaches_another_at_once_when_this_one_is_closed_and_its_delivery_counts) {
    struct test_consumer a, b;

    server_begin();
    add_n(3, 0);
    test_consumer_open(&a, &(struct queue_config){.consumer = "a", .lease_ms = 600000});
    test_consumer_until(&a, 3);
    for (size_t i = 0; i < 2; i++)
        CHECK(test_consumer_delay(&a, i, 3600000));
    queue_broker_stream.fetch(a.link, false);
    test_consumer_give(&a, 2);
    pending_until(&a, "a", 2);
    test_consumer_open(&b,
                       &(struct queue_config){.consumer = "b", .lease_ms = 600000, .prefetch = 2});
    test_consumer_until(&b, 1);
    CHECK_STR(body_of(&b, 0), "m2");
    CHECK_STR(property_of(&b, 0, "deliveries"), "1");
    test_consumer_ack(&b, 0);
    /* sleep: only time shows that no more messages come */
    test_consumer_idle(&b, 1300); /* a delayed message stays with its consumer */
    CHECK_INT(b.n, 1);
    stream_close_ms = TEST_LIMIT_S * 1000;
    test_consumer_close(&a);
    CHECK_INT(pending("a"), 0);
    test_consumer_until(&b, 3);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_STR(body_of(&b, i + 1), numbered("m", i));
        CHECK_STR(property_of(&b, i + 1, "deliveries"), "2");
    }
    test_consumer_close(&b);
}

TEST(what_was_given_back_comes_before_what_is_new) {
    struct test_consumer t;

    server_begin();
    add_n(3, 0);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 3);
    queue_broker_stream.fetch(t.link, false);
    for (size_t i = 3; i-- > 0;)
        test_consumer_give(&t, i);
    test_consumer_close(&t);
    CHECK_INT(pending(STREAM_NOBODY), 3);
    add_n(3, 3);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 2});
    for (unsigned i = 0; i < 6; i++) {
        test_consumer_until(&t, i + 1);
        CHECK_STR(body_of(&t, i), numbered("m", i));
        test_consumer_ack(&t, i);
    }
    test_consumer_close(&t);
    CHECK_INT(pending(""), 0);
}

/* Names. */

TEST(a_second_process_of_the_same_name_is_told) {
    struct test_consumer a, b;

    server_begin();
    test_consumer_open_as(&a, "one");
    test_consumer_open_as(&b, "two");
    CHECK(strstr(b.text, "another process") == NULL);
    test_consumer_close(&b);
    test_consumer_open_as(&b, "one");
    CHECK_HAS(b.text, "another process is connected as consumer one of group idem");
    CHECK(strstr(a.text, "another process") == NULL);
    test_consumer_close(&b);
    test_consumer_close(&a);
    test_consumer_open_as(&a, "one");
    CHECK(strstr(a.text, "another process") == NULL);
    test_consumer_close(&a);
}

/* Burials. */

static const struct queue_dead_fields dead_fields = {
    .verdict = "dead",
    .reason = "exit status 1",
    .attempts = 5,
    .status = 1,
    .prefix = "order:",
    .hash = "00ff",
};

TEST(a_dead_letter_has_all_fields_and_says_why_it_is_one) {
    static const char *const parts[] = {"body\r\n$2\r\nhi",
                                        "$1\r\nx\r\n$1\r\n1",
                                        "idem-verdict\r\n$4\r\ndead",
                                        "exit status 1",
                                        "idem-attempts\r\n$1\r\n5",
                                        "idem-status\r\n$1\r\n1",
                                        "idem-prefix\r\n$6\r\norder:",
                                        "idem-hash\r\n$4\r\n00ff",
                                        "idem-queue\r\n$1\r\nq",
                                        "idem-id\r\n$3\r\n1-1",
                                        "idem-dead-at\r\n$20\r\n20"};
    const char *answer;
    struct test_consumer t;

    server_begin();
    say("XADD", "q", "1-1", "body", "hi", "x", "1", "idem-verdict", "old", NULL);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 1);
    CHECK(test_consumer_bury(&t, 0, &dead_fields));
    CHECK_INT(pending("me"), 1);
    test_consumer_ack(&t, 0);
    pending_until(&t, "", 0);
    answer = say("XRANGE", "q.dead", "-", "+", NULL);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        CHECK_HAS(answer, parts[i]);
    CHECK(strstr(answer, "old") == NULL);
    test_consumer_close(&t);
}

TEST(a_burial_that_the_server_refuses_is_not_taken_and_says_why) {
    struct test_consumer t;

    server_begin();
    say("SET", "graves", "x", NULL);
    add("m");
    test_consumer_open(&t, &(struct queue_config){.dead_letter = "graves"});
    test_consumer_until(&t, 1);
    CHECK(!test_consumer_bury(&t, 0, &dead_fields));
    CHECK_HAS(t.why, "no stream");
    say("DEL", "graves", NULL);
    say("CONFIG", "SET", "maxmemory", "1", NULL);
    CHECK(!test_consumer_bury(&t, 0, &dead_fields));
    CHECK_HAS(t.why, "maxmemory");
    say("CONFIG", "SET", "maxmemory", "0", NULL);
    CHECK(test_consumer_bury(&t, 0, &dead_fields));
    CHECK_STR(say("XLEN", "graves", NULL), ":1\r\n");
    test_consumer_ack(&t, 0);
    pending_until(&t, "", 0);
    test_consumer_close(&t);
}

/* Callbacks that close. */

static void closes(struct test_consumer *t) {
    queue_broker_stream.close(t->link);
    t->link = NULL;
}

static void closes_at_message(struct test_consumer *t, size_t i) {
    (void)i;
    closes(t);
}

static void closed_release(struct test_consumer *t) {
    /* sleep: only time shows that nothing comes after the end */
    test_consumer_idle(t, 50);
    idem_loop_stop(&t->loop);
    host_release(&t->host);
}

static void told_close(void *data, bool taken, const char *why) {
    (void)taken;
    (void)why;
    closes(data);
}

TEST(it_may_be_closed_from_inside_every_call_back) {
    struct test_consumer t;

    server_begin();
    add_n(5, 0);
    test_consumer_begin(&t, &(struct queue_config){.prefetch = 3});
    t.on_state = closes;
    while (t.link != NULL)
        test_consumer_turn(&t, 100);
    closed_release(&t);

    test_consumer_open_as(&t, "me");
    t.on_message = closes_at_message;
    while (t.link != NULL)
        test_consumer_turn(&t, 100);
    CHECK_INT(t.n, 1);
    closed_release(&t);

    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 5);
    queue_broker_stream.delay(t.link, t.got[0], 10, told_close, &t);
    while (t.link != NULL)
        test_consumer_turn(&t, 100);
    closed_release(&t);

    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 5);
    t.on_gone = closes;
    say("DEL", "q", NULL);
    while (t.link != NULL)
        test_consumer_turn(&t, 100);
    CHECK_INT(t.gone, 1);
    closed_release(&t);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
