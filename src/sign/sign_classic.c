/*
 * The classic form: four headers, and a text of lines.
 *
 *     IDEM-SIGN-1
 *     POST
 *     /orders?a=1&b=2             as it is sent, but with parameters sorted by name
 *     1618884473                  X-Timestamp, seconds or milliseconds; empty if absent
 *     c27f...                     X-Nonce
 *     shop-1                      X-Key-Id
 *     idempotency-key:k-4711      one line for each of headers=, in that order
 *     e3b0...                     SHA-256 of the body, in hex
 *
 * No part can contain a line break, so two requests have the same text only if they differ in
 * nothing but the order of parameters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chars.h"
#include "base/hex.h"
#include "sign/sign.h"

#define SIGN_LEN (2 * IDEM_HASH_LEN)
#define SECONDS_DIGITS 11 /* more digits mean milliseconds */

/* A header of the form. */
struct part {
    const char *name;
    struct idem_http_text value;
    size_t n;
};

enum { KEY_ID, TIMESTAMP, NONCE, SIGN, PARTS };

static bool classic_all_visible(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if (!idem_is_visible(text.at[i]))
            return false;
    return text.len > 0;
}

static const char *part_detail(const struct part *part, const char *what,
                               char room[IDEM_SIGN_DETAIL]) {
    snprintf(room, IDEM_SIGN_DETAIL, "The header %s %s.", part->name, what);
    return room;
}

static bool classic_time_read(struct idem_http_text text, int64_t *ret_ms) {
    int64_t number;

    if (text.at[0] == '0' || text.len > 15 || !idem_http_number(text, 1, INT64_MAX / 1000, &number))
        return false;
    *ret_ms = text.len > SECONDS_DIGITS ? number : number * 1000;
    return true;
}

static bool classic_sign_read(struct idem_http_text text, struct idem_sign_parts *ret) {
    return text.len == SIGN_LEN && idem_hex_decode(text.at, text.len, ret->signature,
                                                   IDEM_SIGNATURE_MAX, &ret->signature_len);
}

static const char *classic_values_read(const struct idem_signer *signer, struct part parts[PARTS],
                                       struct idem_sign_parts *ret, char room[IDEM_SIGN_DETAIL]) {
    if (parts[KEY_ID].value.len > IDEM_KEY_ID_MAX || !classic_all_visible(parts[KEY_ID].value))
        return part_detail(&parts[KEY_ID], "is not 1 to 128 visible ASCII characters", room);
    if (parts[NONCE].value.len > IDEM_NONCE_MAX || !classic_all_visible(parts[NONCE].value))
        return part_detail(&parts[NONCE], "is not 1 to 255 visible ASCII characters", room);
    if (!classic_sign_read(parts[SIGN].value, ret))
        return part_detail(&parts[SIGN], "is not 64 hexadecimal digits", room);
    ret->timed = parts[TIMESTAMP].n > 0;
    ret->timestamp = parts[TIMESTAMP].value;
    if (ret->timed &&
        (ret->timestamp.len == 0 || !classic_time_read(ret->timestamp, &ret->time_ms)))
        return part_detail(&parts[TIMESTAMP], "is no number of seconds or milliseconds since 1970",
                           room);
    ret->key_id_len = parts[KEY_ID].value.len;
    memcpy(ret->key_id, parts[KEY_ID].value.at, ret->key_id_len);
    ret->nonce_len = parts[NONCE].value.len;
    memcpy(ret->nonce, parts[NONCE].value.at, ret->nonce_len);
    if (signer->sequence != IDEM_SEQUENCE_OFF && !idem_sign_number(ret))
        return part_detail(&parts[NONCE], "is no number: decimal digits, from 1 on", room);
    return NULL;
}

static const char *classic_read(const struct idem_signer *signer,
                                const struct idem_sign_request *request, size_t which,
                                struct idem_sign_parts *ret, char room[IDEM_SIGN_DETAIL],
                                bool *ret_nomem) {
    struct part parts[PARTS] = {
        [KEY_ID] = {.name = "X-Key-Id"},
        [TIMESTAMP] = {.name = "X-Timestamp"},
        [NONCE] = {.name = "X-Nonce"},
        [SIGN] = {.name = "X-Sign"},
    };

    (void)which; /* the form has one signature */
    *ret_nomem = false;
    for (int i = 0; i < PARTS; i++) {
        bool needed = i != TIMESTAMP || signer->sequence == IDEM_SEQUENCE_OFF;

        parts[i].value = idem_sign_header(
            request, (struct idem_http_text){parts[i].name, strlen(parts[i].name)}, &parts[i].n);
        if (parts[i].n > 1)
            return part_detail(&parts[i], "is repeated", room);
        if (needed && parts[i].n == 0)
            return part_detail(&parts[i], "is missing", room);
    }
    ret->alg = IDEM_SIGN_HMAC_SHA256;
    return classic_values_read(signer, parts, ret, room);
}

/* The query, sorted. */

static size_t classic_name_len(const struct idem_http_text *pair) {
    const char *equals = pair->len > 0 ? memchr(pair->at, '=', pair->len) : NULL;

    return equals != NULL ? (size_t)(equals - pair->at) : pair->len;
}

/* By name; pairs of one name keep their order. */
static int classic_pair_compare(const void *a, const void *b) {
    const struct idem_http_text *x = a, *y = b;
    int order = idem_order(x->at, classic_name_len(x), y->at, classic_name_len(y));

    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

static size_t classic_pairs_split(struct idem_http_text query, struct idem_http_text *ret) {
    size_t n = 0;

    for (;;) {
        const char *end = query.len > 0 ? memchr(query.at, '&', query.len) : NULL;
        size_t len = end != NULL ? (size_t)(end - query.at) : query.len;

        if (ret != NULL)
            ret[n] = (struct idem_http_text){query.at, len};
        n++;
        if (end == NULL)
            return n;
        query.at += len + 1;
        query.len -= len + 1;
    }
}

static bool classic_query_put(struct idem_http_text query, struct idem_out *out) {
    size_t n = classic_pairs_split(query, NULL);
    struct idem_http_text *pairs = calloc(n, sizeof(*pairs));

    if (pairs == NULL)
        return false;
    classic_pairs_split(query, pairs);
    qsort(pairs, n, sizeof(*pairs), classic_pair_compare);
    for (size_t i = 0; i < n; i++) {
        idem_out_text(out, i == 0 ? "?" : "&");
        idem_out_put(out, pairs[i].at, pairs[i].len);
    }
    free(pairs);
    return true;
}

/* The text. */

static void classic_line_put(struct idem_out *out, const char *bytes, size_t len) {
    idem_out_put(out, bytes, len);
    idem_out_text(out, "\n");
}

static const char *classic_header_put(const struct idem_sign_request *request,
                                      struct idem_http_text name, struct idem_out *out,
                                      char room[IDEM_SIGN_DETAIL]) {
    size_t n;
    struct idem_http_text value = idem_sign_header(request, name, &n);

    for (size_t i = 0; n == 1 && i < value.len; i++)
        if (idem_is_any(value.at[i], "\r\n") || value.at[i] == '\0')
            n = 2;
    if (n != 1) {
        snprintf(room, IDEM_SIGN_DETAIL, "The header %.*s, which must be signed, %s.",
                 (int)name.len, name.at,
                 n == 0 ? "is missing" : "is repeated, or cannot be written on a line");
        return room;
    }
    idem_out_put(out, name.at, name.len);
    idem_out_text(out, ":");
    classic_line_put(out, value.at, value.len);
    return NULL;
}

static const char *classic_target_put(const struct idem_sign_request *request,
                                      struct idem_out *out) {
    if (!idem_sign_is_line(request->method) || !idem_sign_is_line(request->path) ||
        !idem_sign_is_line(request->query))
        return "The request line has a character that cannot be signed.";
    classic_line_put(out, request->method.at, request->method.len);
    idem_out_put(out, request->path.at, request->path.len);
    if (request->query.at != NULL && !classic_query_put(request->query, out))
        return "There is no memory to sort the parameters.";
    idem_out_text(out, "\n");
    return NULL;
}

static const char *classic_text(const struct idem_signer *signer,
                                const struct idem_sign_request *request,
                                const struct idem_sign_parts *parts, struct idem_out *out,
                                char room[IDEM_SIGN_DETAIL]) {
    char hash[IDEM_HEX_TEXT(IDEM_HASH_LEN)];
    const char *detail;

    idem_out_text(out, "IDEM-SIGN-1\n");
    detail = classic_target_put(request, out);
    classic_line_put(out, parts->timestamp.at, parts->timestamp.len);
    classic_line_put(out, parts->nonce, parts->nonce_len);
    classic_line_put(out, parts->key_id, parts->key_id_len);
    for (size_t i = 0; detail == NULL && i < signer->names_n; i++)
        detail = classic_header_put(request, signer->names[i], out, room);
    idem_hex_encode(request->sha256, IDEM_HASH_LEN, hash);
    idem_out_text(out, hash);
    return detail;
}

/* The signed text contains the hash of the body, so there is nothing left to check. */
static const char *classic_body(const struct idem_sign_request *request,
                                const struct idem_sign_parts *parts, bool *ret_incomplete) {
    (void)request;
    (void)parts;
    *ret_incomplete = false;
    return NULL;
}

const struct idem_sign_form_ops idem_sign_classic = {classic_read, classic_text, classic_body};
