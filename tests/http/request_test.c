/* A request as the object that expressions read. */
#include "http/http_request.h"

#include "expr/expr.h"
#include "heap_text.h"

#define H(name, value)                                                                             \
    { IDEM_HTTP_TEXT(name), IDEM_HTTP_TEXT(value) }

static struct idem_arena arena;
static struct idem_json json;
static struct idem_error err;

static int build(const struct idem_http_request *request, size_t limit) {
    idem_arena_free(&arena);
    idem_arena_init(&arena, limit);
    return idem_http_request_json(request, &arena, &json, &err);
}

static char shown[8192];
static size_t shown_len;

static int put(void *data, const char *bytes, size_t len) {
    (void)data;
    CHECK(len < sizeof(shown) - shown_len);
    memcpy(shown + shown_len, bytes, len);
    shown_len += len;
    shown[shown_len] = '\0';
    return 0;
}

/* A member as canonical JSON. */
static const char *show(const struct idem_http_request *request, const char *name) {
    const struct idem_json *value;

    CHECK_INT(build(request, 1 << 20), 0);
    value = idem_json_get(&json, name, strlen(name));
    CHECK(value != NULL);
    shown_len = 0;
    CHECK_INT(idem_json_canon(value, put, NULL, &err), 0);
    return shown;
}

static const char *query(const char *text) {
    return show(&(struct idem_http_request){.query = {text, strlen(text)}}, "query");
}

static const char *cookies(const char *text) {
    struct idem_http_header header = {IDEM_HTTP_TEXT("Cookie"), {text, strlen(text)}};

    return show(&(struct idem_http_request){.headers = &header, .headers_n = 1}, "cookies");
}

static const char *body(const char *type, const char *text, size_t len) {
    struct idem_http_header header = {IDEM_HTTP_TEXT("Content-Type"), {type, strlen(type)}};

    return show(
        &(struct idem_http_request){.headers = &header, .headers_n = 1, .body = {text, len}},
        "body");
}

TEST(a_request_has_seven_members) {
    const struct idem_http_request request = {
        .method = IDEM_HTTP_TEXT("POST"),
        .path = IDEM_HTTP_TEXT("/orders"),
        .user = IDEM_HTTP_TEXT("u1"),
    };
    static const char *const names[] = {"method",  "path", "query", "headers",
                                        "cookies", "body", "user"};

    CHECK_STR(show(&request, "method"), "\"POST\"");
    CHECK_STR(show(&request, "path"), "\"/orders\"");
    CHECK_STR(show(&request, "query"), "{}");
    CHECK_STR(show(&request, "headers"), "{}");
    CHECK_STR(show(&request, "cookies"), "{}");
    CHECK_STR(show(&request, "body"), "null");
    CHECK_STR(show(&request, "user"), "\"u1\"");
    CHECK_INT(json.n, 7);
    for (size_t i = 0; i < 7; i++)
        CHECK(memcmp(json.at.object->members[i].name, names[i], strlen(names[i])) == 0);
}

TEST(without_a_scope_the_user_is_null) {
    CHECK_STR(show(&(struct idem_http_request){.method = IDEM_HTTP_TEXT("POST")}, "user"), "null");
    CHECK_STR(show(&(struct idem_http_request){.user = {"", 0}}, "user"), "\"\"");
    CHECK_STR(show(&(struct idem_http_request){.path = IDEM_HTTP_TEXT("/\xff")}, "path"), "null");
}

TEST(a_query_is_an_object_of_its_parameters) {
    CHECK_STR(query(""), "{}");
    CHECK_STR(query("b=2&a=1"), "{\"a\":\"1\",\"b\":\"2\"}");
    CHECK_STR(query("a=x+y%26&&c&=e"), "{\"\":\"e\",\"a\":\"x y&\",\"c\":\"\"}");
    CHECK_STR(query("%E5%BC%A0=%E4%B8%89"), "{\"\xe5\xbc\xa0\":\"\xe4\xb8\x89\"}");
}

TEST(a_repeated_parameter_is_an_array) {
    CHECK_STR(query("a=1&b=x&a=2&%61=3"), "{\"a\":[\"1\",\"2\",\"3\"],\"b\":\"x\"}");
    CHECK_INT(build(&(struct idem_http_request){.query = IDEM_HTTP_TEXT("z=1&a=1&z=2&m=3")}, 9999),
              0);
    CHECK_INT(idem_json_get(&json, "query", 5)->n, 3);
    CHECK(idem_json_get(&json, "query", 5)->at.object->members[0].name[0] == 'z');
    CHECK(idem_json_get(&json, "query", 5)->at.object->members[2].name[0] == 'm');
}

TEST(a_query_that_cannot_be_read_is_null) {
    for (const char **bad = (const char *[]){"a=%", "a=%zz", "%zz=1", "a=1&b=%00", "a=%ff", "%ff=1",
                                             "a=%ED%A0%80", NULL};
         *bad != NULL; bad++)
        CHECK_STR(query(*bad), "null");
}

TEST(many_members_are_found_by_name) {
    static char text[100000];
    size_t len = 0;

    for (int i = 0; i < 3000; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "&k%d=%d", i * 7919 % 1000, i);
    CHECK_INT(build(&(struct idem_http_request){.query = {text, len}}, 1 << 20), 0);
    CHECK_INT(idem_json_get(&json, "query", 5)->n, 1000);
    for (int i = 0; i < 1000; i++) {
        char name[8];
        const struct idem_json *value;

        snprintf(name, sizeof(name), "k%d", i);
        value = idem_json_get(idem_json_get(&json, "query", 5), name, strlen(name));
        CHECK(value != NULL && value->type == IDEM_JSON_ARRAY && value->n == 3);
    }
}

TEST(headers_are_in_lower_case_and_joined) {
    static const struct idem_http_header headers[] = {
        H("X-B", "1"), H("Accept", "a"),   H("x-b", "2"),    H("COOKIE", "a=1"),
        H("X-B", ""),  H("cookie", "b=2"), H("X-Empty", ""),
    };
    const struct idem_http_request request = {.headers = headers, .headers_n = 7};

    CHECK_STR(show(&request, "headers"),
              "{\"accept\":\"a\",\"cookie\":\"a=1; b=2\",\"x-b\":\"1, 2, \",\"x-empty\":\"\"}");
    CHECK_STR(show(&request, "cookies"), "{\"a\":\"1\",\"b\":\"2\"}");
    CHECK_STR(headers[0].name.at, "X-B");
}

TEST(headers_that_are_not_utf_8_are_read_as_latin) {
    static const struct idem_http_header headers[] = {
        H("A", "caf\xe9"), H("B", "caf\xc3\xa9"), H("C\xe9", ""), {IDEM_HTTP_TEXT("N"), {NULL, 0}}};
    const struct idem_http_request request = {.headers = headers, .headers_n = 4};

    CHECK_STR(show(&request, "headers"),
              "{\"a\":\"caf\xc3\xa9\",\"b\":\"caf\xc3\xa9\",\"c\xc3\xa9\":\"\",\"n\":\"\"}");
    CHECK(!idem_json_get(idem_json_get(&json, "headers", 7), "a", 1)->flag);
    CHECK(idem_json_get(idem_json_get(&json, "headers", 7), "n", 1)->flag);
}

TEST(cookies_are_pairs_between_semicolons) {
    CHECK_STR(cookies("a=1; b=2"), "{\"a\":\"1\",\"b\":\"2\"}");
    CHECK_STR(cookies("a=1;b=2;"), "{\"a\":\"1\",\"b\":\"2\"}");
    CHECK_STR(cookies(" a = 1 ;\tb=x=y"), "{\"a\":\"1\",\"b\":\"x=y\"}");
    CHECK_STR(cookies("a=\"q\"; b=%20+"), "{\"a\":\"\\\"q\\\"\",\"b\":\"%20+\"}");
    CHECK_STR(cookies("none; =x; ;; a="), "{\"a\":\"\"}");
    CHECK_STR(cookies("A=1; a=2; A=3"), "{\"A\":[\"1\",\"3\"],\"a\":\"2\"}");
    CHECK_STR(cookies("a=\xe9"), "{\"a\":\"\xc3\xa9\"}");
    CHECK_STR(cookies(""), "{}");
}

TEST(a_body_is_read_by_its_type) {
    CHECK_STR(body("application/json", "{\"a\":[1,null]}", 14), "{\"a\":[1,null]}");
    CHECK_STR(body("application/vnd.x+json; v=1", "7", 1), "7");
    CHECK_STR(body("application/x-www-form-urlencoded", "a=1&a=2&b=", 10),
              "{\"a\":[\"1\",\"2\"],\"b\":\"\"}");
    CHECK_STR(body("application/x-www-form-urlencoded", "a=%", 3), "null");
    CHECK_STR(body("text/plain", "a=1", 3), "\"a=1\"");
    CHECK_STR(body("", "{}", 2), "\"{}\"");
    CHECK_STR(body("application/octet-stream", "\xff", 1), "null");
    CHECK_STR(body("application/json", "", 0), "null");
    CHECK_STR(body("text/plain", "", 0), "null");
}

TEST(two_content_types_are_none) {
    static const struct idem_http_header headers[] = {H("Content-Type", "application/json"),
                                                      H("content-type", "text/plain"),
                                                      H("CONTENT-TYPE", "application/json")};
    struct idem_http_request request = {
        .headers = headers, .headers_n = 2, .body = IDEM_HTTP_TEXT("{")};

    CHECK_STR(show(&request, "body"), "\"{\"");
    request.headers++;
    CHECK_STR(show(&request, "body"), "\"{\"");
}

TEST(json_that_cannot_be_read_is_an_error_that_shows_nothing_of_it) {
    static const struct idem_http_header header = H("Content-Type", "application/json");
    const struct idem_http_request request = {
        .headers = &header, .headers_n = 1, .body = IDEM_HTTP_TEXT("{\"s3cret\":1,}")};

    json.n = 999;
    CHECK_INT(build(&request, 1 << 20), IDEM_E_INVALID);
    CHECK_HAS(err.text, "column");
    CHECK(strstr(err.text, "s3cret") == NULL);
    CHECK_INT(json.n, 999);
}

TEST(no_more_memory_is_taken_than_is_allowed) {
    static const struct idem_http_header headers[] = {H("Cookie", "a=1; a=2; b=\xe9"), H("X", "1"),
                                                      H("X", "2"), H("Content-Type", "a/b+json")};
    const struct idem_http_request request = {.query = IDEM_HTTP_TEXT("a=1&a=2&b=3"),
                                              .headers = headers,
                                              .headers_n = 4,
                                              .body = IDEM_HTTP_TEXT("{\"a\":[1,2,{}]}")};
    size_t limit = 0;

    CHECK_INT(build(&request, 1 << 20), 0);
    for (; build(&request, limit) != 0; limit += 16) {
        CHECK_INT(err.code, IDEM_E_INVALID);
        CHECK_HAS(err.text, "memory");
        CHECK(limit < 8192);
    }
    CHECK(limit > 500);
}

TEST(expressions_read_it) {
    static const struct idem_http_header headers[] = {H("Content-Type", "application/json"),
                                                      H("X-Tenant", "t\xc3\xa9")};
    const struct idem_http_request request = {
        .method = IDEM_HTTP_TEXT("POST"),
        .path = IDEM_HTTP_TEXT("/o"),
        .query = IDEM_HTTP_TEXT("id=5"),
        .headers = headers,
        .headers_n = 2,
        .body = IDEM_HTTP_TEXT("{\"order\":{\"id\":12345678901234567890}}"),
        .user = IDEM_HTTP_TEXT("u1"),
    };
    static const char text[] = "#method + #path + ':' + #user + ':' + #query.id + ':' + "
                               "#headers['x-tenant'] + ':' + #body.order.id";
    struct idem_expr *expr;
    const char *key;
    size_t len;

    CHECK_INT(idem_expr_compile(text, strlen(text), IDEM_EXPR_KEY, &expr, &err), 0);
    CHECK_INT(build(&request, 1 << 20), 0);
    if (idem_expr_key(expr, &json, &arena, &key, &len, &err) != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(len, strlen("POST/o:u1:5:t\xc3\xa9:12345678901234567890"));
    CHECK(memcmp(key, "POST/o:u1:5:t\xc3\xa9:12345678901234567890", len) == 0);
    idem_expr_free(expr);
}

TEST_MAIN
