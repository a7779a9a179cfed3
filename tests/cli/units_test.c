/*
 * The pure parts of idem(1): schedules, stored results, times, JSON, options.
 */
#include "test.h"

#include "cli/cli.h"
#include "cli/cli_result.h"
#include "cli/schedule.h"
#include "cli/time_argument.h"
#include "json/json_out.h"

/* Schedules. */

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

/* Results. */

static void chunk_check(struct cli_reader *reader, int stream, const char *bytes, size_t len) {
    struct cli_chunk chunk;

    CHECK(cli_reader_next(reader, &chunk));
    CHECK_INT(chunk.stream, stream);
    CHECK_INT(chunk.len, len);
    CHECK(memcmp(chunk.bytes, bytes, len) == 0);
}

TEST(a_result_comes_back_in_order_byte_for_byte) {
    struct spawn_end end = {.signalled = false, .number = 255}, got;
    struct cli_reader reader;
    struct cli_result result;
    struct cli_chunk chunk;

    cli_result_init(&result, 100);
    cli_result_add(&result, 1, "a\0b", 3);
    cli_result_add(&result, 1, "c", 1);
    cli_result_add(&result, 2, "\xff", 1);
    cli_result_add(&result, 2, "", 0);
    cli_result_add(&result, 1, "d", 1);
    CHECK(cli_result_end(&result, &end));
    CHECK(cli_result_read(result.bytes.at, result.bytes.len, &got, &reader));
    CHECK(!got.signalled);
    CHECK_INT(got.number, 255);
    chunk_check(&reader, 1, "a\0bc", 4);
    chunk_check(&reader, 2, "\xff", 1);
    chunk_check(&reader, 1, "d", 1);
    CHECK(!cli_reader_next(&reader, &chunk));
    cli_result_release(&result);
}

TEST(an_empty_result_is_a_result) {
    struct spawn_end end = {.signalled = true, .number = SIGKILL}, got;
    struct cli_reader reader;
    struct cli_result result;
    struct cli_chunk chunk;

    cli_result_init(&result, 0);
    CHECK(cli_result_end(&result, &end));
    CHECK(cli_result_read(result.bytes.at, result.bytes.len, &got, &reader));
    CHECK_INT(spawn_end_status(&got), 137);
    CHECK(!cli_reader_next(&reader, &chunk));
    cli_result_release(&result);
}

TEST(output_is_kept_up_to_the_limit_and_not_at_all_beyond) {
    struct spawn_end end = {0};
    struct cli_result result;

    cli_result_init(&result, 4);
    cli_result_add(&result, 1, "abcd", 4);
    CHECK(cli_result_end(&result, &end));
    cli_result_add(&result, 2, "e", 1);
    CHECK(!cli_result_end(&result, &end));
    CHECK(result.bytes.at == NULL);
    cli_result_add(&result, 1, "", 0);
    cli_result_add(&result, 1, "a", 1);
    CHECK(!cli_result_end(&result, &end));
    cli_result_release(&result);
}

TEST(a_damaged_result_is_refused_whole) {
    static const unsigned char wrong[][12] = {
        {'R', 1, 0},                               /* 3: no header */
        {'S', 1, 0, 0},                            /* 4: another format */
        {'R', 2, 0, 0},                            /* 4: a newer version */
        {'R', 1, 2, 0},                            /* 4: no such end */
        {'R', 1, 1, 65},                           /* 4: no such signal */
        {'R', 1, 0, 0, 1, 0, 0, 0, 0},             /* 9: an empty chunk */
        {'R', 1, 0, 0, 3, 1, 0, 0, 0, 'x'},        /* 10: no such stream */
        {'R', 1, 0, 0, 1, 2, 0, 0, 0, 'x'},        /* 10: cut short */
        {'R', 1, 0, 0, 1, 1, 0, 0, 0, 'x', 'y'},   /* 11: bytes after the end */
        {'R', 1, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, /* 9: longer than the data */
    };
    static const size_t lens[] = {3, 4, 4, 4, 4, 9, 10, 10, 11, 9};
    struct cli_reader reader;
    struct spawn_end end;

    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
        CHECK(!cli_result_read(wrong[i], lens[i], &end, &reader));
    CHECK(!cli_result_read("", 0, &end, &reader));
}

/* Times. */

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

/* JSON. */

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

TEST(a_printable_text_has_no_control_characters) {
    char buf[32], small[4];

    CHECK_STR(cli_printable("a\x1b[31mb\xff\xc3\xa9", buf, sizeof(buf)), "a?[31mb?\xc3\xa9");
    CHECK_STR(cli_printable("7\xe2\x80\xae\xe2\x80\x8b", buf, sizeof(buf)), "7??");
    CHECK_STR(cli_printable("abcdef", small, sizeof(small)), "abc");
    CHECK_STR(cli_printable("ab\xc3\xa9", small, sizeof(small)), "ab");
}

/* Options. */

TEST(the_nearest_word_is_found_if_it_is_near) {
    static const char *const words[] = {"key", "lease", "on-failure", "result-max", NULL};

    CHECK_STR(cli_options_nearest("kee", 3, words), "key");
    CHECK_STR(cli_options_nearest("on_failure", 10, words), "on-failure");
    CHECK_STR(cli_options_nearest("laese", 5, words), "lease");
    CHECK(cli_options_nearest("colour", 6, words) == NULL);
    CHECK(cli_options_nearest("", 0, words) == NULL);
    CHECK(cli_options_nearest("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 50, words) ==
          NULL);
}

TEST(every_word_of_the_policy_has_its_help) {
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    char flag[64];

    cli_options_print(&cli_run, out);
    fclose(out);
    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        if (strcmp(o->word, "key") == 0 || strcmp(o->word, "on_duplicate") == 0 ||
            strcmp(o->word, "token_ttl") == 0)
            continue;
        snprintf(flag, sizeof(flag), "--%s ", o->word);
        for (char *c = flag; *c != '\0'; c++)
            *c = *c == '_' ? '-' : *c;
        CHECK_HAS(text, flag);
    }
    CHECK(strstr(text, "VALUE") == NULL);
    free(text);
}

TEST_MAIN
