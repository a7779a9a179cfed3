/*
 * The canonical form: RFC 8785, and integers that keep their digits.
 */
#include "json/json.h"

#include "test.h"

struct out {
    char text[8192];
    size_t len;
    int fail_at; /* which piece fails; 0: none */
};

static int put(void *data, const char *bytes, size_t len) {
    struct out *out = data;

    if (out->fail_at > 0 && --out->fail_at == 0)
        return IDEM_E_REFUSED;
    CHECK(out->len + len < sizeof(out->text));
    memcpy(out->text + out->len, bytes, len);
    out->len += len;
    out->text[out->len] = '\0';
    return 0;
}

static const char *canon(const char *text) {
    static struct out out;
    struct idem_arena arena;
    struct idem_json value;
    struct idem_error err;
    int rc;

    out = (struct out){0};
    idem_arena_init(&arena, (size_t)1 << 20);
    rc = idem_json_parse(text, strlen(text), &arena, &value, &err);
    if (rc == 0)
        rc = idem_json_canon(&value, put, &out, &err);
    if (rc != 0)
        snprintf(out.text, sizeof(out.text), "%s", err.text);
    idem_arena_free(&arena);
    return out.text;
}

TEST(the_examples_of_the_rfc_come_out_as_it_says) {
    CHECK_STR(canon("{\n  \"numbers\": [333333333.33333329, 1E30, 4.50,\n   2e-3, "
                    "0.000000000000000000000000001],\n  \"string\": "
                    "\"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",\n  "
                    "\"literals\": [null, true, false]\n}"),
              "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,"
              "1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
    CHECK_STR(canon("{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\\ufb33\":\"Hebrew "
                    "Letter Dalet With Dagesh\",\"1\":\"One\",\"\\ud83d\\ude00\":\"Emoji: Grinning "
                    "Face\",\"\\u0080\":\"Control\",\"\\u00f6\":\"Latin Small Letter O With "
                    "Diaeresis\"}"),
              "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\",\"ö\":\"Latin "
              "Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning "
              "Face\",\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
}

TEST(order_white_space_escapes_and_number_forms_do_not_matter) {
    static const char *const same[] = {
        "{\"id\":7,\"total\":100,\"note\":\"a/b\"}",
        " { \"total\" : 100.0 ,\n\"note\":\"a\\/b\", \"id\":7e0}",
        "{\"note\":\"\\u0061/b\",\"total\":1e2,\"id\":70E-1}",
    };

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        CHECK_STR(canon(same[i]), "{\"id\":7,\"note\":\"a/b\",\"total\":100}");
    CHECK_STR(canon("[2,1]"), "[2,1]");
    CHECK_STR(canon("\"\\b\\t\\n\\f\\r\\u000b\\u007f\\u0000\""),
              "\"\\b\\t\\n\\f\\r\\u000b\x7f\\u0000\"");
}

TEST(integers_beyond_2_53_keep_their_digits_in_whatever_form_they_are_written) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"1810966706881941507", "1810966706881941507"},
        {"1810966706881941508", "1810966706881941508"},
        {"1810966706881941507.0", "1810966706881941507"},
        {"1.810966706881941507e18", "1810966706881941507"},
        {"18109667068819415070e-1", "1810966706881941507"},
        {"-1810966706881941507", "-1810966706881941507"},
        {"9007199254740992", "9007199254740992"},
        {"9007199254740993", "9007199254740993"},
        {"9007199254740993e0", "9007199254740993"},
        {"1152921504606846976", "1152921504606846976"}, /* 2^60, of which ES drops digits */
        {"1152921504606847000", "1152921504606847000"},
        {"1.152921504606847e18", "1152921504606847000"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"1.2345678901234567890123456789e29", "123456789012345678901234567890"},
        {"1000000000000000000000", "1e+21"}, /* the double is that very number */
        {"1E21", "1e+21"},
        {"100000000000000000000", "100000000000000000000"},
        {"0", "0"},
        {"-0", "0"},
        {"-0.0e7", "0"},
        {"0.000", "0"},
        {"1e-400", "0"},
        {"123456789012345", "123456789012345"},
        {"1234567890123456", "1234567890123456"},
        {"10000000000000000", "10000000000000000"},
        {"0.1000", "0.1"},
        {"1234567890.12345678", "1234567890.1234567"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_STR(canon(cases[i].in), cases[i].out);
}

TEST(an_integer_of_400_digits_keeps_them_all) {
    char text[401];

    memset(text, '7', 400);
    text[400] = '\0';
    CHECK_STR(canon(text), text);
}

TEST(a_number_that_no_double_can_hold_is_refused) {
    CHECK_HAS(canon("[1e400]"), "beyond the range");
    CHECK_HAS(canon("-1.5e999999999999999999999"), "beyond the range");
}

/* What is written out is the same document. */
TEST(the_canonical_form_is_its_own_canonical_form) {
    static const char *const texts[] = {
        "{\"b\":[1.50,{\"z\":null,\"a\":\"\\u00e4\"}],\"a\":-0,\"\":12345678901234567890}", "[]",
        "{}", "\"\"", "[[[[]]],{\"a\":{}}]"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char once[1024];

        snprintf(once, sizeof(once), "%s", canon(texts[i]));
        CHECK_STR(canon(once), once);
    }
}

/* Longer than the buffer between the writer and whoever takes it. */
TEST(long_strings_arrive_whole) {
    char text[6003], copy[6003];

    memset(text, 'x', sizeof(text));
    text[0] = text[6001] = '"';
    text[6002] = '\0';
    memcpy(copy, text, sizeof(text));
    CHECK_STR(canon(text), copy);
}

TEST(a_taker_that_fails_ends_it_with_its_code) {
    char text[6003];
    struct out out = {.fail_at = 1};
    struct idem_arena arena;
    struct idem_json value;
    struct idem_error err;

    memset(text, 'x', sizeof(text));
    text[0] = text[6002] = '"';
    idem_arena_init(&arena, (size_t)1 << 20);
    CHECK_INT(idem_json_parse(text, sizeof(text), &arena, &value, &err), 0);
    CHECK_INT(idem_json_canon(&value, put, &out, &err), IDEM_E_REFUSED);
    out.fail_at = 2;
    CHECK_INT(idem_json_canon(&value, put, &out, &err), IDEM_E_REFUSED);
    idem_arena_free(&arena);
}

TEST_MAIN
