/*
 * SHA-256 and SHA-512, and random bits.
 */
#ifndef IDEM_BASE_HASH_H
#define IDEM_BASE_HASH_H

#include "base/bytes.h"
#include "idem.h"

#define IDEM_HASH_LEN 32

#define IDEM_HEX_LEN (2 * IDEM_HASH_LEN)

/* 0 or IDEM_E_NOMEM. Takes no lock, so a forked child may hash whatever the other threads were
   doing. */
int idem_sha256(struct idem_bytes bytes, unsigned char out[IDEM_HASH_LEN]);

/* Incremental SHA-256. After a failure the later calls do nothing, and idem_sha_end() returns
   IDEM_E_NOMEM. Each begin needs an end. */
struct idem_sha {
    void *ctx; /* NULL: failed */
};
void idem_sha_begin(struct idem_sha *sha);
void idem_sha_add(struct idem_sha *sha, const void *bytes, size_t len);
int idem_sha_end(struct idem_sha *sha, unsigned char out[IDEM_HASH_LEN]);
void idem_sha_fail(struct idem_sha *sha); /* forces the failed state */

/* Incremental SHA-512, with the same rules. */
#define IDEM_SHA512_LEN 64
struct idem_sha512 {
    void *ctx; /* NULL: failed */
};
void idem_sha512_begin(struct idem_sha512 *sha);
void idem_sha512_add(struct idem_sha512 *sha, const void *bytes, size_t len);
int idem_sha512_end(struct idem_sha512 *sha, unsigned char out[IDEM_SHA512_LEN]);
void idem_sha512_fail(struct idem_sha512 *sha);

/* Fills `out` from the system's random source; 0 or IDEM_E_REFUSED. */
int idem_random(void *out, size_t len);

#endif
