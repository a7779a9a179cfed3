/*
 * HTTP Message Signatures (RFC 9421): which signature of a request is meant, its parameters, and
 * the base that it signs. What must be covered is more than the RFC asks for: method, path, query
 * and, through Content-Digest, the body; created, keyid and nonce.
 *
 * Of the parameters of components, bs and name are known; one with another cannot be verified, and
 * is refused.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/binary.h"
#include "http/chars.h"
#include "http/form.h"
#include "http/structured.h"
#include "sign/sign.h"

#define SIGNATURES_MAX 8
#define COMPONENTS_MAX 64
#define PARAM_NAME_MAX 1024

static bool is(struct idem_http_text text, const char *word) {
    return text.len == strlen(word) && memcmp(text.at, word, text.len) == 0;
}

static bool same(struct idem_http_text a, struct idem_http_text b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

__attribute__((format(printf, 2, 3))) static const char *detail_of(char room[IDEM_SIGN_DETAIL],
                                                                   const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    vsnprintf(room, IDEM_SIGN_DETAIL, fmt, args);
    va_end(args);
    return room;
}

/* Its parameters. */

static bool string_copy(const struct idem_sf_bare *value, char *out, size_t max, size_t *ret_len) {
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

/* As it would be written again: a leading zero would not be. */
static bool seconds_read(const struct idem_sf_bare *value, int64_t *ret_ms) {
    int64_t seconds;

    if (value->type != IDEM_SF_INTEGER || value->text.at[0] == '0' ||
        !idem_http_number(value->text, 1, INT64_MAX / 1000, &seconds))
        return false;
    *ret_ms = seconds * 1000;
    return true;
}

enum { CREATED, EXPIRES, KEYID, NONCE, ALG, KNOWN };
static const char *const known[KNOWN] = {"created", "expires", "keyid", "nonce", "alg"};

static bool parameter_take(int which, const struct idem_sf_bare *value,
                           struct idem_sign_parts *ret) {
    switch (which) {
    case CREATED:
        ret->timed = true;
        return seconds_read(value, &ret->time_ms);
    case EXPIRES:
        ret->expires = true;
        return seconds_read(value, &ret->expires_ms);
    case KEYID:
        return string_copy(value, ret->key_id, IDEM_KEY_ID_MAX, &ret->key_id_len);
    case NONCE:
        return string_copy(value, ret->nonce, IDEM_NONCE_MAX, &ret->nonce_len);
    default:
        return value->type == IDEM_SF_STRING && idem_sign_alg_find(value->text, &ret->alg);
    }
}

static const char *parameters_read(struct idem_http_text parameters, struct idem_sign_parts *ret,
                                   char room[IDEM_SIGN_DETAIL]) {
    struct idem_sf sf = idem_sf_of(parameters);
    struct idem_sf_parameter parameter;
    bool seen[KNOWN] = {false};

    while (idem_sf_parameter(&sf, &parameter) == IDEM_SF_NEXT)
        for (int i = 0; i < KNOWN; i++) {
            if (!is(parameter.key, known[i]))
                continue;
            if (seen[i])
                return detail_of(room, "The signature's parameter %s is repeated.", known[i]);
            seen[i] = true;
            if (!parameter_take(i, &parameter.value, ret))
                return detail_of(room, "The signature's parameter %s cannot be read%s.", known[i],
                                 i == ALG ? ", or names an algorithm that is not known here" : "");
        }
    return NULL;
}

static const char *parameters_need(const struct idem_signer *signer, struct idem_sign_parts *parts,
                                   char room[IDEM_SIGN_DETAIL]) {
    const char *missing = parts->key_id_len == 0                                   ? "keyid"
                          : parts->nonce_len == 0                                  ? "nonce"
                          : !parts->timed && signer->sequence == IDEM_SEQUENCE_OFF ? "created"
                                                                                   : NULL;

    if (missing != NULL)
        return detail_of(room, "The signature's parameter %s is missing.", missing);
    if (signer->sequence != IDEM_SEQUENCE_OFF && !idem_sign_number(parts))
        return "The signature's nonce is no number: decimal digits, from 1 on.";
    return NULL;
}

/* Which signature. */

static bool member_keyid(const struct idem_sf_member *member, char out[IDEM_KEY_ID_MAX + 1],
                         size_t *ret_len) {
    struct idem_sf sf = idem_sf_of(member->parameters);
    struct idem_sf_parameter parameter;

    while (idem_sf_parameter(&sf, &parameter) == IDEM_SF_NEXT)
        if (is(parameter.key, "keyid"))
            return string_copy(&parameter.value, out, IDEM_KEY_ID_MAX, ret_len);
    return false;
}

static bool member_is_ours(const struct idem_signer *signer, const struct idem_sf_member *member) {
    char id[IDEM_KEY_ID_MAX + 1];
    size_t len;

    return member_keyid(member, id, &len) &&
           idem_keyring_knows(signer->keyring, (struct idem_http_text){id, len});
}

/* The only one, or, where others on the way have signed too, the only one whose key is known. */
static const char *signature_choose(const struct idem_signer *signer, struct idem_http_text field,
                                    struct idem_sf_member *ret, bool *ret_several) {
    struct idem_sf_member members[SIGNATURES_MAX];
    struct idem_sf sf = idem_sf_of(field);
    enum idem_sf_next next;
    size_t n = 0, ours = 0;

    while (n < SIGNATURES_MAX && (next = idem_sf_member(&sf, &members[n])) == IDEM_SF_NEXT) {
        for (size_t i = 0; i < n; i++)
            if (same(members[i].key, members[n].key))
                return "Signature-Input names one signature twice.";
        if (members[n].value.type != IDEM_SF_INNER_LIST)
            return "Signature-Input has a signature without a list of components.";
        n++;
    }
    if (n == SIGNATURES_MAX)
        return "Signature-Input has too many signatures.";
    if (n == 0 || next == IDEM_SF_BAD)
        return "The header Signature-Input cannot be read.";
    *ret = members[0];
    *ret_several = n > 1;
    for (size_t i = 0; i < n; i++)
        if (member_is_ours(signer, &members[i])) {
            *ret = members[i];
            ours++;
        }
    return ours > 1 ? "Signature-Input has more than one signature of known keys." : NULL;
}

static const char *signature_find(struct idem_http_text field, struct idem_http_text label,
                                  struct idem_sign_parts *ret) {
    struct idem_sf sf = idem_sf_of(field);
    struct idem_sf_member member;
    enum idem_sf_next next;
    size_t found = 0;

    while ((next = idem_sf_member(&sf, &member)) == IDEM_SF_NEXT) {
        if (!same(member.key, label))
            continue;
        found++;
        if (member.value.type != IDEM_SF_BYTES ||
            !idem_base64_decode(member.value.text, ret->signature, IDEM_SIGNATURE_MAX,
                                &ret->signature_len))
            return "The signature is no bytes between colons, or too long.";
    }
    if (next == IDEM_SF_BAD)
        return "The header Signature cannot be read.";
    return found == 1 ? NULL : "Signature has not one value for the name in Signature-Input.";
}

/* Components. */

struct component {
    struct idem_http_text name;  /* between its quotes, which hold no escapes */
    struct idem_http_text param; /* name= of @query-param */
    bool bs;
};

static bool name_is_plain(struct idem_http_text name) {
    size_t from = name.len > 0 && name.at[0] == '@';

    for (size_t i = from; i < name.len; i++)
        if (!idem_is_tchar(name.at[i]) || name.at[i] != idem_lower(name.at[i]))
            return false;
    return name.len > from;
}

static const char *component_next(struct idem_sf *sf, struct component *ret, bool *ret_end,
                                  char room[IDEM_SIGN_DETAIL]) {
    struct idem_sf_parameter parameter;
    struct idem_sf_bare item;

    *ret_end = idem_sf_inner(sf, &item) != IDEM_SF_NEXT;
    if (*ret_end)
        return NULL;
    *ret = (struct component){.name = item.text};
    if (item.type != IDEM_SF_STRING || !name_is_plain(item.text))
        return "A component of the signature has a name that is none.";
    while (idem_sf_parameter(sf, &parameter) == IDEM_SF_NEXT) {
        bool derived = item.text.at[0] == '@';

        if (is(parameter.key, "bs") && parameter.value.all.len == 0 && !derived && !ret->bs)
            ret->bs = true;
        else if (is(parameter.key, "name") && parameter.value.type == IDEM_SF_STRING &&
                 is(item.text, "@query-param") && ret->param.at == NULL)
            ret->param = parameter.value.text;
        else
            return detail_of(room, "A component's parameter %.*s is not supported here.",
                             (int)(parameter.key.len < 32 ? parameter.key.len : 32),
                             parameter.key.at);
    }
    return NULL;
}

static bool component_same(const struct component *a, const struct component *b) {
    return same(a->name, b->name) && same(a->param, b->param) && a->bs == b->bs;
}

static const char *components_read(struct idem_http_text list, struct component *ret, size_t *ret_n,
                                   char room[IDEM_SIGN_DETAIL]) {
    struct idem_sf sf = idem_sf_of(list);
    size_t n = 0;
    bool end;

    for (;; n++) {
        struct component one;
        const char *detail = component_next(&sf, &one, &end, room);

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

static bool covers(const struct component *components, size_t n, struct idem_http_text name) {
    for (size_t i = 0; i < n; i++)
        if (same(components[i].name, name) && components[i].param.at == NULL)
            return true;
    return false;
}

static bool covers_word(const struct component *components, size_t n, const char *name) {
    return covers(components, n, (struct idem_http_text){name, strlen(name)});
}

/* What must be signed. A query and a body that were not there cannot be added, since they would
   have to be signed then. */
static const char *components_need(const struct idem_signer *signer,
                                   const struct idem_sign_request *request,
                                   struct idem_http_text list, char room[IDEM_SIGN_DETAIL]) {
    struct component components[COMPONENTS_MAX];
    const char *missing = NULL, *detail;
    size_t n;

    detail = components_read(list, components, &n, room);
    if (detail != NULL)
        return detail;
    bool target =
        covers_word(components, n, "@target-uri") || covers_word(components, n, "@request-target");

    if (!covers_word(components, n, "@method"))
        missing = "@method";
    else if (!target && !covers_word(components, n, "@path"))
        missing = "@path";
    else if (!target && request->query.at != NULL && !covers_word(components, n, "@query"))
        missing = "@query";
    else if (request->has_body && !covers_word(components, n, "content-digest"))
        missing = "content-digest";
    for (size_t i = 0; missing == NULL && i < signer->names_n; i++)
        if (!covers(components, n, signer->names[i]))
            return detail_of(room, "The signature does not cover %.*s.", (int)signer->names[i].len,
                             signer->names[i].at);
    return missing == NULL ? NULL : detail_of(room, "The signature does not cover %s.", missing);
}

/* All of a header, in memory of its own, behind what stands in it already. */
static struct idem_http_text field_join(const struct idem_sign_request *request, const char *name,
                                        struct idem_out *out, size_t *ret_n) {
    size_t from = out->len;

    idem_sign_headers(request, (struct idem_http_text){name, strlen(name)}, out, ret_n);
    return (struct idem_http_text){out->buf == NULL ? NULL : out->buf + from, out->len - from};
}

static const char *fields_read(const struct idem_signer *signer,
                               const struct idem_sign_request *request, struct idem_out *out,
                               struct idem_sign_parts *ret, char room[IDEM_SIGN_DETAIL]) {
    struct idem_http_text input, signature;
    struct idem_sf_member member;
    const char *detail;
    size_t n;

    input = field_join(request, "signature-input", out, &n);
    if (n == 0)
        return "The header Signature-Input is missing.";
    signature = field_join(request, "signature", out, &n);
    if (n == 0)
        return "The header Signature is missing.";
    if ((detail = signature_choose(signer, input, &member, &ret->several)) != NULL ||
        (detail = signature_find(signature, member.key, ret)) != NULL ||
        (detail = parameters_read(member.parameters, ret, room)) != NULL ||
        (detail = parameters_need(signer, ret, room)) != NULL)
        return detail;
    ret->components = member.value.text;
    ret->parameters = member.parameters;
    return components_need(signer, request, ret->components, room);
}

static const char *message_read(const struct idem_signer *signer,
                                const struct idem_sign_request *request,
                                struct idem_sign_parts *ret, char room[IDEM_SIGN_DETAIL],
                                bool *ret_nomem) {
    struct idem_out out = {0};
    size_t n;

    (void)field_join(request, "signature-input", &out, &n);
    (void)field_join(request, "signature", &out, &n);
    ret->fields = out.buf = malloc(out.len + 1);
    *ret_nomem = ret->fields == NULL;
    if (*ret_nomem)
        return "There is no memory to read the signature.";
    out.size = out.len;
    out.len = 0;
    return fields_read(signer, request, &out, ret, room);
}

/* The base. */

static void lower_put(struct idem_out *out, struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++) {
        char c = idem_lower(text.at[i]);

        idem_out_put(out, &c, 1);
    }
}

static void authority_put(const struct idem_sign_request *request, struct idem_out *out) {
    struct idem_http_text authority = idem_http_trim(request->authority);
    const char *port = idem_http_same(request->scheme, IDEM_HTTP_TEXT("http")) ? ":80" : ":443";
    size_t len = strlen(port);

    if (authority.len > len && memcmp(authority.at + authority.len - len, port, len) == 0)
        authority.len -= len;
    lower_put(out, authority);
}

static void path_put(const struct idem_sign_request *request, struct idem_out *out) {
    if (request->path.len == 0)
        idem_out_say(out, "/");
    idem_out_put(out, request->path.at, request->path.len);
}

static void query_put(const struct idem_sign_request *request, struct idem_out *out) {
    idem_out_say(out, "?");
    idem_out_put(out, request->query.at, request->query.len);
}

static void target_put(const struct idem_sign_request *request, struct idem_out *out) {
    path_put(request, out);
    if (request->query.at != NULL)
        query_put(request, out);
}

static void method_put(const struct idem_sign_request *request, struct idem_out *out) {
    idem_out_put(out, request->method.at, request->method.len);
}

static void scheme_put(const struct idem_sign_request *request, struct idem_out *out) {
    lower_put(out, request->scheme);
}

static void uri_put(const struct idem_sign_request *request, struct idem_out *out) {
    scheme_put(request, out);
    idem_out_say(out, "://");
    authority_put(request, out);
    target_put(request, out);
}

static const struct {
    const char *name;
    void (*put)(const struct idem_sign_request *request, struct idem_out *out);
} derived[] = {
    {"@method", method_put}, {"@target-uri", uri_put},        {"@authority", authority_put},
    {"@scheme", scheme_put}, {"@request-target", target_put}, {"@path", path_put},
    {"@query", query_put},
};
#define DERIVED (sizeof(derived) / sizeof(derived[0]))

/* Decoded and encoded again, so that + and %20 are one. False if it cannot be decoded. */
static bool param_put(struct idem_http_text text, struct idem_out *out) {
    for (size_t i = 0; i < text.len;) {
        size_t used = text.at[i] == '%' ? 3 : 1, n;
        char c, escaped[4];

        if (used > text.len - i ||
            !idem_http_unescape((struct idem_http_text){text.at + i, used}, &c, 1, &n) || n != 1)
            return false;
        i += used;
        if (idem_is_alpha(c) || idem_is_digit(c) || idem_is_any(c, "*-._")) {
            idem_out_put(out, &c, 1);
        } else {
            snprintf(escaped, sizeof(escaped), "%%%02X", (unsigned char)c);
            idem_out_say(out, escaped);
        }
    }
    return true;
}

static const char *query_param_put(const struct idem_sign_request *request,
                                   struct idem_http_text name, struct idem_out *out) {
    struct idem_http_text rest = request->query;
    struct idem_http_pair pair;
    size_t found = 0;

    while (rest.at != NULL && idem_http_pair_next(&rest, &pair)) {
        char encoded[PARAM_NAME_MAX];
        struct idem_out to = {encoded, sizeof(encoded), 0};

        if (!param_put(pair.name, &to))
            return "A parameter of the query cannot be decoded.";
        if (to.len > to.size || !same((struct idem_http_text){encoded, to.len}, name))
            continue;
        if (found++ > 0 || !param_put(pair.value, out))
            return "A parameter that is signed is repeated, or cannot be decoded.";
    }
    return found == 1 ? NULL : "A parameter that is signed is missing.";
}

static const char *bytes_put(const struct idem_sign_request *request, struct idem_http_text name,
                             struct idem_out *out, size_t *ret_n) {
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
        idem_out_say(out, (*ret_n)++ > 0 ? ", :" : ":");
        idem_out_say(out, text);
        idem_out_say(out, ":");
        free(text);
    }
    return NULL;
}

static const char *field_put(const struct idem_sign_request *request,
                             const struct component *component, struct idem_out *out,
                             char room[IDEM_SIGN_DETAIL]) {
    size_t from = out->len, n;
    const char *detail = NULL;

    if (component->bs)
        detail = bytes_put(request, component->name, out, &n);
    else
        idem_sign_headers(request, component->name, out, &n);
    if (detail != NULL)
        return detail;
    if (n == 0)
        return detail_of(room, "The header %.*s, which was signed, is missing.",
                         (int)(component->name.len < 64 ? component->name.len : 64),
                         component->name.at);
    /* only what was put into the buffer can be looked at: the second round */
    for (size_t i = from; i < out->len && i < out->size; i++)
        if (idem_is_any(out->buf[i], "\r\n") || out->buf[i] == '\0')
            return "A header that was signed cannot be written on a line.";
    return NULL;
}

static const char *component_put(const struct idem_sign_request *request,
                                 const struct component *component, struct idem_out *out,
                                 char room[IDEM_SIGN_DETAIL]) {
    if (component->name.at[0] != '@')
        return field_put(request, component, out, room);
    if (is(component->name, "@query-param") && component->param.at != NULL)
        return query_param_put(request, component->param, out);
    for (size_t i = 0; i < DERIVED; i++)
        if (is(component->name, derived[i].name)) {
            derived[i].put(request, out);
            return NULL;
        }
    return detail_of(room, "The component %.*s is not known here.",
                     (int)(component->name.len < 64 ? component->name.len : 64),
                     component->name.at);
}

static void identifier_put(const struct component *component, struct idem_out *out) {
    idem_out_say(out, "\"");
    idem_out_put(out, component->name.at, component->name.len);
    idem_out_say(out, "\"");
    if (component->bs)
        idem_out_say(out, ";bs");
    if (component->param.at != NULL) {
        idem_out_say(out, ";name=\"");
        idem_out_put(out, component->param.at, component->param.len);
        idem_out_say(out, "\"");
    }
}

/* As they would be written again: without the blanks that a sender may put between them. */
static void parameters_put(struct idem_http_text parameters, struct idem_out *out) {
    struct idem_sf sf = idem_sf_of(parameters);
    struct idem_sf_parameter parameter;

    while (idem_sf_parameter(&sf, &parameter) == IDEM_SF_NEXT) {
        idem_out_say(out, ";");
        idem_out_put(out, parameter.key.at, parameter.key.len);
        if (parameter.value.all.len == 0 || is(parameter.value.all, "?1"))
            continue;
        idem_out_say(out, "=");
        idem_out_put(out, parameter.value.all.at, parameter.value.all.len);
    }
}

static const char *message_text(const struct idem_signer *signer,
                                const struct idem_sign_request *request,
                                const struct idem_sign_parts *parts, struct idem_out *out,
                                char room[IDEM_SIGN_DETAIL]) {
    struct component components[COMPONENTS_MAX];
    size_t n;
    const char *detail = components_read(parts->components, components, &n, room);

    (void)signer;
    if (detail == NULL &&
        (!idem_sign_is_line(request->method) || !idem_sign_is_line(request->scheme) ||
         !idem_sign_is_line(request->authority) || !idem_sign_is_line(request->path) ||
         !idem_sign_is_line(request->query)))
        detail = "The request line or Host has a character that cannot be signed.";
    if (detail != NULL)
        return detail;
    for (size_t i = 0; i < n; i++) {
        identifier_put(&components[i], out);
        idem_out_say(out, ": ");
        detail = component_put(request, &components[i], out, room);
        if (detail != NULL)
            return detail;
        idem_out_say(out, "\n");
    }
    idem_out_say(out, "\"@signature-params\": (");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            idem_out_say(out, " ");
        identifier_put(&components[i], out);
    }
    idem_out_say(out, ")");
    parameters_put(parts->parameters, out);
    return NULL;
}

static const char *message_body(const struct idem_sign_request *request,
                                const struct idem_sign_parts *parts, bool *ret_incomplete) {
    struct component components[COMPONENTS_MAX];
    char room[IDEM_SIGN_DETAIL];
    size_t n;

    *ret_incomplete = false;
    if (components_read(parts->components, components, &n, room) != NULL ||
        !covers_word(components, n, "content-digest"))
        return NULL;
    return idem_digest_check(request, ret_incomplete);
}

const struct idem_sign_form_row idem_sign_rfc9421 = {message_read, message_text, message_body};
