/*
 * Entries as messages: fields of every kind and size, and those that are too large.
 */
#include "test_consumer.h"

static void put_bytes(struct idem_buffer *out, const char *bytes, size_t len) {
    redis_put_part(out, bytes, len);
}

/* The beginning of XADD q with this many fields. */
static struct idem_buffer adding(size_t fields) {
    struct idem_buffer out = {0};

    redis_put_head(&out, 3 + 2 * fields);
    redis_put_text(&out, "XADD");
    redis_put_text(&out, "q");
    redis_put_text(&out, "*");
    return out;
}

TEST(the_body_is_the_field_that_is_named_so_or_the_only_one) {
    struct test_consumer t;

    server_begin();
    say("XADD", "q", "5-1", "a", "1", "body", "the body", "b", "2", NULL);
    say("XADD", "q", "5-2", "whatever", "alone", NULL);
    say("XADD", "q", "5-3", "a", "1", "b", "2", NULL);
    say("XADD", "q", "5-4", "body", "first", "body", "second", NULL);
    say("XADD", "q", "5-5", "what", "a letter's", "idem-verdict", "dead", NULL);
    say("XADD", "q", "5-6", "body", "", NULL);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 6);
    CHECK_STR(body_of(&t, 0), "the body");
    CHECK_INT(t.got[0]->headers_n, 2);
    CHECK_STR(header_of(&t, 0, "a"), "1");
    CHECK_STR(header_of(&t, 0, "b"), "2");
    CHECK(header_of(&t, 0, "body") == NULL);
    CHECK_STR(property_of(&t, 0, "message_id"), "5-1");
    CHECK_STR(property_of(&t, 0, "deliveries"), "1");
    CHECK(!t.got[0]->properties[0].json && t.got[0]->properties[1].json);
    CHECK_STR(body_of(&t, 1), "alone");
    CHECK_INT(t.got[1]->headers_n, 0);
    CHECK_STR(body_of(&t, 2), "");
    CHECK_INT(t.got[2]->headers_n, 2);
    CHECK_STR(body_of(&t, 3), "first");
    CHECK_STR(header_of(&t, 3, "body"), "second");
    CHECK_STR(body_of(&t, 4), "a letter's");
    CHECK_STR(header_of(&t, 4, "idem-verdict"), "dead");
    CHECK_STR(body_of(&t, 5), "");
    CHECK_INT(t.got[5]->body.len, 0);
    test_consumer_close(&t);
    test_consumer_open(&t, &(struct queue_config){.body_field = "b", .group = "other"});
    test_consumer_until(&t, 1);
    CHECK_STR(body_of(&t, 0), "2");
    CHECK_STR(header_of(&t, 0, "body"), "the body");
    test_consumer_close(&t);
}

/* Finds bytes in a reply, which is longer than they are. */
static const char *has_bytes(const char *answer, const char *bytes, size_t len) {
    for (size_t i = 0; i < 2000; i++)
        if (memcmp(answer + i, bytes, len) == 0)
            return answer + i;
    return NULL;
}

TEST(names_and_values_hold_every_byte_and_go_to_the_dead_as_they_are) {
    static const struct queue_dead_fields dead_fields = {.verdict = "dead"};
    struct idem_buffer out = adding(3);
    const struct stream_message *m;
    char all[256], odd[] = {'n', 0, '\r', '\n', (char)0xff};
    const char *answer;
    struct test_consumer t;

    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    server_begin();
    put_bytes(&out, "body", 4);
    put_bytes(&out, all, sizeof(all));
    put_bytes(&out, odd, sizeof(odd));
    put_bytes(&out, all, sizeof(all));
    put_bytes(&out, "", 0);
    put_bytes(&out, "", 0);
    CHECK(say_bytes(&out)[0] == '$');
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 1);
    m = stream_message_of(t.got[0]);
    CHECK_INT(m->base.body.len, sizeof(all));
    CHECK(memcmp(m->base.body.at, all, sizeof(all)) == 0);
    CHECK_INT(m->base.headers_n, 2);
    CHECK_INT(m->base.headers[0].name.len, sizeof(odd));
    CHECK(memcmp(m->base.headers[0].name.at, odd, sizeof(odd)) == 0);
    CHECK(memcmp(m->base.headers[0].value.at, all, sizeof(all)) == 0);
    CHECK(!m->base.headers[0].json);
    CHECK_INT(m->base.headers[1].name.len, 0);
    CHECK_INT(m->base.headers[1].value.len, 0);
    CHECK(test_consumer_bury(&t, 0, &dead_fields));
    answer = say("XRANGE", "q.dead", "-", "+", NULL);
    CHECK(has_bytes(answer, odd, sizeof(odd)) != NULL);
    answer = has_bytes(answer, all, sizeof(all));
    CHECK(answer != NULL);
    CHECK(has_bytes(answer + 256, all, sizeof(all)) != NULL);
    test_consumer_close(&t);
}

static void big_add(size_t n, size_t len) {
    struct idem_buffer out = adding(n);
    char *bytes = malloc(len);

    CHECK(bytes != NULL);
    memset(bytes, 'x', len);
    for (size_t i = 0; i < n; i++) {
        put_bytes(&out, i == 0 ? "body" : "more", 4);
        put_bytes(&out, bytes, len);
    }
    free(bytes);
    CHECK(say_bytes(&out)[0] == '$');
}

TEST(large_messages_come_whole_and_are_buried_whole) {
    static const struct queue_dead_fields dead_fields = {.verdict = "dead"};
    struct test_consumer t;

    server_begin_light();
    big_add(1, 1 << 20);
    big_add(4, 1 << 20);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 2);
    CHECK_INT(t.got[0]->body.len, 1 << 20);
    CHECK_INT(t.got[1]->headers_n, 3);
    for (size_t i = 0; i < 1 << 20; i += 4096)
        CHECK(t.got[1]->headers[2].value.at[i] == 'x');
    CHECK(test_consumer_bury(&t, 1, &dead_fields));
    CHECK(test_consumer_delay(&t, 1, 1));
    test_consumer_until(&t, 3);
    CHECK_INT(t.got[2]->body.len, 1 << 20);
    CHECK_STR(say("XLEN", "q.dead", NULL), ":1\r\n");
    test_consumer_close(&t);
}

/* An entry that fits into a reply and is too large all the same, one with too many fields, and
 * one that exceeds every reply. */
TEST(what_is_too_large_is_left_pending_and_told_and_nothing_waits_for_it) {
    struct test_consumer t;
    char *at;

    server_begin_light();
    add("before");
    big_add(2, (size_t)33 << 20);
    test_consumer_open_as(&t, "me");
    test_consumer_until_text(&t, "it has 69206024 bytes in 2 fields");
    CHECK_INT(pending("me"), 2);
    CHECK_INT(t.n, 1);
    test_consumer_close(&t);
    big_add(5000, 1);
    big_add(3, (size_t)55 << 20);
    add("behind");
    for (int round = 0; round < 2; round++) {
        test_consumer_open_as(&t, "me");
        test_consumer_until(&t, 2);
        CHECK_STR(body_of(&t, 0), "before");
        CHECK_STR(body_of(&t, 1), "behind");
        test_consumer_until_text(&t, "it has 69206024 bytes in 2 fields");
        test_consumer_until_text(&t, "it has 25000 bytes in 5000 fields");
        test_consumer_until_text(&t, "it has 173015052 bytes in 3 fields");
        CHECK_HAS(t.text, "left pending under me");
        CHECK_INT(pending("me"), 5);
        /* sleep: only time shows that the command is not sent again */
        test_consumer_idle(&t, 300);
        at = strstr(t.text, "it has 173015052");
        CHECK(strstr(at + 1, "it has 173015052") == NULL);
        CHECK_INT(t.n, 2);
        test_consumer_close(&t);
    }
}

TEST(messages_that_are_too_much_for_one_answer_come_by_several) {
    struct test_consumer t;

    server_begin_light();
    for (int i = 0; i < 16; i++)
        big_add(1, (size_t)12 << 20);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 16, .lease_ms = 3600000});
    for (size_t i = 0; i < 16; i++) {
        test_consumer_until(&t, i + 1);
        CHECK_INT(t.got[i]->body.len, 12 << 20);
        CHECK(i == 0 || strcmp(t.ids[i], t.ids[i - 1]) > 0);
        test_consumer_ack(&t, i);
    }
    CHECK_HAS(t.text, "too long");
    pending_until(&t, "", 0);
    CHECK_INT(t.n, 16);
    test_consumer_close(&t);
}

TEST(no_more_is_fetched_while_what_is_out_has_too_many_bytes) {
    struct test_consumer t;

    server_begin_light();
    for (int i = 0; i < 12; i++)
        big_add(1, (size_t)30 << 20);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 100});
    test_consumer_until(&t, 9);
    /* sleep: only time shows that nothing more comes */
    test_consumer_idle(&t, 500);
    CHECK(t.n < 12);
    while (t.n < 12) {
        for (size_t i = 0; i < t.n; i++)
            if (t.got[i] != NULL)
                test_consumer_ack(&t, i);
        test_consumer_turn(&t, 100);
    }
    test_consumer_close(&t);
}

/* Replies, taken apart. */

static struct redis_reply *reply_of(const char *bytes) {
    struct redis_reader *reader = redis_reader_new();
    struct redis_reply *reply = NULL;

    CHECK(reader != NULL && redis_reader_feed(reader, bytes, strlen(bytes)));
    CHECK(redis_reader_next(reader, &reply) && reply != NULL);
    redis_reader_free(reader);
    return reply;
}

TEST(ids_are_read_strictly) {
    static const char *const wrong[] = {"",
                                        "-",
                                        "1",
                                        "1-",
                                        "-1",
                                        "1-1-1",
                                        " 1-1",
                                        "1-1 ",
                                        "1-a",
                                        "a-1",
                                        "+1-1",
                                        "1--1",
                                        "18446744073709551616-1",
                                        "1-18446744073709551616"};
    struct stream_id id;
    char text[STREAM_ID_TEXT];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK(!stream_id_parse(wrong[i], strlen(wrong[i]), &id));
    CHECK(stream_id_parse("18446744073709551615-18446744073709551615", 41, &id));
    CHECK_STR(stream_id_print(id, text), "18446744073709551615-18446744073709551615");
    CHECK(stream_id_parse("1526919030474-55x", 16, &id));
    CHECK(id.ms == 1526919030474 && id.seq == 55);
}

/* Redis 7 lists deleted entries, 6.2 has nil in their place. */
TEST(both_forms_of_what_was_claimed_are_read) {
    struct redis_reply *seven = reply_of("*3\r\n$3\r\n7-0\r\n*1\r\n$3\r\n1-1\r\n*2\r\n$3\r\n1-2\r\n"
                                         "$3\r\n1-3\r\n");
    struct redis_reply *six = reply_of("*2\r\n$3\r\n0-0\r\n*2\r\n*-1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n"
                                       "$1\r\na\r\n$1\r\nb\r\n");
    struct stream_claimed claimed;
    struct stream_id id;

    CHECK(stream_parse_claimed(seven, &claimed));
    CHECK(claimed.next.ms == 7 && claimed.deleted == 2 && claimed.items->items_n == 1);
    CHECK(stream_parse_claimed_id(claimed.items->items[0], &id) && id.ms == 1 && id.seq == 1);
    CHECK(stream_parse_claimed(six, &claimed));
    CHECK(claimed.next.ms == 0 && claimed.deleted == 1 && claimed.items->items_n == 2);
    CHECK(!stream_parse_claimed_id(claimed.items->items[0], &id));
    CHECK(stream_parse_claimed_id(claimed.items->items[1], &id) && id.seq == 1);
    redis_reply_free(seven);
    redis_reply_free(six);
}

/* Some errors repeat the arguments. */
TEST(what_the_server_says_of_an_error_is_not_passed_on) {
    static const struct {
        const char *error, *text;
    } cases[] = {
        {"-OOM command not allowed\r\n", "maxmemory"},
        {"-WRONGTYPE Operation\r\n", "no stream"},
        {"-ERR unknown command 'XADD', with args beginning with: 'secret'\r\n", "Redis 6.2"},
        {"-ERR bad secret\r\n", "(ERR)"},
        {"-secret\r\n", "()"},
        {"+secret\r\n", "not understood"},
    };
    char text[STREAM_ERROR_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct redis_reply *reply = reply_of(cases[i].error);

        CHECK_HAS(stream_error_text(reply, text), cases[i].text);
        CHECK(strstr(text, "secret") == NULL);
        redis_reply_free(reply);
    }
}

TEST_MAIN
