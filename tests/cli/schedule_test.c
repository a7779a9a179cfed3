/*
 * Schedules: how they are written, and the planned time of a start.
 */
#include "test.h"

#include "cli/schedule.h"

static struct cli_schedule schedule(const char *text) {
    struct cli_schedule s = {0, 0};
    struct idem_error err;

    if (cli_schedule_parse(text, &s, &err) < 0)
        fprintf(stderr, "# %s: %s\n", text, err.text);
    return s;
}

#define AT_2000 946684800000 /* 2000-01-01T00:00:00Z, on an hour and a day */

TEST(a_schedule_is_a_step_and_an_offset) {
    struct cli_schedule s = schedule("24h+2h30m");

    CHECK_INT(s.step_s, 86400);
    CHECK_INT(s.offset_s, 9000);
    CHECK_INT(schedule("1h").step_s, 3600);
    CHECK_INT(schedule("1h").offset_s, 0);
}

TEST(what_is_no_schedule_is_refused) {
    static const char *const wrong[] = {"",      "1",     "1h+",     "+1h",    "0s",   "500ms",
                                        "1h+1h", "1h+2h", "1s500ms", "1h+1h+", "400d", "1h 2m"};
    struct cli_schedule s;
    struct idem_error err;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int rc = cli_schedule_parse(wrong[i], &s, &err);

        if (rc != IDEM_E_INVALID)
            fprintf(stderr, "# taken: %s\n", wrong[i]);
        CHECK_INT(rc, IDEM_E_INVALID);
    }
}

TEST(a_start_is_rounded_down_to_its_step) {
    struct cli_schedule s = schedule("1h");

    CHECK_INT(cli_schedule_planned(&s, AT_2000), AT_2000 / 1000);
    CHECK_INT(cli_schedule_planned(&s, AT_2000 + 1), AT_2000 / 1000);
    CHECK_INT(cli_schedule_planned(&s, AT_2000 + 59 * 60000), AT_2000 / 1000);
}

TEST(two_clocks_near_a_step_agree_on_it) {
    static const char *const texts[] = {"10s", "1m", "1h", "24h+2h30m", "7d+4d"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct cli_schedule s = schedule(texts[i]);
        int64_t slack = cli_schedule_slack_ms(&s);
        int64_t step = cli_schedule_planned(&s, AT_2000) * 1000;

        CHECK(slack > 0 && slack <= 30000 && slack <= s.step_s * 100);
        CHECK_INT(cli_schedule_planned(&s, step - slack) * 1000, step);
        CHECK_INT(cli_schedule_planned(&s, step - 1) * 1000, step);
        CHECK_INT(cli_schedule_planned(&s, step + slack) * 1000, step);
        CHECK_INT(cli_schedule_planned(&s, step - slack - 1) * 1000, step - s.step_s * 1000);
        CHECK_INT(cli_schedule_planned(&s, step + s.step_s * 1000 - slack - 1) * 1000, step);
    }
}

TEST(an_offset_moves_the_step) {
    struct cli_schedule s = schedule("24h+2h30m");

    CHECK_INT(cli_schedule_planned(&s, AT_2000), AT_2000 / 1000 - 86400 + 9000);
    CHECK_INT(cli_schedule_planned(&s, AT_2000 + 9000 * 1000), AT_2000 / 1000 + 9000);
    /* The epoch was a Thursday: four days later, Mondays. */
    s = schedule("7d+4d");
    CHECK_INT(cli_schedule_planned(&s, AT_2000), 946252800);
}

TEST(a_start_before_1970_is_rounded_down_as_well) {
    struct cli_schedule s = schedule("1h");

    CHECK_INT(cli_schedule_planned(&s, -40000), -3600);
    CHECK_INT(cli_schedule_planned(&s, -3600 * 1000), -3600);
    CHECK_INT(cli_schedule_planned(&s, -3700 * 1000), -7200);
}

TEST_MAIN
