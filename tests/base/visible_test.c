/* The functions with which every front door shows texts: invisible characters become visible. */
#include "base/visible.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "test.h"

/* A right-to-left override, a zero-width space and a tag, between letters. */
#define HOSTILE                                                                                    \
    "a\xe2\x80\xae"                                                                                \
    "b\xe2\x80\x8b"                                                                                \
    "c\xf3\xa0\x81\x81"                                                                            \
    "d"

static const char *copy(const char *text, char instead, size_t size) {
    static char buf[64];
    size_t len;

    memset(buf, 'x', sizeof(buf));
    len = idem_visible_copy(text, strlen(text), instead, buf, size);
    CHECK_INT(strlen(buf), len);
    CHECK(len < size);
    return buf;
}

TEST(what_people_write_is_visible) {
    static const uint32_t seen[] = {' ',    '~',    0xa0,    0xac,    0xae,    0x5d0,   0x606,
                                    0x200a, 0x2010, 0x2027,  0x202f,  0x2065,  0x4e2d,  0xfe0f,
                                    0xfffc, 0xfffd, 0x1f600, 0x13440, 0xe0002, 0xe0080, 0x10ffff};

    for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++)
        CHECK(idem_visible(seen[i]));
}

TEST(what_nobody_sees_is_not) {
    static const uint32_t unseen[] = {
        0,       '\n',    0x1b,    0x7f,    0x85,    0x9f,    0xad,    0x600,  0x61c,
        0x6dd,   0x70f,   0x890,   0x8e2,   0x180e,  0x200b,  0x200f,  0x2028, 0x2029,
        0x202a,  0x202e,  0x2060,  0x2064,  0x2066,  0x206f,  0xfeff,  0xfff9, 0xfffb,
        0x110bd, 0x110cd, 0x13430, 0x1343f, 0x1bca3, 0x1d17a, 0xe0001, 0xe007f};

    for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++)
        CHECK(!idem_visible(unseen[i]));
}

TEST(a_copy_shows_where_something_was) {
    CHECK_STR(copy(HOSTILE, '?', 64), "a?b?c?d");
    CHECK_STR(copy(HOSTILE, ' ', 64), "a b c d");
    CHECK_STR(copy("\xff\xc3\xa9\xe2\x80", '?', 64), "?\xc3\xa9??");
    CHECK_STR(copy("ab\xc3\xa9", '?', 4), "ab");
    CHECK_STR(copy(HOSTILE, '?', 3), "a?");
    CHECK_STR(copy("abc", '?', 1), "");
}

TEST(a_code_of_json_is_one_or_two_halves) {
    char buf[IDEM_VISIBLE_JSON];

    idem_visible_json(0x1b, buf);
    CHECK_STR(buf, "\\u001b");
    idem_visible_json(0x202e, buf);
    CHECK_STR(buf, "\\u202e");
    idem_visible_json(0xe0041, buf);
    CHECK_STR(buf, "\\udb40\\udc41");
    idem_visible_json(0x10ffff, buf);
    CHECK_STR(buf, "\\udbff\\udfff");
}

TEST(an_errors_text_shows_what_a_server_put_into_it) {
    char quoted[IDEM_QUOTE_TEXT];
    struct idem_error err;

    (void)idem_error_set(&err, IDEM_E_INVALID, "the server says: %s\n%s\x1b\n", HOSTILE, "\xff");
    CHECK_STR(err.text, "the server says: a?b?c?d\n??\n");
    CHECK_STR(idem_error_quote(HOSTILE, strlen(HOSTILE), quoted, sizeof(quoted)), "\"a?b?c?d\"");
}

TEST_MAIN
