/*
 * Any bytes as a signed request. The parts, each up to a |, are: a letter (c:
 * classic, s: with a sequence; C and S also demand a signed header), the
 * method, the target, headers and, after an empty one, the body. For any
 * request, two checks give the same result; the text that should have been
 * signed, once signed, is good; and so is the same request signed by Idem.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sign/sign_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEADERS_MAX 24
#define NOW_MS 1618884473000

static const char keys[] =
    "shop-1 hmac-sha256 text:correct horse battery staple\n"
    "till ed25519-secret base64:n4Ni+HpISpVObnQMW0wOhCKROaIKqKtW/2ZYb2p9KcU=\n";

static char *part(const char **at, const char *end) {
    const char *mark = *at < end ? memchr(*at, '|', (size_t)(end - *at)) : NULL;
    size_t len = mark != NULL ? (size_t)(mark - *at) : (size_t)(end - *at);
    char *text = strndup(*at, len);

    assert(text != NULL);
    *at = mark != NULL ? mark + 1 : end;
    return text;
}

/* A header's line, cut at its colon. */
static void field_read(char *line, struct idem_field *ret) {
    char *colon = strchr(line, ':');

    ret->name = line;
    ret->value = colon != NULL ? colon + 1 : line + strlen(line);
    if (colon != NULL)
        *colon = '\0';
}

static struct idem_signer signer_of(struct idem_keyring *keyring, const char *letter) {
    struct idem_signer signer = {
        .keyring = keyring,
        .form = strchr("cC", letter[0]) != NULL ? IDEM_SIGN_CLASSIC : IDEM_SIGN_RFC9421,
        .sequence = strchr("sS", letter[0]) != NULL ? IDEM_SEQUENCE_INCREASING : IDEM_SEQUENCE_OFF,
        .window_ms = IDEM_SIGN_WINDOW_MS};

    if (strchr("CS", letter[0]) != NULL)
        signer.names[signer.names_n++] = IDEM_HTTP_TEXT("idempotency-key");
    return signer;
}

static enum idem_proof check(const struct idem_signer *signer, const struct idem_request *from,
                             struct idem_sign_checked *ret) {
    unsigned char sha256[IDEM_HASH_LEN];
    struct idem_http_header *headers;
    struct idem_sign_request request;
    struct idem_error err;

    if (idem_request_read(from, 0, sha256, &headers, &request, &err) != 0)
        return 0;
    assert(idem_sign_check(signer, &request, NOW_MS, ret, &err) == 0);
    free(headers);
    assert((ret->proof == IDEM_PROOF_GOOD) == (ret->detail == NULL));
    assert(ret->proof == IDEM_PROOF_INCOMPLETE || ret->text != NULL);
    assert(ret->parts.key_id_len <= IDEM_KEY_ID_MAX && ret->parts.nonce_len <= IDEM_NONCE_MAX);
    return ret->proof;
}

/* Checks the request as it is, like any sender's. */
static void as_sent(const struct idem_signer *signer, const struct idem_request *from) {
    struct idem_sign_checked checked;
    struct idem_http_text id, text;
    unsigned char signature[IDEM_SIGNATURE_MAX];
    struct idem_error err;
    size_t len;
    enum idem_proof proof = check(signer, from, &checked);

    if (proof == 0)
        return;
    id = (struct idem_http_text){checked.parts.key_id, checked.parts.key_id_len};
    if (proof != IDEM_PROOF_INCOMPLETE) {
        assert(checked.parts.key_id_len > 0 && checked.parts.nonce_len > 0);
        assert(checked.parts.timed || signer->sequence != IDEM_SEQUENCE_OFF);
        text = (struct idem_http_text){checked.text, strlen(checked.text)};
        if (idem_keyring_sign(signer->keyring, id, text, signature, &len, &err) == 0)
            assert(idem_keyring_verify(signer->keyring, id, 0, text, signature, len));
    }
    idem_sign_checked_release(&checked);
}

/* Signs the request: if that is possible, the proof is good, and is not good with another body. */
static void as_signed(const struct idem_signer *signer, struct idem_request *from,
                      struct idem_field fields[HEADERS_MAX + 4]) {
    bool classic = signer->form == IDEM_SIGN_CLASSIC;
    struct idem_sign_with with = {
        .key_id = classic ? "shop-1" : "till", .nonce = "17", .time_ms = NOW_MS};
    struct idem_sign_checked checked;
    struct idem_signature signature;
    struct idem_error err;
    enum idem_proof proof;

    if (idem_sign_request(signer, &with, from, &signature, &err) != 0)
        return;
    for (size_t i = 0; i < signature.fields_n; i++)
        fields[from->fields_n++] = signature.fields[i];
    proof = check(signer, from, &checked);
    /* a request that had a signature already now has two */
    assert(proof == IDEM_PROOF_GOOD || proof == IDEM_PROOF_INCOMPLETE || proof == IDEM_PROOF_WRONG);
    if (proof == IDEM_PROOF_GOOD) {
        assert(strcmp(checked.text, signature.signed_text) == 0);
        idem_sign_checked_release(&checked);
        from->body = "another";
        from->body_len = 7;
        assert(check(signer, from, &checked) != IDEM_PROOF_GOOD);
    }
    idem_sign_checked_release(&checked);
    idem_signature_release(&signature);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    char *letter = part(&at, end), *method = part(&at, end), *target = part(&at, end), *line;
    char *lines[HEADERS_MAX] = {NULL};
    struct idem_field fields[HEADERS_MAX + 4];
    struct idem_request request = {
        .method = method, .scheme = "http", .authority = "a.example:81", .target = target};
    struct idem_keyring *keyring;
    struct idem_signer signer;

    assert(idem_keyring_parse("keys", keys, sizeof(keys) - 1, &keyring, NULL) == 0);
    signer = signer_of(keyring, letter);
    while (request.fields_n < HEADERS_MAX && (line = part(&at, end))[0] != '\0') {
        lines[request.fields_n] = line;
        field_read(line, &fields[request.fields_n++]);
        line = NULL;
    }
    if (request.fields_n < HEADERS_MAX)
        free(line);
    request.fields = fields;
    request.body = at;
    request.body_len = (size_t)(end - at);
    if (request.body_len != 7 || memcmp(at, "another", 7) != 0) {
        as_sent(&signer, &request);
        as_signed(&signer, &request, fields);
    }
    for (size_t i = 0; i < HEADERS_MAX; i++)
        free(lines[i]);
    idem_keyring_free(keyring);
    free(letter);
    free(method);
    free(target);
    return 0;
}
