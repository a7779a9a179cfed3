/*
 * Formats log lines. It cannot fail: a line that is too long is cut, and a value is never cut
 * inside an escape or a character.
 */
#include "base/log_line.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text_out.h"
#include "base/units.h"
#include "base/visible.h"

#define CHARACTER 17 /* four bytes as escapes, and a NUL */

static bool log_line_value_is_plain(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._:/@+-";

    return text[strspn(text, plain)] == '\0' && strlen(text) <= IDEM_LINE_VALUE_MAX;
}

/* Writes the next character, escaped if needed, to `ret`. Returns the number of bytes of `text`
   that it read. */
static size_t log_line_character_escape(const char *text, size_t len, char ret[CHARACTER]) {
    uint32_t c = 0;
    size_t n = idem_utf8_next(text, len, &c), at = 0;

    if (n == 0 || !idem_visible(c)) {
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

static void log_line_quoted_put(struct idem_out *out, const char *text) {
    size_t len = strlen(text), written = 0, n;
    char next[CHARACTER];

    idem_out_text(out, "\"");
    for (size_t at = 0; at < len; at += n) {
        n = log_line_character_escape(text + at, len - at, next);
        if (written + strlen(next) > IDEM_LINE_VALUE_MAX) {
            idem_out_text(out, "...");
            break;
        }
        idem_out_text(out, next);
        written += strlen(next);
    }
    idem_out_text(out, "\"");
}

static void log_line_field_put(struct idem_out *out, const char *name, const char *value) {
    if (value == NULL || value[0] == '\0')
        return;
    idem_out_text(out, " ");
    idem_out_text(out, name);
    idem_out_text(out, "=");
    if (log_line_value_is_plain(value))
        idem_out_text(out, value);
    else
        log_line_quoted_put(out, value);
}

size_t idem_line_print(const struct idem_line *line, char *buf, size_t size) {
    struct idem_out out = {buf, size - 1, 0};
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
    idem_out_text(&out, line->words);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        log_line_field_put(&out, fields[i].name, fields[i].value);
    if (out.len > out.size)
        out.len = out.size;
    buf[out.len] = '\0';
    return out.len;
}
