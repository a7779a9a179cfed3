/*
 * The formats that the handlers read and write: rules, responses of workers,
 * requests to them.
 */
#include "queue/handler/handler_answer.h"
#include "queue/handler/handler_json.h"
#include "queue/handler/handler_open.h"
#include "test.h"
#include "json/json.h"

#define CHECK_RESULT(got, want) CHECK_STR(queue_result_name(got), queue_result_name(want))

/* Rules. */

static enum queue_result exit_rule(const char *text, int status) {
    struct handler_rules rules;
    struct idem_error err;

    if (handler_on_exit_parse(text, &rules, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return handler_rule(&rules, status);
}

static enum queue_result status_rule(const char *text, int status) {
    struct handler_rules rules;
    struct idem_error err;

    if (handler_on_status_parse(text, &rules, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return handler_rule(&rules, status);
}

TEST(exit_statuses_have_their_defaults) {
    CHECK_RESULT(exit_rule(NULL, 0), QUEUE_DONE);
    CHECK_RESULT(exit_rule(NULL, 75), QUEUE_RETRY);
    CHECK_RESULT(exit_rule(NULL, 1), QUEUE_RETRY);
    CHECK_RESULT(exit_rule(NULL, 126), QUEUE_RETRY);
    CHECK_RESULT(exit_rule(NULL, 127), QUEUE_RETRY);
    CHECK_RESULT(exit_rule(NULL, 128), QUEUE_RETRY);
    CHECK_RESULT(exit_rule(NULL, 129), QUEUE_UNKNOWN);
    CHECK_RESULT(exit_rule(NULL, 139), QUEUE_UNKNOWN);
    CHECK_RESULT(exit_rule(NULL, 192), QUEUE_UNKNOWN);
    CHECK_RESULT(exit_rule(NULL, 193), QUEUE_RETRY);
    CHECK_RESULT(exit_rule(NULL, 255), QUEUE_RETRY);
}

TEST(a_rule_for_an_exit_status_counts_before_the_rest) {
    static const char text[] = "65=dead, 1=retry ,\t3 = done,*=unknown";

    CHECK_RESULT(exit_rule(text, 65), QUEUE_REFUSED);
    CHECK_RESULT(exit_rule(text, 1), QUEUE_RETRY);
    CHECK_RESULT(exit_rule(text, 3), QUEUE_DONE);
    CHECK_RESULT(exit_rule(text, 2), QUEUE_UNKNOWN);
    CHECK_RESULT(exit_rule(text, 0), QUEUE_DONE);
    CHECK_RESULT(exit_rule(text, 75), QUEUE_RETRY);
    CHECK_RESULT(exit_rule("*=dead", 75), QUEUE_RETRY);
    CHECK_RESULT(exit_rule("*=dead", 139), QUEUE_UNKNOWN);
    CHECK_RESULT(exit_rule("139=dead,75=dead", 139), QUEUE_REFUSED);
    CHECK_RESULT(exit_rule("139=dead,75=dead", 75), QUEUE_REFUSED);
}

TEST(http_statuses_have_their_defaults) {
    static const struct {
        int status;
        enum queue_result result;
    } rows[] = {
        {200, QUEUE_DONE},    {202, QUEUE_DONE},    {204, QUEUE_DONE},    {299, QUEUE_DONE},
        {301, QUEUE_REFUSED}, {304, QUEUE_REFUSED}, {400, QUEUE_REFUSED}, {404, QUEUE_REFUSED},
        {422, QUEUE_REFUSED}, {409, QUEUE_RETRY},   {425, QUEUE_RETRY},   {429, QUEUE_RETRY},
        {503, QUEUE_RETRY},   {500, QUEUE_RETRY},   {501, QUEUE_RETRY},   {599, QUEUE_RETRY},
        {502, QUEUE_UNKNOWN}, {504, QUEUE_UNKNOWN}, {0, QUEUE_UNKNOWN},   {101, QUEUE_UNKNOWN},
        {600, QUEUE_UNKNOWN}, {999, QUEUE_UNKNOWN}, {-1, QUEUE_UNKNOWN},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_RESULT(status_rule(NULL, rows[i].status), rows[i].result);
}

TEST(an_exact_status_counts_before_its_class) {
    static const char text[] = "404=retry,5xx=dead,4xx=unknown,201=retry,500=retry";

    CHECK_RESULT(status_rule(text, 404), QUEUE_RETRY);
    CHECK_RESULT(status_rule(text, 400), QUEUE_UNKNOWN);
    CHECK_RESULT(status_rule(text, 409), QUEUE_RETRY);
    CHECK_RESULT(status_rule(text, 500), QUEUE_RETRY);
    CHECK_RESULT(status_rule(text, 501), QUEUE_REFUSED);
    CHECK_RESULT(status_rule(text, 502), QUEUE_UNKNOWN);
    CHECK_RESULT(status_rule(text, 503), QUEUE_RETRY);
    CHECK_RESULT(status_rule(text, 201), QUEUE_RETRY);
    CHECK_RESULT(status_rule(text, 200), QUEUE_DONE);
}

static void refused(int (*parse)(const char *, struct handler_rules *, struct idem_error *),
                    const char *text, const char *why) {
    struct handler_rules rules = {.rest = 77};
    struct idem_error err = {.text = "nothing"};

    CHECK_INT(parse(text, &rules, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, why);
    CHECK_INT(rules.rest, 77);
}

TEST(a_list_of_rules_that_is_wrong_is_refused_with_what_is_allowed) {
    refused(handler_on_exit_parse, "", "--on-exit: \"\": a rule is STATUS=RESULT");
    refused(handler_on_exit_parse, "65", "STATUS=RESULT");
    refused(handler_on_exit_parse, "65=dead,", "STATUS=RESULT");
    refused(handler_on_exit_parse, "65=dead,,1=retry", "STATUS=RESULT");
    refused(handler_on_exit_parse, "=dead", "a number from 1 to 255, or *");
    refused(handler_on_exit_parse, "0=retry", "a number from 1 to 255, or *");
    refused(handler_on_exit_parse, "256=retry", "a number from 1 to 255, or *");
    refused(handler_on_exit_parse, "-1=retry", "a number from 1 to 255, or *");
    refused(handler_on_exit_parse, "0x41=retry", "a number from 1 to 255, or *");
    refused(handler_on_exit_parse, "4xx=retry", "a number from 1 to 255, or *");
    refused(handler_on_exit_parse, "65=ded",
            "\"65=ded\": a result is done, retry, dead or unknown");
    refused(handler_on_exit_parse, "65=", "a result is");
    refused(handler_on_exit_parse, "65=dead=dead", "a result is");
    refused(handler_on_exit_parse, "65=dead,65=retry", "\"65=retry\": this status has a rule");
    refused(handler_on_exit_parse, "*=dead,*=dead", "this status has a rule");
    refused(handler_on_status_parse, "*=dead", "--on-status: \"*=dead\": a status is a number");
    refused(handler_on_status_parse, "199=dead", "200 to 599, or 2xx, 3xx, 4xx or 5xx");
    refused(handler_on_status_parse, "600=dead", "200 to 599");
    refused(handler_on_status_parse, "1xx=dead", "200 to 599");
    refused(handler_on_status_parse, "6xx=dead", "200 to 599");
    refused(handler_on_status_parse, "4XX=dead", "200 to 599");
    refused(handler_on_status_parse, "404=retry,404=retry", "this status has a rule");
}

/* Responses. */

static struct handler_answer answer;

/* NULL, or the fault of a line; the copy ends with the line, so that a sanitizer sees a read
 * beyond it. */
static const char *fault_of(const char *line, uint64_t id) {
    static struct idem_error err;
    size_t len = strlen(line);
    char *copy = malloc(len + (len == 0));
    int rc;

    CHECK(copy != NULL);
    memcpy(copy, line, len);
    answer = (struct handler_answer){.result = 99};
    rc = handler_answer_parse(copy, len, id, &answer, &err);
    free(copy);
    CHECK(rc == 0 || answer.result == 99);
    return rc == 0 ? NULL : err.text;
}

static void reads(const char *line) {
    const char *fault = fault_of(line, 7);

    if (fault != NULL) {
        fprintf(stderr, "# %s: %s\n", line, fault);
        exit(1);
    }
}

TEST(an_answer_says_what_came_of_it) {
    reads("{\"id\":7,\"result\":\"done\"}");
    CHECK_RESULT(answer.result, QUEUE_DONE);
    CHECK_INT(answer.delay_ms, 0);
    CHECK_INT(answer.status, 0);
    CHECK_STR(answer.reason, "");
    reads(" {\"status\": -5, \"result\": \"dead\", \"more\": [1], \"id\": 7} \r");
    CHECK_RESULT(answer.result, QUEUE_REFUSED);
    CHECK_INT(answer.status, -5);
    reads("{\"id\":7,\"result\":\"unknown\",\"reason\":\"the bank\\nis \\u00e9teinte\\u0007\"}");
    CHECK_RESULT(answer.result, QUEUE_UNKNOWN);
    CHECK_STR(answer.reason, "the bank is \xc3\xa9teinte");
    reads(
        "{\"id\":7,\"result\":\"unknown\",\"reason\":\"7\\u202e8\\u2028\\u200b9\\udb40\\udc41\"}");
    CHECK_STR(answer.reason, "7 8  9");
    reads("{\"id\":7,\"result\":\"retry\",\"reason\":null,\"delay\":null,\"status\":null}");
    CHECK_RESULT(answer.result, QUEUE_RETRY);
    CHECK_STR(answer.reason, "");
}

static int64_t delay_of(const char *delay) {
    char line[128];

    snprintf(line, sizeof(line), "{\"id\":7,\"result\":\"retry\",\"delay\":%s}", delay);
    return fault_of(line, 7) == NULL ? answer.delay_ms : -1;
}

TEST(a_delay_is_a_time_or_seconds_and_at_most_a_day) {
    CHECK_INT(delay_of("\"30s\""), 30000);
    CHECK_INT(delay_of("\"1m30s\""), 90000);
    CHECK_INT(delay_of("\"250ms\""), 250);
    CHECK_INT(delay_of("\"400d\""), 86400000);
    CHECK_INT(delay_of("30"), 30000);
    CHECK_INT(delay_of("0"), 0);
    CHECK_INT(delay_of("1.5"), 1500);
    CHECK_INT(delay_of("0.0019"), 1);
    CHECK_INT(delay_of("0.25000000000000000000001"), 250);
    CHECK_INT(delay_of("86400"), 86400000);
    CHECK_INT(delay_of("86401"), 86400000);
    CHECK_INT(delay_of("123456789012345678901234567890"), 86400000);
    CHECK_INT(delay_of("-1"), -1);
    CHECK_INT(delay_of("1e3"), -1);
    CHECK_INT(delay_of("\"30\""), -1);
    CHECK_INT(delay_of("\"soon\""), -1);
    CHECK_INT(delay_of("true"), -1);
    CHECK_INT(delay_of("[]"), -1);
}

TEST(what_is_no_answer_is_told_without_being_shown) {
    static const struct {
        const char *line, *why;
    } rows[] = {
        {"", "no JSON"},
        {"SECRET", "no JSON"},
        {"{\"id\":7,\"result\":\"done\"", "no JSON"},
        {"{\"id\":7,\"result\":\"done\"}{}", "no JSON"},
        {"{\"id\":7,\"id\":7,\"result\":\"done\"}", "no JSON"},
        {"[7]", "no JSON object"},
        {"{}", "has no \"id\""},
        {"{\"id\":null,\"result\":\"done\"}", "has no \"id\""},
        {"{\"id\":8,\"result\":\"done\"}", "another \"id\""},
        {"{\"id\":\"7\",\"result\":\"done\"}", "another \"id\""},
        {"{\"id\":7.0,\"result\":\"done\"}", "another \"id\""},
        {"{\"id\":-7,\"result\":\"done\"}", "another \"id\""},
        {"{\"id\":18446744073709551623,\"result\":\"done\"}", "another \"id\""},
        {"{\"id\":7}", "no \"result\""},
        {"{\"id\":7,\"result\":\"SECRET\"}", "is not done, retry, dead or unknown"},
        {"{\"id\":7,\"result\":1}", "is not done, retry, dead or unknown"},
        {"{\"id\":7,\"result\":\"done\",\"status\":\"SECRET\"}", "no integer of 32 bits"},
        {"{\"id\":7,\"result\":\"done\",\"status\":2147483648}", "no integer of 32 bits"},
        {"{\"id\":7,\"result\":\"done\",\"status\":1.5}", "no integer of 32 bits"},
        {"{\"id\":7,\"result\":\"done\",\"reason\":[\"SECRET\"]}", "\"reason\" is no string"},
        {"{\"id\":7,\"result\":\"retry\",\"delay\":\"SECRET\"}", "neither a time"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *fault = fault_of(rows[i].line, 7);

        if (fault == NULL)
            fprintf(stderr, "# taken: %s\n", rows[i].line);
        CHECK(fault != NULL);
        CHECK_HAS(fault, rows[i].why);
        CHECK(strstr(fault, "SECRET") == NULL);
    }
}

TEST(a_long_reason_is_cut_between_characters) {
    static char line[HANDLER_ANSWER_MAX];
    size_t n = (size_t)snprintf(line, sizeof(line), "{\"id\":7,\"result\":\"dead\",\"reason\":\"x");

    for (int i = 0; i < 2000; i++, n += 2)
        memcpy(line + n, "\xc3\xa9", 2);
    memcpy(line + n, "\"}", 3);
    reads(line);
    CHECK_INT(strlen(answer.reason), IDEM_REASON_MAX - 1);
}

TEST(a_deep_or_a_long_line_is_refused) {
    static char line[HANDLER_ANSWER_MAX + 2];

    memset(line, '[', 5000);
    CHECK(fault_of(line, 7) != NULL);
    memset(line, ' ', HANDLER_ANSWER_MAX + 1);
    CHECK_HAS(fault_of(line, 7), "longer than 65536");
}

/* Requests. */

static struct idem_bytes bytes_of(const char *text) {
    return (struct idem_bytes){(const unsigned char *)text, strlen(text)};
}

static char *question(const struct queue_message *message, const void *key, size_t key_len) {
    struct queue_run work = {
        .message = message,
        .key = key,
        .key_len = key_len,
        .hash = "ab12",
        .trace = "t1",
        .attempt = 2,
    };
    size_t len = 0;
    char *line = handler_request_line(&work, 9, &len), *text = calloc(1, len + 1);

    CHECK(line != NULL && text != NULL);
    memcpy(text, line, len);
    free(line);
    CHECK(memchr(text, '\n', len) == text + len - 1);
    return text;
}

TEST(a_question_is_one_line_of_json) {
    struct queue_field headers[] = {
        {.name = bytes_of("X-A"), .value = bytes_of("one\r\n\"two\"\\ \x7f")},
        {.name = bytes_of("n"), .value = bytes_of("{\"a\":\n[1,\r\n2]}"), .json = true},
        {.name = bytes_of("X-A"), .value = bytes_of("again")},
        {.name = bytes_of("\xff"), .value = bytes_of("left out")},
        {.name = bytes_of("bad"), .value = bytes_of("a\xff\xfe")},
    };
    struct queue_field property = {.name = bytes_of("message_id"), .value = bytes_of("m1")};
    struct queue_message message = {
        .body = bytes_of("{\"order\": 1}\n"),
        .headers = headers,
        .headers_n = 5,
        .properties = &property,
        .properties_n = 1,
        .queue = "orders",
        .redelivered = true,
    };
    char *line = question(&message, "k1", 2);

    CHECK_STR(line, "{\"id\":9,\"attempt\":2,\"key\":\"k1\",\"key_hash\":\"ab12\",\"trace\":\"t1\","
                    "\"queue\":\"orders\",\"redelivered\":true,\"headers\":{\"X-A\":\"one\\u000d\\n"
                    "\\\"two\\\"\\\\ \\u007f\",\"bad\":\"a\\ufffd\\ufffd\",\"n\":{\"a\": [1,  2]}},"
                    "\"properties\":{\"message_id\":\"m1\"},"
                    "\"body\":\"{\\\"order\\\": 1}\\n\"}\n");
    free(line);
}

TEST(what_is_not_utf8_is_base64) {
    struct queue_message message = {.body = {(const unsigned char *)"\x00\xff\x01", 3}};
    char *line = question(&message, "\xff\x00", 2);

    CHECK_HAS(line, "\"key_base64\":\"/wA=\"");
    CHECK_HAS(line, "\"body_base64\":\"AP8B\"");
    CHECK_HAS(line, "\"queue\":\"\"");
    CHECK_HAS(line, "\"headers\":{},\"properties\":{}");
    CHECK(strstr(line, "\"body\"") == NULL);
    free(line);
}

TEST(a_question_can_be_read_whatever_its_bytes_are) {
    unsigned char body[3000];
    struct idem_arena arena;
    struct idem_json json;
    struct idem_error err;

    srandom(5);
    for (int round = 0; round < 300; round++) {
        struct queue_message message = {.body = {body, (size_t)(random() % 3000)}};
        char *line;

        for (size_t i = 0; i < sizeof(body); i++)
            body[i] = (unsigned char)(round % 2 == 0 ? random() : random() % 128);
        line = question(&message, body, 20);
        idem_arena_init(&arena, 1 << 20);
        CHECK_INT(idem_json_parse(line, strlen(line), &arena, &json, &err), 0);
        if (round % 2 != 0) {
            const struct idem_json *text = idem_json_get(&json, "body", 4);

            CHECK(text != NULL && text->n == message.body.len);
            CHECK(memcmp(text->at.text, body, text->n) == 0);
        }
        idem_arena_free(&arena);
        free(line);
    }
}

TEST_MAIN
