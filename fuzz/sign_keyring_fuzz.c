/*
 * Any bytes as a file of secrets: a parsed key that signs verifies its own
 * signature and nothing else; an error names the file and shows no value.
 */
#include <assert.h>
#include <string.h>

#include "sign/sign_keyring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void key_check(const struct idem_keyring *keyring, struct idem_http_text id) {
    static const struct idem_http_text text = IDEM_HTTP_TEXT("text"), other = IDEM_HTTP_TEXT("tex");
    unsigned char signature[IDEM_SIGNATURE_MAX];
    enum idem_sign_alg alg = idem_keyring_alg(keyring, id);
    struct idem_error err;
    size_t len;
    int rc = idem_keyring_sign(keyring, id, text, signature, &len, &err);

    assert(idem_keyring_knows(keyring, id));
    assert((rc == 0) == (alg != 0));
    if (rc != 0)
        return;
    assert(idem_keyring_verify(keyring, id, alg, text, signature, len));
    assert(idem_keyring_verify(keyring, id, 0, text, signature, len));
    assert(!idem_keyring_verify(keyring, id, alg, other, signature, len));
    assert(!idem_keyring_verify_text(keyring, id, other, signature, len));
    signature[0] ^= 1;
    assert(!idem_keyring_verify(keyring, id, alg, text, signature, len));
}

/* The error must not show the text after a mark, if that is too long for an accident, and is not
 * the error's own. */
#define PIECE 12
static void error_check(const char *text, const char *bytes, size_t len) {
    static const char *const marks[] = {"text:", "base64:", "hex:"};
    static const char own[] =
        "ID hmac-sha256 base64:SECRET allowed: hmac-sha256, ed25519 (a "
        "public key), ed25519-secret (a private one) text:, base64: or hex:, ";

    assert(strncmp(text, "keys", 4) == 0);
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const char *at = memmem(bytes, len, marks[i], strlen(marks[i]));

        if (at == NULL || (size_t)(bytes + len - at) < strlen(marks[i]) + PIECE)
            continue;
        at += strlen(marks[i]);
        assert(memmem(own, sizeof(own), at, PIECE) != NULL ||
               memmem(text, strlen(text), at, PIECE) == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_keyring *keyring = NULL;
    struct idem_http_text id;
    struct idem_error err;
    size_t n = 0;

    if (idem_keyring_parse("keys", (const char *)data, size, &keyring, &err) != 0) {
        assert(keyring == NULL && err.code == IDEM_E_INVALID);
        error_check(err.text, (const char *)data, size);
        return 0;
    }
    for (; n < 8 && idem_keyring_id(keyring, n, &id); n++)
        key_check(keyring, id);
    assert(n > 0);
    idem_keyring_free(keyring);
    return 0;
}
