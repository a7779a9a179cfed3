/*
 * HTTP Message Signatures (RFC 9421): the signatures of a request, the parameters of each, and its
 * signature base. More coverage is required than by the RFC: method, path, query and, through
 * Content-Digest, the body; created, keyid and nonce.
 *
 * Of the component parameters, bs and name are supported. A signature with another one cannot be
 * verified, and is refused.
 */
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/chars.h"
#include "http/http_form.h"
#include "http/http_structured.h"
#include "sign/sign.h"

/*
 * Content-Digest (RFC 9530): checks every sha-256 and sha-512 digest in the field. Digests of
 * other kinds are ignored, but at least one must be of a known kind.
 */

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
            !idem_base64_decode(member.value.text.at, member.value.text.len, sent, sizeof(sent),
                                &sent_len) ||
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
    if (!idem_out_allocate(&out))
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

#define SIGNATURES_MAX 8
#define COMPONENTS_MAX 64
#define PARAM_NAME_MAX 1024

__attribute__((format(printf, 2, 3))) static const char *message_detail(char room[IDEM_SIGN_DETAIL],
                                                                        const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    vsnprintf(room, IDEM_SIGN_DETAIL, fmt, args);
    va_end(args);
    return room;
}

/* The parameters of a signature. */

static bool message_string_copy(const struct idem_sf_bare *value, char *out, size_t max,
                                size_t *ret_len) {
    size_t len;

    if (value->type != IDEM_SF_STRING)
        return false;
    len = idem_sf_unescape(value->text, out, max);
    if (len == 0 || len > max)
        return false;
    out[len] = '\0';
    *ret_len = len;
    return true;
}

/* Accepts only the canonical form, without a leading zero, because the signature base must
   repeat it. */
static bool message_seconds_read(const struct idem_sf_bare *value, int64_t *ret_ms) {
    int64_t seconds;

    if (value->type != IDEM_SF_INTEGER || value->text.at[0] == '0' ||
        !idem_http_number(value->text, 1, INT64_MAX / 1000, &seconds))
        return false;
    *ret_ms = seconds * 1000;
    return true;
}

enum { CREATED, EXPIRES, KEYID, NONCE, ALG, KNOWN };
static const char *const known[KNOWN] = {"created", "expires", "keyid", "nonce", "alg"};

static bool message_parameter_read(int which, const struct idem_sf_bare *value,
                                   struct idem_sign_parts *ret) {
    switch (which) {
    case CREATED:
        ret->timed = true;
        return message_seconds_read(value, &ret->time_ms);
    case EXPIRES:
        ret->expires = true;
        return message_seconds_read(value, &ret->expires_ms);
    case KEYID:
        return message_string_copy(value, ret->key_id, IDEM_KEY_ID_MAX, &ret->key_id_len);
    case NONCE:
        return message_string_copy(value, ret->nonce, IDEM_NONCE_MAX, &ret->nonce_len);
    default:
        return value->type == IDEM_SF_STRING && idem_sign_alg_find(value->text, &ret->alg);
    }
}

static const char *message_parameters_read(struct idem_http_text parameters,
                                           struct idem_sign_parts *ret,
                                           char room[IDEM_SIGN_DETAIL]) {
    struct idem_sf sf = idem_sf_of(parameters);
    struct idem_sf_parameter parameter;
    bool seen[KNOWN] = {false};

    while (idem_sf_parameter(&sf, &parameter) == IDEM_SF_NEXT)
        for (int i = 0; i < KNOWN; i++) {
            if (!idem_http_is(parameter.key, known[i]))
                continue;
            if (seen[i])
                return message_detail(room, "The signature's parameter %s is repeated.", known[i]);
            seen[i] = true;
            if (!message_parameter_read(i, &parameter.value, ret))
                return message_detail(
                    room, "The signature's parameter %s cannot be read%s.", known[i],
                    i == ALG ? ", or names an algorithm that is not known here" : "");
        }
    return NULL;
}

static const char *message_parameters_need(const struct idem_signer *signer,
                                           struct idem_sign_parts *parts,
                                           char room[IDEM_SIGN_DETAIL]) {
    const char *missing = parts->key_id_len == 0                                   ? "keyid"
                          : parts->nonce_len == 0                                  ? "nonce"
                          : !parts->timed && signer->sequence == IDEM_SEQUENCE_OFF ? "created"
                                                                                   : NULL;

    if (missing != NULL)
        return message_detail(room, "The signature's parameter %s is missing.", missing);
    if (signer->sequence != IDEM_SEQUENCE_OFF && !idem_sign_number(parts))
        return "The signature's nonce is no number: decimal digits, from 1 on.";
    return NULL;
}

/* The choice of a signature. */

static bool message_member_keyid(const struct idem_sf_member *member, char out[IDEM_KEY_ID_MAX + 1],
                                 size_t *ret_len) {
    struct idem_sf sf = idem_sf_of(member->parameters);
    struct idem_sf_parameter parameter;

    while (idem_sf_parameter(&sf, &parameter) == IDEM_SF_NEXT)
        if (idem_http_is(parameter.key, "keyid"))
            return message_string_copy(&parameter.value, out, IDEM_KEY_ID_MAX, ret_len);
    return false;
}

static bool message_member_is_known(const struct idem_signer *signer,
                                    const struct idem_sf_member *member) {
    char id[IDEM_KEY_ID_MAX + 1];
    size_t len;

    return message_member_keyid(member, id, &len) &&
           idem_keyring_knows(signer->keyring, (struct idem_http_text){id, len});
}

/* Proxies may have signed too. */
static const char *message_signature_at(struct idem_http_text field, size_t which,
                                        struct idem_sf_member *ret, size_t *ret_n) {
    struct idem_sf_member members[SIGNATURES_MAX];
    struct idem_sf sf = idem_sf_of(field);
    enum idem_sf_next next;
    size_t n = 0;

    while (n < SIGNATURES_MAX && (next = idem_sf_member(&sf, &members[n])) == IDEM_SF_NEXT) {
        for (size_t i = 0; i < n; i++)
            if (idem_http_equal(members[i].key, members[n].key))
                return "Signature-Input names one signature twice.";
        if (members[n].value.type != IDEM_SF_INNER_LIST)
            return "Signature-Input has a signature without a list of components.";
        n++;
    }
    if (n == SIGNATURES_MAX)
        return "Signature-Input has too many signatures.";
    if (n == 0 || next == IDEM_SF_BAD)
        return "The header Signature-Input cannot be read.";
    *ret = members[which];
    *ret_n = n;
    return NULL;
}

static const char *message_signature_find(struct idem_http_text field, struct idem_http_text label,
                                          struct idem_sign_parts *ret) {
    struct idem_sf sf = idem_sf_of(field);
    struct idem_sf_member member;
    enum idem_sf_next next;
    size_t found = 0;

    while ((next = idem_sf_member(&sf, &member)) == IDEM_SF_NEXT) {
        if (!idem_http_equal(member.key, label))
            continue;
        found++;
        if (member.value.type != IDEM_SF_BYTES ||
            !idem_base64_decode(member.value.text.at, member.value.text.len, ret->signature,
                                IDEM_SIGNATURE_MAX, &ret->signature_len))
            return "The signature is no bytes between colons, or too long.";
    }
    if (next == IDEM_SF_BAD)
        return "The header Signature cannot be read.";
    return found == 1 ? NULL : "Signature has not one value for the name in Signature-Input.";
}

/* Components. */

struct component {
    struct idem_http_text name;  /* the text between its quotes, which has no escapes */
    struct idem_http_text param; /* name= of @query-param */
    bool bs;
};

static bool message_name_is_plain(struct idem_http_text name) {
    size_t from = name.len > 0 && name.at[0] == '@';

    for (size_t i = from; i < name.len; i++)
        if (!idem_is_tchar(name.at[i]) || name.at[i] != idem_lower(name.at[i]))
            return false;
    return name.len > from;
}

static const char *message_component_next(struct idem_sf *sf, struct component *ret, bool *ret_end,
                                          char room[IDEM_SIGN_DETAIL]) {
    struct idem_sf_parameter parameter;
    struct idem_sf_bare item;

    *ret_end = idem_sf_inner(sf, &item) != IDEM_SF_NEXT;
    if (*ret_end)
        return NULL;
    *ret = (struct component){.name = item.text};
    if (item.type != IDEM_SF_STRING || !message_name_is_plain(item.text))
        return "A component of the signature has an invalid name.";
    while (idem_sf_parameter(sf, &parameter) == IDEM_SF_NEXT) {
        bool derived = item.text.at[0] == '@';

        if (idem_http_is(parameter.key, "bs") && parameter.value.all.len == 0 && !derived &&
            !ret->bs)
            ret->bs = true;
        else if (idem_http_is(parameter.key, "name") && parameter.value.type == IDEM_SF_STRING &&
                 idem_http_is(item.text, "@query-param") && ret->param.at == NULL)
            ret->param = parameter.value.text;
        else
            return message_detail(room, "A component's parameter %.*s is not supported here.",
                                  (int)(parameter.key.len < 32 ? parameter.key.len : 32),
                                  parameter.key.at);
    }
    return NULL;
}

static bool component_same(const struct component *a, const struct component *b) {
    return idem_http_equal(a->name, b->name) && idem_http_equal(a->param, b->param) &&
           a->bs == b->bs;
}

static const char *message_components_read(struct idem_http_text list, struct component *ret,
                                           size_t *ret_n, char room[IDEM_SIGN_DETAIL]) {
    struct idem_sf sf = idem_sf_of(list);
    size_t n = 0;
    bool end;

    for (;; n++) {
        struct component one;
        const char *detail = message_component_next(&sf, &one, &end, room);

        if (detail != NULL)
            return detail;
        if (end)
            break;
        if (n == COMPONENTS_MAX)
            return "The signature has too many components.";
        for (size_t i = 0; i < n; i++)
            if (component_same(&ret[i], &one))
                return "The signature has a component twice.";
        ret[n] = one;
    }
    *ret_n = n;
    return NULL;
}

static bool component_covers(const struct component *components, size_t n,
                             struct idem_http_text name) {
    for (size_t i = 0; i < n; i++)
        if (idem_http_equal(components[i].name, name) && components[i].param.at == NULL)
            return true;
    return false;
}

static bool component_covers_word(const struct component *components, size_t n, const char *name) {
    return component_covers(components, n, idem_http_text_of(name));
}

/* Requires coverage. A query or a body cannot be added to a request afterwards, since it would
   then have to be covered. */
static const char *message_components_need(const struct idem_signer *signer,
                                           const struct idem_sign_request *request,
                                           struct idem_http_text list,
                                           char room[IDEM_SIGN_DETAIL]) {
    struct component components[COMPONENTS_MAX];
    const char *missing = NULL, *detail;
    size_t n;

    detail = message_components_read(list, components, &n, room);
    if (detail != NULL)
        return detail;
    bool target = component_covers_word(components, n, "@target-uri") ||
                  component_covers_word(components, n, "@request-target");

    if (!component_covers_word(components, n, "@method"))
        missing = "@method";
    else if (!target && !component_covers_word(components, n, "@path"))
        missing = "@path";
    else if (!target && request->query.at != NULL &&
             !component_covers_word(components, n, "@query"))
        missing = "@query";
    else if (request->has_body && !component_covers_word(components, n, "content-digest"))
        missing = "content-digest";
    for (size_t i = 0; missing == NULL && i < signer->names_n; i++)
        if (!component_covers(components, n, signer->names[i]))
            return message_detail(room, "The signature does not cover %.*s.",
                                  (int)signer->names[i].len, signer->names[i].at);
    return missing == NULL ? NULL
                           : message_detail(room, "The signature does not cover %s.", missing);
}

/* Joins all fields of one name, and appends them to `out`. */
static struct idem_http_text request_field_join(const struct idem_sign_request *request,
                                                const char *name, struct idem_out *out,
                                                size_t *ret_n) {
    size_t from = out->len;

    idem_sign_headers(request, idem_http_text_of(name), out, ret_n);
    return (struct idem_http_text){out->buf == NULL ? NULL : out->buf + from, out->len - from};
}

static const char *message_fields_read(const struct idem_signer *signer,
                                       const struct idem_sign_request *request, size_t which,
                                       struct idem_out *out, struct idem_sign_parts *ret,
                                       char room[IDEM_SIGN_DETAIL]) {
    struct idem_http_text input, signature;
    struct idem_sf_member member;
    const char *detail;
    size_t n;

    input = request_field_join(request, "signature-input", out, &n);
    if (n == 0)
        return "The header Signature-Input is missing.";
    signature = request_field_join(request, "signature", out, &n);
    if (n == 0)
        return "The header Signature is missing.";
    if ((detail = message_signature_at(input, which, &member, &ret->signatures)) != NULL)
        return detail;
    ret->known = message_member_is_known(signer, &member);
    if ((detail = message_signature_find(signature, member.key, ret)) != NULL ||
        (detail = message_parameters_read(member.parameters, ret, room)) != NULL ||
        (detail = message_parameters_need(signer, ret, room)) != NULL)
        return detail;
    ret->components = member.value.text;
    ret->parameters = member.parameters;
    return message_components_need(signer, request, ret->components, room);
}

static const char *message_read(const struct idem_signer *signer,
                                const struct idem_sign_request *request, size_t which,
                                struct idem_sign_parts *ret, char room[IDEM_SIGN_DETAIL],
                                bool *ret_nomem) {
    struct idem_out out = {0};
    size_t n;

    (void)request_field_join(request, "signature-input", &out, &n);
    (void)request_field_join(request, "signature", &out, &n);
    ret->fields = out.buf = malloc(out.len + 1);
    *ret_nomem = ret->fields == NULL;
    if (*ret_nomem)
        return "There is no memory to read the signature.";
    out.size = out.len;
    out.len = 0;
    return message_fields_read(signer, request, which, &out, ret, room);
}

/* The signature base. */

static void message_lower_put(struct idem_out *out, struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++) {
        char c = idem_lower(text.at[i]);

        idem_out_put(out, &c, 1);
    }
}

static void request_put_authority(const struct idem_sign_request *request, struct idem_out *out) {
    struct idem_http_text authority = idem_http_trim(request->authority);
    const char *port = idem_http_same(request->scheme, IDEM_HTTP_TEXT("http")) ? ":80" : ":443";
    size_t len = strlen(port);

    if (authority.len > len && memcmp(authority.at + authority.len - len, port, len) == 0)
        authority.len -= len;
    message_lower_put(out, authority);
}

static void request_put_path(const struct idem_sign_request *request, struct idem_out *out) {
    if (request->path.len == 0)
        idem_out_text(out, "/");
    idem_out_put(out, request->path.at, request->path.len);
}

static void request_put_query(const struct idem_sign_request *request, struct idem_out *out) {
    idem_out_text(out, "?");
    idem_out_put(out, request->query.at, request->query.len);
}

static void request_put_target(const struct idem_sign_request *request, struct idem_out *out) {
    request_put_path(request, out);
    if (request->query.at != NULL)
        request_put_query(request, out);
}

static void request_put_method(const struct idem_sign_request *request, struct idem_out *out) {
    idem_out_put(out, request->method.at, request->method.len);
}

static void request_put_scheme(const struct idem_sign_request *request, struct idem_out *out) {
    message_lower_put(out, request->scheme);
}

static void request_put_uri(const struct idem_sign_request *request, struct idem_out *out) {
    request_put_scheme(request, out);
    idem_out_text(out, "://");
    request_put_authority(request, out);
    request_put_target(request, out);
}

static const struct {
    const char *name;
    void (*put)(const struct idem_sign_request *request, struct idem_out *out);
} derived[] = {
    {"@method", request_put_method},         {"@target-uri", request_put_uri},
    {"@authority", request_put_authority},   {"@scheme", request_put_scheme},
    {"@request-target", request_put_target}, {"@path", request_put_path},
    {"@query", request_put_query},
};
#define DERIVED (sizeof(derived) / sizeof(derived[0]))

/* Decodes and encodes again, so that + and %20 are the same. False if it cannot be decoded. */
static bool message_param_put(struct idem_http_text text, struct idem_out *out) {
    for (size_t i = 0; i < text.len;) {
        char c = idem_http_form_char_next(text, &i), escaped[4];

        if (c == '\0')
            return false;
        if (idem_is_alpha(c) || idem_is_digit(c) || idem_is_any(c, "*-._")) {
            idem_out_put(out, &c, 1);
        } else {
            snprintf(escaped, sizeof(escaped), "%%%02X", (unsigned char)c);
            idem_out_text(out, escaped);
        }
    }
    return true;
}

static const char *request_put_query_param(const struct idem_sign_request *request,
                                           struct idem_http_text name, struct idem_out *out) {
    struct idem_http_text rest = request->query;
    struct idem_http_pair pair;
    size_t found = 0;

    while (rest.at != NULL && idem_http_pair_next(&rest, &pair)) {
        char encoded[PARAM_NAME_MAX];
        struct idem_out to = {encoded, sizeof(encoded), 0};

        if (!message_param_put(pair.name, &to))
            return "A parameter of the query cannot be decoded.";
        if (to.len > to.size || !idem_http_equal((struct idem_http_text){encoded, to.len}, name))
            continue;
        if (found++ > 0 || !message_param_put(pair.value, out))
            return "A parameter that is signed is repeated, or cannot be decoded.";
    }
    return found == 1 ? NULL : "A parameter that is signed is missing.";
}

static const char *request_put_bytes(const struct idem_sign_request *request,
                                     struct idem_http_text name, struct idem_out *out,
                                     size_t *ret_n) {
    *ret_n = 0;
    for (size_t i = 0; i < request->headers_n; i++) {
        struct idem_http_text value;
        char *text;

        if (!idem_http_same(request->headers[i].name, name))
            continue;
        value = idem_http_trim(request->headers[i].value);
        text = malloc(IDEM_BASE64_TEXT(value.len));
        if (text == NULL)
            return "There is no memory for what was signed.";
        idem_base64_encode((const unsigned char *)value.at, value.len, text);
        idem_out_text(out, (*ret_n)++ > 0 ? ", :" : ":");
        idem_out_text(out, text);
        idem_out_text(out, ":");
        free(text);
    }
    return NULL;
}

static const char *request_put_field(const struct idem_sign_request *request,
                                     const struct component *component, struct idem_out *out,
                                     char room[IDEM_SIGN_DETAIL]) {
    size_t from = out->len, n;
    const char *detail = NULL;

    if (component->bs)
        detail = request_put_bytes(request, component->name, out, &n);
    else
        idem_sign_headers(request, component->name, out, &n);
    if (detail != NULL)
        return detail;
    if (n == 0)
        return message_detail(room, "The header %.*s, which was signed, is missing.",
                              (int)(component->name.len < 64 ? component->name.len : 64),
                              component->name.at);
    /* only bytes in the buffer can be checked: in the second pass */
    for (size_t i = from; i < out->len && i < out->size; i++)
        if (idem_is_any(out->buf[i], "\r\n") || out->buf[i] == '\0')
            return "A header that was signed cannot be written on a line.";
    return NULL;
}

static const char *request_put_component(const struct idem_sign_request *request,
                                         const struct component *component, struct idem_out *out,
                                         char room[IDEM_SIGN_DETAIL]) {
    if (component->name.at[0] != '@')
        return request_put_field(request, component, out, room);
    if (idem_http_is(component->name, "@query-param") && component->param.at != NULL)
        return request_put_query_param(request, component->param, out);
    for (size_t i = 0; i < DERIVED; i++)
        if (idem_http_is(component->name, derived[i].name)) {
            derived[i].put(request, out);
            return NULL;
        }
    return message_detail(room, "The component %.*s is not known here.",
                          (int)(component->name.len < 64 ? component->name.len : 64),
                          component->name.at);
}

static void component_put_identifier(const struct component *component, struct idem_out *out) {
    idem_out_text(out, "\"");
    idem_out_put(out, component->name.at, component->name.len);
    idem_out_text(out, "\"");
    if (component->bs)
        idem_out_text(out, ";bs");
    if (component->param.at != NULL) {
        idem_out_text(out, ";name=\"");
        idem_out_put(out, component->param.at, component->param.len);
        idem_out_text(out, "\"");
    }
}

/* Writes the canonical form: without the blanks that a sender may put between parameters. */
static void message_parameters_put(struct idem_http_text parameters, struct idem_out *out) {
    struct idem_sf sf = idem_sf_of(parameters);
    struct idem_sf_parameter parameter;

    while (idem_sf_parameter(&sf, &parameter) == IDEM_SF_NEXT) {
        idem_out_text(out, ";");
        idem_out_put(out, parameter.key.at, parameter.key.len);
        if (parameter.value.all.len == 0 || idem_http_is(parameter.value.all, "?1"))
            continue;
        idem_out_text(out, "=");
        idem_out_put(out, parameter.value.all.at, parameter.value.all.len);
    }
}

static const char *message_text(const struct idem_signer *signer,
                                const struct idem_sign_request *request,
                                const struct idem_sign_parts *parts, struct idem_out *out,
                                char room[IDEM_SIGN_DETAIL]) {
    struct component components[COMPONENTS_MAX];
    size_t n;
    const char *detail = message_components_read(parts->components, components, &n, room);

    (void)signer;
    if (detail == NULL &&
        (!idem_sign_is_line(request->method) || !idem_sign_is_line(request->scheme) ||
         !idem_sign_is_line(request->authority) || !idem_sign_is_line(request->path) ||
         !idem_sign_is_line(request->query)))
        detail = "The request line or Host has a character that cannot be signed.";
    if (detail != NULL)
        return detail;
    for (size_t i = 0; i < n; i++) {
        component_put_identifier(&components[i], out);
        idem_out_text(out, ": ");
        detail = request_put_component(request, &components[i], out, room);
        if (detail != NULL)
            return detail;
        idem_out_text(out, "\n");
    }
    idem_out_text(out, "\"@signature-params\": (");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            idem_out_text(out, " ");
        component_put_identifier(&components[i], out);
    }
    idem_out_text(out, ")");
    message_parameters_put(parts->parameters, out);
    return NULL;
}

static const char *message_body(const struct idem_sign_request *request,
                                const struct idem_sign_parts *parts, bool *ret_incomplete) {
    struct component components[COMPONENTS_MAX];
    char room[IDEM_SIGN_DETAIL];
    size_t n;

    *ret_incomplete = false;
    if (message_components_read(parts->components, components, &n, room) != NULL ||
        !component_covers_word(components, n, "content-digest"))
        return NULL;
    return idem_digest_check(request, ret_incomplete);
}

const struct idem_sign_form_ops idem_sign_rfc9421 = {message_read, message_text, message_body};
