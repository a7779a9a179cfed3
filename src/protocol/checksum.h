/*
 * A checksum over a stored value and its key: detects a damaged value, and a value that is stored
 * under the wrong key.
 */
#ifndef IDEM_PROTOCOL_CHECKSUM_H
#define IDEM_PROTOCOL_CHECKSUM_H

#include "protocol/record.h"

/* Stored in four bytes, little endian. */
#define IDEM_CHECKSUM_LEN 4

uint32_t idem_checksum(const struct idem_record_key *key, const void *at, size_t len);
void idem_checksum_put(uint32_t sum, unsigned char out[IDEM_CHECKSUM_LEN]);
uint32_t idem_checksum_get(const unsigned char at[IDEM_CHECKSUM_LEN]);

#endif
