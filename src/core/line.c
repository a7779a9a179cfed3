/*
 * Lines of logs. Cannot fail: what does not fit is cut, a value never inside an escape or a
 * character.
 */
#include "core/line.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/units.h"

#define CHARACTER 10 /* as it is written, with a NUL */

struct out {
    char *at;
    size_t len, size;
};

static void put(struct out *out, const char *bytes, size_t len) {
    size_t room = out->size - 1 - out->len;

    if (len > room)
        len = room;
    memcpy(out->at + out->len, bytes, len);
    out->len += len;
}

static bool is_plain(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._:/@+-";

    return text[strspn(text, plain)] == '\0' && strlen(text) <= IDEM_LINE_VALUE_MAX;
}

/* The next character as it is written; how many bytes of `text` it was. */
static size_t character(const char *text, size_t len, char ret[CHARACTER]) {
    uint32_t c = 0;
    size_t n = idem_utf8_next(text, len, &c), at = 0;

    if (n == 0 || idem_utf8_is_control(c)) { /* a control is one byte, or two */
        n = n == 0 ? 1 : n;
        for (size_t i = 0; i < n && at + 4 < CHARACTER; i++, at += 4)
            snprintf(ret + at, CHARACTER - at, "\\x%02x", (unsigned char)text[i]);
        return n;
    }
    if (c == '"' || c == '\\')
        ret[at++] = '\\';
    memcpy(ret + at, text, n);
    ret[at + n] = '\0';
    return n;
}

static void quoted_put(struct out *out, const char *text) {
    size_t len = strlen(text), written = 0, n;
    char next[CHARACTER];

    put(out, "\"", 1);
    for (size_t at = 0; at < len; at += n) {
        n = character(text + at, len - at, next);
        if (written + strlen(next) > IDEM_LINE_VALUE_MAX) {
            put(out, "...", 3);
            break;
        }
        put(out, next, strlen(next));
        written += strlen(next);
    }
    put(out, "\"", 1);
}

static void field_put(struct out *out, const char *name, const char *value) {
    if (value == NULL || value[0] == '\0')
        return;
    put(out, " ", 1);
    put(out, name, strlen(name));
    put(out, "=", 1);
    if (is_plain(value))
        put(out, value, strlen(value));
    else
        quoted_put(out, value);
}

size_t idem_line_print(const struct idem_line *line, char *buf, size_t size) {
    struct out out = {buf, 0, size};
    char attempt[16] = "";
    const struct {
        const char *name, *value;
    } fields[] = {
        {"record", line->record == NULL || line->record[0] == '\0' ? "-" : line->record},
        {"prefix", line->prefix},
        {"label", line->label},
        {"attempt", attempt},
        {"route", line->route},
        {"trace", line->trace},
        {"took", line->took},
        {"then", line->then},
        {"for", line->pause},
        {"reason", line->reason},
        {"do", line->todo},
    };

    if (line->attempt != 0)
        snprintf(attempt, sizeof(attempt), "%" PRIu32, line->attempt);
    put(&out, line->words, strlen(line->words));
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        field_put(&out, fields[i].name, fields[i].value);
    buf[out.len] = '\0';
    return out.len;
}
