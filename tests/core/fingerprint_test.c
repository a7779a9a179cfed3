/*
 * Fingerprints: what is the same gives the same, what differs differs, wherever
 * the difference is; and no body is too large. The linker puts the functions
 * below before malloc and its kin.
 */
#include "core/fingerprint.h"

#include <sys/resource.h>

#include "test.h"

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *old);
void *__wrap_malloc(size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *old);

static long live, until_failure = -1;

/* False when it is this allocation's turn to fail. */
static bool allowed(void) {
    return until_failure < 0 || until_failure-- > 0;
}

void *__wrap_malloc(size_t size) {
    void *fresh = allowed() ? __real_malloc(size) : NULL;

    live += fresh != NULL;
    return fresh;
}

void *__wrap_realloc(void *old, size_t size) {
    void *fresh = allowed() ? __real_realloc(old, size) : NULL;

    live += old == NULL && fresh != NULL;
    return fresh;
}

void __wrap_free(void *old) {
    live -= old != NULL;
    __real_free(old);
}

#define ANY SIZE_MAX /* no limit of a JSON body */

static struct idem_fingerprint end(struct idem_fingerprint_hash *print) {
    struct idem_fingerprint ret;

    CHECK_INT(idem_fingerprint_end(print, &ret), 0);
    return ret;
}

/* A body in pieces, each of which ends at a bar. */
static struct idem_fingerprint pieces(const char *text) {
    struct idem_fingerprint_hash print;

    idem_fingerprint_begin(&print);
    idem_fingerprint_open_pieces(&print, "body");
    for (; *text != '\0'; text++)
        if (*text == '|')
            idem_fingerprint_piece_end(&print);
        else
            idem_fingerprint_add(&print, text, 1);
    idem_fingerprint_piece_end(&print);
    idem_fingerprint_close(&print);
    return end(&print);
}

/* The one part of these is called body. Nothing lies behind it: a sanitizer would see it read. */
static struct idem_fingerprint body(bool json, size_t json_max, const char *text) {
    size_t len = strlen(text);
    char *copy = malloc(len);
    struct idem_fingerprint_hash print;
    struct idem_error err;

    memcpy(copy, text, len);
    idem_fingerprint_begin(&print);
    if (idem_fingerprint_body(&print, "body", json, json_max, copy, len, &err) != 0) {
        fprintf(stderr, "# %s: %s\n", text, err.text);
        exit(1);
    }
    free(copy);
    return end(&print);
}

static struct idem_fingerprint one(const char *name, const void *content, size_t len) {
    struct idem_fingerprint_hash print;

    idem_fingerprint_begin(&print);
    idem_fingerprint_bytes(&print, name, content, len);
    return end(&print);
}

static struct idem_fingerprint bytes(const char *text) {
    return one("body", text, strlen(text));
}

static struct idem_fingerprint two(const char *name, const char *content, const char *name2,
                                   const char *content2) {
    struct idem_fingerprint_hash print;

    idem_fingerprint_begin(&print);
    idem_fingerprint_bytes(&print, name, content, strlen(content));
    idem_fingerprint_bytes(&print, name2, content2, strlen(content2));
    return end(&print);
}

static bool same_hash(struct idem_fingerprint a, struct idem_fingerprint b) {
    return memcmp(a.hash, b.hash, sizeof(a.hash)) == 0;
}

static bool same(struct idem_fingerprint a, struct idem_fingerprint b) {
    return same_hash(a, b) && a.definition == b.definition;
}

static void check_error(const char *text, const char *what) {
    struct idem_fingerprint ignored;
    struct idem_fingerprint_hash print;
    struct idem_error err = {0};

    idem_fingerprint_begin(&print);
    CHECK_INT(idem_fingerprint_body(&print, "body", true, ANY, text, strlen(text), &err),
              IDEM_E_INVALID);
    CHECK_INT(err.code, IDEM_E_INVALID);
    CHECK_HAS(err.text, what);
    CHECK(strstr(err.text, "secret") == NULL);
    (void)idem_fingerprint_end(&print, &ignored);
    CHECK_INT(live, 0);
}

/* Bodies whose fingerprints are equal. */

TEST(the_order_of_members_does_not_matter) {
    CHECK(same(body(true, ANY, "{\"a\":1,\"b\":{\"c\":[1,2],\"d\":null}}"),
               body(true, ANY, "{\"b\":{\"d\":null,\"c\":[1,2]},\"a\":1}")));
    CHECK(!same_hash(body(true, ANY, "[1,2]"), body(true, ANY, "[2,1]")));
}

TEST(white_space_does_not_matter) {
    CHECK(same(body(true, ANY, "{\"a\":[1,\"x y\"]}"),
               body(true, ANY, "\r\n\t {  \"a\" :\n[ 1 , \"x y\"\t] } ")));
    CHECK(!same_hash(body(true, ANY, "\"x y\""), body(true, ANY, "\"x  y\"")));
}

TEST(how_a_character_is_escaped_does_not_matter) {
    CHECK(same(body(true, ANY, "\"a/\\u0062\\n\\u00e9\\ud83d\\ude00\""),
               body(true, ANY, "\"\\u0061\\/b\\u000A\xc3\xa9\xf0\x9f\x98\x80\"")));
    CHECK(same(body(true, ANY, "{\"\\u0061\":1}"), body(true, ANY, "{\"a\":1}")));
    CHECK(!same_hash(body(true, ANY, "\"\\n\""), body(true, ANY, "\"\\\\n\"")));
}

TEST(how_a_number_is_written_does_not_matter) {
    static const char *const ones[] = {"1.0", "1e0", "10E-1", "0.1e+1", "1.000"};

    for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++)
        CHECK(same(body(true, ANY, "1"), body(true, ANY, ones[i])));
    CHECK(same(body(true, ANY, "0.5"), body(true, ANY, "5e-1")));
    CHECK(same(body(true, ANY, "-0.0"), body(true, ANY, "0")));
    CHECK(!same_hash(body(true, ANY, "1"), body(true, ANY, "-1")));
    CHECK(!same_hash(body(true, ANY, "1"), body(true, ANY, "\"1\"")));
}

/* Bodies whose fingerprints differ. */

TEST(order_numbers_beyond_2_53_that_differ_differ) {
    CHECK(!same_hash(body(true, ANY, "{\"order\":1810966706881941507}"),
                     body(true, ANY, "{\"order\":1810966706881941508}")));
    CHECK(same(body(true, ANY, "1810966706881941507"), body(true, ANY, "1810966706881941507.0")));
}

TEST(null_nothing_and_empty_differ) {
    static const char *const texts[] = {
        "null", "{}", "[]", "\"\"", "0", "false", "{\"a\":null}", "{\"\":null}", "[null]",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        for (size_t k = 0; k < i; k++)
            CHECK(!same_hash(body(true, ANY, texts[i]), body(true, ANY, texts[k])));
}

TEST(parts_cannot_run_into_each_other) {
    const struct idem_fingerprint of[] = {
        two("a", "xy", "b", "z"), two("a", "x", "b", "yz"), two("a", "", "b", "xyz"),
        two("a", "xyz", "b", ""), two("ab", "xy", "", "z"), two("", "xy", "ab", "z"),
        two("ax", "y", "b", "z"), two("b", "z", "a", "xy"), two("a", "xyb", "", "z"),
    };

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        for (size_t k = 0; k < i; k++)
            CHECK(!same_hash(of[i], of[k]));
}

/* A caller that chooses a name or a content may put the bytes into it that separate parts. */
TEST(a_name_or_content_that_holds_a_part_is_not_that_part) {
    static const char held[] = {'x', 0, 0, 0, 0, 0,  0, 0, 1, IDEM_FINGERPRINT_BYTES,
                                'a', 0, 0, 0, 1, 'y'};
    struct idem_fingerprint parts = two("a", "x", "b", "y");

    CHECK(!same_hash(one("b", held, sizeof(held)), parts));
    CHECK(!same_hash(one("b", held + 1, sizeof(held) - 1), parts));
    CHECK(!same_hash(one("b", held, 15), two("a", "x", "b", "")));
    CHECK(!same_hash(two("a", "xy", "b", ""), two("a", "x", "b", "y")));
    CHECK(!same_hash(two("a", "x", "b", "y"), two("a", "x", "by", "")));
}

TEST(a_part_that_is_empty_is_not_one_that_is_missing) {
    struct idem_fingerprint_hash none;
    struct idem_fingerprint a, b = one("query", NULL, 0);

    idem_fingerprint_begin(&none);
    a = end(&none);
    CHECK(!same_hash(a, b));
    CHECK(a.definition != b.definition);
    CHECK(!same_hash(b, two("query", "", "query", "")));
}

TEST(what_holds_a_nul_is_read_to_its_end) {
    CHECK(!same_hash(one("body", "x\0y", 3), one("body", "x\0z", 3)));
}

/* Bodies that are refused. */

TEST(a_name_twice_is_an_error) {
    check_error("{\"secret\":1,\"secret\":1}", "a name twice");
    check_error("[{\"a\":{\"secret\":1,\"b\":2,\"\\u0073ecret\":3}}]", "a name twice");
}

TEST(half_a_surrogate_pair_is_an_error) {
    check_error("\"secret \\ud83d\"", "half a surrogate pair");
    check_error("{\"secret \\ude00\":1}", "half a surrogate pair");
    check_error("\"secret \xed\xa0\xbd\"", "not UTF-8");
}

TEST(what_cannot_be_read_as_json_is_an_error) {
    check_error("", "ends too early");
    check_error("{\"secret\":", "ends too early");
    check_error("{\"secret\":1} x", "has ended before this");
    check_error("[1e999,\"secret\"]", "beyond the range of a double");
}

TEST(a_part_that_was_refused_spoils_the_whole) {
    struct idem_fingerprint ret = {.definition = 42};
    struct idem_fingerprint_hash print;

    idem_fingerprint_begin(&print);
    CHECK_INT(idem_fingerprint_body(&print, "body", true, ANY, "{", 1, NULL), IDEM_E_INVALID);
    idem_fingerprint_bytes(&print, "path", "/", 1);
    CHECK_INT(idem_fingerprint_end(&print, &ret), IDEM_E_INVALID);
    CHECK_INT(ret.definition, 42);
}

/* Pieces. */

TEST(pieces_give_the_same_as_the_whole) {
    const char *text = "amount=1&order=4711&note=a+longer+text+than+a+block+of+the+hash+has+bytes";
    size_t len = strlen(text);

    for (size_t first = 0; first <= len; first++) {
        struct idem_fingerprint_hash print;

        idem_fingerprint_begin(&print);
        idem_fingerprint_open(&print, "body", IDEM_FINGERPRINT_BYTES);
        idem_fingerprint_add(&print, text, first);
        for (size_t at = first; at < len; at += 5)
            idem_fingerprint_add(&print, text + at, len - at < 5 ? len - at : 5);
        idem_fingerprint_close(&print);
        CHECK(same(end(&print), bytes(text)));
    }
}

static struct idem_fingerprint large(size_t left, size_t step) {
    static unsigned char piece[64 << 10];
    struct idem_fingerprint_hash print;

    memset(piece, 'x', sizeof(piece));
    idem_fingerprint_begin(&print);
    idem_fingerprint_open(&print, "body", IDEM_FINGERPRINT_BYTES);
    while (left > 0) {
        size_t n = left < step ? left : step;

        idem_fingerprint_add(&print, piece, n);
        left -= n;
    }
    idem_fingerprint_close(&print);
    return end(&print);
}

static long peak_kib(void) {
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Small parts are put together before they are hashed: at every length around what fits. */
TEST(a_part_of_any_length_gives_the_same_as_its_pieces) {
    static const char name[] = "a name of some length";
    unsigned char bytes[1200];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        struct idem_fingerprint_hash whole, pieces;
        struct idem_fingerprint one, two;

        idem_fingerprint_begin(&whole);
        idem_fingerprint_bytes(&whole, name, bytes, len);
        idem_fingerprint_begin(&pieces);
        idem_fingerprint_open(&pieces, name, IDEM_FINGERPRINT_BYTES);
        for (size_t at = 0; at < len; at += 100)
            idem_fingerprint_add(&pieces, bytes + at, len - at < 100 ? len - at : 100);
        idem_fingerprint_close(&pieces);
        one = end(&whole);
        two = end(&pieces);
        CHECK(memcmp(&one, &two, sizeof(one)) == 0);
    }
}

TEST(a_body_of_100_mib_takes_constant_memory) {
    size_t all = (size_t)100 << 20;
    struct idem_fingerprint of;
    long before;

    (void)large(sizeof(before), 1); /* what is loaded once, is loaded */
    before = peak_kib();
    of = large(all, 64 << 10);
    CHECK(peak_kib() - before < 1024);
    CHECK(same(large(all, 60001), of));
    CHECK_INT(live, 0);
}

/* Definitions. */

TEST(names_and_kinds_are_the_definition_and_contents_are_not) {
    struct idem_fingerprint_hash json, value;
    struct idem_error err;
    struct idem_json null = {.type = IDEM_JSON_NULL};
    struct idem_fingerprint a, b;

    CHECK(two("a", "1", "b", "2").definition == two("a", "3", "b", "").definition);
    CHECK(two("a", "", "b", "").definition != two("b", "", "a", "").definition);
    CHECK(two("a", "", "b", "").definition != two("ab", "", "", "").definition);
    CHECK(two("a", "", "b", "").definition != two("a", "", "c", "").definition);
    idem_fingerprint_begin(&json);
    CHECK_INT(idem_fingerprint_json(&json, "body", IDEM_FINGERPRINT_JSON, &null, &err), 0);
    idem_fingerprint_begin(&value);
    CHECK_INT(idem_fingerprint_json(&value, "body", IDEM_FINGERPRINT_VALUE, &null, &err), 0);
    a = end(&json);
    b = end(&value);
    CHECK(a.definition != b.definition && !same_hash(a, b));
    CHECK(a.definition != bytes("null").definition && !same_hash(a, bytes("null")));
}

TEST(a_number_of_its_own_changes_the_definition_and_not_the_hash) {
    struct idem_fingerprint of[3];

    for (uint32_t i = 0; i < 3; i++) {
        struct idem_fingerprint_hash print;

        idem_fingerprint_begin(&print);
        if (i > 0)
            idem_fingerprint_number(&print, i);
        idem_fingerprint_bytes(&print, "body", "x", 1);
        of[i] = end(&print);
    }
    CHECK(of[0].definition != of[1].definition && of[1].definition != of[2].definition &&
          of[0].definition != of[2].definition);
    CHECK(same_hash(of[0], of[1]) && same_hash(of[1], of[2]));
}

TEST(a_definition_is_none_that_callers_number_themselves) {
    for (unsigned i = 0; i < 1000; i++) {
        char name[16];

        snprintf(name, sizeof(name), "%u", i);
        CHECK(one(name, "", 0).definition >= (uint32_t)1 << 31);
    }
}

/* Stored fingerprints are compared with those that are made later: this may never change. Made by
   hashlib: sha256("idem fingerprint 2\0" + content + len + kind + name + len of it + ...). */
TEST(fingerprints_are_what_they_always_were) {
    static const unsigned char want[IDEM_HASH_LEN] = {
        0xdc, 0x57, 0x5c, 0xf1, 0x3b, 0xf6, 0xe1, 0x24, 0x8e, 0xae, 0xcc,
        0x26, 0xdf, 0x9f, 0x12, 0x3c, 0xb4, 0x89, 0x6f, 0xe8, 0x5c, 0x2f,
        0xe1, 0xff, 0xec, 0x5f, 0xf0, 0x44, 0x29, 0xa6, 0x64, 0x17};
    struct idem_fingerprint got;
    struct idem_fingerprint_hash print;
    struct idem_error err;

    idem_fingerprint_begin(&print);
    idem_fingerprint_bytes(&print, "query", "a=1", 3);
    CHECK_INT(idem_fingerprint_body(&print, "body", true, ANY, "{\"b\":1.0,\"a\":2}", 15, &err), 0);
    got = end(&print);
    CHECK(memcmp(got.hash, want, sizeof(want)) == 0);
    CHECK_INT(got.definition, 0x8e4ac618);
}

/* Bodies. */

TEST(a_json_body_over_the_limit_is_hashed_as_bytes_and_its_definition_says_so) {
    const char *text = "{ \"id\": 7 }";
    struct idem_fingerprint read = body(true, ANY, text), raw = body(true, strlen(text) - 1, text);

    CHECK(same(body(true, strlen(text), text), body(true, ANY, "{\"id\":7}")));
    CHECK(same(body(true, 2, "{\"a"), body(true, 1, "{\"a"))); /* too long to be parsed */
    CHECK(same_hash(raw, bytes(text)));
    CHECK(!same_hash(raw, read));
    CHECK_INT(read.definition & IDEM_DEFINITION_RAW, 0);
    CHECK_INT(raw.definition, read.definition | IDEM_DEFINITION_RAW);
    CHECK(raw.definition != bytes(text).definition);
}

TEST(a_form_is_taken_byte_for_byte_in_its_order) {
    CHECK(same(body(false, ANY, "a=1&b=2"), bytes("a=1&b=2")));
    CHECK(!same_hash(body(false, ANY, "a=1&b=2"), body(false, ANY, "b=2&a=1")));
    CHECK(!same_hash(body(false, ANY, "a=%31"), body(false, ANY, "a=1")));
    CHECK(!same_hash(body(false, ANY, "a=x+y"), body(false, ANY, "a=x%20y")));
    CHECK(!same_hash(body(false, ANY, "a=1&a=2"), body(false, ANY, "a=2&a=1")));
    CHECK(!same_hash(body(false, ANY, "{\"a\":1}"), body(false, ANY, "{\"a\": 1}")));
    CHECK(same(body(false, ANY, ""), bytes("")));
}

/* A body that is known by its hash, plain or unread. */
static struct idem_fingerprint hashed(void (*add)(struct idem_fingerprint_hash *, const char *,
                                                  const unsigned char[IDEM_HASH_LEN]),
                                      const char *name, const char *text) {
    struct idem_bytes content = {(const unsigned char *)text, strlen(text)};
    unsigned char hash[IDEM_HASH_LEN];
    struct idem_fingerprint_hash print;

    CHECK_INT(idem_sha256(content, hash), 0);
    idem_fingerprint_begin(&print);
    add(&print, name, hash);
    return end(&print);
}

TEST(a_body_by_its_hash_is_compared_with_json_and_never_equal_to_it) {
    struct idem_fingerprint plain = hashed(idem_fingerprint_hashed, "body", "{\"id\":7}");
    struct idem_fingerprint unread = hashed(idem_fingerprint_unread, "body", "{\"id\":7}");
    struct idem_fingerprint read = body(true, ANY, "{\"id\":7}");

    CHECK(same(plain, hashed(idem_fingerprint_hashed, "body", "{\"id\":7}")));
    CHECK(!same_hash(plain, hashed(idem_fingerprint_hashed, "body", "{\"id\": 7}")));
    CHECK_INT(plain.definition,
              read.definition); /* or its sender could choose not to be compared */
    CHECK(!same_hash(plain, read));
    CHECK(same_hash(plain, unread));
    CHECK_INT(unread.definition, plain.definition | IDEM_DEFINITION_RAW);
    CHECK(hashed(idem_fingerprint_hashed, "signed body", "{\"id\":7}").definition !=
          plain.definition);
}

TEST(a_body_that_is_a_hash_is_not_the_body_of_that_hash) {
    struct idem_bytes content = {(const unsigned char *)"x", 1};
    unsigned char hash[IDEM_HASH_LEN];
    struct idem_fingerprint_hash print;
    struct idem_fingerprint raw;

    CHECK_INT(idem_sha256(content, hash), 0);
    idem_fingerprint_begin(&print);
    idem_fingerprint_open_plain(&print, "body");
    idem_fingerprint_add(&print, hash, sizeof(hash));
    idem_fingerprint_close(&print);
    raw = end(&print);
    CHECK_INT(raw.definition, hashed(idem_fingerprint_hashed, "body", "x").definition);
    CHECK(!same_hash(raw, hashed(idem_fingerprint_hashed, "body", "x")));
}

TEST(documents_of_every_shape_find_room) {
    static const char *const items[] = {"0,", "[],", "[0],", "{\"\":0},", "\"\\n\",", "{},"};

    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        size_t n = strlen(items[i]), at = 1;
        char *text = malloc(((size_t)1 << 20) + 8);

        text[0] = '[';
        for (; at + n <= (size_t)1 << 20; at += n)
            memcpy(text + at, items[i], n);
        memcpy(text + at - 1, "]", 2);
        (void)body(true, ANY, text);
        free(text);
    }
}

/* Memory. */

static int once(struct idem_error *err) {
    static const char text[] =
        "[{\"b\":\"\\u00e9\",\"a\":1.0000000000000000000000000000000000000000"
        "0000000000000000000000001}]";
    struct idem_fingerprint ignored;
    struct idem_fingerprint_hash print;
    int rc, rc2;

    idem_fingerprint_begin(&print);
    idem_fingerprint_bytes(&print, "query", "a=1", 3);
    rc = idem_fingerprint_body(&print, "body", true, ANY, text, sizeof(text) - 1, err);
    rc2 = idem_fingerprint_end(&print, &ignored);
    return rc != 0 ? rc : rc2;
}

TEST(where_a_piece_ends_is_compared) {
    static const char *const texts[] = {"", "|", "ab", "a|b", "|ab", "ab|", "a||b"};
    struct idem_fingerprint a, b;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            a = pieces(texts[i]);
            b = pieces(texts[k]);
            CHECK_INT(a.definition, b.definition);
            CHECK_INT(memcmp(a.hash, b.hash, IDEM_HASH_LEN) == 0, i == k);
        }
    }
}

/* The sender of a body declares its type, and must not be able to switch the comparison off with
   it. */
TEST(pieces_are_compared_with_what_is_none_and_differ) {
    static const char framed[] = "a\0\0\0\0\0\0\0\1"; /* what the one piece is hashed as */
    struct idem_fingerprint a = pieces("a"), b;
    struct idem_fingerprint_hash print;

    idem_fingerprint_begin(&print);
    idem_fingerprint_open_plain(&print, "body");
    idem_fingerprint_add(&print, framed, sizeof(framed) - 1);
    idem_fingerprint_close(&print);
    b = end(&print);
    CHECK_INT(a.definition, b.definition);
    CHECK(memcmp(a.hash, b.hash, IDEM_HASH_LEN) != 0);
}

TEST(every_allocation_that_fails_is_reported_and_nothing_leaks) {
    struct idem_error err;
    long turn = 0;
    int rc;

    for (;; turn++) {
        until_failure = turn;
        rc = once(turn % 2 == 0 ? &err : NULL);
        if (until_failure >= 0) /* not reached any more */
            break;
        CHECK_INT(rc, IDEM_E_NOMEM);
        CHECK_INT(live, 0);
    }
    CHECK_INT(rc, 0);
    CHECK_INT(live, 0);
    CHECK(turn >= 4); /* the hash, the tree, the stack, a number */
}

TEST_MAIN
