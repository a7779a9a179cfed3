/*
 * Entries that are trimmed before they are finished: those in memory are
 * handled, or are among the dead letters; the others are reported.
 */
#include "test_consumer.h"

static struct stream_link *link_of(const struct test_consumer *t) {
    return (struct stream_link *)(void *)t->link;
}

static void trim_all(void) {
    CHECK(say("XTRIM", "q", "MAXLEN", "0", NULL)[0] == ':');
}

static void letter_check(const char *id, const char *body) {
    const char *answer = say("XRANGE", "q.dead", "-", "+", NULL);

    CHECK_HAS(answer, "idem-verdict\r\n$7\r\ntrimmed");
    CHECK_HAS(answer, id);
    CHECK_HAS(answer, body);
}

TEST(what_is_trimmed_while_it_waits_for_its_time_is_delivered_from_memory_as_often_as_need_be) {
    unsigned seen = 0;
    struct test_consumer t;

    server_begin();
    add_n(3, 0);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 3);
    CHECK(say("XDEL", "q", t.ids[0], NULL)[0] == ':'); /* before it is delayed */
    for (size_t i = 0; i < 3; i++)
        CHECK(test_consumer_delay(&t, i, 600000));
    CHECK(say("XTRIM", "q", "MAXLEN", "1", NULL)[0] == ':');
    test_consumer_due(&t);
    test_consumer_until(&t, 6);
    for (size_t i = 3; i < 6; i++) {
        CHECK(t.got[i]->redelivered);
        seen |= 1u << (body_of(&t, i)[1] - '0');
    }
    CHECK_INT(seen, 7);
    CHECK_HAS(t.text, t.ids[0]);
    CHECK_HAS(t.text, "handled from memory (2 so far)");
    CHECK_HAS(t.text, "XTRIM MINID");
    CHECK(test_consumer_delay(&t, 3, 300));
    test_consumer_until(&t, 7);
    CHECK_STR(t.ids[6], t.ids[3]);
    for (size_t i = 4; i < 7; i++)
        test_consumer_ack(&t, i);
    pending_until(&t, "", 0);
    CHECK(strstr(t.text, "3 so far") == NULL);
    CHECK_INT(link_of(&t)->content_bytes, 0);
    test_consumer_close(&t);
    CHECK_STR(say("XLEN", "q.dead", NULL), ":0\r\n");
}

TEST(what_is_trimmed_while_it_is_out_stays_out_and_may_be_delayed) {
    struct test_consumer t;

    server_begin();
    add("m");
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 1);
    trim_all();
    for (int i = 0; i < 2; i++) {
        test_consumer_extend(&t, 0);
        test_consumer_sync(&t);
    }
    CHECK_HAS(t.text, "(1 so far)");
    CHECK(strstr(t.text, "2 so far") == NULL);
    CHECK_INT(t.gone, 0);
    CHECK(test_consumer_delay(&t, 0, 1));
    test_consumer_until(&t, 2);
    CHECK_STR(body_of(&t, 1), "m");
    test_consumer_ack(&t, 1);
    pending_until(&t, "", 0);
    test_consumer_close(&t);
}

TEST(what_is_trimmed_and_given_back_is_a_dead_letter) {
    struct test_consumer t;

    server_begin();
    add_n(2, 0);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 2);
    CHECK(say("XDEL", "q", t.ids[0], NULL)[0] == ':');
    test_consumer_give(&t, 0); /* the server has not yet reported that the entry is gone */
    test_consumer_give(&t, 1);
    test_consumer_until_text(&t, "handled from memory");
    test_consumer_until(&t, 3);
    CHECK_STR(t.ids[2], t.ids[1]);
    test_consumer_close(&t);
    letter_check(t.ids[0], "m0");
    CHECK_STR(say("XLEN", "q.dead", NULL), ":1\r\n");
}

TEST(of_many_that_are_trimmed_and_given_back_each_is_a_dead_letter) {
    struct test_consumer t;

    server_begin();
    add_n(130, 0); /* more than one command gives back */
    test_consumer_open(&t, &(struct queue_config){.prefetch = 200});
    test_consumer_until(&t, 130);
    trim_all();
    queue_broker_stream.fetch(t.link, false);
    for (size_t i = 0; i < 130; i++)
        test_consumer_give(&t, i);
    test_consumer_close(&t);
    CHECK_STR(say("XLEN", "q.dead", NULL), ":130\r\n");
}

TEST(what_is_trimmed_and_waits_when_it_is_closed_is_a_dead_letter) {
    struct test_consumer t;

    server_begin();
    add_n(2, 0);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 2);
    CHECK(say("XDEL", "q", t.ids[0], NULL)[0] == ':');
    test_consumer_extend(&t, 0); /* the loss of one is known, of the other not */
    test_consumer_until_text(&t, "handled from memory");
    for (size_t i = 0; i < 2; i++)
        CHECK(test_consumer_delay(&t, i, 3600000));
    CHECK(say("XDEL", "q", t.ids[1], NULL)[0] == ':');
    test_consumer_close(&t);
    letter_check(t.ids[0], "m0");
    letter_check(t.ids[1], "m1");
    CHECK_STR(say("XLEN", "q.dead", NULL), ":2\r\n");
    CHECK_INT(pending(""), 0);
}

TEST(no_more_is_kept_than_there_is_room_for_and_what_is_lost_is_told) {
    struct test_consumer t;

    server_begin();
    add_n(2, 0);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 2);
    trim_all();
    test_consumer_extend(&t, 1);
    test_consumer_until_text(&t, "(1 so far)");
    link_of(&t)->content_bytes += STREAM_CONTENT_BYTES; /* as if so many bytes were delayed */
    CHECK(test_consumer_delay(&t, 0, 100));
    CHECK(!test_consumer_delay(
        &t, 1, 100)); /* the loss of this one is known: it stays with its consumer */
    CHECK_HAS(t.why, "trimmed");
    test_consumer_until_text(&t, "and is lost (2 so far)");
    CHECK_HAS(t.text, t.ids[0]);
    CHECK_INT(t.n, 2);
    link_of(&t)->content_bytes -= STREAM_CONTENT_BYTES;
    CHECK(test_consumer_delay(&t, 1, 100));
    test_consumer_until(&t, 3);
    test_consumer_ack(&t, 2);
    test_consumer_close(&t);
}

TEST(a_letter_that_is_not_taken_is_tried_again) {
    struct test_consumer t;

    server_begin();
    say("SET", "q.dead", "x", NULL);
    add("m");
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 1);
    trim_all();
    test_consumer_give(&t, 0);
    test_consumer_until_text(&t, "XADD");
    CHECK_INT(t.gone, 0);
    say("DEL", "q.dead", NULL);
    while (strcmp(say("XLEN", "q.dead", NULL), ":1\r\n") != 0) /* the test's time limit ends it */
        test_consumer_turn(&t, 20);
    letter_check(t.ids[0], "$1\r\nm");
    test_consumer_close(&t);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
