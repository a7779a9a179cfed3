/* Dates in their three forms, and Retry-After. */
#include "http/http_field.h"

#include "heap_text.h"

#define NOW 1700000000 /* Tue, 14 Nov 2023 22:13:20 GMT */

/* -1: not a date. */
static int64_t date_at(const char *value, int64_t now) {
    struct idem_http_text text = text_n(value, strlen(value));
    int64_t at = -1;
    bool ok = idem_http_date(text, now, &at);

    text_free(text);
    CHECK_INT(ok, at != -1);
    return at;
}

static int64_t date(const char *value) {
    return date_at(value, NOW);
}

static int64_t after(const char *value) {
    struct idem_http_text text = text_n(value, strlen(value));
    int64_t s = -1;
    bool ok = idem_http_retry_after(text, NOW, 86400, &s);

    text_free(text);
    CHECK_INT(ok, s != -1);
    return s;
}

TEST(the_three_forms_are_one_moment) {
    CHECK_INT(date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
    CHECK_INT(date("Sunday, 06-Nov-94 08:49:37 GMT"), 784111777);
    CHECK_INT(date("Sun Nov  6 08:49:37 1994"), 784111777);
    CHECK_INT(date("  Sun, 06 Nov 1994 08:49:37 GMT\t"), 784111777);
    CHECK_INT(date("Sun Nov 16 08:49:37 1994"), 784975777);
    CHECK_INT(date("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
    CHECK_INT(date("Thu, 29 Feb 2024 23:59:59 GMT"), 1709251199);
    CHECK_INT(date("Sat, 31 Dec 2016 23:59:60 GMT"), 1483228800);
}

TEST(a_short_year_is_the_one_that_is_near) {
    CHECK_INT(date("Tuesday, 14-Nov-23 22:13:20 GMT"), NOW);
    CHECK_INT(date("Tuesday, 14-Nov-73 22:13:20 GMT"), NOW + 1577923200ll);       /* 2073 */
    CHECK_INT(date("Wednesday, 14-Nov-74 22:13:20 GMT"), 153699200);              /* 1974 */
    CHECK_INT(date_at("Friday, 01-Jan-10 00:00:00 GMT", 3786912000), 4417977600); /* 2110 in 2090 */
}

TEST(what_is_no_date_is_refused) {
    static const char *const bad[] = {
        "",
        "GMT",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT x",
        "Sun,06 Nov 1994 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 NOV 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Thu, 29 Feb 2023 00:00:00 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Wed, 31 Dec 1969 23:59:59 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "1994-11-06T08:49:37Z",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (date(bad[i]) != -1) {
            fprintf(stderr, "# taken for a date: %s\n", bad[i]);
            exit(1);
        }
}

TEST(retry_after_is_seconds_or_a_date_within_its_bound) {
    CHECK_INT(after("0"), 0);
    CHECK_INT(after("120"), 120);
    CHECK_INT(after(" 120 "), 120);
    CHECK_INT(after("86400"), 86400);
    CHECK_INT(after("86401"), 86400);
    CHECK_INT(after("99999999999999999999999999999999"), 86400);
    CHECK_INT(after("Tue, 14 Nov 2023 22:14:20 GMT"), 60);
    CHECK_INT(after("Tuesday, 14-Nov-23 22:14:20 GMT"), 60);
    CHECK_INT(after("Tue Nov 14 22:14:20 2023"), 60);
    CHECK_INT(after("Tue, 14 Nov 2023 22:13:20 GMT"), 0);
    CHECK_INT(after("Sun, 06 Nov 1994 08:49:37 GMT"), 0);
    CHECK_INT(after("Fri, 31 Dec 9999 23:59:59 GMT"), 86400);
    CHECK_INT(after(""), -1);
    CHECK_INT(after("soon"), -1);
    CHECK_INT(after("-1"), -1);
    CHECK_INT(after("1.5"), -1);
    CHECK_INT(after("1 s"), -1);
}

TEST_MAIN
