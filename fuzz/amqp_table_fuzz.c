/*
 * The properties of a message in a frame, from any publisher: parsed into
 * fields, into a copy, and into the fields of the copy. For all bytes, the copy
 * has the fields of the message, its size is known before it is sent, and its
 * JSON can be parsed.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "queue/amqp/rabbit.h"
#include "json/json.h"

#define ENCODED_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct rabbit_envelope sent = {.exchange = {.len = 4, .bytes = (void *)"shop"},
                                            .routing_key = {.len = 3, .bytes = (void *)"key"}},
                                    came_back = {.routing_key = {.len = 1, .bytes = (void *)"q"}};

/* A message without a body; NULL: librabbitmq refuses its properties. */
static struct rabbit_message *arrive(const struct rabbit_envelope *envelope, const void *raw,
                                     size_t len) {
    amqp_frame_t frame = {.frame_type = AMQP_FRAME_HEADER, .channel = 1};
    struct rabbit_message *message = NULL;
    struct rabbit_arrival arrival;
    const char *broken;
    amqp_pool_t pool;

    init_amqp_pool(&pool, 4096);
    frame.payload.properties.class_id = AMQP_BASIC_CLASS;
    frame.payload.properties.raw = (amqp_bytes_t){.bytes = (void *)(uintptr_t)raw, .len = len};
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &pool, frame.payload.properties.raw,
                               &frame.payload.properties.decoded) == 0) {
        rabbit_arrival_init(&arrival);
        rabbit_arrival_begin(&arrival, envelope);
        assert(rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken));
        assert(message != NULL && broken == NULL);
        rabbit_arrival_release(&arrival);
    }
    empty_amqp_pool(&pool);
    return message;
}

/* A name that occurs twice in a table is the sender's fault, and the parser refuses it. */
static void fields_check(const struct queue_field *fields, size_t n) {
    struct idem_arena arena;
    struct idem_error err;
    struct idem_json json;

    for (size_t i = 0; i < n; i++) {
        if (!fields[i].json)
            continue;
        idem_arena_init(&arena, (size_t)64 << 20);
        err.text[0] = '\0';
        if (idem_json_parse((const char *)fields[i].value.at, fields[i].value.len, &arena, &json,
                            &err) != 0)
            assert(strstr(err.text, "twice") != NULL);
        idem_arena_free(&arena);
    }
}

static bool bytes_equal(struct idem_bytes a, struct idem_bytes b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static void fields_compare(const struct queue_field *a, size_t a_n, const struct queue_field *b,
                           size_t b_n) {
    assert(a_n == b_n);
    for (size_t i = 0; i < a_n; i++) {
        assert(bytes_equal(a[i].name, b[i].name));
        assert(bytes_equal(a[i].value, b[i].value));
        assert(a[i].json == b[i].json);
    }
}

static void copy_check(const struct rabbit_message *message, enum rabbit_purpose purpose) {
    static unsigned char encoded[ENCODED_MAX];
    struct queue_dead_fields dead_fields = {.verdict = "dead", .reason = "why", .attempts = 3};
    struct rabbit_message *again;
    struct rabbit_copy copy;
    int len;

    assert(rabbit_copy_make(&copy, message, purpose, &dead_fields, "us", 7));
    len = amqp_encode_properties(AMQP_BASIC_CLASS, &copy.properties,
                                 (amqp_bytes_t){.bytes = encoded, .len = sizeof(encoded)});
    assert(len > 0 && copy.size >= (size_t)len + 12);
    rabbit_copy_release(&copy);
    again = arrive(&came_back, encoded, (size_t)len);
    assert(again != NULL);
    if (purpose == RABBIT_FOR_LATER)
        fields_compare(message->base.headers, message->base.headers_n, again->base.headers,
                       again->base.headers_n);
    fields_compare(message->base.properties, message->base.properties_n, again->base.properties,
                   again->base.properties_n);
    rabbit_message_leave(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rabbit_message *message = arrive(&sent, data, size);

    if (message == NULL)
        return 0;
    fields_check(message->base.headers, message->base.headers_n);
    fields_check(message->base.properties, message->base.properties_n);
    copy_check(message, RABBIT_FOR_LATER);
    copy_check(message, RABBIT_FOR_DEAD);
    copy_check(message, RABBIT_FOR_QUEUE);
    rabbit_message_leave(message);
    return 0;
}
