/*
 * Content-Digest (RFC 9530): checks every sha-256 and sha-512 digest in the field. Digests of
 * other kinds are ignored, but at least one must be of a known kind.
 */
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_binary.h"
#include "http/http_structured.h"
#include "sign/sign.h"

static const char wrong[] = "The body is not the one of Content-Digest.";
static const char unreadable[] = "The header Content-Digest cannot be read.";

/* The body's digest for this key; NULL for an unknown kind. */
static const unsigned char *digest_of(const struct idem_sign_request *request,
                                      struct idem_http_text key, size_t *ret_len) {
    *ret_len = IDEM_HASH_LEN;
    if (idem_http_is(key, "sha-256"))
        return request->sha256;
    *ret_len = IDEM_SHA512_LEN;
    return idem_http_is(key, "sha-512") ? request->sha512 : NULL;
}

static const char *digest_members_check(const struct idem_sign_request *request,
                                        struct idem_http_text field, size_t *ret_n) {
    struct idem_sf sf = idem_sf_of(field);
    struct idem_sf_member member;
    enum idem_sf_next next;
    bool differs = false;

    *ret_n = 0;
    while ((next = idem_sf_member(&sf, &member)) == IDEM_SF_NEXT) {
        unsigned char sent[IDEM_SHA512_LEN];
        size_t len, sent_len;
        const unsigned char *made = digest_of(request, member.key, &len);

        if (made == NULL)
            continue;
        (*ret_n)++;
        if (member.value.type != IDEM_SF_BYTES ||
            !idem_base64_decode(member.value.text, sent, sizeof(sent), &sent_len) ||
            sent_len != len || CRYPTO_memcmp(sent, made, len) != 0)
            differs = true;
    }
    if (next == IDEM_SF_BAD)
        return unreadable;
    return differs ? wrong : NULL;
}

const char *idem_digest_check(const struct idem_sign_request *request, bool *ret_incomplete) {
    static const struct idem_http_text name = IDEM_HTTP_TEXT("content-digest");
    struct idem_out out = {0};
    const char *detail;
    size_t n;

    idem_sign_headers(request, name, &out, &n);
    out.size = out.len;
    out.len = 0;
    out.buf = malloc(out.size + 1);
    if (out.buf == NULL)
        return "There is no memory to read Content-Digest.";
    idem_sign_headers(request, name, &out, &n);
    detail = digest_members_check(request, (struct idem_http_text){out.buf, out.len}, &n);
    free(out.buf);
    *ret_incomplete = detail == unreadable || (detail == NULL && n == 0);
    return *ret_incomplete && detail == NULL ? "Content-Digest has neither sha-256 nor sha-512."
                                             : detail;
}

void idem_digest_print(const unsigned char sha256[IDEM_HASH_LEN], char out[IDEM_DIGEST_TEXT]) {
    char text[IDEM_BASE64_TEXT(IDEM_HASH_LEN)];

    idem_base64_encode(sha256, IDEM_HASH_LEN, text);
    snprintf(out, IDEM_DIGEST_TEXT, "sha-256=:%s:", text);
}
