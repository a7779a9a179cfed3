/*
 * Signs a request: makes the parts of a new signature, the signed text, and the headers to send.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/chars.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/hex.h"
#include "http/http_structured.h"
#include "sign/sign.h"
#include "sign/sign_request.h"

#define NONCE_BYTES 16

/* All the data of one new signature. */
struct made {
    struct idem_sign_parts parts;
    struct idem_sign_request request;
    struct idem_http_header *headers; /* the request's own, and Content-Digest */
    unsigned char sha256[IDEM_HASH_LEN];
    char digest[IDEM_DIGEST_TEXT];
    bool digested; /* Content-Digest is part of the result */
    char timestamp[24];
    char *components, *parameters; /* of rfc9421 */
};

static void made_release(struct made *made) {
    free(made->headers);
    free(made->components);
    free(made->parameters);
}

static int make_nonce(const struct idem_signer *signer, const struct idem_sign_with *with,
                      struct idem_sign_parts *parts, struct idem_error *err) {
    unsigned char bits[NONCE_BYTES];

    if (with->nonce == NULL && signer->sequence != IDEM_SEQUENCE_OFF)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the nonce is missing: where there is a sequence, it is the next "
                              "number");
    if (with->nonce != NULL) {
        size_t len = strlen(with->nonce);
        bool ok = len > 0 && len <= IDEM_NONCE_MAX;

        for (size_t i = 0; ok && i < len; i++)
            ok = idem_is_visible(with->nonce[i]);
        if (!ok)
            return idem_error_set(err, IDEM_E_INVALID,
                                  "the nonce must be 1 to 255 visible ASCII characters");
        memcpy(parts->nonce, with->nonce, len + 1);
        parts->nonce_len = len;
        if (signer->sequence != IDEM_SEQUENCE_OFF && !idem_sign_number(parts))
            return idem_error_set(err, IDEM_E_INVALID,
                                  "the nonce is no number: decimal digits, from 1 on");
        return 0;
    }
    if (idem_random(bits, sizeof(bits)) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "the system gives no random bits");
    idem_hex_encode(bits, sizeof(bits), parts->nonce);
    parts->nonce_len = strlen(parts->nonce);
    return 0;
}

static int make_time(const struct idem_signer *signer, const struct idem_sign_with *with,
                     struct made *made, struct idem_error *err) {
    int64_t ms = with->time_ms;

    if (ms == IDEM_NONE) {
        if (signer->sequence == IDEM_SEQUENCE_OFF)
            return idem_error_set(err, IDEM_E_INVALID,
                                  "a request without a timestamp needs a sequence");
        return 0;
    }
    if (ms < 0)
        return idem_error_set(err, IDEM_E_INVALID, "the time is before 1970");
    if (ms == 0)
        ms = idem_sign_now();
    made->parts.timed = true;
    made->parts.time_ms = ms;
    snprintf(made->timestamp, sizeof(made->timestamp), "%" PRId64, ms / 1000);
    made->parts.timestamp = idem_http_text_of(made->timestamp);
    return 0;
}

static int make_key(const struct idem_signer *signer, const struct idem_sign_with *with,
                    struct idem_sign_parts *parts, struct idem_error *err) {
    struct idem_http_text id = idem_http_text_of(with->key_id);
    char quoted[IDEM_QUOTE_TEXT];

    idem_error_quote(id.at, id.len, quoted, sizeof(quoted));
    parts->alg = idem_keyring_alg(signer->keyring, id);
    if (parts->alg == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "there is no key of id %s that signs: hmac-sha256 or ed25519-secret",
                              quoted);
    if (signer->form == IDEM_SIGN_CLASSIC && parts->alg != IDEM_SIGN_HMAC_SHA256)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the classic form has hmac-sha256 only, and key %s is of another "
                              "algorithm",
                              quoted);
    memcpy(parts->key_id, id.at, id.len); /* it is in the keyring, so it fits */
    parts->key_id_len = id.len;
    return 0;
}

/* RFC 9421: the covered components, and the parameters. */

static void make_item_put(struct idem_out *out, struct idem_http_text name) {
    if (out->len > 0)
        idem_out_text(out, " ");
    idem_out_text(out, "\"");
    idem_out_put(out, name.at, name.len);
    idem_out_text(out, "\"");
}

static void make_string_put(struct idem_out *out, const char *key, const char *value) {
    idem_out_text(out, ";");
    idem_out_text(out, key);
    idem_out_text(out, "=\"");
    for (; *value != '\0'; value++) {
        if (idem_is_any(*value, "\"\\"))
            idem_out_text(out, "\\");
        idem_out_put(out, value, 1);
    }
    idem_out_text(out, "\"");
}

/* The default components come first; a name of headers= is not repeated. */
static void make_components_put(const struct idem_signer *signer, const struct made *made,
                                struct idem_out *out) {
    const struct idem_sign_request *request = &made->request;
    const struct {
        struct idem_http_text name;
        bool wanted;
    } always[] = {
        {IDEM_HTTP_TEXT("@method"), true},
        {IDEM_HTTP_TEXT("@authority"), request->authority.len > 0},
        {IDEM_HTTP_TEXT("@path"), true},
        {IDEM_HTTP_TEXT("@query"), request->query.at != NULL},
        {IDEM_HTTP_TEXT("content-digest"), request->has_body},
    };
    size_t n = sizeof(always) / sizeof(always[0]);

    for (size_t i = 0; i < n; i++)
        if (always[i].wanted)
            make_item_put(out, always[i].name);
    for (size_t i = 0; i < signer->names_n; i++) {
        bool there = false;

        for (size_t k = 0; k < n; k++)
            there |= always[k].wanted && idem_http_same(always[k].name, signer->names[i]);
        if (!there)
            make_item_put(out, signer->names[i]);
    }
}

static void make_parameters_put(const struct idem_signer *signer, const struct made *made,
                                struct idem_out *out) {
    (void)signer;
    if (made->parts.timed) {
        idem_out_text(out, ";created=");
        idem_out_text(out, made->timestamp);
    }
    make_string_put(out, "keyid", made->parts.key_id);
    make_string_put(out, "nonce", made->parts.nonce);
    make_string_put(out, "alg", idem_sign_alg_name(made->parts.alg));
}

static char *make_text(const struct idem_signer *signer, const struct made *made,
                       void (*put)(const struct idem_signer *signer, const struct made *made,
                                   struct idem_out *out)) {
    struct idem_out out = {0};

    put(signer, made, &out);
    if (!idem_out_allocate(&out))
        return NULL;
    put(signer, made, &out);
    out.buf[out.len] = '\0';
    return out.buf;
}

static int make_message(const struct idem_signer *signer, struct made *made,
                        struct idem_error *err) {
    struct idem_sign_parts *parts = &made->parts;

    made->components = make_text(signer, made, make_components_put);
    made->parameters = make_text(signer, made, make_parameters_put);
    if (made->components == NULL || made->parameters == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to sign a request");
    parts->components = idem_http_text_of(made->components);
    parts->parameters = idem_http_text_of(made->parameters);
    return 0;
}

/* True if a Content-Digest is required: for every body, and for an empty one if the rules name
   it. */
static bool make_digest_wanted(const struct idem_signer *signer, const struct made *made,
                               struct idem_http_text name) {
    bool named = made->request.has_body;

    for (size_t i = 0; i < signer->names_n; i++)
        named |= idem_http_same(signer->names[i], name);
    return named && signer->form == IDEM_SIGN_RFC9421;
}

/* Keeps a digest that the caller supplied. */
static int make_request(const struct idem_signer *signer, const struct idem_request *from,
                        struct made *made, struct idem_error *err) {
    static const struct idem_http_text name = IDEM_HTTP_TEXT("content-digest");
    size_t n;
    int rc = idem_request_read(from, 1, made->sha256, &made->headers, &made->request, err);

    if (rc != 0)
        return rc;
    (void)idem_sign_header(&made->request, name, &n);
    made->digested = n == 0 && make_digest_wanted(signer, made, name);
    if (!made->digested)
        return 0;
    idem_digest_print(made->sha256, made->digest);
    made->headers[made->request.headers_n++] =
        (struct idem_http_header){name, {made->digest, strlen(made->digest)}};
    return 0;
}

/* The headers. */

static bool signature_field_add(struct idem_signature *ret, const char *name, char *value) {
    ret->fields[ret->fields_n++] = (struct idem_field){name, value};
    return value != NULL;
}

__attribute__((format(printf, 1, 2))) static char *make_printed(const char *fmt, ...) {
    char *text = NULL;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    return text;
}

static bool made_fields_classic(const struct made *made, struct idem_signature *ret) {
    char hex[IDEM_HEX_TEXT(IDEM_SIGNATURE_MAX)];

    idem_hex_encode(made->parts.signature, made->parts.signature_len, hex);
    return signature_field_add(ret, "X-Key-Id", strdup(made->parts.key_id)) &&
           (!made->parts.timed ||
            signature_field_add(ret, "X-Timestamp", strdup(made->timestamp))) &&
           signature_field_add(ret, "X-Nonce", strdup(made->parts.nonce)) &&
           signature_field_add(ret, "X-Sign", strdup(hex));
}

static bool made_fields_message(const struct made *made, struct idem_signature *ret) {
    char text[IDEM_BASE64_TEXT(IDEM_SIGNATURE_MAX)];

    idem_base64_encode(made->parts.signature, made->parts.signature_len, text);
    return (!made->digested || signature_field_add(ret, "Content-Digest", strdup(made->digest))) &&
           signature_field_add(ret, "Signature-Input",
                               make_printed("sig=(%s)%s", made->components, made->parameters)) &&
           signature_field_add(ret, "Signature", make_printed("sig=:%s:", text));
}

static int make_signature(const struct idem_signer *signer, struct made *made,
                          struct idem_signature *ret, struct idem_error *err) {
    struct idem_sign_parts *parts = &made->parts;
    char room[IDEM_SIGN_DETAIL], *written_text;
    struct idem_http_text text;
    const char *detail;
    int rc = idem_sign_text(signer, &made->request, parts, &written_text, &text.len, &detail, room);

    if (rc > 0)
        return idem_error_set(err, IDEM_E_INVALID, "it cannot be signed: %s", detail);
    if (rc < 0)
        return idem_error_set(err, rc, "no memory to sign a request");
    text.at = ret->signed_text = written_text;
    rc = idem_keyring_sign(signer->keyring, idem_sign_parts_id(parts), text, parts->signature,
                           &parts->signature_len, err);
    if (rc != 0)
        return rc;
    ret->fields_n = 0;
    if (signer->form == IDEM_SIGN_CLASSIC ? made_fields_classic(made, ret)
                                          : made_fields_message(made, ret))
        return 0;
    return idem_error_set(err, IDEM_E_NOMEM, "no memory to sign a request");
}

int idem_sign_request(const struct idem_signer *signer, const struct idem_sign_with *with,
                      const struct idem_request *request, struct idem_signature *ret,
                      struct idem_error *err) {
    struct idem_signature signature = {0};
    struct made made = {0};
    int rc = idem_need(signer, err) ?: idem_need(with, err) ?: idem_need(request, err);

    if (rc == 0)
        rc = idem_need(ret, err) ?: idem_need(with->key_id, err);
    if (rc != 0)
        return rc;
    if ((rc = make_key(signer, with, &made.parts, err)) == 0 &&
        (rc = make_nonce(signer, with, &made.parts, err)) == 0 &&
        (rc = make_time(signer, with, &made, err)) == 0 &&
        (rc = make_request(signer, request, &made, err)) == 0 &&
        (signer->form == IDEM_SIGN_CLASSIC || (rc = make_message(signer, &made, err)) == 0))
        rc = make_signature(signer, &made, &signature, err);
    made_release(&made);
    if (rc != 0) {
        idem_signature_release(&signature);
        return rc;
    }
    *ret = signature;
    return 0;
}

void idem_signature_release(struct idem_signature *signature) {
    if (signature == NULL)
        return;
    for (size_t i = 0; i < signature->fields_n; i++)
        free((void *)(uintptr_t)signature->fields[i].value);
    free(signature->signed_text);
    *signature = (struct idem_signature){0};
}
