/* Forms with files. */
#include "http/http_multipart.h"

#include "heap_text.h"

#define TYPE "multipart/form-data; boundary="

static struct idem_http_delimiter delimiter(const char *type) {
    struct idem_http_text text = text_n(type, strlen(type));
    struct idem_http_delimiter ret = {.len = 99};

    if (!idem_http_delimiter_read(text, &ret))
        CHECK_INT(ret.len, 99);
    text_free(text);
    return ret;
}

static const char *boundary(const char *type) {
    static char text[IDEM_HTTP_BOUNDARY_MAX + 1];
    struct idem_http_delimiter read = delimiter(type);

    if (read.len == 99)
        return "none";
    CHECK(memcmp(read.text, "\r\n--", 4) == 0);
    memcpy(text, read.text + 4, (size_t)read.len - 4);
    text[read.len - 4] = '\0';
    return text;
}

TEST(a_boundary_is_read) {
    CHECK_STR(boundary(TYPE "abc"), "abc");
    CHECK_STR(boundary("Multipart/Form-Data ; charset=utf-8; Boundary=\"a b:c\" "), "a b:c");
    CHECK_STR(boundary(TYPE "----WebKitFormBoundary0aB1"), "----WebKitFormBoundary0aB1");
}

TEST(a_type_without_one_boundary_has_none) {
    static const char *const types[] = {
        "",
        "multipart/form-data",
        "multipart/mixed; boundary=abc",
        TYPE,
        TYPE "\"\"",
        TYPE "a; boundary=b",
        TYPE "\"a",
        TYPE "a; b",
        "multipart/form-data boundary=abc",
        TYPE "a;",
        "multipart/form-data; =a",
        "multipart/form-datas; boundary=a",
    };
    char text[128];

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        CHECK_STR(boundary(types[i]), "none");
    snprintf(text, sizeof(text), TYPE "%070d", 0);
    CHECK_INT(delimiter(text).len, 74);
    snprintf(text, sizeof(text), TYPE "%071d", 0);
    CHECK_STR(boundary(text), "none");
}

/* The parts, between bars. */

static char parts[256];

static void part_take(void *data, const void *bytes, size_t len) {
    size_t n = strlen(parts);

    (void)data;
    CHECK(n + len + 2 < sizeof(parts));
    if (bytes == NULL)
        memcpy(parts + n, "|", 2);
    else
        ((char *)mempcpy(parts + n, bytes, len))[0] = '\0';
}

/* Parses in pieces of each length: all must give the same. */
static const char *split_of(const char *type, const char *body) {
    struct idem_http_delimiter read = delimiter(type);
    static char first[sizeof(parts)];
    size_t len = strlen(body), n;
    struct idem_http_split split;

    for (size_t piece = len + 1; piece > 0; piece--) {
        parts[0] = '\0';
        idem_http_split_begin(&split, &read, part_take, NULL);
        for (size_t at = 0; at < len; at += n) {
            struct idem_http_text text;

            n = len - at < piece ? len - at : piece;
            text = text_n(body + at, n);
            idem_http_split_add(&split, text.at, text.len);
            text_free(text);
        }
        idem_http_split_end(&split);
        if (piece == len + 1)
            memcpy(first, parts, sizeof(first));
        CHECK_STR(parts, first);
    }
    return first;
}

TEST(parts_are_what_stands_between_the_boundaries) {
    CHECK_STR(split_of(TYPE "b", "--b\r\nA\r\n\r\n1\r\n--b\r\n2\r\n--b--\r\n"),
              "|\r\nA\r\n\r\n1|\r\n2|--\r\n");
    CHECK_STR(split_of(TYPE "b", "before\r\n--b\r\n"), "\r\nbefore|\r\n");
    CHECK_STR(split_of(TYPE "b", ""), "\r\n");
}

TEST(what_is_nearly_a_boundary_is_the_parts_own) {
    CHECK_STR(split_of(TYPE "abab", "--ababx\r\r\n-\r\n--aba\r\n--abab"), "|x\r\r\n-\r\n--aba|");
    CHECK_STR(split_of(TYPE "--a", "----a--\r\n-----a\r\n--a\r\n----a"), "|--\r\n-----a\r\n--a|");
    CHECK_STR(split_of(TYPE "b", "x\r\n--"), "\r\nx\r\n--");
}

TEST(the_same_form_under_two_boundaries_has_the_same_parts) {
    char one[sizeof(parts)];

    memcpy(one, split_of(TYPE "one", "--one\r\nA\r\n--one--\r\n"), sizeof(one));
    CHECK_STR(split_of(TYPE "another", "--another\r\nA\r\n--another--\r\n"), one);
}

/* Fields. */

#define FIELD(name) "--b\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n"
#define END "\r\n--b--\r\n"

static char value[8];

static int find(const char *body) {
    struct idem_http_delimiter read = delimiter(TYPE "b");
    struct idem_http_text text = text_n(body, strlen(body));
    size_t len = 99;
    int found = (int)idem_http_multipart_find(text, &read, IDEM_HTTP_TEXT("token"), value,
                                              sizeof(value) - 1, &len);

    CHECK((found == IDEM_HTTP_ONCE) == (len != 99));
    if (found == IDEM_HTTP_ONCE)
        value[len] = '\0';
    text_free(text);
    return found;
}

TEST(a_field_is_found_by_its_name) {
    CHECK_INT(find(FIELD("item") "1\r\n" FIELD("token") "a b" END), IDEM_HTTP_ONCE);
    CHECK_STR(value, "a b");
    CHECK_INT(find("before\r\n" FIELD("token") END), IDEM_HTTP_ONCE);
    CHECK_STR(value, "");
    CHECK_INT(
        find("--b\r\nX: 1\r\ncontent-disposition:FORM-DATA;x=1; NAME=token\r\nY: 2\r\n\r\nt" END),
        IDEM_HTTP_ONCE);
    CHECK_STR(value, "t");
}

TEST(what_is_another_field_or_a_file_is_not_found) {
    CHECK_INT(find(""), IDEM_HTTP_NONE);
    CHECK_INT(find("token=1"), IDEM_HTTP_NONE);
    CHECK_INT(find(FIELD("Token") "1" END), IDEM_HTTP_NONE);
    CHECK_INT(find(FIELD("tokens") "1" END), IDEM_HTTP_NONE);
    CHECK_INT(find(FIELD("token\"; filename=\"x") "1" END), IDEM_HTTP_NONE);
    CHECK_INT(find(FIELD("item\"; filename=\"a\\\"b") "1" END), IDEM_HTTP_NONE);
    CHECK_INT(find(FIELD("item") "1" END FIELD("token") "2" END), IDEM_HTTP_NONE);
}

TEST(a_field_that_is_repeated_or_too_long_is_told_so) {
    CHECK_INT(find(FIELD("token") "1\r\n" FIELD("token") "1" END), IDEM_HTTP_REPEATED);
    CHECK_INT(find(FIELD("token") "1234567" END), IDEM_HTTP_ONCE);
    CHECK_INT(find(FIELD("token") "12345678" END), IDEM_HTTP_TOO_LONG);
}

TEST(a_part_that_cannot_be_read_is_malformed) {
    CHECK_INT(find("--b\r\n"), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("--bx\r\n\r\n1" END), IDEM_HTTP_MALFORMED);
    CHECK_INT(find("--b\r\nContent-Disposition: form-data; name=\"token\"\r\n--b--"),
              IDEM_HTTP_MALFORMED);
    CHECK_INT(find("--b\r\nContent-Disposition: form-data; name=\"token\r\n\r\n1" END),
              IDEM_HTTP_MALFORMED);
    CHECK_INT(find("--b\r\nContent-Disposition: form-data; name=\"token\"\r\n"
                   "Content-Disposition: form-data; name=\"item\"\r\n\r\n1" END),
              IDEM_HTTP_MALFORMED);
}

TEST_MAIN
