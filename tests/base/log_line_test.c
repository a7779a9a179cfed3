/*
 * Lines of logs: fields in their order, and no value that ends a line, a quote or a terminal's
 * peace.
 */
#include "base/log_line.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

static const char *printed(const struct idem_line *line) {
    static char text[IDEM_LINE_MAX];
    size_t len = idem_line_print(line, text, sizeof(text));

    CHECK_INT((long long)len, (long long)strlen(text));
    return text;
}

TEST(fields_stand_in_their_order) {
    CHECK_STR(printed(&(struct idem_line){.words = "refused uncertain: a run vanished",
                                          .record = "31b2584f6d5d",
                                          .prefix = "order:",
                                          .label = "order 7",
                                          .attempt = 2,
                                          .route = "shop /orders",
                                          .trace = "abc",
                                          .took = "1s",
                                          .then = "delay",
                                          .pause = "5s",
                                          .reason = "exit status 9",
                                          .todo = "find out"}),
              "refused uncertain: a run vanished record=31b2584f6d5d prefix=order: "
              "label=\"order 7\" attempt=2 route=\"shop /orders\" trace=abc took=1s then=delay "
              "for=5s reason=\"exit status 9\" do=\"find out\"");
}

TEST(what_is_not_known_is_left_out_but_for_the_record) {
    CHECK_STR(printed(&(struct idem_line){.words = "run", .label = "", .trace = "t"}),
              "run record=- trace=t");
}

TEST(a_hostile_value_stays_one_value) {
    CHECK_STR(printed(&(struct idem_line){.words = "run", .record = "ab", .label = "a\"b\\c\nd"}),
              "run record=ab label=\"a\\\"b\\\\c\\x0ad\"");
    CHECK_STR(printed(&(struct idem_line){.words = "run", .label = "\x1b[31m\x7f"}),
              "run record=- label=\"\\x1b[31m\\x7f\"");
    CHECK_STR(printed(&(struct idem_line){.words = "run", .label = "x\" do=\"rm"}),
              "run record=- label=\"x\\\" do=\\\"rm\"");
    CHECK_STR(printed(&(struct idem_line){.words = "run", .label = "caf\xc3\xa9 \xff\xc2\x9b"}),
              "run record=- label=\"caf\xc3\xa9 \\xff\\xc2\\x9b\"");
    CHECK_STR(printed(&(struct idem_line){.words = "run", .label = "a=b"}),
              "run record=- label=\"a=b\"");
}

TEST(what_nobody_sees_in_a_value_is_escaped) {
    CHECK_STR(
        printed(&(struct idem_line){.words = "run",
                                    .label = "7\xe2\x80\xae"
                                             "8\xe2\x80\x8b\xc2\xad\xe2\x80\xa8\xf3\xa0\x81\x81"}),
        "run record=- label=\"7\\xe2\\x80\\xae8\\xe2\\x80\\x8b\\xc2\\xad\\xe2\\x80\\xa8"
        "\\xf3\\xa0\\x81\\x81\"");
}

/* Each escape is whole, and the quote is closed. */
TEST(a_long_value_is_cut) {
    char label[400], newlines[IDEM_LINE_VALUE_MAX + 1], expected[600];

    memset(label, '\n', sizeof(label) - 1);
    label[sizeof(label) - 1] = '\0';
    for (size_t i = 0; i < IDEM_LINE_VALUE_MAX; i += 4)
        snprintf(newlines + i, 5, "\\x0a");
    snprintf(expected, sizeof(expected), "run record=- label=\"%s...\" attempt=1", newlines);
    CHECK_STR(printed(&(struct idem_line){.words = "run", .label = label, .attempt = 1}), expected);
}

TEST(a_line_that_does_not_fit_is_cut) {
    struct idem_line line = {.words = "refused", .record = "31b2584f6d5d", .label = "a b"};
    char whole[200], part[200];
    size_t len = idem_line_print(&line, whole, sizeof(whole));

    for (size_t size = 1; size <= len; size++) {
        memset(part, '#', sizeof(part));
        CHECK_INT((long long)idem_line_print(&line, part, size), (long long)size - 1);
        CHECK(memcmp(part, whole, size - 1) == 0 && part[size - 1] == '\0' && part[size] == '#');
    }
}

TEST_MAIN
