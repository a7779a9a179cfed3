/*
 * Text in UTF-8, measured and ordered by its UTF-16 units.
 */
#include <string.h>

#include "json/json.h"

/* Counts each sequence once, and a sequence of four bytes twice. */
size_t idem_utf16_len(const char *s, size_t len) {
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];

        n += (c & 0xc0) != 0x80;
        n += c >= 0xf0;
    }
    return n;
}

/* UTF-8 sorts by code point. UTF-16 sorts characters beyond U+FFFF (a first byte of f0 or more)
   before U+E000 to U+FFFF (ee and ef). */
int idem_utf16_cmp(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t n = a_len < b_len ? a_len : b_len, i = 0;
    unsigned char x, y;

    while (i < n && a[i] == b[i])
        i++;
    if (i == n)
        return a_len < b_len ? -1 : a_len > b_len;
    x = (unsigned char)a[i];
    y = (unsigned char)b[i];
    if (x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0))
        return x >= 0xf0 ? -1 : 1;
    return x < y ? -1 : 1;
}
