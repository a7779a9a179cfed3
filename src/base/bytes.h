/*
 * Bytes with their length. The struct borrows them unless a declaration states otherwise.
 */
#ifndef IDEM_BASE_BYTES_H
#define IDEM_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/chars.h"

struct idem_bytes {
    const unsigned char *at;
    size_t len;
};

/* A text without its NUL; NULL: no bytes. */
static inline struct idem_bytes idem_bytes_of(const char *text) {
    return (struct idem_bytes){(const unsigned char *)text, text == NULL ? 0 : strlen(text)};
}

/* Not in constant time: secrets are compared with CRYPTO_memcmp(). */
static inline bool idem_same(const void *a, size_t a_len, const void *b, size_t b_len) {
    return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

/* Less than 0, 0 or more: by their bytes, then by their lengths. */
static inline int idem_order(const void *a, size_t a_len, const void *b, size_t b_len) {
    size_t least = a_len < b_len ? a_len : b_len;
    int order = least == 0 ? 0 : memcmp(a, b, least);

    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static inline bool idem_is_word(const void *text, size_t len, const char *word) {
    return idem_same(text, len, word, strlen(word));
}

/* The case of ASCII letters only, whatever the locale. */
static inline bool idem_same_ignoring_case(const char *a, size_t a_len, const char *b,
                                           size_t b_len) {
    if (a_len != b_len)
        return false;
    for (size_t i = 0; i < a_len; i++)
        if (idem_lower(a[i]) != idem_lower(b[i]))
            return false;
    return true;
}

static inline bool idem_begins(const void *text, size_t len, const char *with) {
    return len >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* The same of a text that ends with a NUL. */
static inline bool idem_text_begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* Removes spaces and tabs at both ends. */
static inline void idem_trim(const char **at, size_t *len) {
    for (; *len > 0 && idem_is_blank(**at); (*at)++)
        (*len)--;
    while (*len > 0 && idem_is_blank((*at)[*len - 1]))
        (*len)--;
}

static inline bool idem_bytes_equal(struct idem_bytes a, struct idem_bytes b) {
    return idem_same(a.at, a.len, b.at, b.len);
}

#endif
