/*
 * Lines of logs. Cannot fail: what does not fit is cut, a value never inside an escape or a
 * character.
 */
#include "core/line.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/out.h"
#include "core/units.h"

#define CHARACTER 10 /* as it is written, with a NUL */

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

static void quoted_put(struct idem_out *out, const char *text) {
    size_t len = strlen(text), written = 0, n;
    char next[CHARACTER];

    idem_out_say(out, "\"");
    for (size_t at = 0; at < len; at += n) {
        n = character(text + at, len - at, next);
        if (written + strlen(next) > IDEM_LINE_VALUE_MAX) {
            idem_out_say(out, "...");
            break;
        }
        idem_out_say(out, next);
        written += strlen(next);
    }
    idem_out_say(out, "\"");
}

static void field_put(struct idem_out *out, const char *name, const char *value) {
    if (value == NULL || value[0] == '\0')
        return;
    idem_out_say(out, " ");
    idem_out_say(out, name);
    idem_out_say(out, "=");
    if (is_plain(value))
        idem_out_say(out, value);
    else
        quoted_put(out, value);
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
    idem_out_say(&out, line->words);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        field_put(&out, fields[i].name, fields[i].value);
    if (out.len > out.size)
        out.len = out.size;
    buf[out.len] = '\0';
    return out.len;
}
