/* Replies as bytes, through the reader: the cost of hostile ones. */
#include <malloc.h>

#include "store/redis/redis_connection.h"
#include "test.h"

static size_t memory_used(void) {
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static bool feed(struct redis_reader *reader, const char *text, size_t times) {
    struct redis_reply *reply = NULL;

    for (size_t i = 0; i < times; i++) {
        CHECK(redis_reader_feed(reader, text, strlen(text)));
        if (i % 1000 != 999 && i + 1 < times)
            continue;
        if (!redis_reader_next(reader, &reply))
            return false;
        CHECK(reply == NULL);
    }
    return true;
}

TEST(numbers_are_sent_as_they_are) {
    static const struct {
        int64_t number;
        const char *sent;
    } cases[] = {{0, "$1\r\n0\r\n"},
                 {-1, "$2\r\n-1\r\n"},
                 {1234567890, "$10\r\n1234567890\r\n"},
                 {INT64_MAX, "$19\r\n9223372036854775807\r\n"},
                 {INT64_MIN, "$20\r\n-9223372036854775808\r\n"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct idem_buffer buffer = {0};

        redis_put_number(&buffer, cases[i].number);
        CHECK_INT(buffer.len, strlen(cases[i].sent));
        CHECK(memcmp(buffer.at, cases[i].sent, buffer.len) == 0);
        idem_buffer_release(&buffer);
    }
}

TEST(an_array_takes_memory_when_its_parts_come_not_when_they_are_announced) {
    struct redis_reader *reader = redis_reader_new();
    size_t before = memory_used();

    CHECK(feed(reader, "*1048000\r\n", 8));
    CHECK(memory_used() - before < 16384);
    CHECK(!feed(reader, "*1048577\r\n", 1));
    redis_reader_free(reader);
}

/* True of nil, empty strings, numbers and arrays alike. */
TEST(what_has_come_takes_some_thirty_times_its_bytes_at_most) {
    static const char *const parts[] = {"*0\r\n", "*-1\r\n", "$-1\r\n", ":1\r\n", "+\r\n"};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct redis_reader *reader = redis_reader_new();
        size_t before = memory_used();

        CHECK(feed(reader, "*1000000\r\n", 1));
        CHECK(feed(reader, parts[i], 100000));
        CHECK(memory_used() - before < 30 * 100000 * strlen(parts[i]) + 65536);
        redis_reader_free(reader);
    }
}

TEST(an_answer_of_too_many_parts_is_refused_however_they_are_nested) {
    struct redis_reader *reader = redis_reader_new();
    size_t before = memory_used();

    CHECK(feed(reader, "*1000000\r\n", 1));
    CHECK(feed(reader, "*3\r\n$-1\r\n:1\r\n*0\r\n", 250000));
    CHECK(!feed(reader, "*3\r\n$-1\r\n:1\r\n*0\r\n", 250000));
    CHECK_STR(reader->why, "it has too many parts");
    CHECK(memory_used() - before < 128 << 20);
    redis_reader_free(reader);
}

/* The caller takes the parts as they come; they count all the same. */
TEST(an_answer_of_too_many_bytes_is_refused) {
    static char part[(1 << 20) + 32];
    struct redis_reader *reader = redis_reader_new();
    int len = snprintf(part, sizeof(part), "$%d\r\n", 1 << 20);

    memset(part + len, 'x', 1 << 20);
    memcpy(part + len + (1 << 20), "\r\n", 3);
    CHECK(feed(reader, "*1000\r\n", 1));
    for (int i = 0; i < 150; i++)
        CHECK(feed(reader, part, 1));
    for (int i = 0; i < 20 && feed(reader, part, 1); i++)
        ;
    CHECK(reader->why != NULL);
    CHECK_STR(reader->why, "it is too long");
    redis_reader_free(reader);
}

TEST(a_line_without_an_end_is_refused) {
    static const char *const begins[] = {"+", "-", ":", "$", "*"};
    static char noise[4097];

    memset(noise, '1', sizeof(noise) - 1);
    noise[100] = '\n';
    noise[200] = '\r';
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        struct redis_reader *reader = redis_reader_new();

        CHECK(feed(reader, begins[i], 1));
        for (int k = 0; k < 15; k++)
            CHECK(feed(reader, noise, 1));
        for (int k = 0; k < 5 && feed(reader, noise, 1); k++)
            ;
        CHECK(reader->why != NULL);
        CHECK_STR(reader->why, "it has too long a line");
        redis_reader_free(reader);
    }
}

/* The count of one reply must not carry over to the next. */
TEST(many_answers_that_are_each_of_a_good_size_are_taken) {
    struct redis_reader *reader = redis_reader_new();

    for (int round = 0; round < 4; round++) {
        struct redis_reply *reply = NULL;

        CHECK(feed(reader, "*500000\r\n", 1));
        CHECK(feed(reader, "$1\r\nx\r\n", 499999));
        CHECK(redis_reader_feed(reader, ":7\r\n", 4) && redis_reader_next(reader, &reply));
        CHECK(reply != NULL && reply->items_n == 500000);
        CHECK_INT(reply->items[499999]->integer, 7);
        CHECK_STR(reply->items[0]->text, "x");
        redis_reply_free(reply);
    }
    redis_reader_free(reader);
}

TEST_MAIN
