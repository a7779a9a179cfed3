/*
 * Text that is put together like snprintf() does it: what does not fit is
 * counted, so that a first round with no room tells how much is needed.
 */
#ifndef IDEM_CORE_OUT_H
#define IDEM_CORE_OUT_H

#include <stddef.h>
#include <string.h>

struct idem_out {
    char *buf;
    size_t size, len; /* len: of all that was put, whether it fitted or not */
};

static inline void idem_out_put(struct idem_out *out, const void *bytes, size_t n) {
    if (n > 0 && out->len < out->size)
        memcpy(out->buf + out->len, bytes, n < out->size - out->len ? n : out->size - out->len);
    out->len += n;
}

static inline void idem_out_say(struct idem_out *out, const char *text) {
    idem_out_put(out, text, strlen(text));
}

#endif
