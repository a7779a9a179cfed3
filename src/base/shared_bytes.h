/*
 * Bytes with a count of references: several owners read them, and the last one frees them. They may
 * be written only while there is one reference. References may be taken and released in any thread.
 */
#ifndef IDEM_BASE_SHARED_BYTES_H
#define IDEM_BASE_SHARED_BYTES_H

#include <stdbool.h>
#include <stddef.h>

struct idem_shared_bytes {
    unsigned refs;
    size_t size;
    _Alignas(max_align_t) unsigned char at[];
};

/* Returns bytes that are not cleared, with one reference, which is the caller's; NULL: no memory.
 */
struct idem_shared_bytes *idem_shared_bytes_new(size_t size);

/* Changes the size as realloc() does. The caller must have the only reference, and has the only one
   to the returned bytes; `bytes` may be NULL. Returns NULL without memory: `bytes` stays valid. */
struct idem_shared_bytes *idem_shared_bytes_resize(struct idem_shared_bytes *bytes, size_t size);

/* Takes a reference, which is the caller's; accepts and returns NULL. */
struct idem_shared_bytes *idem_shared_bytes_ref(struct idem_shared_bytes *bytes);

/* Gives up the caller's reference; accepts NULL. */
void idem_shared_bytes_release(struct idem_shared_bytes *bytes);

/* True if all `len` bytes at `at` lie in the shared ones; false for NULL. */
bool idem_shared_bytes_hold(const struct idem_shared_bytes *bytes, const void *at, size_t len);

#endif
