/*
 * Fills struct idem_error. It cannot fail: a text that does not fit is cut, never inside a UTF-8
 * character, and a text that cannot be formatted becomes the name of its code.
 */
#include "core/error.h"

#include "core/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define QUOTE_MAX 60

/* Ends the full text in dots, so that its reader knows that there was more. */
static void text_cut(char *text, size_t size) {
    size_t at = size - sizeof("...");

    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    memcpy(text + at, "...", sizeof("..."));
}

int idem_error_fill(struct idem_error *err, int code, const char *fmt, ...) {
    /* Formatted aside: an argument may be the text that is replaced. */
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
        text_cut(text, sizeof(text));
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
        if (n == 0 || idem_utf8_is_control(c)) {
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
