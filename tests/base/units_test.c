/*
 * The small helpers under the options: words, times, sizes, UTF-8 and error texts.
 */
#include "base/error.h"
#include "base/units.h"
#include "base/words.h"
#include "test.h"

static int64_t duration(const char *text) {
    int64_t ms = -7;
    int rc = idem_duration_parse(text, strlen(text), &ms, NULL);

    CHECK((rc == 0) == (ms != -7));
    return ms;
}

static int64_t size(const char *text) {
    int64_t bytes = -7;
    int rc = idem_size_parse(text, strlen(text), &bytes, NULL);

    CHECK((rc == 0) == (bytes != -7));
    return bytes;
}

TEST(a_time_is_read_in_each_unit) {
    CHECK_INT(duration("500ms"), 500);
    CHECK_INT(duration("90s"), 90000);
    CHECK_INT(duration("10m"), 600000);
    CHECK_INT(duration("24h"), 86400000);
    CHECK_INT(duration("7d"), 604800000);
    CHECK_INT(duration("2h30m"), 9000000);
    CHECK_INT(duration("1d2h3m4s5ms"), 93784005);
    CHECK_INT(duration("0s"), 0);
    CHECK_INT(duration("007s"), 7000);
}

TEST(a_time_that_is_not_one_is_refused_and_leaves_the_result_alone) {
    static const char *const wrong[] = {"",     "s",    "-1s",   "+1s",   "1.5s", "1 s",  " 1s",
                                        "1s ",  "1w",   "1H",    "1sec",  "1h30", "1m1h", "1s1s",
                                        "1ms1", "none", "1s..2", "0x10s", "1_0s"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_INT(duration(wrong[i]), -7);
}

TEST(a_bare_number_is_told_to_name_its_unit) {
    struct idem_error err;
    int64_t ms;

    CHECK_INT(idem_duration_parse("90", 2, &ms, &err), IDEM_E_INVALID);
    CHECK_INT(err.code, IDEM_E_INVALID);
    CHECK_HAS(err.text, "\"90\" has no unit");
    CHECK_HAS(err.text, "90s, 10m, 24h, 7d, 500ms");
}

TEST(a_time_beyond_64_bits_is_refused) {
    CHECK_INT(duration("9223372036854775807ms"), INT64_MAX);
    CHECK_INT(duration("9223372036854775808ms"), -7);
    CHECK_INT(duration("9223372036854775807s"), -7);
    CHECK_INT(duration("106751991167d7h12m55s807ms"), INT64_MAX);
    CHECK_INT(duration("106751991167d7h12m55s808ms"), -7);
    CHECK_INT(duration("99999999999999999999999d"), -7);
}

TEST(only_the_length_ends_a_value) {
    static const char text[] = {'1', '0', 's', '9', 'k'};
    int64_t value;

    CHECK_INT(idem_duration_parse(text, 3, &value, NULL), 0);
    CHECK_INT(value, 10000);
    CHECK_INT(idem_size_parse(text + 3, 2, &value, NULL), 0);
    CHECK_INT(value, 9216);
    CHECK_INT(idem_count_parse(text, 2, &value, NULL), 0);
    CHECK_INT(value, 10);
    CHECK_INT(idem_duration_parse("10s\0", 4, &value, NULL), IDEM_E_INVALID);
    CHECK_INT(idem_duration_parse(NULL, 0, &value, NULL), IDEM_E_INVALID);
    CHECK_INT(idem_size_parse(NULL, 0, &value, NULL), IDEM_E_INVALID);
    CHECK_INT(idem_count_parse(NULL, 0, &value, NULL), IDEM_E_INVALID);
}

TEST(a_size_is_read_in_each_unit) {
    CHECK_INT(size("0"), 0);
    CHECK_INT(size("500"), 500);
    CHECK_INT(size("64k"), 65536);
    CHECK_INT(size("64K"), 65536);
    CHECK_INT(size("64KiB"), 65536);
    CHECK_INT(size("1m"), 1 << 20);
    CHECK_INT(size("1M"), 1 << 20);
    CHECK_INT(size("1MiB"), 1 << 20);
    CHECK_INT(size("2G"), INT64_C(2) << 30);
    CHECK_INT(size("2GiB"), INT64_C(2) << 30);
    CHECK_INT(size("16T"), INT64_C(16) << 40); /* the largest file of an embedded store */
    CHECK_INT(size("1TiB"), INT64_C(1) << 40);
}

TEST(a_size_that_is_not_one_is_refused) {
    static const char *const wrong[] = {"",
                                        "k",
                                        "1kB",
                                        "1MB",
                                        "1kib",
                                        "1 k",
                                        "1k1",
                                        "-1",
                                        "1.5M",
                                        "1Mi",
                                        "1P",
                                        "0x10",
                                        "1k ",
                                        "none",
                                        "9223372036854775808",
                                        "9007199254740992k"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_INT(size(wrong[i]), -7);
}

TEST(what_is_printed_is_read_back) {
    static const int64_t values[] = {1,        999,       1000,       61000,        90000,
                                     86400000, 172800000, 2592000000, 315360000000, INT64_MAX,
                                     1 << 20,  65536,     1025};
    char buf[IDEM_UNITS_TEXT];

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        CHECK_INT(duration(idem_duration_print(values[i], buf, sizeof(buf))), values[i]);
        CHECK_INT(size(idem_size_print(values[i], buf, sizeof(buf))), values[i]);
    }
}

TEST(times_and_sizes_are_printed_as_people_write_them) {
    char buf[IDEM_UNITS_TEXT];

    CHECK_STR(idem_duration_print(86400000, buf, sizeof(buf)), "24h");
    CHECK_STR(idem_duration_print(2 * INT64_C(86400000), buf, sizeof(buf)), "2d");
    CHECK_STR(idem_duration_print(30 * INT64_C(86400000), buf, sizeof(buf)), "30d");
    CHECK_STR(idem_duration_print(9000000, buf, sizeof(buf)), "2h30m");
    CHECK_STR(idem_duration_print(100, buf, sizeof(buf)), "100ms");
    CHECK_STR(idem_duration_print(0, buf, sizeof(buf)), "0s");
    CHECK_STR(idem_duration_print(-5, buf, sizeof(buf)), "-5ms");
    CHECK_STR(idem_size_print(64 << 20, buf, sizeof(buf)), "64MiB");
    CHECK_STR(idem_size_print(1000, buf, sizeof(buf)), "1000");
    CHECK_STR(idem_size_print(0, buf, sizeof(buf)), "0");
}

TEST(a_short_buffer_is_not_overrun) {
    char buf[8];

    memset(buf, 'x', sizeof(buf));
    idem_duration_print(INT64_MAX, buf, 4);
    idem_size_print(INT64_MAX, buf, 4);
    idem_words_list(idem_words_mode, buf, 4);
    CHECK_INT(buf[4], 'x');
    CHECK_STR(idem_words_list(idem_words_mode, buf, 8), "lock");
}

TEST(utf8_is_told_from_what_only_looks_like_it) {
    CHECK(idem_utf8_valid("", 0));
    CHECK(idem_utf8_valid("abc", 3));
    CHECK(idem_utf8_valid("\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 9));
    CHECK(idem_utf8_valid("\xf4\x8f\xbf\xbf", 4));
    CHECK(!idem_utf8_valid("\x80", 1));
    CHECK(!idem_utf8_valid("\xc3", 1));
    CHECK(!idem_utf8_valid("\xc0\xaf", 2));
    CHECK(!idem_utf8_valid("\xe0\x80\xaf", 3));
    CHECK(!idem_utf8_valid("\xed\xa0\x80", 3));
    CHECK(!idem_utf8_valid("\xf4\x90\x80\x80", 4));
    CHECK(!idem_utf8_valid("\xff", 1));
    CHECK(!idem_utf8_valid("\xe2\x82\xc3", 3));
}

TEST(every_value_has_a_name_and_others_are_a_question_mark) {
    for (int i = IDEM_ABSENT; i <= IDEM_NEWER; i++)
        CHECK(strcmp(idem_state_name((enum idem_state)i), "?") != 0);
    for (int i = IDEM_RUN; i <= IDEM_PROBE; i++)
        CHECK(strcmp(idem_verdict_name((enum idem_verdict)i), "?") != 0);
    for (int i = 0; i < IDEM_EVENT__COUNT; i++)
        CHECK(strcmp(idem_event_name((enum idem_event)i), "?") != 0);
    for (int i = 0; i >= IDEM_E_TX_LOST; i--)
        CHECK(strcmp(idem_code_name(i), "?") != 0);
    CHECK_STR(idem_state_name((enum idem_state)7), "?");
    CHECK_STR(idem_verdict_name((enum idem_verdict)0), "?");
    CHECK_STR(idem_event_name(IDEM_EVENT__COUNT), "?");
    CHECK_STR(idem_code_name(1), "?");
    CHECK_STR(idem_code_name(IDEM_E_UNKNOWN), "unknown");
}

TEST(a_verdict_and_its_event_have_one_name) {
    for (int i = 0; i <= IDEM_EVENT_PROBE; i++)
        CHECK_STR(idem_event_name((enum idem_event)i),
                  idem_verdict_name((enum idem_verdict)(i + 1)));
}

TEST(words_are_found_by_their_whole_length) {
    int value = 42;

    CHECK(idem_word_find(idem_words_mode, "rejected", 6, &value));
    CHECK_INT(value, IDEM_MODE_REJECT);
    value = 42;
    CHECK(!idem_word_find(idem_words_mode, "rejec", 5, &value));
    CHECK(!idem_word_find(idem_words_mode, "Reject", 6, &value));
    CHECK(!idem_word_find(idem_words_mode, NULL, 0, &value));
    CHECK_INT(value, 42);
}

TEST(an_error_returns_its_code_with_and_without_room_for_the_text) {
    struct idem_error err, copy;

    CHECK_INT(idem_error_set(NULL, IDEM_E_FULL, "x"), IDEM_E_FULL);
    CHECK_INT(idem_error_set(&err, IDEM_E_FULL, "%s %d", "disk", 1), IDEM_E_FULL);
    CHECK_INT(err.code, IDEM_E_FULL);
    CHECK_STR(err.text, "disk 1");
    CHECK_INT(idem_error_copy(NULL, &err), IDEM_E_FULL);
    CHECK_INT(idem_error_copy(&copy, &err), IDEM_E_FULL);
    CHECK_STR(copy.text, "disk 1");
    CHECK_INT(idem_error_copy(&copy, &copy), IDEM_E_FULL);
}

TEST(an_error_may_quote_the_text_it_replaces) {
    struct idem_error err;

    idem_error_set(&err, IDEM_E_INVALID, "inner");
    idem_error_set(&err, IDEM_E_REFUSED, "outer: %s", err.text);
    CHECK_STR(err.text, "outer: inner");
}

TEST(an_error_that_is_too_long_ends_in_dots_at_a_whole_character) {
    char text[600];
    struct idem_error err;

    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        idem_error_set(&err, IDEM_E_INVALID, "%s", text);
        CHECK(strlen(err.text) < sizeof(err.text));
        CHECK(strlen(err.text) > sizeof(err.text) - 8);
        CHECK_STR(err.text + strlen(err.text) - 3, "...");
        CHECK(idem_utf8_valid(err.text, strlen(err.text)));
    }
}

TEST(what_is_quoted_can_be_printed) {
    char buf[IDEM_QUOTE_TEXT], many[200];

    CHECK_STR(idem_error_quote("abc", 3, buf, sizeof(buf)), "\"abc\"");
    CHECK_STR(idem_error_quote(NULL, 0, buf, sizeof(buf)), "\"\"");
    CHECK_STR(idem_error_quote("a\0\x1b\x7f\xff\xc2\x80z", 8, buf, sizeof(buf)), "\"a?????z\"");
    for (size_t shift = 0; shift < 4; shift++) {
        memset(many, 'a', sizeof(many));
        for (size_t i = shift; i + 4 <= sizeof(many); i += 4)
            memcpy(many + i, "\xf0\x9f\x99\x82", 4);
        idem_error_quote(many, sizeof(many), buf, sizeof(buf));
        CHECK(idem_utf8_valid(buf, strlen(buf)));
        CHECK_STR(buf + strlen(buf) - 4, "...\"");
    }
    memset(many, 0xff, sizeof(many));
    CHECK_INT(strlen(idem_error_quote(many, sizeof(many), buf, sizeof(buf))) < sizeof(buf), 1);
}

TEST_MAIN
