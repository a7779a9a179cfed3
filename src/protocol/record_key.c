/*
 * Names of records. Fails only if there is no memory for a hash.
 */
#include "protocol/record_key.h"

#include <string.h>

#include "base/big_endian.h"
#include "base/hex.h"

static size_t record_key_put_counted(unsigned char *out, struct idem_bytes bytes) {
    idem_be_put(out, bytes.len, 4);
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
    len += record_key_put_counted(buf + len, scope);
    len += record_key_put_counted(buf + len, key);
    memcpy(ret->at, prefix.at, prefix.len);
    ret->prefix_len = prefix.len;
    rc = idem_sha256((struct idem_bytes){buf, len}, ret->at + prefix.len);
    explicit_bzero(buf, len);
    return rc;
}

void idem_record_key_hex(const struct idem_record_key *key, char out[IDEM_HEX_LEN + 1]) {
    idem_hex_encode(key->at + key->prefix_len, IDEM_HASH_LEN, out);
}

int idem_downstream_key(const char *prefix, const char *hash, char out[IDEM_HEX_LEN + 1]) {
    static const char about[] = "idem downstream key";
    unsigned char bytes[IDEM_HASH_LEN];
    struct idem_sha sha;
    int rc;

    idem_sha_begin(&sha);
    idem_sha_add(&sha, about, sizeof(about));
    idem_sha_add(&sha, prefix, strlen(prefix) + 1);
    idem_sha_add(&sha, hash, IDEM_HEX_LEN);
    rc = idem_sha_end(&sha, bytes);
    if (rc == 0)
        idem_hex_encode(bytes, IDEM_HASH_LEN, out);
    return rc;
}
