/*
 * A buffer that doubles as often as needed.
 */
#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_FIRST 512

char *idem_buffer_reserve(struct idem_buffer *buffer, size_t len) {
    size_t size = buffer->size == 0 ? BUFFER_FIRST : buffer->size;
    char *at;

    if (buffer->failed)
        return NULL;
    while (size - buffer->len < len)
        size *= 2;
    if (size != buffer->size) {
        at = realloc(buffer->at, size);
        if (at == NULL) {
            buffer->failed = true;
            return NULL;
        }
        buffer->at = at;
        buffer->size = size;
    }
    return buffer->at + buffer->len;
}

void idem_buffer_put(struct idem_buffer *buffer, const void *bytes, size_t len) {
    char *at = len == 0 ? NULL : idem_buffer_reserve(buffer, len);

    if (at == NULL)
        return;
    memcpy(at, bytes, len);
    buffer->len += len;
}

void idem_buffer_put_text(struct idem_buffer *buffer, const char *text) {
    idem_buffer_put(buffer, text, strlen(text));
}

void idem_buffer_release(struct idem_buffer *buffer) {
    free(buffer->at);
    *buffer = (struct idem_buffer){0};
}
