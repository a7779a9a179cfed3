/*
 * Stored responses: which headers are stored, and the binary format. Reading validates the whole
 * response before it returns any part, and refuses everything that writing would refuse
 * (fuzz/http_answer_fuzz.c): a header value with a line break would inject headers into a replay.
 */
#include "http/http_answer.h"

#include <stdio.h>
#include <string.h>

#define MAGIC 'A'
#define VERSION 1
#define FIXED_LEN 10 /* magic, version, status, headers, length of the body */
#define BODY_AT 6    /* the offset of the body's length */
#define HEADER_LEN 5
#define NAME_MAX_LEN 255
#define DECODED "X-Idem-Decoded"
#define DECODED_MAX ((size_t)UINT32_MAX)

#define NAME(text)                                                                                 \
    { (text), sizeof(text) - 1 }

/* Headers that describe the response, and headers that a client needs to continue from it. */
static const struct idem_http_text kept[] = {
    /* The representation and its metadata. */
    NAME("Content-Type"),
    NAME("Content-Language"),
    NAME("Content-Encoding"),
    NAME("Content-Disposition"),
    NAME("Content-Location"),
    NAME("ETag"),
    NAME("Last-Modified"),
    NAME("Link"),
    /* Where to continue. Retry-After belongs to a 202 or 503 as Location does: without it a
       client polls at its own rate. 405 requires Allow, and 415 may have the other two. */
    NAME("Location"),
    NAME("Retry-After"),
    NAME("Allow"),
    NAME("Accept-Patch"),
    NAME("Accept-Post"),
    NAME("Preference-Applied"),
    /* Caching. An Expires date in the past is still correct. */
    NAME("Cache-Control"),
    NAME("Expires"),
    NAME("Vary"),
    /* Browser policies. A page without its policy is unprotected, and without the CORS headers a
       script of another origin cannot read the response. */
    NAME("Content-Security-Policy"),
    NAME("Content-Security-Policy-Report-Only"),
    NAME("Referrer-Policy"),
    NAME("X-Content-Type-Options"),
    NAME("X-Frame-Options"),
    NAME("Access-Control-Allow-Credentials"),
    NAME("Access-Control-Allow-Origin"),
    NAME("Access-Control-Expose-Headers"),
};
/* WWW-Authenticate is absent: its challenges (nonces, Negotiate) are valid for one exchange, and
   a 401 is released, not stored. A configuration that stores 401 can list the header. */

#define COOKIE                                                                                     \
    "belongs to the first caller; a replay would give that session to every caller of the key"
#define HOP "belongs to one connection (RFC 9110, 7.6.1)"
#define FRESH "is made anew for every response"
#define SERVER "is an order to the server, and no part of the response"

static const struct never {
    struct idem_http_text name;
    const char *why;
} never[] = {
    {NAME("Set-Cookie"), COOKIE},
    {NAME("Set-Cookie2"), COOKIE},
    {NAME("Connection"), HOP},
    {NAME("Keep-Alive"), HOP},
    {NAME("Proxy-Connection"), HOP},
    {NAME("Proxy-Authenticate"), HOP},
    {NAME("Proxy-Authentication-Info"), HOP},
    {NAME("Proxy-Authorization"), HOP},
    {NAME("TE"), HOP},
    {NAME("Trailer"), HOP},
    {NAME("Transfer-Encoding"), HOP},
    {NAME("Upgrade"), HOP},
    {NAME("Date"), FRESH},
    {NAME("Server"), FRESH},
    {NAME("Age"), FRESH},
    {NAME("Content-Length"), FRESH},
    {NAME("Content-Range"), "belongs to a part of a response, and a replay is always whole"},
    {NAME("Accept-Ranges"), "promises parts, and a replay is always whole"},
    {NAME("Idempotency-Key"), FRESH},
    {NAME("Idempotent-Replayed"), FRESH},
    {NAME(DECODED), FRESH},
};

static bool answer_text_begins(struct idem_http_text text, struct idem_http_text with) {
    return text.len >= with.len && idem_http_same((struct idem_http_text){text.at, with.len}, with);
}

const char *idem_http_header_refused(struct idem_http_text name) {
    if (!idem_http_is_token(name) || name.len > NAME_MAX_LEN)
        return "is no name of a header";
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        if (idem_http_same(name, never[i].name))
            return never[i].why;
    if (answer_text_begins(name, IDEM_HTTP_TEXT("Idem-")))
        return FRESH;
    if (answer_text_begins(name, IDEM_HTTP_TEXT("X-Accel-")))
        return SERVER;
    return NULL;
}

bool idem_http_header_kept(struct idem_http_text name, struct idem_http_text connection,
                           const struct idem_http_text *further, size_t further_n) {
    bool found = false;

    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]) && !found; i++)
        found = idem_http_same(name, kept[i]);
    for (size_t i = 0; i < further_n && !found; i++)
        found = idem_http_same(name, further[i]);
    return found && idem_http_header_refused(name) == NULL && !idem_http_list_has(connection, name);
}

static void answer_number_put(unsigned char *at, size_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static size_t answer_number_get(const unsigned char *at, int bytes) {
    size_t value = 0;

    for (int i = 0; i < bytes; i++)
        value |= (size_t)at[i] << (8 * i);
    return value;
}

struct idem_http_header idem_http_decoded_print(const struct idem_http_decoded *decoded,
                                                char room[IDEM_HTTP_DECODED_TEXT]) {
    struct idem_http_header header = {NAME(DECODED), {room, 0}};
    int len = decoded->kind == IDEM_HTTP_DECODED_NEVER
                  ? snprintf(room, IDEM_HTTP_DECODED_TEXT, "no")
                  : snprintf(room, IDEM_HTTP_DECODED_TEXT, "%zu%s", decoded->size,
                             decoded->kind == IDEM_HTTP_DECODED_OVER ? "+" : "");

    header.value.len = (size_t)len;
    return header;
}

/* Accepts only the form that idem_http_decoded_print() writes: digits without a leading zero,
   with or without a plus, or "no". */
static bool answer_decoded_read(const struct idem_http_header *header,
                                struct idem_http_decoded *ret) {
    struct idem_http_text digits = header->value;
    int64_t size;

    if (!idem_http_is(header->name, DECODED))
        return false;
    if (idem_http_is(digits, "no")) {
        *ret = (struct idem_http_decoded){.kind = IDEM_HTTP_DECODED_NEVER};
        return true;
    }
    if (digits.len > 0 && digits.at[digits.len - 1] == '+')
        digits.len--;
    if (!idem_http_number(digits, 0, (int64_t)DECODED_MAX, &size) ||
        digits.at[0] < (digits.len > 1 ? '1' : '0') || digits.at[digits.len - 1] < '0')
        return false;
    *ret = (struct idem_http_decoded){
        .kind = digits.len < header->value.len ? IDEM_HTTP_DECODED_OVER : IDEM_HTTP_DECODED_EXACT,
        .size = (size_t)size};
    return true;
}

static bool answer_status_is_valid(size_t status) {
    return status >= 200 && status <= 999;
}

/* A line break in a value would start further headers or a body. */
static bool header_is_valid(const struct idem_http_header *header) {
    for (size_t i = 0; i < header->value.len; i++)
        if (header->value.at[i] == '\0' || header->value.at[i] == '\r' ||
            header->value.at[i] == '\n')
            return false;
    return idem_http_header_refused(header->name) == NULL;
}

/* Returns the number of bytes before the body; 0: too many. */
static size_t answer_head_size(const struct idem_http_header *headers, size_t n) {
    size_t size = FIXED_LEN;

    if (n > IDEM_HTTP_HEADERS_MAX)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (headers[i].name.len > NAME_MAX_LEN || headers[i].value.len > IDEM_HTTP_HEAD_MAX)
            return 0;
        size += HEADER_LEN + headers[i].name.len + headers[i].value.len;
    }
    return size <= IDEM_HTTP_HEAD_MAX ? size : 0;
}

size_t idem_http_answer_head_max(size_t n, size_t len) {
    return FIXED_LEN + HEADER_LEN + sizeof(DECODED) - 1 + IDEM_HTTP_DECODED_TEXT + n * HEADER_LEN +
           len;
}

size_t idem_http_answer_size(const struct idem_http_header *headers, size_t n, size_t body_len) {
    size_t head = answer_head_size(headers, n);

    return head == 0 || body_len > UINT32_MAX - IDEM_HTTP_HEAD_MAX ? 0 : head + body_len;
}

static unsigned char *answer_text_put(unsigned char *at, struct idem_http_text text) {
    if (text.len > 0)
        memcpy(at, text.at, text.len);
    return at + text.len;
}

int idem_http_answer_begin(struct idem_http_answer_out *out, void *room, size_t size, int status,
                           const struct idem_http_header *headers, size_t n) {
    size_t head = answer_head_size(headers, n);
    unsigned char *at = room;
    struct idem_http_decoded decoded;

    if (head == 0 || head > size || status < 0 || !answer_status_is_valid((size_t)status))
        return IDEM_E_INVALID;
    for (size_t i = 0; i < n; i++)
        if (!header_is_valid(&headers[i]) && (i > 0 || !answer_decoded_read(&headers[i], &decoded)))
            return IDEM_E_INVALID;
    at[0] = MAGIC;
    at[1] = VERSION;
    answer_number_put(at + 2, (size_t)status, 2);
    answer_number_put(at + 4, n, 2);
    answer_number_put(at + BODY_AT, 0, 4);
    at += FIXED_LEN;
    for (size_t i = 0; i < n; i++) {
        at[0] = (unsigned char)headers[i].name.len;
        answer_number_put(at + 1, headers[i].value.len, 4);
        at = answer_text_put(answer_text_put(at + HEADER_LEN, headers[i].name), headers[i].value);
    }
    *out = (struct idem_http_answer_out){.at = room, .size = size, .head = head, .len = head};
    return 0;
}

int idem_http_answer_append(struct idem_http_answer_out *out, const void *bytes, size_t len) {
    if (len > out->size - out->len || len > UINT32_MAX - (out->len - out->head))
        return IDEM_E_INVALID;
    if (len > 0 && bytes != out->at + out->len)
        memcpy(out->at + out->len, bytes, len);
    out->len += len;
    return 0;
}

size_t idem_http_answer_end(struct idem_http_answer_out *out) {
    answer_number_put(out->at + BODY_AT, out->len - out->head, 4);
    return out->len;
}

bool idem_http_answer_next(struct idem_http_text *headers, struct idem_http_header *ret) {
    const unsigned char *at = (const unsigned char *)headers->at;
    size_t name_len, value_len;

    if (headers->len < HEADER_LEN)
        return false;
    name_len = at[0];
    value_len = answer_number_get(at + 1, 4);
    if (name_len > headers->len - HEADER_LEN || value_len > headers->len - HEADER_LEN - name_len)
        return false;
    ret->name = (struct idem_http_text){headers->at + HEADER_LEN, name_len};
    ret->value = (struct idem_http_text){ret->name.at + name_len, value_len};
    headers->at += HEADER_LEN + name_len + value_len;
    headers->len -= HEADER_LEN + name_len + value_len;
    return true;
}

int idem_http_answer_read(const void *bytes, size_t len, struct idem_http_answer *ret) {
    const unsigned char *at = bytes;
    struct idem_http_text rest, headers;
    struct idem_http_header header;
    struct idem_http_decoded decoded = {.kind = IDEM_HTTP_DECODED_UNKNOWN};
    size_t status, n, body_len, headers_len;

    if (len < 2 || at[0] != MAGIC || at[1] == 0)
        return IDEM_E_CORRUPT;
    if (at[1] > VERSION)
        return IDEM_E_VERSION;
    if (len < FIXED_LEN)
        return IDEM_E_CORRUPT;
    status = answer_number_get(at + 2, 2);
    n = answer_number_get(at + 4, 2);
    body_len = answer_number_get(at + BODY_AT, 4);
    if (!answer_status_is_valid(status) || n > IDEM_HTTP_HEADERS_MAX ||
        body_len > len - FIXED_LEN || len - body_len > IDEM_HTTP_HEAD_MAX)
        return IDEM_E_CORRUPT;
    headers_len = len - FIXED_LEN - body_len;
    headers = rest = (struct idem_http_text){(const char *)at + FIXED_LEN, headers_len};
    for (size_t i = 0; i < n; i++) {
        if (!idem_http_answer_next(&rest, &header))
            return IDEM_E_CORRUPT;
        if (i == 0 && answer_decoded_read(&header, &decoded))
            headers = rest;
        else if (!header_is_valid(&header))
            return IDEM_E_CORRUPT;
    }
    if (rest.len != 0)
        return IDEM_E_CORRUPT;
    *ret = (struct idem_http_answer){
        .status = (int)status,
        .headers_n = n - (decoded.kind != IDEM_HTTP_DECODED_UNKNOWN),
        .headers = headers,
        .body = {(const char *)at + FIXED_LEN + headers_len, body_len},
        .decoded = decoded,
    };
    return 0;
}
