/*
 * Names and owners: SHA-256 of what must stay apart, and random bits.
 */
#ifndef IDEM_CORE_HASH_H
#define IDEM_CORE_HASH_H

#include "core/record.h"

/* What a name is for: names of two kinds never meet, whatever their bytes. */
enum idem_name_kind { IDEM_NAME_RECORD = 1, IDEM_NAME_NONCE, IDEM_NAME_COUNTER, IDEM_NAME_TOKEN };

#define IDEM_HEX_LEN (2 * IDEM_HASH_LEN)

/* 0 or IDEM_E_NOMEM. Takes no lock: a forked child may hash, whatever other threads did. */
int idem_sha256(struct idem_bytes bytes, unsigned char out[IDEM_HASH_LEN]);

/* The same in pieces. After a failure the others do nothing, and the end says IDEM_E_NOMEM; every
   begin needs its end. */
struct idem_sha {
    void *ctx; /* NULL: it failed */
};
void idem_sha_begin(struct idem_sha *sha);
void idem_sha_add(struct idem_sha *sha, const void *bytes, size_t len);
int idem_sha_end(struct idem_sha *sha, unsigned char out[IDEM_HASH_LEN]);
void idem_sha_fail(struct idem_sha *sha); /* makes it fail */

/* SHA-512, likewise. */
#define IDEM_SHA512_LEN 64
struct idem_sha512 {
    void *ctx; /* NULL: it failed */
};
void idem_sha512_begin(struct idem_sha512 *sha);
void idem_sha512_add(struct idem_sha512 *sha, const void *bytes, size_t len);
int idem_sha512_end(struct idem_sha512 *sha, unsigned char out[IDEM_SHA512_LEN]);
void idem_sha512_fail(struct idem_sha512 *sha);

/*
 * The name of a record: prefix + SHA-256 of kind, scope and key, each delimited
 * by its length. scope.at NULL is scope `none`, which is not the empty scope.
 * Lengths are the caller's to check. 0 or IDEM_E_NOMEM.
 */
int idem_record_key_make(struct idem_record_key *ret, enum idem_name_kind kind,
                         struct idem_bytes prefix, struct idem_bytes scope, struct idem_bytes key);

/* The hash as logs show it: 64 hex digits and a NUL. */
void idem_record_key_hex(const struct idem_record_key *key, char out[IDEM_HEX_LEN + 1]);
/*
 * What a backend gets as Idem-Downstream-Key, of the record's prefix and hash (IDEM_HEX_LEN
 * digits): the same for every attempt and every front door, and no key. 0 or IDEM_E_NOMEM; `out` is
 * untouched then.
 */
int idem_downstream_key(const char *prefix, const char *hash, char out[IDEM_HEX_LEN + 1]);
bool idem_hex_parse(const char *hex, unsigned char out[IDEM_HASH_LEN]);

/* Bits from the system's random source; 0 or IDEM_E_REFUSED. */
int idem_random(void *out, size_t len);

#endif
