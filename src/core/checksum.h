/*
 * What tells a stored value from a damaged one, or from one that stands under another's name.
 */
#ifndef IDEM_CORE_CHECKSUM_H
#define IDEM_CORE_CHECKSUM_H

#include "core/record.h"

/* Stored in four bytes, the lowest first. */
#define IDEM_CHECKSUM_LEN 4

uint32_t idem_checksum(const struct idem_record_key *key, const void *at, size_t len);
void idem_checksum_put(uint32_t sum, unsigned char out[IDEM_CHECKSUM_LEN]);
uint32_t idem_checksum_get(const unsigned char at[IDEM_CHECKSUM_LEN]);

#endif
