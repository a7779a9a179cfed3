/*
 * Bytes with their length. The struct borrows them unless a declaration states otherwise.
 */
#ifndef IDEM_BASE_BYTES_H
#define IDEM_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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

static inline bool idem_bytes_equal(struct idem_bytes a, struct idem_bytes b) {
    return idem_same(a.at, a.len, b.at, b.len);
}

#endif
