/* Refusals, as JSON and as a page. */
#include "http/http_problem.h"

#include "heap_text.h"
#include "json/json.h"

typedef size_t form(const struct idem_http_problem *, char *, size_t);

/* Writes the text into every smaller buffer too, and checks that each write stays within its
 * room. */
static char *whole(form *write, const struct idem_http_problem *problem) {
    size_t len = write(problem, NULL, 0);
    char *all = malloc(len + 1);

    CHECK(all != NULL);
    CHECK_INT(write(problem, all, len + 1), len);
    CHECK_INT(strlen(all), len);
    for (size_t size = 0; size <= len; size++) {
        char *piece = malloc(size + (size == 0));

        CHECK(piece != NULL);
        CHECK_INT(write(problem, piece, size), len);
        CHECK(memcmp(piece, all, size) == 0);
        free(piece);
    }
    return all;
}

static struct idem_arena arena;
static struct idem_json json;
static char *text; /* which the tree points into */

static void parse(const struct idem_http_problem *problem) {
    struct idem_error err;
    int rc;

    free(text);
    text = whole(idem_http_problem_json, problem);
    idem_arena_free(&arena);
    idem_arena_init(&arena, 1 << 20);
    rc = idem_json_parse(text, strlen(text), &arena, &json, &err);
    if (rc != 0)
        fprintf(stderr, "# %s\n# %s\n", err.text, text);
    CHECK_INT(rc, 0);
}

static const struct idem_json *member(const char *name) {
    return idem_json_get(&json, name, strlen(name));
}

/* A member as text; "" if it is not there. */
static const char *get(const char *name) {
    static char value_text[1024];
    const struct idem_json *value = member(name);

    if (value == NULL)
        return "";
    if (value->type == IDEM_JSON_BOOL)
        return value->flag ? "true" : "false";
    CHECK(value->type == IDEM_JSON_STRING || value->type == IDEM_JSON_NUMBER);
    CHECK(value->n < sizeof(value_text));
    memcpy(value_text, value->at.text, value->n);
    value_text[value->n] = '\0';
    return value_text;
}

TEST(every_kind_has_its_word_and_status) {
    static const struct {
        const char *type, *status, *retryable;
    } want[IDEM_HTTP_PROBLEMS] = {
        {"urn:idem:key-missing", "400", "false"},
        {"urn:idem:key-malformed", "400", "false"},
        {"urn:idem:mismatch", "422", "false"},
        {"urn:idem:in-progress", "409", "true"},
        {"urn:idem:duplicate", "409", "false"},
        {"urn:idem:uncertain", "409", "false"},
        {"urn:idem:failed", "409", "false"},
        {"urn:idem:token-refused", "403", "false"},
        {"urn:idem:signature-incomplete", "401", "false"},
        {"urn:idem:signature-stale", "401", "false"},
        {"urn:idem:signature-wrong", "401", "false"},
        {"urn:idem:nonce-reused", "401", "false"},
        {"urn:idem:store-unavailable", "503", "true"},
    };

    for (int kind = 0; kind < IDEM_HTTP_PROBLEMS; kind++) {
        parse(&(struct idem_http_problem){.kind = (enum idem_http_problem_kind)kind});
        CHECK_STR(get("type"), want[kind].type);
        CHECK_STR(get("status"), want[kind].status);
        CHECK_STR(get("retryable"), want[kind].retryable);
        CHECK(get("title")[0] != '\0');
        CHECK_INT(json.n, 4);
    }
}

TEST(members_are_there_if_they_were_said) {
    parse(&(struct idem_http_problem){
        .kind = IDEM_HTTP_FAILED,
        .status = 502,
        .retryable = IDEM_HTTP_RETRY,
        .detail = IDEM_HTTP_TEXT("No."),
        .key_hash = IDEM_HTTP_TEXT("00ff"),
        .first_status = 201,
        .last_status = 500,
        .reason = IDEM_HTTP_TEXT("out of stock"),
    });
    CHECK_INT(json.n, 9);
    CHECK_STR(get("status"), "502");
    CHECK(member("status")->type == IDEM_JSON_NUMBER);
    CHECK_STR(get("retryable"), "true");
    CHECK_STR(get("detail"), "No.");
    CHECK_STR(get("key_hash"), "00ff");
    CHECK_STR(get("first_status"), "201");
    CHECK_STR(get("last_status"), "500");
    CHECK_STR(get("reason"), "out of stock");
    parse(&(struct idem_http_problem){.kind = IDEM_HTTP_IN_PROGRESS,
                                      .retryable = IDEM_HTTP_NO_RETRY});
    CHECK_STR(get("retryable"), "false");
}

TEST(any_text_is_valid_json) {
    char every[256];
    struct idem_http_problem problem = {.detail = {every, sizeof(every)}};
    const struct idem_json *detail;

    for (int i = 0; i < 256; i++)
        every[i] = (char)i;
    parse(&problem);
    detail = member("detail");
    CHECK_INT(detail->n, 128 + 128 * 3);
    CHECK(memcmp(detail->at.text, every, 128) == 0);
    problem.detail = IDEM_HTTP_TEXT("\xe8\xaf\xb7\xe5\x8b\xbf\xe9\x87\x8d\xe5\xa4\x8d \"\\\n"
                                    "\xf0\x9f\x98\x80\xe2\x80\xa8\xc2\x85");
    parse(&problem);
    CHECK_STR(get("detail"), problem.detail.at);
    problem.detail = IDEM_HTTP_TEXT("a\xe8\xaf");
    parse(&problem);
    CHECK_STR(get("detail"), "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(any_text_is_harmless_in_a_page) {
    struct idem_http_problem problem = {
        .kind = IDEM_HTTP_FAILED,
        .detail = IDEM_HTTP_TEXT("<script>alert(\"1\"&'2')</script>\x01\xff\n\xe8\xaf\xb7"),
        .reason = IDEM_HTTP_TEXT("</p><img src=x onerror=y>"),
        .key_hash = IDEM_HTTP_TEXT("<b>"),
    };
    char *page = whole(idem_http_problem_html, &problem);

    CHECK(strstr(page, "<script") == NULL && strstr(page, "<img") == NULL);
    CHECK(strstr(page, "<b>") == NULL && strchr(page, '\x01') == NULL);
    CHECK_HAS(page, "&lt;script&gt;alert(&quot;1&quot;&amp;&#39;2&#39;)&lt;/script&gt;"
                    "\xef\xbf\xbd\xef\xbf\xbd\n\xe8\xaf\xb7</p>");
    CHECK_HAS(page, "&lt;/p&gt;&lt;img src=x onerror=y&gt;");
    CHECK_HAS(page, "&lt;b&gt;");
    free(page);
}

/* The message is the operator's, and may need a zero-width joiner; the reason may come from any
 * client. */
TEST(what_nobody_sees_in_a_reason_is_shown) {
    struct idem_http_problem problem = {
        .kind = IDEM_HTTP_FAILED,
        .detail = IDEM_HTTP_TEXT("\xd9\x85\xdb\x8c\xe2\x80\x8c\xd8\xb4"),
        .reason = IDEM_HTTP_TEXT("7\xe2\x80\xae"
                                 "8\xf3\xa0\x81\x81"),
    };
    char *shown = whole(idem_http_problem_html, &problem);

    CHECK_HAS(shown, "7\xef\xbf\xbd"
                     "8\xef\xbf\xbd</p>");
    CHECK_HAS(shown, problem.detail.at);
    free(shown);
    shown = whole(idem_http_problem_json, &problem);
    CHECK_HAS(shown, "\"reason\":\"7\\u202e8\\udb40\\udc41\"");
    free(shown);
    parse(&problem);
    CHECK_STR(get("detail"), problem.detail.at);
}

TEST(a_page_needs_nothing_else) {
    for (int kind = 0; kind < IDEM_HTTP_PROBLEMS; kind++) {
        struct idem_http_problem problem = {
            .kind = (enum idem_http_problem_kind)kind, .first_status = 201, .last_status = 500};
        char *page = whole(idem_http_problem_html, &problem);

        CHECK(strncmp(page, "<!DOCTYPE html>\n", 16) == 0);
        CHECK_HAS(page, "<meta charset=\"utf-8\">");
        CHECK_HAS(page, "width=device-width");
        CHECK_HAS(page, "light dark");
        CHECK_HAS(page, idem_http_problem_defaults[kind].word);
        CHECK_HAS(page, "status 201.</p>");
        CHECK_HAS(page, "status 500.</p>");
        CHECK(strstr(page, "http") == NULL && strstr(page, "src=") == NULL);
        CHECK_HAS(page, "</html>\n");
        free(page);
    }
}

static void page_says(const struct idem_http_problem *problem, const char *what) {
    char *page = whole(idem_http_problem_html, problem);

    CHECK_HAS(page, what);
    free(page);
}

TEST(a_page_says_whether_to_try_again) {
    struct idem_http_problem problem = {.kind = IDEM_HTTP_IN_PROGRESS};

    page_says(&problem, "in a moment");
    problem.retry_after = 1;
    page_says(&problem, "in 1 second.");
    problem.retry_after = 30;
    page_says(&problem, "in 30 seconds.");
    problem.kind = IDEM_HTTP_UNCERTAIN;
    page_says(&problem, "will not change this");
}

TEST_MAIN
