/*
 * Texts from records, made harmless for a terminal.
 */
#include "test.h"

#include "cli/cli.h"

TEST(a_printable_text_has_no_control_characters) {
    char buf[32], small[4];

    CHECK_STR(cli_printable("a\x1b[31mb\xff\xc3\xa9", buf, sizeof(buf)), "a?[31mb?\xc3\xa9");
    CHECK_STR(cli_printable("7\xe2\x80\xae\xe2\x80\x8b", buf, sizeof(buf)), "7??");
    CHECK_STR(cli_printable("abcdef", small, sizeof(small)), "abc");
    CHECK_STR(cli_printable("ab\xc3\xa9", small, sizeof(small)), "ab");
}

TEST_MAIN
