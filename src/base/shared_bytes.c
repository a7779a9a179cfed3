/*
 * Bytes with a count of references: see shared_bytes.h.
 */
#include "base/shared_bytes.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

struct idem_shared_bytes *idem_shared_bytes_resize(struct idem_shared_bytes *bytes, size_t size) {
    struct idem_shared_bytes *resized;

    assert(bytes == NULL || __atomic_load_n(&bytes->refs, __ATOMIC_RELAXED) == 1);
    if (size > SIZE_MAX - sizeof(*bytes))
        return NULL;
    resized = realloc(bytes, sizeof(*bytes) + size);
    if (resized == NULL)
        return NULL;
    resized->refs = 1;
    resized->size = size;
    return resized;
}

struct idem_shared_bytes *idem_shared_bytes_new(size_t size) {
    return idem_shared_bytes_resize(NULL, size);
}

struct idem_shared_bytes *idem_shared_bytes_ref(struct idem_shared_bytes *bytes) {
    if (bytes != NULL)
        (void)__atomic_add_fetch(&bytes->refs, 1, __ATOMIC_RELAXED);
    return bytes;
}

/* Acquire and release: every owner's reads happen before the last one frees the bytes. */
void idem_shared_bytes_release(struct idem_shared_bytes *bytes) {
    if (bytes != NULL && __atomic_sub_fetch(&bytes->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(bytes);
}

bool idem_shared_bytes_hold(const struct idem_shared_bytes *bytes, const void *at, size_t len) {
    uintptr_t first, from = (uintptr_t)at;

    if (bytes == NULL)
        return false;
    first = (uintptr_t)bytes->at;
    return from >= first && len <= bytes->size && from - first <= bytes->size - len;
}
