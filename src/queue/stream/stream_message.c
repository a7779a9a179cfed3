/*
 * An entry as a message: one allocation, with copies of all names and values. Fails only
 * without memory; stream_fields_measure() finds entries that do not fit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/stream/stream.h"

#define PROPERTIES 2

enum stream_fit stream_fields_measure(const struct redis_reply *fields, size_t *ret_bytes) {
    size_t bytes = 0;

    if (fields->type != REDIS_REPLY_ARRAY || fields->items_n % 2 != 0)
        return STREAM_ODD;
    for (size_t i = 0; i < fields->items_n; i++) {
        if (fields->items[i]->type != REDIS_REPLY_STRING)
            return STREAM_ODD;
        bytes += fields->items[i]->len;
    }
    *ret_bytes = bytes;
    return bytes > STREAM_ENTRY_MAX || fields->items_n / 2 > STREAM_FIELDS_MAX ? STREAM_TOO_LARGE
                                                                               : STREAM_FITS;
}

bool stream_message_is_epitaph(struct idem_bytes name) {
    size_t len = strlen(QUEUE_DEAD_PREFIX);

    return name.len >= len && memcmp(name.at, QUEUE_DEAD_PREFIX, len) == 0;
}

/* The index of the body's field; fields_n: there is none. Fields that only dead letters have do
   not count. */
static size_t message_find_body(const struct stream_message *message, const char *name) {
    size_t len = strlen(name), n = message->fields_n, own = 0, last = n;

    for (size_t i = 0; i < n; i++) {
        const struct idem_bytes *at = &message->fields[2 * i];

        if (at->len == len && memcmp(at->at, name, len) == 0)
            return i;
        if (!stream_message_is_epitaph(*at)) {
            own++;
            last = i;
        }
    }
    return own == 1 ? last : n;
}

struct queue_field stream_message_property(const char *name, const char *value, bool json) {
    return (struct queue_field){
        .name = {(const unsigned char *)name, strlen(name)},
        .value = {(const unsigned char *)value, strlen(value)},
        .json = json,
    };
}

/* Copies the fields to `at`, which has room for them. */
static void message_copy_fields(struct stream_message *message, const struct redis_reply *fields,
                                unsigned char *at) {
    for (size_t i = 0; i < fields->items_n; i++) {
        const struct redis_reply *part = fields->items[i];

        if (part->len > 0)
            memcpy(at, part->text, part->len);
        message->fields[i] = (struct idem_bytes){at, part->len};
        at += part->len;
    }
}

static size_t message_fill_headers(const struct stream_message *message, size_t body,
                                   struct queue_field *headers) {
    size_t n = 0;

    for (size_t i = 0; i < message->fields_n; i++)
        if (i != body)
            headers[n++] = (struct queue_field){.name = message->fields[2 * i],
                                                .value = message->fields[2 * i + 1]};
    return n;
}

struct stream_message *stream_message_new(const struct stream_shape *shape, struct stream_id id,
                                          int64_t deliveries, const struct redis_reply *fields) {
    size_t n = fields->items_n / 2, bytes = 0, body;
    struct stream_message *message;
    struct queue_field *headers, *properties;

    if (stream_fields_measure(fields, &bytes) != STREAM_FITS)
        return NULL;
    message = malloc(sizeof(*message) + (PROPERTIES + n) * sizeof(*headers) +
                     2 * n * sizeof(struct idem_bytes) + bytes);
    if (message == NULL)
        return NULL;
    memset(message, 0, sizeof(*message));
    properties = (struct queue_field *)(message + 1);
    headers = properties + PROPERTIES;
    message->fields = (struct idem_bytes *)(headers + n);
    message->fields_n = n;
    message->bytes = sizeof(*message) + bytes;
    message_copy_fields(message, fields, (unsigned char *)(message->fields + 2 * n));

    stream_id_print(id, message->id);
    snprintf(message->deliveries, sizeof(message->deliveries), "%lld", (long long)deliveries);
    properties[0] = stream_message_property("message_id", message->id, false);
    properties[1] = stream_message_property("deliveries", message->deliveries, true);
    body = message_find_body(message, shape->body_field);
    message->base = (struct queue_message){
        .body = body < n ? message->fields[2 * body + 1]
                         : (struct idem_bytes){(const unsigned char *)"", 0},
        .headers = headers,
        .headers_n = message_fill_headers(message, body, headers),
        .properties = properties,
        .properties_n = deliveries > 0 ? 2 : 1,
        .queue = shape->queue,
        .redelivered = deliveries > 1,
    };
    return message;
}

void stream_message_free(struct stream_message *message) {
    free(message);
}
