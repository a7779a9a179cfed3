/*
 * Views of a message: its headers by name, its variables as JSON, its trace id. Fails without
 * memory, and on a header or property that occurs twice, since either could count.
 */
#include "queue/message.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/units.h"
#include "json/json.h"

/* Memory limit for parsing a body. A body that needs more counts as text. */
#define BODY_ROOM ((size_t)256 << 20)

/* A growing buffer for JSON. */
struct text {
    char *at;
    size_t len, size;
    bool failed;
};

static int text_put(void *data, const char *bytes, size_t len) {
    struct text *text = data;
    size_t size = text->size == 0 ? 512 : text->size;
    char *at;

    while (size - text->len < len)
        size *= 2;
    if (size != text->size && !text->failed) {
        at = realloc(text->at, size);
        if (at == NULL)
            text->failed = true;
        else
            *text = (struct text){.at = at, .len = text->len, .size = size};
    }
    if (text->failed)
        return IDEM_E_NOMEM;
    if (len != 0)
        memcpy(text->at + text->len, bytes, len);
    text->len += len;
    return 0;
}

static void text_word(struct text *text, const char *word) {
    (void)text_put(text, word, strlen(word));
}

/* Appends valid UTF-8 as a JSON string. */
static void text_string(struct text *text, struct idem_bytes bytes) {
    struct idem_json value = {.type = IDEM_JSON_STRING, .n = (uint32_t)bytes.len};

    value.at.text = bytes.at == NULL ? "" : (const char *)bytes.at;
    (void)idem_json_canon(&value, text_put, text, NULL);
}

static struct idem_bytes message_bytes(const char *word) {
    return (struct idem_bytes){(const unsigned char *)word, strlen(word)};
}

static bool bytes_valid(struct idem_bytes bytes) {
    return bytes.len <= UINT32_MAX && idem_utf8_valid((const char *)bytes.at, bytes.len);
}

static bool bytes_equal(struct idem_bytes a, struct idem_bytes b) {
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

static const struct queue_field *message_find_repeated(const struct queue_field *fields, size_t n) {
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (bytes_equal(fields[i].name, fields[j].name))
                return &fields[i];
    return NULL;
}

/* Leaves out names and values that are not UTF-8: no expression can refer to them. */
static int text_put_fields(struct text *text, const char *name, const struct queue_field *fields,
                           size_t n, struct idem_error *err) {
    const struct queue_field *again;
    char quoted[IDEM_QUOTE_TEXT];
    bool more = false;

    if (n > QUEUE_FIELDS_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "%s: there are %zu of them; at most %d are read",
                              name, n, QUEUE_FIELDS_MAX);
    again = message_find_repeated(fields, n);
    if (again != NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: %s is there twice, and nobody can say which one counts", name,
                              idem_error_quote((const char *)again->name.at, again->name.len,
                                               quoted, sizeof(quoted)));
    text_word(text, ",\"");
    text_word(text, name);
    text_word(text, "\":{");
    for (size_t i = 0; i < n; i++) {
        if (!bytes_valid(fields[i].name) || !bytes_valid(fields[i].value))
            continue;
        if (more)
            text_word(text, ",");
        more = true;
        text_string(text, fields[i].name);
        text_word(text, ":");
        if (fields[i].json)
            (void)text_put(text, (const char *)fields[i].value.at, fields[i].value.len);
        else
            text_string(text, fields[i].value);
    }
    text_word(text, "}");
    return 0;
}

bool queue_body_is_json(struct idem_bytes body) {
    struct idem_arena arena;
    struct idem_json json;
    bool is;

    idem_arena_init(&arena, BODY_ROOM);
    is =
        body.len != 0 && idem_json_parse((const char *)body.at, body.len, &arena, &json, NULL) == 0;
    idem_arena_free(&arena);
    return is;
}

static void text_put_body(struct text *text, struct idem_bytes body) {
    if (queue_body_is_json(body)) {
        text_word(text, ",\"body\":");
        (void)text_put(text, (const char *)body.at, body.len);
    } else if (bytes_valid(body)) {
        text_word(text, ",\"body\":");
        text_string(text, body);
    }
}

int queue_variables(const struct queue_message *message, char **ret, size_t *ret_len,
                    struct idem_error *err) {
    struct idem_bytes queue = message_bytes(message->queue == NULL ? "" : message->queue);
    struct text text = {0};
    int rc;

    text_word(&text, "{\"queue\":");
    text_string(&text, bytes_valid(queue) ? queue : message_bytes(""));
    rc = text_put_fields(&text, "headers", message->headers, message->headers_n, err);
    if (rc == 0)
        rc = text_put_fields(&text, "properties", message->properties, message->properties_n, err);
    if (rc == 0) {
        text_put_body(&text, message->body);
        text_word(&text, "}");
        if (text.failed)
            rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for a message's variables");
    }
    if (rc != 0) {
        free(text.at);
        return rc;
    }
    *ret = text.at;
    *ret_len = text.len;
    return 0;
}

const struct queue_field *queue_header(const struct queue_message *message, const char *name) {
    size_t len = strlen(name);

    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *field = &message->headers[i];

        if (field->name.len == len && strncasecmp((const char *)field->name.at, name, len) == 0)
            return field;
    }
    return NULL;
}

bool queue_header_is_repeated(const struct queue_message *message, const char *name) {
    const struct queue_field *first = queue_header(message, name);
    struct queue_message rest = *message;

    if (first == NULL)
        return false;
    rest.headers_n -= (size_t)(first + 1 - message->headers);
    rest.headers = first + 1;
    return queue_header(&rest, name) != NULL;
}

const struct queue_field *queue_property(const struct queue_message *message, const char *name) {
    for (size_t i = 0; i < message->properties_n; i++)
        if (bytes_equal(message->properties[i].name, message_bytes(name)))
            return &message->properties[i];
    return NULL;
}

#define TRACE_AT 3 /* 00-TRACE-SPAN-FLAGS */
#define TRACE_LEN 32
#define TRACE_LEAST 55

static struct idem_bytes message_trace(const struct queue_message *message) {
    const struct queue_field *field = queue_header(message, "traceparent");

    if (field != NULL && !field->json && field->value.len >= TRACE_LEAST)
        return (struct idem_bytes){field->value.at + TRACE_AT, TRACE_LEN};
    field = queue_property(message, "message_id");
    return field == NULL ? (struct idem_bytes){0} : field->value;
}

bool queue_trace_is_key(const struct queue_message *message, struct idem_bytes key) {
    struct idem_bytes trace = message_trace(message);

    return trace.len != 0 && bytes_equal(trace, key);
}

const char *queue_trace(const struct queue_message *message, char buf[QUEUE_TRACE_TEXT]) {
    struct idem_bytes id = message_trace(message);
    size_t n = 0;

    for (; n < id.len && n < QUEUE_TRACE_TEXT - 1; n++)
        buf[n] = id.at[n] > ' ' && id.at[n] < 0x7f ? (char)id.at[n] : '?';
    if (n == 0)
        buf[n++] = '-';
    buf[n] = '\0';
    return buf;
}
