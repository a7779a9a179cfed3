/*
 * Classes of ASCII characters, independent of the locale.
 */
#ifndef IDEM_BASE_CHARS_H
#define IDEM_BASE_CHARS_H

#include <stdbool.h>
#include <string.h>

static inline bool idem_is_blank(char c) {
    return c == ' ' || c == '\t';
}

static inline bool idem_is_digit(char c) {
    return c >= '0' && c <= '9';
}

static inline bool idem_is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static inline bool idem_is_alpha(char c) {
    return idem_is_lower((char)(c | 0x20));
}

/* True if `set` contains the character. */
static inline bool idem_is_any(char c, const char *set) {
    return c != '\0' && strchr(set, c) != NULL;
}

/* A character of a token (RFC 9110, 5.6.2). */
static inline bool idem_is_tchar(char c) {
    return idem_is_digit(c) || idem_is_alpha(c) || idem_is_any(c, "!#$%&'*+-.^_`|~");
}

/* Printable ASCII: idem_is_visible() without the space, idem_is_print() with it. */
static inline bool idem_is_visible(char c) {
    return c > 0x20 && c < 0x7f;
}

static inline bool idem_is_print(char c) {
    return c >= 0x20 && c < 0x7f;
}

static inline char idem_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

#endif
