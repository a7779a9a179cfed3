/*
 * Times as they are printed, and as arguments give them.
 */
#include "test.h"

#include "base/rfc3339.h"
#include "cli/time_argument.h"

#define AT_2000 946684800000 /* 2000-01-01T00:00:00Z, on an hour and a day */

static const char *when(int64_t ms) {
    static char buf[IDEM_RFC3339_TEXT];

    return idem_rfc3339_print(ms, buf, sizeof(buf));
}

static int64_t parsed(const char *text) {
    struct idem_error err;
    int64_t ms = -7;

    return time_argument_parse(text, AT_2000, &ms, &err) < 0 ? INT64_MIN : ms;
}

TEST(a_moment_is_printed_in_utc) {
    CHECK_STR(when(0), "1970-01-01T00:00:00Z");
    CHECK_STR(when(AT_2000 + 7), "2000-01-01T00:00:00.007Z");
    CHECK_STR(when(-1), "1969-12-31T23:59:59.999Z");
    CHECK_STR(when(INT64_MAX), "?");
    CHECK_STR(when(INT64_MIN), "?");
}

TEST(a_moment_is_read_in_any_zone_or_as_an_age) {
    CHECK_INT(parsed("2000-01-01T00:00:00Z"), AT_2000);
    CHECK_INT(parsed("2000-01-01t01:30:00.25+01:30"), AT_2000 + 250);
    CHECK_INT(parsed("1999-12-31 19:00:00-05:00"), AT_2000);
    CHECK_INT(parsed("2000-02-29T00:00:00Z"), AT_2000 + 59 * 86400000LL);
    CHECK_INT(parsed("2h"), AT_2000 - 7200000);
    CHECK_INT(parsed("99999d"), 0);
}

TEST(what_is_no_moment_is_refused) {
    static const char *const wrong[] = {
        "",
        "2000",
        "2000-01-01",
        "2000-13-01T00:00:00Z",
        "yesterday",
        "-2h",
        "2001-02-29T00:00:00Z",
        "2000-01-01T24:00:00Z",
        "2h ago",
        "2000-01-01T00:00:00",
        "2000-01-01T00:00:00.Z",
        "2000-01-01T00:00:00+1:00",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (parsed(wrong[i]) != INT64_MIN)
            fprintf(stderr, "# taken: %s\n", wrong[i]);
        CHECK_INT(parsed(wrong[i]), INT64_MIN);
    }
}

TEST(an_age_is_told_in_one_unit) {
    char buf[IDEM_RFC3339_TEXT];

    CHECK_STR(time_argument_relative(0, 0, buf, sizeof(buf)), "now");
    CHECK_STR(time_argument_relative(0, 1500, buf, sizeof(buf)), "1s ago");
    CHECK_STR(time_argument_relative(0, 100000, buf, sizeof(buf)), "100s ago");
    CHECK_STR(time_argument_relative(0, 90 * 60000, buf, sizeof(buf)), "90m ago");
    CHECK_STR(time_argument_relative(86400000 * 3, 0, buf, sizeof(buf)), "in 3d");
}

TEST_MAIN
