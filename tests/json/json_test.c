/*
 * The reader: everything that is JSON and nothing else, with the place of what
 * is wrong.
 */
#include "json/json.h"

#include "test.h"

static struct idem_arena arena;

/* Documents and their texts, to which their strings point: kept until the test ends. */
static struct kept {
    struct kept *next;
    struct idem_arena arena;
    char text[]; /* ends where the block ends, so that a sanitizer sees a byte too many */
} * kept;

static int parse(const char *text, size_t len, struct idem_json *ret, struct idem_error *err) {
    struct kept *new = malloc(sizeof(*new) + len);

    CHECK(new != NULL);
    memcpy(new->text, text, len);
    new->next = kept;
    kept = new;
    idem_arena_init(&new->arena, (size_t)64 << 20);
    return idem_json_parse(new->text, len, &new->arena, ret, err);
}

static struct idem_json parsed(const char *text) {
    struct idem_json value;
    struct idem_error err;

    if (parse(text, strlen(text), &value, &err) != 0) {
        fprintf(stderr, "# %s: %s\n", text, err.text);
        exit(1);
    }
    return value;
}

static void check_text(const struct idem_json *value, const char *want, size_t len) {
    CHECK_INT(value->type, IDEM_JSON_STRING);
    CHECK_INT(value->n, len);
    CHECK(memcmp(value->at.text, want, len) == 0);
}

static const struct idem_json *get(const struct idem_json *object, const char *name) {
    return idem_json_get(object, name, strlen(name));
}

TEST(each_kind_of_value_is_read) {
    struct idem_json v =
        parsed(" {\"n\" : null,\"t\":true,\"f\":false,\"i\":-12,\"r\":1.5E+3,\n\"s\":\"x\",\"a\":"
               "[1,[],{}],\"o\":{\"p\":2}} ");

    CHECK_INT(v.type, IDEM_JSON_OBJECT);
    CHECK_INT(v.n, 8);
    CHECK_INT(get(&v, "n")->type, IDEM_JSON_NULL);
    CHECK(get(&v, "t")->type == IDEM_JSON_BOOL && get(&v, "t")->flag);
    CHECK(get(&v, "f")->type == IDEM_JSON_BOOL && !get(&v, "f")->flag);
    CHECK(get(&v, "i")->type == IDEM_JSON_NUMBER && get(&v, "i")->flag);
    CHECK(get(&v, "i")->n == 3 && memcmp(get(&v, "i")->at.text, "-12", 3) == 0);
    CHECK(get(&v, "r")->type == IDEM_JSON_NUMBER && !get(&v, "r")->flag);
    check_text(get(&v, "s"), "x", 1);
    CHECK_INT(get(&v, "a")->n, 3);
    CHECK_INT(get(&v, "a")->at.items[1].type, IDEM_JSON_ARRAY);
    CHECK_INT(get(&v, "a")->at.items[2].type, IDEM_JSON_OBJECT);
    CHECK_INT(get(get(&v, "o"), "p")->n, 1);
    CHECK(get(&v, "nope") == NULL);
    CHECK(get(get(&v, "a"), "n") == NULL);
    CHECK(get(&get(&v, "a")->at.items[2], "n") == NULL);
}

TEST(escapes_are_decoded_and_nuls_kept) {
    struct idem_json v = parsed("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e4\\u20ac\\ud83d\\ude00"
                                "\\u0000z\"");

    check_text(&v, "a\"\\/\b\f\n\r\tAä€😀\0z", 21);
    CHECK(!v.flag);
    v = parsed("\"plain ascii, longer than eight\"");
    CHECK(v.flag);
    v = parsed("\"pl\\u0061in\"");
    check_text(&v, "plain", 5);
    CHECK(v.flag);
}

TEST(every_byte_of_a_string_is_looked_at_wherever_it_stands) {
    char text[40];

    for (size_t len = 0; len < 24; len++) {
        for (size_t at = 0; at < len; at++) {
            struct idem_json v;
            struct idem_error err;

            memset(text, 'x', sizeof(text));
            text[0] = text[len + 1] = '"';
            text[at + 1] = '\x1f';
            CHECK_INT(parse(text, len + 2, &v, &err), IDEM_E_INVALID);
            text[at + 1] = '\xff';
            CHECK_INT(parse(text, len + 2, &v, &err), IDEM_E_INVALID);
            text[at + 1] = '"';
            CHECK_INT(parse(text, len + 2, &v, &err), IDEM_E_INVALID);
            text[at + 1] = ' ';
            CHECK_INT(parse(text, len + 2, &v, &err), 0);
            text[at + 1] = '\x7f';
            CHECK_INT(parse(text, len + 2, &v, &err), 0);
        }
    }
}

TEST(what_is_wrong_is_said_with_line_and_column) {
    static const struct {
        const char *text, *where, *what;
    } cases[] = {
        {"", "line 1, column 1", "ends too early"},
        {" \n ", "line 2, column 2", "ends too early"},
        {"[1,\n 2,,3]", "line 2, column 4", "a value is expected"},
        {"[1,]", "column 4", "a value"},
        {"[1 2]", "column 4", "a comma or ]"},
        {"[1}", "column 3", "a comma or ]"},
        {"{\"a\":1]", "column 7", "a comma or }"},
        {"{\"a\" 1}", "column 6", "a colon"},
        {"{a:1}", "column 2", "a name in quotes"},
        {"{\"a\":1,}", "column 8", "a name in quotes"},
        {"{,}", "column 2", "a name in quotes"},
        {"01", "column 2", "begin with 0"},
        {"-", "column 2", "ends too early"},
        {"-x", "column 2", "a digit"},
        {"1.x", "column 3", "a digit"},
        {"1e+x", "column 4", "a digit"},
        {"+1", "column 1", "a value"},
        {".5", "column 1", "a value"},
        {"NaN", "column 1", "a value"},
        {"nul", "column 1", "a value"},
        {"True", "column 1", "a value"},
        {"'x'", "column 1", "a value"},
        {"1 2", "column 3", "has ended before"},
        {"{}x", "column 3", "has ended before"},
        {"\"ä\t\"", "column 3", "control character"},
        {"\"\\x\"", "column 3", "no such escape"},
        {"\"\\u12g4\"", "column 4", "four hexadecimal"},
        {"\"\\u12", "column 6", "ends too early"},
        {"\"abc", "column 5", "ends too early"},
        {"\"\xc3\x28\"", "column 2", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "column 2", "not UTF-8"},
        {"\"\xf5\x80\x80\x80\"", "column 2", "not UTF-8"},
        {"\"\xc0\x80\"", "column 2", "not UTF-8"},
        {"\xef\xbb\xbf{}", "column 1", "a value"},
    };
    struct idem_json v;
    struct idem_error err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_INT(parse(cases[i].text, strlen(cases[i].text), &v, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, cases[i].where);
        CHECK_HAS(err.text, cases[i].what);
    }
}

TEST(no_error_shows_what_the_document_says) {
    static const char *const texts[] = {"{\"secret\":1,\"secret\":2}", "[\"secret\", secret]",
                                        "{\"a\":\"secret\\q\"}"};
    struct idem_json v;
    struct idem_error err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        CHECK_INT(parse(texts[i], strlen(texts[i]), &v, &err), IDEM_E_INVALID);
        CHECK(strstr(err.text, "secret") == NULL);
    }
}

TEST(half_a_surrogate_pair_is_refused) {
    static const char *const texts[] = {
        "\"\\ud800\"",        "\"\\udc00\"",        "\"\\ud800x\"",   "\"\\ud800\\n\"",
        "\"\\ud800\\u0041\"", "\"\\ud800\\ud800\"", "{\"\\udfff\":1}"};
    struct idem_json v;
    struct idem_error err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        CHECK_INT(parse(texts[i], strlen(texts[i]), &v, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, "surrogate");
    }
}

/* Few names, many names; the same name written in two ways. */
TEST(a_name_twice_is_refused) {
    static const char *const texts[] = {"{\"a\":1,\"a\":1}", "{\"a\":1,\"\\u0061\":2}",
                                        "{\"\":1,\"\":2}", "{\"x\":{\"b\":1,\"c\":2,\"b\":3}}"};
    char many[4096];
    struct idem_json v;
    struct idem_error err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        CHECK_INT(parse(texts[i], strlen(texts[i]), &v, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, "a name twice");
    }
    for (unsigned twice = 0; twice < 2; twice++) {
        size_t len = 1;

        many[0] = '{';
        for (unsigned i = 0; i < 100; i++)
            len += (size_t)snprintf(many + len, sizeof(many) - len, "\"k%u\":%u,",
                                    twice && i == 77 ? 31 : i * 37 % 100, i);
        many[len - 1] = '}';
        CHECK_INT(parse(many, len, &v, &err), twice ? IDEM_E_INVALID : 0);
    }
}

TEST(every_member_of_a_large_object_is_found) {
    char text[40000], name[16];
    size_t len = 1;
    struct idem_json v;
    struct idem_error err;

    text[0] = '{';
    for (unsigned i = 0; i < 1000; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "\"n%u\":%u,", i * 7919 % 1000, i);
    text[len - 1] = '}';
    CHECK_INT(parse(text, len, &v, &err), 0);
    CHECK_INT(v.n, 1000);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "n%u", i * 7919 % 1000);
        CHECK(get(&v, name) == &v.at.object->members[i].value);
    }
    CHECK(get(&v, "n1000") == NULL);
    CHECK(get(&v, "") == NULL);
}

TEST(depth_is_bounded_and_does_not_eat_the_stack) {
    size_t n = 1000000;
    char *text = malloc(2 * n);
    struct idem_json v;
    struct idem_error err;

    CHECK(text != NULL);
    memset(text, '[', n);
    memset(text + n, ']', n);
    CHECK_INT(parse(text, 2 * n, &v, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "256 deep");
    CHECK_INT(parse(text + n - IDEM_JSON_DEPTH_MAX, 2 * IDEM_JSON_DEPTH_MAX, &v, &err), 0);
    CHECK_INT(parse(text + n - IDEM_JSON_DEPTH_MAX - 1, 2 * IDEM_JSON_DEPTH_MAX + 2, &v, &err),
              IDEM_E_INVALID);
    free(text);
}

TEST(memory_is_bounded) {
    char text[20001];
    struct idem_json v;
    struct idem_error err;

    memset(text, '1', sizeof(text));
    for (size_t i = 2; i < sizeof(text) - 1; i += 2)
        text[i] = ',';
    text[0] = '[';
    text[sizeof(text) - 1] = ']';
    idem_arena_init(&arena, 100000);
    CHECK_INT(idem_json_parse(text, sizeof(text), &arena, &v, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "more memory than is allowed");
    idem_arena_reset(&arena, 200000);
    CHECK_INT(idem_json_parse(text, sizeof(text), &arena, &v, &err), 0);
    CHECK_INT(v.n, 10000);
    idem_arena_free(&arena);
}

static int sign(int n) {
    return (n > 0) - (n < 0);
}

/* In the order of their UTF-16 units, each before all that follow. */
TEST(names_are_ordered_by_utf_16_units) {
    static const char *const sorted[] = {"",
                                         "\r",
                                         "1",
                                         "a",
                                         "aa",
                                         "ab",
                                         "b",
                                         "\xc2\x80",
                                         "ö",
                                         "€",
                                         "\xed\x9f\xbf",
                                         "😀",
                                         "\xf4\x8f\xbf\xbf",
                                         "\xee\x80\x80",
                                         "\xef\xac\xb3",
                                         "\xef\xbf\xbf"};
    size_t n = sizeof(sorted) / sizeof(sorted[0]);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            CHECK_INT(
                sign(idem_utf16_cmp(sorted[i], strlen(sorted[i]), sorted[k], strlen(sorted[k]))),
                sign((int)i - (int)k));
    CHECK_INT(idem_utf16_len("aö€😀", strlen("aö€😀")), 5);
}

TEST_MAIN
