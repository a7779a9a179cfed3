/*
 * Bytes with their length. The struct borrows them unless a declaration states otherwise.
 */
#ifndef IDEM_BASE_BYTES_H
#define IDEM_BASE_BYTES_H

#include <stddef.h>

struct idem_bytes {
    const unsigned char *at;
    size_t len;
};

#endif
