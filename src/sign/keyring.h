/*
 * Secrets by the id of their key, from a file that only its owner may read.
 *
 *     # id      algorithm       value
 *     shop-1    hmac-sha256     base64:kPIj...
 *     shop-1    hmac-sha256     text:the one before it, until nobody uses it
 *     till-7    ed25519         hex:9f0e...      the public key: verifies
 *     till-7    ed25519-secret  hex:4d2c...      the private one: signs and verifies
 *
 * An id may stand on several lines: each of its keys verifies, the first that can sign signs.
 */
#ifndef IDEM_SIGN_KEYRING_H
#define IDEM_SIGN_KEYRING_H

#include "http/field.h"

/* The longest signature there is: ed25519. */
#define IDEM_SIGNATURE_MAX 64

enum idem_sign_alg { IDEM_SIGN_HMAC_SHA256 = 1, IDEM_SIGN_ED25519 };

struct idem_keyring;

/* The texts of errors name file and line, and show no secret. Freed with _free(), which wipes it.
 */
int idem_keyring_load(const char *path, struct idem_keyring **ret, struct idem_error *err);
int idem_keyring_parse(const char *name, const char *text, size_t len, struct idem_keyring **ret,
                       struct idem_error *err);
void idem_keyring_free(struct idem_keyring *keyring);

bool idem_keyring_knows(const struct idem_keyring *keyring, struct idem_http_text id);

/* Whether one key of that id made the signature. All of them are tried, by an algorithm if one is
   said (else 0), and for an id that nobody has one is tried all the same: the time tells nothing
   of the secrets. */
bool idem_keyring_verify(const struct idem_keyring *keyring, struct idem_http_text id,
                         enum idem_sign_alg alg, struct idem_http_text text,
                         const unsigned char *signature, size_t len);

/* For who explains a wrong signature: the id of a key by its place, from 0 on; one that has several
   keys comes as often. False behind the last. */
bool idem_keyring_id(const struct idem_keyring *keyring, size_t at, struct idem_http_text *ret);
/* Whether a secret of that id made the signature with its text where its bytes were meant (base64
   or hex that was not decoded), or the other way round. */
bool idem_keyring_verify_text(const struct idem_keyring *keyring, struct idem_http_text id,
                              struct idem_http_text text, const unsigned char *signature,
                              size_t len);

/* Which algorithm idem_keyring_sign() uses for an id; 0: there is no key that signs. */
enum idem_sign_alg idem_keyring_alg(const struct idem_keyring *keyring, struct idem_http_text id);
int idem_keyring_sign(const struct idem_keyring *keyring, struct idem_http_text id,
                      struct idem_http_text text, unsigned char out[IDEM_SIGNATURE_MAX],
                      size_t *ret_len, struct idem_error *err);

const char *idem_sign_alg_name(enum idem_sign_alg alg);
/* False if there is none of that name. */
bool idem_sign_alg_find(struct idem_http_text name, enum idem_sign_alg *ret);

#endif
