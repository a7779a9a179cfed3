/*
 * Secrets by key id, from a file that only its owner may read.
 *
 *     # id      algorithm       value
 *     shop-1    hmac-sha256     base64:kPIj...
 *     shop-1    hmac-sha256     text:the previous one, until no client uses it
 *     till-7    ed25519         hex:9f0e...      the public key: verifies
 *     till-7    ed25519-secret  hex:4d2c...      the private one: signs and verifies
 *
 * An id may have several lines: each of its keys verifies, the first that can sign signs.
 */
#ifndef IDEM_SIGN_SIGN_KEYRING_H
#define IDEM_SIGN_SIGN_KEYRING_H

#include "http/http_field.h"

/* The length of the longest signature: ed25519. */
#define IDEM_SIGNATURE_MAX 64

enum idem_sign_alg { IDEM_SIGN_HMAC_SHA256 = 1, IDEM_SIGN_ED25519 };

struct idem_keyring;

/* The texts of errors name file and line, and show no secret. idem_keyring_free() wipes the
   secrets. */
int idem_keyring_load(const char *path, struct idem_keyring **ret, struct idem_error *err);
int idem_keyring_parse(const char *name, const char *text, size_t len, struct idem_keyring **ret,
                       struct idem_error *err);
void idem_keyring_free(struct idem_keyring *keyring);

bool idem_keyring_knows(const struct idem_keyring *keyring, struct idem_http_text id);

/* True if a signature can be good by both: they have the same key under the same id. */
bool idem_keyring_shares_key(const struct idem_keyring *a, const struct idem_keyring *b);

/* True if a key of that id made the signature. Tries all keys of the id, or those of `alg` if it
   is not 0. A refusal costs the same for every id, known or unknown: for each algorithm, as many
   verifications as the id with most keys has. Otherwise the response time would reveal which ids
   are in the file. */
bool idem_keyring_verify(const struct idem_keyring *keyring, struct idem_http_text id,
                         enum idem_sign_alg alg, struct idem_http_text text,
                         const unsigned char *signature, size_t len);

/* For diagnosis of a wrong signature: the id of the key at index `at`; an id with several keys
   occurs as often. False after the last. */
bool idem_keyring_id(const struct idem_keyring *keyring, size_t at, struct idem_http_text *ret);
/* For diagnosis: true if a secret of that id made the signature, but with its text used as bytes
   (base64 or hex that was not decoded), or the other way round. */
bool idem_keyring_verify_text(const struct idem_keyring *keyring, struct idem_http_text id,
                              struct idem_http_text text, const unsigned char *signature,
                              size_t len);

/* The algorithm that idem_keyring_sign() uses for an id; 0: no key of the id can sign. */
enum idem_sign_alg idem_keyring_alg(const struct idem_keyring *keyring, struct idem_http_text id);
int idem_keyring_sign(const struct idem_keyring *keyring, struct idem_http_text id,
                      struct idem_http_text text, unsigned char out[IDEM_SIGNATURE_MAX],
                      size_t *ret_len, struct idem_error *err);

const char *idem_sign_alg_name(enum idem_sign_alg alg);
/* False if the name is unknown. */
bool idem_sign_alg_find(struct idem_http_text name, enum idem_sign_alg *ret);

#endif
