/*
 * The canonical form: RFC 8785, and integers that keep their digits; and the
 * exact form, in which all numbers do.
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

static const char *canon_by(int (*by)(const struct idem_json *value, idem_json_put *put, void *data,
                                      struct idem_error *err),
                            const char *text) {
    static struct out out;
    struct idem_arena arena;
    struct idem_json value;
    struct idem_error err;
    int rc;

    out = (struct out){0};
    idem_arena_init(&arena, (size_t)1 << 20);
    rc = idem_json_parse(text, strlen(text), &arena, &value, &err);
    if (rc == 0)
        rc = by(&value, put, &out, &err);
    if (rc != 0)
        snprintf(out.text, sizeof(out.text), "%s", err.text);
    idem_arena_free(&arena);
    return out.text;
}

static const char *canon(const char *text) {
    return canon_by(idem_json_canon, text);
}

static const char *exact(const char *text) {
    return canon_by(idem_json_canon_exact, text);
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

TEST(the_exact_form_keeps_what_a_double_does_not) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"100000000000.12345678", "10000000000012345678e-8"},
        {"100000000000.12345679", "10000000000012345679e-8"},
        {"1.000000000000000001", "1000000000000000001e-18"},
        {"1.000000000000000002", "1000000000000000002e-18"},
        {"-1.000000000000000002", "-1000000000000000002e-18"},
        {"10000000000000000020.0e-19", "1000000000000000002e-18"},
        {"0.001000000000000000002000E3", "1000000000000000002e-18"},
        {"1000000000000000002e-18", "1000000000000000002e-18"},
        {"333333333.33333329", "33333333333333329e-8"},
        {"333333333.3333333", "333333333.3333333"},
        {"1e-400", "1e-400"},
        {"-2.50e-400", "-25e-401"},
        {"4.9e-324", "49e-325"},
        {"5e-324", "5e-324"},
        {"1e-1000000000", "1e-1000000000"},
        /* As before. */
        {"0e-400", "0"},
        {"-0.0", "0"},
        {"0.10", "0.1"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"1e21", "1e+21"},
        {"1.5e300", "1.5e+300"},
        {"9007199254740993.0", "9007199254740993"},
        {"9007199254740992.0", "9007199254740992"},
        {"1810966706881941507", "1810966706881941507"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"1.2345678901234567890123456789e29", "123456789012345678901234567890"},
        {"{\"b\":1.50,\"a\":[1e3,true,null,\"x\"]}", "{\"a\":[1000,true,null,\"x\"],\"b\":1.5}"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_STR(exact(cases[i].in), cases[i].out);
        CHECK_STR(exact(cases[i].out), cases[i].out);
    }
    CHECK_STR(canon("[100000000000.12345678,1.000000000000000001,1e-400]"),
              "[100000000000.12346,1,0]");
}

TEST(the_exact_form_refuses_what_it_cannot_tell_from_others) {
    CHECK_HAS(exact("[1e400]"), "beyond the range");
    CHECK_HAS(exact("1e-99999999999999"), "too close to zero");
    CHECK_HAS(exact("1e-99999999999998"), "too close to zero");
    CHECK_STR(canon("1e-99999999999998"), "0");
    CHECK_STR(exact("0e-99999999999998"), "0");
}

static bool kept(const char *text) {
    struct idem_arena arena;
    struct idem_json value;
    bool flag;

    idem_arena_init(&arena, (size_t)1 << 20);
    CHECK_INT(idem_json_parse(text, strlen(text), &arena, &value, NULL), 0);
    flag = idem_number_kept(&value);
    idem_arena_free(&arena);
    return flag;
}

TEST(a_double_keeps_a_number_if_its_shortest_digits_are_those) {
    static const char *const yes[] = {"0",
                                      "-0.0",
                                      "1",
                                      "1.5",
                                      "-1.5e300",
                                      "123456789012345",
                                      "0.30000000000000004",
                                      "9007199254740992",
                                      "9007199254740992.0",
                                      "98765432109876.55",
                                      "1e22",
                                      "1.7976931348623157e308",
                                      "5e-324",
                                      "1.000000000000000000000000",
                                      "2.2250738585072014e-308",
                                      "100000000000000000000e-20",
                                      "0.000123456789012345"};
    static const char *const no[] = {"98765432109876.541",
                                     "98765432109876.542",
                                     "9007199254740993",
                                     "9007199254740993.0",
                                     "1152921504606846976",
                                     "1.000000000000000001",
                                     "333333333.33333329",
                                     "1e400",
                                     "-1e400",
                                     "1e-400",
                                     "4.9e-324",
                                     "0.1000000000000000055511151231257827"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        CHECK(kept(yes[i]));
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        CHECK(!kept(no[i]));
}

/* One of two neighbours at most is kept, of any number of 16 to 19 digits. */
TEST(of_two_numbers_that_are_one_double_one_at_most_is_kept) {
    uint64_t state = 20240229;
    char text[2][48];

    for (int i = 0; i < 20000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        for (int j = 0; j < 2; j++)
            snprintf(text[j], sizeof(text[j]), "%llue%d",
                     (unsigned long long)(state >> (i % 8)) + (unsigned)j, (int)(state % 40) - 30);
        CHECK(strtod(text[0], NULL) != strtod(text[1], NULL) || !kept(text[0]) || !kept(text[1]));
        CHECK(strcmp(text[0], text[1]) != 0);
        if (strtod(text[0], NULL) == strtod(text[1], NULL)) {
            char first[64];

            snprintf(first, sizeof(first), "%s", exact(text[0]));
            CHECK(strcmp(first, exact(text[1])) != 0);
        }
    }
}

/* The canonical form is the same document as its source. */
TEST(the_canonical_form_is_its_own_canonical_form) {
    static const char *const texts[] = {
        "{\"b\":[1.50,{\"z\":null,\"a\":\"\\u00e4\"}],\"a\":-0,\"\":12345678901234567890}", "[]",
        "{}", "\"\"", "[[[[]]],{\"a\":{}}]"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char once[1024];

        snprintf(once, sizeof(once), "%s", canon(texts[i]));
        CHECK_STR(canon(once), once);
        CHECK_STR(exact(texts[i]), once);
    }
}

/* Longer than the buffer between the writer and its callback. */
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
