/*
 * Checksums by XXH3, which is ten times as fast as CRC-32: every replay computes one over the
 * whole response. Compiled in, so that no shared library is needed.
 */
#define XXH_INLINE_ALL
#include "protocol/checksum.h"

#include <xxhash.h>

uint32_t idem_checksum(const struct idem_record_key *key, const void *at, size_t len) {
    uint64_t name = XXH3_64bits(key->at, idem_record_key_len(key)), value = XXH3_64bits(at, len);
    uint64_t sum = value ^ (name << 32 | name >> 32);

    return (uint32_t)(sum ^ sum >> 32);
}

void idem_checksum_put(uint32_t sum, unsigned char out[IDEM_CHECKSUM_LEN]) {
    for (unsigned i = 0; i < IDEM_CHECKSUM_LEN; i++)
        out[i] = (unsigned char)(sum >> (8 * i));
}

uint32_t idem_checksum_get(const unsigned char at[IDEM_CHECKSUM_LEN]) {
    uint32_t sum = 0;

    for (unsigned i = 0; i < IDEM_CHECKSUM_LEN; i++)
        sum |= (uint32_t)at[i] << (8 * i);
    return sum;
}
