/*
 * JSON as it is written.
 */
#include "test.h"

#include "json/json_out.h"

static const char *json_of(const char *bytes, size_t len) {
    static char buf[256];
    FILE *out = fmemopen(buf, sizeof(buf), "w");

    json_out_string(out, bytes, len);
    fclose(out);
    return buf;
}

TEST(a_json_string_is_valid_whatever_its_bytes_are) {
    CHECK_STR(json_of("a\"b\\c\n\t\0d", 9), "\"a\\\"b\\\\c\\n\\u0009\\u0000d\"");
    CHECK_STR(json_of("\xc3\xa9", 2), "\"\xc3\xa9\"");
    CHECK_STR(json_of("\xc3", 1), "\"\\ufffd\"");
    CHECK_STR(json_of("\xff\xc3(", 3), "\"\\ufffd\\ufffd(\"");
    CHECK_STR(json_of("\xed\xa0\x80", 3), "\"\\ufffd\\ufffd\\ufffd\"");
    CHECK_STR(json_of("\xe2\x80\xa8\x7f", 4), "\"\\u2028\\u007f\"");
    CHECK_STR(json_of("\xe2\x80\xae\xc2\xad\xf3\xa0\x81\x81", 9),
              "\"\\u202e\\u00ad\\udb40\\udc41\"");
}

TEST_MAIN
