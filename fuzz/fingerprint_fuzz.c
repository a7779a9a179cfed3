/*
 * Any bytes as a body of type JSON: refused, or it has a fingerprint, and so
 * does the same document written differently: members in reverse, every
 * character escaped, spaces anywhere. As bytes the definition differs, and
 * pieces hash like the whole.
 */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "core/fingerprint.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

struct text {
    char *at;
    size_t len, cap;
};

static void put(struct text *text, const char *bytes, size_t len) {
    if (text->cap - text->len < len) {
        text->cap = 2 * text->cap + len;
        text->at = realloc(text->at, text->cap);
        if (text->at == NULL)
            abort();
    }
    memcpy(text->at + text->len, bytes, len);
    text->len += len;
}

static void put_unit(struct text *text, uint32_t unit) {
    static const char hex[] = "0123456789ABCDEF";
    char escape[6] = {'\\',          'u', hex[unit >> 12], hex[unit >> 8 & 15], hex[unit >> 4 & 15],
                      hex[unit & 15]};

    put(text, escape, sizeof(escape));
}

static void put_string(struct text *text, const char *string, size_t len) {
    uint32_t c;

    put(text, "\"", 1);
    for (size_t at = 0, n; at < len; at += n) {
        n = idem_utf8_next(string + at, len - at, &c);
        if (n == 0)
            abort();
        if (c >= 0x10000) {
            put_unit(text, 0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + (c & 0x3ff);
        }
        put_unit(text, c);
    }
    put(text, "\" ", 2);
}

static void put_value(struct text *text, const struct idem_json *value) {
    switch ((enum idem_json_type)value->type) {
    case IDEM_JSON_NULL:
        put(text, "null ", 5);
        break;
    case IDEM_JSON_BOOL:
        put(text, value->flag ? "true\n" : "false", 5);
        break;
    case IDEM_JSON_NUMBER:
        put(text, value->at.text, value->n);
        break;
    case IDEM_JSON_STRING:
        put_string(text, value->at.text, value->n);
        break;
    case IDEM_JSON_ARRAY:
        for (uint32_t i = 0; i < value->n; i++) {
            put(text, i == 0 ? "[\n" : "\t,", 2);
            put_value(text, &value->at.items[i]);
        }
        put(text, value->n == 0 ? "[ ]" : " ] ", 3);
        break;
    case IDEM_JSON_OBJECT:
        for (uint32_t i = value->n; i-- > 0;) {
            put(text, i + 1 == value->n ? "{\r" : " ,", 2);
            put_string(text, value->at.object->members[i].name, value->at.object->members[i].len);
            put(text, ": ", 2);
            put_value(text, &value->at.object->members[i].value);
        }
        put(text, value->n == 0 ? "{ }" : " } ", 3);
        break;
    }
}

static int fingerprint(bool json, const void *bytes, size_t len, struct idem_fingerprint *ret) {
    struct idem_fingerprint_hash print;
    struct idem_error err;
    int rc;

    idem_fingerprint_begin(&print);
    rc = idem_fingerprint_body(&print, "body", json, SIZE_MAX, bytes, len, &err);
    if (idem_fingerprint_end(&print, ret) != rc) /* end() repeats the refusal */
        abort();
    return rc;
}

static void pieces_check(const unsigned char *data, size_t size,
                         const struct idem_fingerprint *whole) {
    struct idem_fingerprint pieces;
    struct idem_fingerprint_hash print;
    size_t first = size == 0 ? 0 : data[0] % (size + 1);

    idem_fingerprint_begin(&print);
    idem_fingerprint_open(&print, "body", IDEM_FINGERPRINT_BYTES);
    idem_fingerprint_add(&print, data, first);
    idem_fingerprint_add(&print, data + first, size - first);
    idem_fingerprint_close(&print);
    if (idem_fingerprint_end(&print, &pieces) != 0 || pieces.definition != whole->definition ||
        memcmp(pieces.hash, whole->hash, sizeof(pieces.hash)) != 0)
        abort();
}

static void other_check(const unsigned char *data, size_t size,
                        const struct idem_fingerprint *was) {
    struct idem_fingerprint other;
    struct text text = {0};
    struct idem_arena arena;
    struct idem_json value;

    idem_fingerprint_arena(&arena, size);
    if (idem_json_parse((const char *)data, size, &arena, &value, NULL) != 0)
        abort();
    put_value(&text, &value);
    if (fingerprint(true, text.at, text.len, &other) != 0 || other.definition != was->definition ||
        memcmp(other.hash, was->hash, sizeof(other.hash)) != 0)
        abort();
    idem_arena_free(&arena);
    free(text.at);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct idem_fingerprint bytes, json;

    if (fingerprint(false, data, size, &bytes) != 0)
        abort();
    pieces_check(data, size, &bytes);
    if (fingerprint(true, data, size, &json) != 0)
        return 0;
    if (json.definition == bytes.definition)
        abort();
    other_check(data, size, &json);
    return 0;
}
