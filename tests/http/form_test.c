/* Queries and forms. */
#include "http/http_form.h"

#include "heap_text.h"

static char out[64];

static int find_n(const char *form, size_t n, const char *name, size_t size) {
    struct idem_http_text text = text_n(form, n);
    size_t len = 999;
    char *room = malloc(size + (size == 0));
    int found;

    CHECK(room != NULL && size < sizeof(out));
    found = (int)idem_http_form_find(text, (struct idem_http_text){name, strlen(name)}, room, size,
                                     &len);
    CHECK((found == IDEM_HTTP_ONCE) == (len != 999));
    if (found == IDEM_HTTP_ONCE) {
        CHECK(len <= size);
        memcpy(out, room, len);
        out[len] = '\0';
    }
    free(room);
    text_free(text);
    return found;
}

static int find(const char *form, const char *name) {
    return find_n(form, strlen(form), name, sizeof(out) - 1);
}

static const char *value(const char *form, const char *name) {
    CHECK_INT(find(form, name), IDEM_HTTP_ONCE);
    return out;
}

TEST(a_parameter_is_found_by_its_name) {
    CHECK_STR(value("key=abc", "key"), "abc");
    CHECK_STR(value("a=1&key=abc&b=2", "key"), "abc");
    CHECK_STR(value("&&key=abc&", "key"), "abc");
    CHECK_STR(value("key=a=b", "key"), "a=b");
    CHECK_STR(value("key", "key"), "");
    CHECK_STR(value("key=", "key"), "");
    CHECK_STR(value("k%65y=abc", "key"), "abc");
    CHECK_STR(value("a+key=1", "a key"), "1");
    CHECK_STR(value("keys=1&ke=2&key=3&Key=4", "key"), "3");
    CHECK_STR(value("=x", ""), "x");
    CHECK_STR(value("key=a;b=c", "key"), "a;b=c");
}

TEST(values_are_decoded) {
    CHECK_STR(value("key=a+b%20c", "key"), "a b c");
    CHECK_STR(value("key=%2B%25%26%3d", "key"), "+%&=");
    CHECK_STR(value("key=%E5%BC%A0", "key"), "\xe5\xbc\xa0");
    CHECK_STR(value("key=%ff\xfe", "key"), "\xff\xfe");
}

TEST(what_is_not_there_is_told_from_what_is_empty) {
    CHECK_INT(find("", "key"), IDEM_HTTP_NONE);
    CHECK_INT(find("&", "key"), IDEM_HTTP_NONE);
    CHECK_INT(find("a=key", "key"), IDEM_HTTP_NONE);
    CHECK_INT(find("KEY=1", "key"), IDEM_HTTP_NONE);
    CHECK_INT(
        idem_http_form_find((struct idem_http_text){NULL, 0}, IDEM_HTTP_TEXT("key"), NULL, 0, NULL),
        IDEM_HTTP_NONE);
}

TEST(a_repeated_parameter_is_seen) {
    CHECK_INT(find("key=1&key=2", "key"), IDEM_HTTP_REPEATED);
    CHECK_INT(find("key=1&key=1", "key"), IDEM_HTTP_REPEATED);
    CHECK_INT(find("key&a&k%65y", "key"), IDEM_HTTP_REPEATED);
    CHECK_INT(find("key=%zz&key=1", "key"), IDEM_HTTP_REPEATED);
}

TEST(an_escape_that_is_none_is_malformed) {
    CHECK_INT(find("key=%", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("key=%4", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("key=%zz", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("key=%4g", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("key=%-1", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("key=%4&x", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("key=1&%x", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("%x", "key"), IDEM_HTTP_MALFORMED);
}

TEST(a_nul_is_malformed) {
    CHECK_INT(find("key=a%00", "key"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find_n("key=\0", 5, "key", 9), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("key=1&key%00=2", "key"), IDEM_HTTP_MALFORMED);
}

TEST(other_values_do_not_matter) {
    CHECK_STR(value("discount=50%&key=abc", "key"), "abc");
    CHECK_STR(value("key=abc&x=%00", "key"), "abc");
}

TEST(a_value_that_is_too_long_is_said_to_be) {
    CHECK_INT(find_n("key=abcd", 8, "key", 3), IDEM_HTTP_TOO_LONG);
    CHECK_INT(find_n("key=%61%62%63", 13, "key", 3), IDEM_HTTP_ONCE);
    CHECK_STR(out, "abc");
    CHECK_INT(find_n("key=", 4, "key", 0), IDEM_HTTP_ONCE);
    CHECK_INT(find_n("key=a", 5, "key", 0), IDEM_HTTP_TOO_LONG);
}

TEST_MAIN
