/*
 * Names and owners. Fails only where OpenSSL has no memory or the system gives
 * no random bits.
 */
#include "core/hash.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

static int sha256_digest(struct idem_bytes bytes, unsigned char out[IDEM_HASH_LEN]) {
    /* An explicit fetch at each call costs more than the hash of a short name. */
    static _Atomic(EVP_MD *) fetched;
    EVP_MD *md = fetched;

    if (md == NULL) {
        EVP_MD *none = NULL;

        md = EVP_MD_fetch(NULL, "SHA256", NULL);
        if (md == NULL)
            return IDEM_E_NOMEM;
        if (!__atomic_compare_exchange_n((EVP_MD **)&fetched, &none, md, false, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST)) {
            EVP_MD_free(md);
            md = none;
        }
    }
    return EVP_Digest(bytes.at, bytes.len, out, NULL, md, NULL) == 1 ? 0 : IDEM_E_NOMEM;
}

/* Nothing is left in OpenSSL's queue of errors, which is the host program's. */
int idem_sha256(struct idem_bytes bytes, unsigned char out[IDEM_HASH_LEN]) {
    int rc;

    ERR_set_mark();
    rc = sha256_digest(bytes, out);
    ERR_pop_to_mark();
    return rc;
}

static size_t put_counted(unsigned char *out, struct idem_bytes bytes) {
    for (unsigned i = 0; i < 4; i++)
        out[i] = (unsigned char)(bytes.len >> (24 - 8 * i));
    if (bytes.len != 0)
        memcpy(out + 4, bytes.at, bytes.len);
    return 4 + bytes.len;
}

int idem_record_key_make(struct idem_record_key *ret, enum idem_name_kind kind,
                         struct idem_bytes prefix, struct idem_bytes scope, struct idem_bytes key) {
    unsigned char buf[2 + 4 + IDEM_SCOPE_MAX + 4 + IDEM_KEY_MAX];
    size_t len = 0;
    int rc;

    buf[len++] = (unsigned char)kind;
    buf[len++] = scope.at != NULL;
    len += put_counted(buf + len, scope);
    len += put_counted(buf + len, key);
    memcpy(ret->at, prefix.at, prefix.len);
    ret->prefix_len = prefix.len;
    rc = idem_sha256((struct idem_bytes){buf, len}, ret->at + prefix.len);
    explicit_bzero(buf, len);
    return rc;
}

void idem_record_key_hex(const struct idem_record_key *key, char out[IDEM_HEX_LEN + 1]) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *hash = key->at + key->prefix_len;

    for (unsigned i = 0; i < IDEM_HASH_LEN; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 0xf];
    }
    out[IDEM_HEX_LEN] = '\0';
}

static int digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool idem_hex_parse(const char *hex, unsigned char out[IDEM_HASH_LEN]) {
    if (strlen(hex) != IDEM_HEX_LEN)
        return false;
    for (unsigned i = 0; i < IDEM_HASH_LEN; i++) {
        int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
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
