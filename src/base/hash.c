/*
 * Hashes and random bits. Fails only if there is no memory for an incremental hash, or if the
 * system returns no random bits.
 *
 * OpenSSL's low-level functions are used on purpose, though EVP deprecates them. Fetching an
 * algorithm and the error queue take locks inside OpenSSL: if another thread of the host program
 * holds one during a fork, a call in the child blocks forever. The low-level functions take no
 * lock, allocate nothing, and leave nothing in the host program's error queue.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/hash.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int idem_sha256(struct idem_bytes bytes, unsigned char out[IDEM_HASH_LEN]) {
    SHA256_CTX ctx;
    bool ok = SHA256_Init(&ctx) == 1 && SHA256_Update(&ctx, bytes.at, bytes.len) == 1 &&
              SHA256_Final(out, &ctx) == 1;

    OPENSSL_cleanse(&ctx, sizeof(ctx));
    return ok ? 0 : IDEM_E_NOMEM;
}

void idem_sha_fail(struct idem_sha *sha) {
    if (sha->ctx != NULL)
        OPENSSL_cleanse(sha->ctx, sizeof(SHA256_CTX));
    free(sha->ctx);
    sha->ctx = NULL;
}

void idem_sha_begin(struct idem_sha *sha) {
    sha->ctx = malloc(sizeof(SHA256_CTX));
    if (sha->ctx != NULL && SHA256_Init(sha->ctx) != 1)
        idem_sha_fail(sha);
}

void idem_sha_add(struct idem_sha *sha, const void *bytes, size_t len) {
    if (sha->ctx != NULL && len != 0 && SHA256_Update(sha->ctx, bytes, len) != 1)
        idem_sha_fail(sha);
}

int idem_sha_end(struct idem_sha *sha, unsigned char out[IDEM_HASH_LEN]) {
    bool ok = sha->ctx != NULL && SHA256_Final(out, sha->ctx) == 1;

    idem_sha_fail(sha);
    return ok ? 0 : IDEM_E_NOMEM;
}

void idem_sha512_fail(struct idem_sha512 *sha) {
    if (sha->ctx != NULL)
        OPENSSL_cleanse(sha->ctx, sizeof(SHA512_CTX));
    free(sha->ctx);
    sha->ctx = NULL;
}

void idem_sha512_begin(struct idem_sha512 *sha) {
    sha->ctx = malloc(sizeof(SHA512_CTX));
    if (sha->ctx != NULL && SHA512_Init(sha->ctx) != 1)
        idem_sha512_fail(sha);
}

void idem_sha512_add(struct idem_sha512 *sha, const void *bytes, size_t len) {
    if (sha->ctx != NULL && len != 0 && SHA512_Update(sha->ctx, bytes, len) != 1)
        idem_sha512_fail(sha);
}

int idem_sha512_end(struct idem_sha512 *sha, unsigned char out[IDEM_SHA512_LEN]) {
    bool ok = sha->ctx != NULL && SHA512_Final(out, sha->ctx) == 1;

    idem_sha512_fail(sha);
    return ok ? 0 : IDEM_E_NOMEM;
}

int idem_random(void *out, size_t len) {
    unsigned char *at = out;

    while (len > 0) {
        ssize_t n = getrandom(at, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return IDEM_E_REFUSED;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}
