/*
 * Numbers in big-endian bytes: `bytes` of them.
 */
#ifndef IDEM_BASE_BIG_ENDIAN_H
#define IDEM_BASE_BIG_ENDIAN_H

#include <stddef.h>
#include <stdint.h>

static inline void idem_be_put(unsigned char *out, uint64_t n, size_t bytes) {
    for (size_t i = bytes; i > 0; i--, n >>= 8)
        out[i - 1] = (unsigned char)n;
}

static inline uint64_t idem_be_get(const unsigned char *at, size_t bytes) {
    uint64_t n = 0;

    for (size_t i = 0; i < bytes; i++)
        n = n << 8 | at[i];
    return n;
}

#endif
