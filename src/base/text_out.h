/*
 * Builds a text in a buffer as snprintf() does: bytes that do not fit are counted, so that a first
 * pass without a buffer measures the size.
 */
#ifndef IDEM_BASE_TEXT_OUT_H
#define IDEM_BASE_TEXT_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct idem_out {
    char *buf;
    size_t size, len; /* len: of the whole text, including the bytes that did not fit */
};

static inline void idem_out_put(struct idem_out *out, const void *bytes, size_t n) {
    if (n > 0 && out->len < out->size)
        memcpy(out->buf + out->len, bytes, n < out->size - out->len ? n : out->size - out->len);
    out->len += n;
}

static inline void idem_out_text(struct idem_out *out, const char *text) {
    idem_out_put(out, text, strlen(text));
}

/* After a first pass: allocates room for the same text with a NUL, for a second pass. False: no
   memory. The caller frees out->buf. */
static inline bool idem_out_allocate(struct idem_out *out) {
    *out = (struct idem_out){.buf = malloc(out->len + 1), .size = out->len};
    return out->buf != NULL;
}

#endif
