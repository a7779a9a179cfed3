/* The variables of a message, and its key and lane. */
#include "queue/message_key.h"
#include "test.h"

#define BYTES(text)                                                                                \
    { (const unsigned char *)(text), sizeof(text) - 1 }

static struct idem_guard *guard(struct idem_policy policy) {
    struct idem_guard *made = NULL;
    struct idem_error err = {0};

    policy.prefix = "q:";
    policy.scope = IDEM_SCOPE_NONE;
    if (idem_guard_make(NULL, &policy, NULL, &made, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return made;
}

static const char *variables(const struct queue_message *message) {
    static char text[4096];
    struct idem_error err = {0};
    char *at = NULL;
    size_t len;
    int rc = queue_message_variables(message, &at, &len, &err);

    if (rc != 0)
        snprintf(text, sizeof(text), "%s", err.text);
    else
        snprintf(text, sizeof(text), "%.*s", (int)len, at);
    free(at);
    return text;
}

TEST(variables_are_body_headers_properties_and_queue) {
    static const struct queue_field headers[] = {{BYTES("a\"b"), BYTES("x\ny"), false},
                                                 {BYTES("n"), BYTES("12345678901234567890"), true}};
    static const struct queue_field properties[] = {{BYTES("message_id"), BYTES("m-1"), false}};
    struct queue_message message = {.body = BYTES("{\"id\": 1.50}"),
                                    .headers = headers,
                                    .headers_n = 2,
                                    .properties = properties,
                                    .properties_n = 1,
                                    .queue = "orders"};

    CHECK_STR(variables(&message),
              "{\"queue\":\"orders\",\"headers\":{\"a\\\"b\":\"x\\ny\",\"n\":12345678901234567890},"
              "\"properties\":{\"message_id\":\"m-1\"},\"body\":{\"id\": 1.50}}");
}

TEST(a_body_that_is_no_json_is_a_text_and_bytes_are_left_out) {
    struct queue_message message = {.body = BYTES("order 7"), .queue = "q"};

    CHECK_HAS(variables(&message), "\"body\":\"order 7\"");
    message.body = (struct idem_bytes)BYTES("{\"a\": 1");
    CHECK_HAS(variables(&message), "\"body\":\"{\\\"a\\\": 1\"");
    message.body = (struct idem_bytes)BYTES("\xff\xfe");
    CHECK(strstr(variables(&message), "body") == NULL);
    message.body = (struct idem_bytes){NULL, 0};
    CHECK_HAS(variables(&message), "\"body\":\"\"");
    message.body = (struct idem_bytes)BYTES("{\"a\": 1, \"a\": 2}"); /* ambiguous, so not JSON */
    CHECK_HAS(variables(&message), "\"body\":\"{");
}

TEST(headers_that_are_no_text_are_left_out_and_twice_is_refused) {
    static const struct queue_field headers[] = {{BYTES("\xff"), BYTES("1"), false},
                                                 {BYTES("b"), BYTES("\x80"), false},
                                                 {BYTES("c"), BYTES("2"), false},
                                                 {BYTES("c"), BYTES("3"), false}};
    struct queue_message message = {.headers = headers, .headers_n = 3, .queue = "q"};

    CHECK_HAS(variables(&message), "\"headers\":{\"c\":\"2\"}");
    message.headers_n = 4;
    CHECK_HAS(variables(&message), "\"c\" is there twice");
}

TEST(more_headers_than_are_read_are_refused) {
    static struct queue_field headers[QUEUE_FIELDS_MAX + 1];
    static char names[QUEUE_FIELDS_MAX + 1][8];
    struct queue_message message = {.headers = headers, .headers_n = QUEUE_FIELDS_MAX, .queue = ""};
    struct idem_error err;
    char *at;
    size_t len;

    for (int i = 0; i <= QUEUE_FIELDS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "%d", i);
        headers[i].name = (struct idem_bytes){(unsigned char *)names[i], strlen(names[i])};
    }
    CHECK_INT(queue_message_variables(&message, &at, &len, &err), 0);
    free(at);
    message.headers_n++;
    CHECK_INT(queue_message_variables(&message, &at, &len, &err), IDEM_E_INVALID);
}

TEST(headers_are_found_in_any_case) {
    static const struct queue_field headers[] = {{BYTES("idempotency-KEY"), BYTES("k"), false}};
    struct queue_message message = {.headers = headers, .headers_n = 1};

    CHECK(queue_message_header(&message, "Idempotency-Key") == headers);
    CHECK(queue_message_header(&message, "Idempotency-Ke") == NULL);
    CHECK(queue_message_property(&message, "message_id") == NULL);
}

TEST(a_trace_is_that_of_traceparent_or_the_message_id_or_nothing) {
    static const struct queue_field headers[] = {
        {BYTES("traceparent"), BYTES("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
         false}};
    static const struct queue_field properties[] = {{BYTES("message_id"), BYTES("m \n1"), false}};
    struct queue_message message = {
        .headers = headers, .headers_n = 1, .properties = properties, .properties_n = 1};
    char trace[QUEUE_TRACE_TEXT];

    CHECK_STR(queue_message_trace(&message, trace), "4bf92f3577b34da6a3ce929d0e0e4736");
    message.headers_n = 0;
    CHECK_STR(queue_message_trace(&message, trace), "m??1");
    message.properties_n = 0;
    CHECK_STR(queue_message_trace(&message, trace), "-");
}

static int identity(const struct queue_keying *keying, const struct queue_message *message,
                    struct queue_identity *ret) {
    struct idem_error err = {0};
    int rc = queue_identity_make(keying, message, ret, &err);

    if (rc != 0)
        fprintf(stderr, "# %s\n", err.text);
    return rc;
}

TEST(a_key_is_an_expression_an_id_or_a_header) {
    static const struct queue_field headers[] = {{BYTES("Idempotency-Key"), BYTES("h-1"), false}};
    static const struct queue_field properties[] = {{BYTES("message_id"), BYTES("m-1"), false}};
    struct queue_message message = {.body = BYTES("{\"orderId\": 12345678901234567890}"),
                                    .headers = headers,
                                    .headers_n = 1,
                                    .properties = properties,
                                    .properties_n = 1,
                                    .queue = "q"};
    struct idem_guard *expr = guard((struct idem_policy){.key_expr = "'o-' + #body.orderId"});
    struct idem_guard *literal = guard((struct idem_policy){0});
    struct queue_keying keying = {.kind = QUEUE_KEY_EXPRESSION, .guard = expr};
    struct queue_identity got;

    CHECK_INT(identity(&keying, &message, &got), 0);
    CHECK_INT(got.call.key_len, 22);
    CHECK(memcmp(got.call.key, "o-12345678901234567890", 22) == 0);
    CHECK_INT(got.call.fingerprint.definition, 0);
    keying = (struct queue_keying){.kind = QUEUE_KEY_ID, .guard = literal};
    CHECK_INT(identity(&keying, &message, &got), 0);
    CHECK(memcmp(got.call.key, "m-1", 3) == 0);
    CHECK(got.call.fingerprint.definition != 0);
    keying = (struct queue_keying){
        .kind = QUEUE_KEY_HEADER, .header = "idempotency-key", .guard = literal};
    CHECK_INT(identity(&keying, &message, &got), 0);
    CHECK(memcmp(got.call.key, "h-1", 3) == 0);
    keying.header = "other";
    CHECK_INT(identity(&keying, &message, &got), IDEM_E_INVALID);
    message.properties_n = 0;
    keying.kind = QUEUE_KEY_ID;
    CHECK_INT(identity(&keying, &message, &got), IDEM_E_INVALID);
    idem_guard_free(expr);
    idem_guard_free(literal);
}

TEST(a_header_that_is_there_twice_is_no_key) {
    static const struct queue_field headers[] = {{BYTES("Idempotency-Key"), BYTES("a"), false},
                                                 {BYTES("other"), BYTES("b"), false},
                                                 {BYTES("idempotency-key"), BYTES("c"), false}};
    struct queue_message message = {.headers = headers, .headers_n = 2, .queue = "q"};
    struct idem_guard *literal = guard((struct idem_policy){0});
    struct queue_keying keying = {
        .kind = QUEUE_KEY_HEADER, .header = "Idempotency-Key", .guard = literal};
    struct queue_identity got;

    CHECK_INT(identity(&keying, &message, &got), 0);
    message.headers_n = 3;
    CHECK_INT(identity(&keying, &message, &got), IDEM_E_INVALID);
    idem_guard_free(literal);
}

TEST(a_label_that_cannot_be_made_is_none) {
    struct queue_message message = {.body = BYTES("{\"id\": 1}"), .queue = "q"};
    struct idem_guard *key = guard((struct idem_policy){.key_expr = "#body.id"});
    struct idem_guard *label = guard((struct idem_policy){.key_expr = "#body.name"});
    struct queue_keying keying = {.kind = QUEUE_KEY_EXPRESSION, .guard = key, .label = label};
    struct queue_identity got;

    CHECK_INT(identity(&keying, &message, &got), 0);
    CHECK_STR(got.label, "");
    idem_guard_free(key);
    idem_guard_free(label);
}

TEST(an_order_makes_one_lane_of_two_keys_and_a_label_is_made_too) {
    struct queue_message a = {.body = BYTES("{\"id\": 1, \"user\": 7}"), .queue = "q"};
    struct queue_message b = {.body = BYTES("{\"id\": 2, \"user\": 7}"), .queue = "q"};
    struct idem_guard *key = guard((struct idem_policy){.key_expr = "#body.id"});
    struct idem_guard *order = guard((struct idem_policy){.key_expr = "#body.user"});
    struct idem_guard *label = guard((struct idem_policy){.key_expr = "'order ' + #body.id"});
    struct queue_keying keying = {.kind = QUEUE_KEY_EXPRESSION, .guard = key, .label = label};
    struct queue_identity one, two;

    CHECK_INT(identity(&keying, &a, &one), 0);
    CHECK_INT(identity(&keying, &b, &two), 0);
    CHECK(memcmp(one.lane, two.lane, sizeof(one.lane)) != 0);
    CHECK_STR(one.label, "order 1");
    keying.order = order;
    CHECK_INT(identity(&keying, &a, &one), 0);
    CHECK_INT(identity(&keying, &b, &two), 0);
    CHECK(memcmp(one.lane, two.lane, sizeof(one.lane)) == 0);
    idem_guard_free(key);
    idem_guard_free(order);
    idem_guard_free(label);
}

TEST(a_chosen_key_has_the_body_as_its_fingerprint) {
    static const struct queue_field properties[] = {{BYTES("message_id"), BYTES("m-1"), false}};
    static const struct idem_bytes bodies[] = {BYTES("{\"a\":1,\"b\":2}"),
                                               BYTES("{ \"b\": 2, \"a\": 1 }"),
                                               BYTES("{\"a\":1,\"b\":3}"), BYTES("a=1"), BYTES("")};
    struct idem_guard *literal = guard((struct idem_policy){.json_max = 100});
    struct queue_keying keying = {.kind = QUEUE_KEY_ID, .guard = literal};
    struct queue_identity got[5];

    for (int i = 0; i < 5; i++) {
        struct queue_message message = {
            .body = bodies[i], .properties = properties, .properties_n = 1, .queue = "q"};

        CHECK_INT(identity(&keying, &message, &got[i]), 0);
        /* The digests of these can all be compared. */
        CHECK_INT(got[i].call.fingerprint.definition, got[0].call.fingerprint.definition);
    }
    CHECK(memcmp(got[0].call.fingerprint.hash, got[1].call.fingerprint.hash, 32) == 0);
    for (int i = 2; i < 5; i++)
        CHECK(memcmp(got[0].call.fingerprint.hash, got[i].call.fingerprint.hash, 32) != 0);
    idem_guard_free(literal);
}

TEST_MAIN
