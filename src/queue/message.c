/*
 * Views of a message: its headers by name, its variables as JSON, its trace id. Fails without
 * memory, and on a header or property that occurs twice, since either could count.
 */
#include "queue/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"
#include "json/json.h"

/* Memory limit for parsing a body. A body that needs more counts as text. */
#define BODY_ROOM ((size_t)256 << 20)

/* For idem_json_canon(). */
static int message_put(void *data, const char *bytes, size_t len) {
    struct idem_buffer *text = data;

    idem_buffer_put(text, bytes, len);
    return text->failed ? IDEM_E_NOMEM : 0;
}

/* Appends valid UTF-8 as a JSON string. */
static void message_put_string(struct idem_buffer *text, struct idem_bytes bytes) {
    struct idem_json value = {.type = IDEM_JSON_STRING, .n = (uint32_t)bytes.len};

    value.at.text = bytes.at == NULL ? "" : (const char *)bytes.at;
    (void)idem_json_canon(&value, message_put, text, NULL);
}

static bool bytes_valid(struct idem_bytes bytes) {
    return bytes.len <= UINT32_MAX && idem_utf8_valid((const char *)bytes.at, bytes.len);
}

static const struct queue_field *message_find_repeated(const struct queue_field *fields, size_t n) {
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (idem_bytes_equal(fields[i].name, fields[j].name))
                return &fields[i];
    return NULL;
}

/* Leaves out names and values that are not UTF-8: no expression can refer to them. */
static int message_put_fields(struct idem_buffer *text, const char *name,
                              const struct queue_field *fields, size_t n, struct idem_error *err) {
    const struct queue_field *again;
    char quoted[IDEM_QUOTE_TEXT];
    bool more = false;

    if (n > QUEUE_FIELDS_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "%s: there are %zu of them; at most %d are read",
                              name, n, QUEUE_FIELDS_MAX);
    again = message_find_repeated(fields, n);
    if (again != NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: %s is there twice: which one counts is ambiguous", name,
                              idem_error_quote((const char *)again->name.at, again->name.len,
                                               quoted, sizeof(quoted)));
    idem_buffer_put_text(text, ",\"");
    idem_buffer_put_text(text, name);
    idem_buffer_put_text(text, "\":{");
    for (size_t i = 0; i < n; i++) {
        if (!bytes_valid(fields[i].name) || !bytes_valid(fields[i].value))
            continue;
        if (more)
            idem_buffer_put_text(text, ",");
        more = true;
        message_put_string(text, fields[i].name);
        idem_buffer_put_text(text, ":");
        if (fields[i].json)
            idem_buffer_put(text, fields[i].value.at, fields[i].value.len);
        else
            message_put_string(text, fields[i].value);
    }
    idem_buffer_put_text(text, "}");
    return 0;
}

bool queue_message_body_is_json(struct idem_bytes body) {
    struct idem_arena arena;
    struct idem_json json;
    bool is;

    idem_arena_init(&arena, BODY_ROOM);
    is =
        body.len != 0 && idem_json_parse((const char *)body.at, body.len, &arena, &json, NULL) == 0;
    idem_arena_free(&arena);
    return is;
}

static void message_put_body(struct idem_buffer *text, struct idem_bytes body) {
    if (queue_message_body_is_json(body)) {
        idem_buffer_put_text(text, ",\"body\":");
        idem_buffer_put(text, body.at, body.len);
    } else if (bytes_valid(body)) {
        idem_buffer_put_text(text, ",\"body\":");
        message_put_string(text, body);
    }
}

int queue_message_variables(const struct queue_message *message, char **ret, size_t *ret_len,
                            struct idem_error *err) {
    struct idem_bytes queue = idem_bytes_of(message->queue);
    struct idem_buffer text = {0};
    int rc;

    idem_buffer_put_text(&text, "{\"queue\":");
    message_put_string(&text, bytes_valid(queue) ? queue : idem_bytes_of(""));
    rc = message_put_fields(&text, "headers", message->headers, message->headers_n, err);
    if (rc == 0)
        rc = message_put_fields(&text, "properties", message->properties, message->properties_n,
                                err);
    if (rc == 0) {
        message_put_body(&text, message->body);
        idem_buffer_put_text(&text, "}");
        if (text.failed)
            rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for a message's variables");
    }
    if (rc != 0) {
        idem_buffer_release(&text);
        return rc;
    }
    *ret = text.at;
    *ret_len = text.len;
    return 0;
}

const struct queue_field *queue_message_header(const struct queue_message *message,
                                               const char *name) {
    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *field = &message->headers[i];

        if (idem_same_ignoring_case((const char *)field->name.at, field->name.len, name,
                                    strlen(name)))
            return field;
    }
    return NULL;
}

bool queue_message_header_is_repeated(const struct queue_message *message, const char *name) {
    const struct queue_field *first = queue_message_header(message, name);
    struct queue_message rest = *message;

    if (first == NULL)
        return false;
    rest.headers_n -= (size_t)(first + 1 - message->headers);
    rest.headers = first + 1;
    return queue_message_header(&rest, name) != NULL;
}

const struct queue_field *queue_message_property(const struct queue_message *message,
                                                 const char *name) {
    for (size_t i = 0; i < message->properties_n; i++)
        if (idem_bytes_equal(message->properties[i].name, idem_bytes_of(name)))
            return &message->properties[i];
    return NULL;
}

#define TRACE_AT 3 /* 00-TRACE-SPAN-FLAGS */
#define TRACE_LEN 32
#define TRACE_LEAST 55

static struct idem_bytes message_trace_bytes(const struct queue_message *message) {
    const struct queue_field *field = queue_message_header(message, "traceparent");

    if (field != NULL && !field->json && field->value.len >= TRACE_LEAST)
        return (struct idem_bytes){field->value.at + TRACE_AT, TRACE_LEN};
    field = queue_message_property(message, "message_id");
    return field == NULL ? (struct idem_bytes){0} : field->value;
}

bool queue_message_trace_is_key(const struct queue_message *message, struct idem_bytes key) {
    struct idem_bytes trace = message_trace_bytes(message);

    return trace.len != 0 && idem_bytes_equal(trace, key);
}

const char *queue_message_trace(const struct queue_message *message, char buf[QUEUE_TRACE_TEXT]) {
    struct idem_bytes id = message_trace_bytes(message);
    size_t n = 0;

    for (; n < id.len && n < QUEUE_TRACE_TEXT - 1; n++)
        buf[n] = id.at[n] > ' ' && id.at[n] < 0x7f ? (char)id.at[n] : '?';
    if (n == 0)
        buf[n++] = '-';
    buf[n] = '\0';
    return buf;
}
