/*
 * Names of records: different inputs always have different names.
 */
#ifndef IDEM_PROTOCOL_RECORD_KEY_H
#define IDEM_PROTOCOL_RECORD_KEY_H

#include "base/hash.h"
#include "protocol/record.h"

/* The purpose of a name. Names of two kinds never collide, whatever their bytes. */
enum idem_name_kind { IDEM_NAME_RECORD = 1, IDEM_NAME_NONCE, IDEM_NAME_COUNTER, IDEM_NAME_TOKEN };

/*
 * The name of a record: prefix + SHA-256 of kind, scope and key, each preceded by its length. If
 * scope.at is NULL the scope is `none`, which differs from the empty scope. The caller checks the
 * lengths. 0 or IDEM_E_NOMEM.
 */
int idem_record_key_make(struct idem_record_key *ret, enum idem_name_kind kind,
                         struct idem_bytes prefix, struct idem_bytes scope, struct idem_bytes key);

/* The hash as logs show it: 64 hex digits and a NUL. */
void idem_record_key_hex(const struct idem_record_key *key, char out[IDEM_HEX_LEN + 1]);
/*
 * The Idem-Downstream-Key for a backend, computed from the record's prefix and hash (IDEM_HEX_LEN
 * digits): the same for every attempt and every front door, and it does not reveal the key. 0 or
 * IDEM_E_NOMEM; `out` is then untouched.
 */
int idem_downstream_key(const char *prefix, const char *hash, char out[IDEM_HEX_LEN + 1]);

#endif
