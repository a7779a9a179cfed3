/*
 * Writes JSON. Fails only if there is no memory to sort fields.
 */
#include "queue/handler/handler_json.h"

#include <stdlib.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/units.h"
#include "json/json_out.h"

/* Characters that are copied many at a time, because they need no escape. */
static bool json_is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

void handler_json_text(struct idem_out *out, const void *bytes, size_t len) {
    char escaped[JSON_OUT_CHARACTER];
    const char *text = bytes;
    size_t at = 0, n;

    idem_out_put(out, "\"", 1);
    while (at < len) {
        for (n = 0; at + n < len && json_is_plain((unsigned char)text[at + n]); n++)
            ;
        idem_out_put(out, text + at, n);
        at += n;
        if (at == len)
            break;
        at += json_out_escape_character(text + at, len - at, escaped);
        idem_out_text(out, escaped);
    }
    idem_out_put(out, "\"", 1);
}

void handler_json_base64(struct idem_out *out, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    char text[IDEM_BASE64_TEXT(3 * 256)];
    size_t n;

    idem_out_put(out, "\"", 1);
    for (; len > 0; at += n, len -= n) {
        n = len < 3 * 256 ? len : 3 * 256;
        idem_base64_encode(at, n, text);
        idem_out_text(out, text);
    }
    idem_out_put(out, "\"", 1);
}

/* By name; equal names by their position. */
static int json_compare_fields(const void *a, const void *b) {
    const struct queue_field *x = ((const struct handler_field *)a)->field;
    const struct queue_field *y = ((const struct handler_field *)b)->field;
    int order = idem_order(x->name.at, x->name.len, y->name.at, y->name.len);

    return order != 0 ? order : (x > y) - (x < y);
}

bool handler_fields_init(struct handler_fields *fields, const struct queue_field *list, size_t n) {
    size_t kept = 0;

    *fields = (struct handler_fields){0};
    if (n == 0)
        return true;
    fields->list = calloc(n, sizeof(*fields->list));
    if (fields->list == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        if (idem_utf8_valid((const char *)list[i].name.at, list[i].name.len))
            fields->list[fields->n++].field = &list[i];
    qsort(fields->list, fields->n, sizeof(*fields->list), json_compare_fields);
    for (size_t i = 0; i < fields->n; i++)
        if (kept == 0 ||
            !idem_bytes_equal(fields->list[kept - 1].field->name, fields->list[i].field->name))
            fields->list[kept++] = fields->list[i];
    fields->n = kept;
    return true;
}

void handler_fields_release(struct handler_fields *fields) {
    free(fields->list);
    *fields = (struct handler_fields){0};
}

/* Copies JSON, and replaces the newlines between its parts by blanks. */
static void out_put_json(struct idem_out *out, struct idem_bytes json) {
    for (size_t at = 0, n; at < json.len; at += n) {
        for (n = 0; at + n < json.len && json.at[at + n] != '\n' && json.at[at + n] != '\r'; n++)
            ;
        idem_out_put(out, json.at + at, n);
        if (at + n < json.len) {
            idem_out_put(out, " ", 1);
            n++;
        }
    }
}

void handler_json_fields(struct idem_out *out, const struct handler_fields *fields) {
    idem_out_put(out, "{", 1);
    for (size_t i = 0; i < fields->n; i++) {
        const struct queue_field *field = fields->list[i].field;

        if (i > 0)
            idem_out_put(out, ",", 1);
        handler_json_text(out, field->name.at, field->name.len);
        idem_out_put(out, ":", 1);
        if (field->json)
            out_put_json(out, field->value);
        else
            handler_json_text(out, field->value.at, field->value.len);
    }
    idem_out_put(out, "}", 1);
}
