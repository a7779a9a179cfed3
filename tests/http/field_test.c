/* Header fields: the key, numbers, words and types. */
#include "http/http_field.h"

#include "heap_text.h"

/* The key, or the fault, of a field's value. */
static const char *key_n(const char *value, size_t n) {
    static char out[IDEM_HTTP_KEY_MAX + 1];
    struct idem_http_text text = text_n(value, n);
    size_t len = 999;
    const char *fault = idem_http_key_read(text, out, &len);

    text_free(text);
    if (fault != NULL) {
        CHECK_INT(len, 999);
        return fault;
    }
    CHECK(len >= 1 && len <= IDEM_HTTP_KEY_MAX);
    out[len] = '\0';
    return out;
}

static const char *key(const char *value) {
    return key_n(value, strlen(value));
}

TEST(a_bare_key_is_taken_as_it_is) {
    CHECK_STR(key("abc"), "abc");
    CHECK_STR(key("a"), "a");
    CHECK_STR(key("550e8400-e29b-41d4-a716-446655440000"), "550e8400-e29b-41d4-a716-446655440000");
    CHECK_STR(key("!~"), "!~");
    CHECK_STR(key("abc;q=1"), "abc;q=1");
    CHECK_STR(key("a,b"), "a,b");
    CHECK_STR(key("a\"b"), "a\"b");
    CHECK_STR(key("a\\b"), "a\\b");
    CHECK_STR(key("'abc'"), "'abc'");
    CHECK_STR(key("ABC"), "ABC");
    CHECK_STR(key(":YWJj:"), ":YWJj:");
}

TEST(a_quoted_key_is_the_same_key) {
    CHECK_STR(key("\"abc\""), "abc");
    CHECK_STR(key("\"a b\""), "a b");
    CHECK_STR(key("\" \""), " ");
    CHECK_STR(key("\"a\\\"b\\\\c\""), "a\"b\\c");
    CHECK_STR(key("\"\\\\\""), "\\");
    CHECK_STR(key("\"\\\"\""), "\"");
    CHECK_STR(key("\"a,b;c=d\""), "a,b;c=d");
}

TEST(blanks_around_a_key_are_no_part_of_it) {
    CHECK_STR(key("  abc\t"), "abc");
    CHECK_STR(key("\t \"abc\" \t"), "abc");
    CHECK_STR(key("\" abc \""), " abc ");
}

TEST(an_empty_key_is_malformed) {
    CHECK_STR(key(""), "The key is empty.");
    CHECK_STR(key(" \t "), "The key is empty.");
    CHECK_STR(key("\"\""), "The key is empty.");
    CHECK_STR(key("\"\";a=1"), "The key is empty.");
    CHECK(idem_http_key_read((struct idem_http_text){NULL, 0}, NULL, NULL) != NULL);
}

TEST(a_key_that_begins_with_a_quote_must_parse) {
    static const char *const bad[] = {
        "\"",           "\"abc",     "\"abc\\\"",     "\"abc\\",      "\"a\\bc\"",
        "\"abc\"x",     "\"abc\"\"", "\"abc\" \"d\"", "\"a\", \"b\"", "\"abc\",",
        "\"abc\"def\"", "\"a\tb\"",  "\"a\x7f\"",     "\"\xc3\xa9\"", "\"a\\\tb\"",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_HAS(key(bad[i]), "RFC 9651");
    CHECK_HAS(key_n("\"a\0b\"", 5), "RFC 9651");
}

TEST(a_bare_key_has_visible_characters_only) {
    CHECK_HAS(key("a b"), "not visible ASCII");
    CHECK_HAS(key("a\tb"), "not visible ASCII");
    CHECK_HAS(key("a\x7f"), "not visible ASCII");
    CHECK_HAS(key("caf\xc3\xa9"), "not visible ASCII");
    CHECK_HAS(key("a, b"), "not visible ASCII");
    CHECK_HAS(key("\x01"), "not visible ASCII");
    CHECK_HAS(key("\xff"), "not visible ASCII");
    CHECK_HAS(key_n("a\0b", 3), "not visible ASCII");
    CHECK_HAS(key_n("\0", 1), "not visible ASCII");
}

TEST(a_key_has_up_to_255_characters_once_it_is_decoded) {
    char value[2 * 256 + 3];

    memset(value, 'x', 256);
    CHECK_INT(strlen(key_n(value, 255)), 255);
    CHECK_STR(key_n(value, 256), "The key is longer than 255 characters.");
    memset(value, 'x', sizeof(value));
    value[0] = value[256] = '"';
    CHECK_INT(strlen(key_n(value, 257)), 255);
    value[256] = 'x';
    value[257] = '"';
    CHECK_STR(key_n(value, 258), "The key is longer than 255 characters.");
    for (size_t i = 1; i <= 510; i += 2)
        memcpy(value + i, "\\\"", 2);
    value[511] = '"';
    CHECK_INT(strlen(key_n(value, 512)), 255);
}

TEST(parameters_behind_a_quoted_key_are_left_aside) {
    static const char *const good[] = {
        ";a",
        ";a=1",
        ";a=-1",
        ";a=1.5",
        ";a=-0.125",
        ";a=?0",
        ";a=?1",
        ";a=tok/en:x",
        ";a=*x",
        ";a=\"x;y\"",
        ";a=\"\"",
        ";a=\"\\\"\"",
        ";a=:YWJj:",
        ";a=::",
        ";a=:YQ==:",
        ";a=:YQ:",
        ";a=@1659578233",
        ";a=@-1",
        ";a=%\"x\"",
        ";a=%\"f%c3%bc\"",
        ";*",
        ";a_-.*9",
        ";a;b;c=2",
        "; a=1;  b",
        ";a=999999999999999",
        ";a=123456789012.123",
        ";a=%\"%f0%9f%98%80\"",
    };
    char value[64];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(value, sizeof(value), "\"abc\"%s ", good[i]);
        CHECK_STR(key(value), "abc");
    }
}

TEST(parameters_that_are_none_make_the_key_malformed) {
    static const char *const bad[] = {
        ";",
        "; ",
        ";A",
        ";1",
        ";a=",
        ";a=;b",
        " ;a",
        ";a b",
        ";a=1x",
        ";a=1.",
        ";a=1.1234",
        ";a=.5",
        ";a=--1",
        ";a=-",
        ";a=1234567890123456",
        ";a=1234567890123.1",
        ";a=?2",
        ";a=?",
        ";a=?10",
        ";a=\"",
        ";a=\"\\x\"",
        ";a=:Y:",
        ";a=:YQ=:",
        ";a=:YQ===:",
        ";a=:Y=Q:",
        ";a=:YQ",
        ";a=:Y Q:",
        ";a=@",
        ";a=@1.5",
        ";a=%",
        ";a=%x",
        ";a=%\"%C3%BC\"",
        ";a=%\"%c3\"",
        ";a=%\"%c\"",
        ";a=%\"%ff\"",
        ";a=%\"%80%80%80%80\"",
        ";a=%\"x",
        ";a=(1)",
        ";a=b,c",
        ";a=\tb",
        ";\ta",
        ";a =1",
        ";a=%\"%",
        ";a=#",
    };
    char value[64];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(value, sizeof(value), "\"abc\"%s", bad[i]);
        CHECK_HAS(key(value), "only parameters");
    }
    CHECK_HAS(key_n("\"abc\";a\0", 8), "only parameters");
    CHECK_HAS(key_n("\"abc\";a=:\0:", 11), "only parameters");
}

TEST(a_fault_never_shows_the_key) {
    CHECK(strstr(key("\"s3cret"), "s3cret") == NULL);
    CHECK(strstr(key("s3cret key"), "s3cret") == NULL);
}

static int64_t number(const char *value, int64_t min, int64_t max) {
    struct idem_http_text text = text_n(value, strlen(value));
    int64_t ret = -7;
    bool ok = idem_http_number(text, min, max, &ret);

    CHECK(ok == (ret != -7));
    text_free(text);
    return ret;
}

TEST(a_number_is_digits_within_its_bounds) {
    CHECK_INT(number("0", 0, 10), 0);
    CHECK_INT(number(" 10\t", 0, 10), 10);
    CHECK_INT(number("007", 0, 10), 7);
    CHECK_INT(number("11", 0, 10), -7);
    CHECK_INT(number("0", 1, 10), -7);
    CHECK_INT(number("9223372036854775807", 0, INT64_MAX), INT64_MAX);
    CHECK_INT(number("9223372036854775808", 0, INT64_MAX), -7);
    CHECK_INT(number("99999999999999999999", 0, INT64_MAX), -7);
    CHECK_INT(number("18446744073709551617", 0, INT64_MAX), -7);
    for (const char **bad = (const char *[]){"", " ", "-1", "+1", "1.0", "1s", "1 2", "0x1", "1e3",
                                             "Wed, 21 Oct 2015 07:28:00 GMT", NULL};
         *bad != NULL; bad++)
        CHECK_INT(number(*bad, 0, INT64_MAX), -7);
}

static int outcome(const char *value) {
    struct idem_http_text text = text_n(value, strlen(value));
    enum idem_http_outcome ret;
    bool ok = idem_http_outcome_read(text, &ret);

    text_free(text);
    return ok ? (int)ret : -1;
}

TEST(an_outcome_is_one_of_four_words) {
    CHECK_INT(outcome("done"), IDEM_HTTP_DONE);
    CHECK_INT(outcome(" release "), IDEM_HTTP_RELEASE);
    CHECK_INT(outcome("KEEP"), IDEM_HTTP_KEEP);
    CHECK_INT(outcome("Unknown"), IDEM_HTTP_UNKNOWN);
    CHECK_INT(outcome(""), -1);
    CHECK_INT(outcome("don"), -1);
    CHECK_INT(outcome("done,done"), -1);
    CHECK_INT(outcome("\"done\""), -1);
    CHECK_INT(outcome("failed"), -1);
}

static int type(const char *value) {
    struct idem_http_text text = text_n(value, strlen(value));
    int ret = (int)idem_http_type_read(text);

    text_free(text);
    return ret;
}

TEST(a_content_type_is_told_by_its_type_alone) {
    CHECK_INT(type("application/json"), IDEM_HTTP_JSON);
    CHECK_INT(type("Application/JSON"), IDEM_HTTP_JSON);
    CHECK_INT(type(" application/json ; charset=utf-8"), IDEM_HTTP_JSON);
    CHECK_INT(type("application/json;"), IDEM_HTTP_JSON);
    CHECK_INT(type("application/problem+json"), IDEM_HTTP_JSON);
    CHECK_INT(type("application/vnd.api+JSON;v=1"), IDEM_HTTP_JSON);
    CHECK_INT(type("image/x+json"), IDEM_HTTP_JSON);
    CHECK_INT(type("application/x-www-form-urlencoded"), IDEM_HTTP_FORM);
    CHECK_INT(type("APPLICATION/X-WWW-FORM-URLENCODED;charset=x"), IDEM_HTTP_FORM);
    CHECK_INT(type("text/event-stream"), IDEM_HTTP_EVENTS);
    CHECK_INT(type("Text/Event-Stream; charset=utf-8"), IDEM_HTTP_EVENTS);
}

TEST(a_content_type_that_is_none_is_some_other) {
    for (const char **bad =
             (const char *[]){"", ";", "/", "json", "application/", "/json",
                              "application/json, text/html", "application /json",
                              "application/ json", "application/json x", "text/json",
                              "application/jsonp", "application/json-seq", "application/+json",
                              "application/a/b+json", "/+json", "text/event-streams", NULL};
         *bad != NULL; bad++)
        CHECK_INT(type(*bad), IDEM_HTTP_OTHER);
    CHECK_INT(idem_http_type_read((struct idem_http_text){NULL, 0}), IDEM_HTTP_OTHER);
}

TEST(tokens_and_names_are_compared_without_case) {
    CHECK(idem_http_same(IDEM_HTTP_TEXT("ETag"), IDEM_HTTP_TEXT("etAG")));
    CHECK(!idem_http_same(IDEM_HTTP_TEXT("ETag"), IDEM_HTTP_TEXT("ETags")));
    CHECK(!idem_http_same(IDEM_HTTP_TEXT("a[b"), IDEM_HTTP_TEXT("a{b")));
    CHECK(idem_http_same_variable(IDEM_HTTP_TEXT("X-Order-Key"), IDEM_HTTP_TEXT("x_ORDER.key")));
    CHECK(idem_http_same_variable(IDEM_HTTP_TEXT(""), IDEM_HTTP_TEXT("")));
    CHECK(!idem_http_same_variable(IDEM_HTTP_TEXT("X-Key"), IDEM_HTTP_TEXT("X-Keys")));
    CHECK(!idem_http_same_variable(IDEM_HTTP_TEXT("X-Key"), IDEM_HTTP_TEXT("XxKey")));
    CHECK(!idem_http_same_variable(IDEM_HTTP_TEXT("X-1"), IDEM_HTTP_TEXT("X-2")));
    CHECK(!idem_http_same(IDEM_HTTP_TEXT("a@"), IDEM_HTTP_TEXT("a`")));
    CHECK(idem_http_is_token(IDEM_HTTP_TEXT("x-!#$%&'*+.^_`|~9Z")));
    CHECK(!idem_http_is_token(IDEM_HTTP_TEXT("")));
    CHECK(!idem_http_is_token(IDEM_HTTP_TEXT("a b")));
    CHECK(!idem_http_is_token(IDEM_HTTP_TEXT("a:")));
    CHECK(!idem_http_is_token(IDEM_HTTP_TEXT("a\0")));
    CHECK(!idem_http_is_token(IDEM_HTTP_TEXT("\xc3\xa9")));
}

TEST_MAIN
