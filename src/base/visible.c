/*
 * The table of characters that are not visible. tests/base/unicode.py compares it with Unicode's
 * data. It cannot fail.
 */
#include "base/visible.h"

#include <stdio.h>
#include <string.h>

#include "base/units.h"

/* The categories Cf, Zl and Zp, in ascending order. */
static const struct {
    uint32_t first, last;
} hidden[] = {
    {0x00ad, 0x00ad},   {0x0600, 0x0605},   {0x061c, 0x061c},   {0x06dd, 0x06dd},
    {0x070f, 0x070f},   {0x0890, 0x0891},   {0x08e2, 0x08e2},   {0x180e, 0x180e},
    {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x2064},   {0x2066, 0x206f},
    {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
    {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0001, 0xe0001},
    {0xe0020, 0xe007f},
};

bool idem_visible(uint32_t c) {
    if (c < hidden[0].first)
        return !idem_utf8_is_control(c);
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
        if (c <= hidden[i].last)
            return c < hidden[i].first;
    return true;
}

size_t idem_visible_copy(const char *text, size_t len, char instead, char *buf, size_t size) {
    size_t out = 0, n, written;
    uint32_t c;

    for (size_t at = 0; at < len; at += n) {
        n = idem_utf8_next(text + at, len - at, &c);
        written = n != 0 && idem_visible(c) ? n : 1;
        if (out + written >= size)
            break;
        if (n == 0)
            buf[out] = '?';
        else if (!idem_visible(c))
            buf[out] = instead;
        else
            memmove(buf + out, text + at, n);
        out += written;
        n = n == 0 ? 1 : n;
    }
    buf[out] = '\0';
    return out;
}

void idem_visible_json(uint32_t c, char buf[IDEM_VISIBLE_JSON]) {
    if (c < 0x10000)
        snprintf(buf, IDEM_VISIBLE_JSON, "\\u%04x", (unsigned)c);
    else
        snprintf(buf, IDEM_VISIBLE_JSON, "\\u%04x\\u%04x",
                 (unsigned)(0xd800 + ((c - 0x10000) >> 10 & 0x3ff)),
                 (unsigned)(0xdc00 + (c & 0x3ff)));
}
