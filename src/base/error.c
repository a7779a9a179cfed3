/*
 * Fills struct idem_error. It cannot fail: a text that is too long is cut at the end of a UTF-8
 * character, and a text that cannot be formatted becomes the name of its code.
 */
#include "base/error.h"

#include "base/units.h"
#include "base/visible.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define QUOTE_MAX 60

/* Ends a text that is too long in "...", so that the reader sees the cut. */
static void error_text_cut(char *text, size_t size) {
    size_t at = size - sizeof("...");

    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    memcpy(text + at, "...", sizeof("..."));
}

/* Some texts contain messages from a server, and an error's text is logged unchanged. Line
   breaks are kept, because the error of an expression has several lines. */
static void error_text_clean(char *text) {
    size_t from = 0, n, out = 0, end;

    for (n = 1; n != 0; from = end + n) {
        end = from + strcspn(text + from, "\n");
        n = text[end] == '\n';
        out += idem_visible_copy(text + from, end - from, '?', text + out, end - from + 1);
        text[out] = n ? '\n' : '\0';
        out += n;
    }
}

int idem_error_fill(struct idem_error *err, int code, const char *fmt, ...) {
    /* Formats into a second buffer: an argument may point into the text that is replaced. */
    char text[sizeof(err->text)];
    va_list args;
    int n;

    if (err == NULL)
        return code;
    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n < 0)
        n = snprintf(text, sizeof(text), "%s", idem_code_name(code));
    if ((size_t)n >= sizeof(text))
        error_text_cut(text, sizeof(text));
    error_text_clean(text);
    err->code = code;
    memcpy(err->text, text, strlen(text) + 1);
    return code;
}

int idem_error_copy(struct idem_error *to, const struct idem_error *from) {
    if (to != NULL && to != from)
        *to = *from;
    return from->code;
}

const char *idem_error_quote(const char *bytes, size_t len, char *buf, size_t size) {
    size_t at = 0, pos = 0, n;
    uint32_t c;

    if (size < IDEM_QUOTE_TEXT)
        return "\"?\"";
    buf[at++] = '"';
    while (pos < len) {
        n = idem_utf8_next(bytes + pos, len - pos, &c);
        if (at + n > QUOTE_MAX)
            break;
        if (n == 0 || !idem_visible(c)) {
            buf[at++] = '?';
            pos += n == 0 ? 1 : n;
            continue;
        }
        memcpy(buf + at, bytes + pos, n);
        at += n;
        pos += n;
    }
    snprintf(buf + at, size - at, "%s\"", pos < len ? "..." : "");
    return buf;
}
