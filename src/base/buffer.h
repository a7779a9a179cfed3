/*
 * A buffer that grows. Without memory it fails once and for all, so that a caller may append piece
 * by piece and check `failed` at the end.
 */
#ifndef IDEM_BASE_BUFFER_H
#define IDEM_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct idem_buffer {
    char *at;
    size_t len, size;
    bool failed; /* no memory: the content is incomplete */
};

/* Makes room for `len` more bytes, which the caller writes and adds to `len`; returns their place,
 * or NULL. */
char *idem_buffer_reserve(struct idem_buffer *buffer, size_t len);
void idem_buffer_put(struct idem_buffer *buffer, const void *bytes, size_t len);
void idem_buffer_put_text(struct idem_buffer *buffer, const char *text);
void idem_buffer_release(struct idem_buffer *buffer);

#endif
