/*
 * Decides which calls are the same: the key and the fingerprint of one call, from the guard's
 * policy and the call's arguments.
 */
#ifndef IDEM_CORE_KEY_H
#define IDEM_CORE_KEY_H

#include "core/policy.h"
#include "protocol/record.h"

struct idem_identity {
    unsigned char key[IDEM_KEY_MAX];
    size_t key_len;
    struct idem_fingerprint fingerprint;
};

/* `policy` is the guard's, or that of one call. Runs the policy's key_fn. After a failure, *ret
   must not be used. */
int idem_identity_make(const struct idem_guard *guard, const struct idem_policy *policy,
                       const struct idem_args *args, struct idem_identity *ret,
                       struct idem_error *err);

/* The same for a call whose fingerprint is known: makes the key alone, and clears the fingerprint.
 */
int idem_identity_make_key(const struct idem_guard *guard, const struct idem_policy *policy,
                           const struct idem_args *args, struct idem_identity *ret,
                           struct idem_error *err);

/*
 * The two customary keys, of at most IDEM_KEY_MAX bytes. Different parts never give the same key:
 *
 *     PATH:DIGEST         parameters; the digest is that of a fingerprint, in hex
 *     LEN:CREDENTIAL:SERIAL
 *
 * The user of a parameter key is its scope. Empty parts are refused.
 */
int idem_key_parameters(struct idem_bytes path, const struct idem_fingerprint *arguments,
                        struct idem_identity *ret, struct idem_error *err);
int idem_key_serial(struct idem_bytes serial, struct idem_bytes credential,
                    struct idem_identity *ret, struct idem_error *err);

#endif
