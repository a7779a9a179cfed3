/*
 * Converts a request into a JSON tree, without writing it as text. Pairs of name and value are
 * collected in a list, which becomes an object by sorting, so that equal or colliding names cost
 * no more than others (fuzz/http_request_fuzz.c).
 */
#include "http/http_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/chars.h"
#include "base/error.h"
#include "base/units.h"
#include "http/http_form.h"

struct request_builder {
    struct idem_arena *arena;
    struct idem_error *err;
};

/* Pairs in the order of arrival. `room` was counted before. */
struct pairs {
    struct idem_member *at;
    uint32_t n, room;
};

enum repeated { AS_ARRAY, JOINED };

/* Allocates from the arena. NULL with *ret_rc set. */
static void *request_builder_take(struct request_builder *b, size_t n, size_t size, int *ret_rc) {
    size_t bytes;
    bool beyond = __builtin_mul_overflow(n, size, &bytes);
    void *at = beyond ? NULL : idem_arena_alloc(b->arena, bytes);

    if (at != NULL)
        return at;
    *ret_rc = beyond || idem_arena_spent(b->arena, bytes)
                  ? idem_error_set(b->err, IDEM_E_INVALID,
                                   "the request needs more memory than an expression may read")
                  : idem_error_set(b->err, IDEM_E_NOMEM, "no memory to read a request");
    return NULL;
}

static bool request_text_is_ascii(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] >= 0x80)
            return false;
    return true;
}

/* Makes a string of valid UTF-8; null for other bytes. */
static struct idem_json request_string_of(struct idem_http_text text) {
    struct idem_json json = {.type = IDEM_JSON_NULL};

    if (text.at == NULL || text.len > UINT32_MAX || !idem_utf8_valid(text.at, text.len))
        return json;
    json.type = IDEM_JSON_STRING;
    json.flag = request_text_is_ascii(text);
    json.n = (uint32_t)text.len;
    json.at.text = text.at;
    return json;
}

/* Converts a text that is not UTF-8 from ISO 8859-1, the traditional encoding of header fields. */
static int request_builder_utf8(struct request_builder *b, struct idem_http_text *text) {
    char *out;
    size_t n = 0;
    int rc = 0;

    if (text->len == 0)
        *text = IDEM_HTTP_TEXT("");
    if (idem_utf8_valid(text->at, text->len))
        return 0;
    out = request_builder_take(b, text->len, 2, &rc);
    if (out == NULL)
        return rc;
    for (size_t i = 0; i < text->len; i++)
        n += idem_utf8_put((unsigned char)text->at[i], out + n);
    *text = (struct idem_http_text){out, n};
    return 0;
}

static int request_builder_pairs_room(struct request_builder *b, struct pairs *pairs, size_t n) {
    int rc = 0;

    *pairs = (struct pairs){.room = (uint32_t)n};
    if (n > 0)
        pairs->at = request_builder_take(b, n > UINT32_MAX ? SIZE_MAX : n, sizeof(*pairs->at), &rc);
    return rc;
}

static void pairs_add(struct pairs *pairs, struct idem_http_text name, struct idem_json value) {
    if (pairs->n < pairs->room)
        pairs->at[pairs->n++] = (struct idem_member){name.at, (uint32_t)name.len, value};
}

/* Objects. */

static int request_member_compare(const struct idem_member *a, const struct idem_member *b) {
    return idem_utf16_cmp(a->name, a->len, b->name, b->len);
}

/* By name; equal names in the order of arrival. */
static int request_index_compare(const void *a, const void *b, void *at) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int cmp = request_member_compare((struct idem_member *)at + x, (struct idem_member *)at + y);

    if (cmp != 0)
        return cmp;
    return x < y ? -1 : x > y;
}

static int request_builder_values_array(struct request_builder *b, const struct pairs *pairs,
                                        const uint32_t *group, uint32_t n, struct idem_json *ret) {
    int rc = 0;
    struct idem_json *items = request_builder_take(b, n, sizeof(*items), &rc);

    if (items == NULL)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        items[i] = pairs->at[group[i]].value;
    *ret = (struct idem_json){.type = IDEM_JSON_ARRAY, .n = n, .at.items = items};
    return 0;
}

static int request_builder_values_join(struct request_builder *b, const struct pairs *pairs,
                                       const uint32_t *group, uint32_t n, struct idem_json *ret) {
    const struct idem_member *first = &pairs->at[group[0]];
    bool cookie = idem_is_word(first->name, first->len, "cookie");
    size_t len = 2 * (size_t)(n - 1);
    char *out, *to;
    int rc = 0;

    for (uint32_t i = 0; i < n; i++)
        len += pairs->at[group[i]].value.n;
    out = to = request_builder_take(b, len, 1, &rc);
    if (out == NULL)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        const struct idem_json *value = &pairs->at[group[i]].value;

        if (i > 0)
            to = mempcpy(to, cookie ? "; " : ", ", 2);
        to = mempcpy(to, value->at.text, value->n);
    }
    *ret = request_string_of((struct idem_http_text){out, len});
    return 0;
}

/* Merges the pairs of one name into one member, at the place of the first. Afterwards `sorted`
   holds the order of the members, and *ret_n is their number. */
static int request_builder_pairs_merge(struct request_builder *b, struct pairs *pairs,
                                       uint32_t *sorted, enum repeated repeated, uint32_t *ret_n) {
    uint32_t n = 0, run;

    for (uint32_t i = 0; i < pairs->n; i += run) {
        struct idem_member *first = &pairs->at[sorted[i]];
        int rc = 0;

        for (run = 1; i + run < pairs->n; run++)
            if (request_member_compare(first, &pairs->at[sorted[i + run]]) != 0)
                break;
        if (run > 1)
            rc = (repeated == JOINED ? request_builder_values_join : request_builder_values_array)(
                b, pairs, sorted + i, run, &first->value);
        if (rc != 0)
            return rc;
        for (uint32_t k = 1; k < run; k++)
            pairs->at[sorted[i + k]].name = NULL;
        sorted[n++] = sorted[i];
    }
    *ret_n = n;
    return 0;
}

/* Closes the gaps that a merge left, and adjusts the order to the new places. */
static int request_builder_pairs_close(struct request_builder *b, struct pairs *pairs,
                                       uint32_t *order, uint32_t n) {
    int rc = 0;
    uint32_t to = 0, *moved = request_builder_take(b, pairs->n, sizeof(*moved), &rc);

    if (moved == NULL)
        return rc;
    for (uint32_t i = 0; i < pairs->n; i++) {
        if (pairs->at[i].name == NULL)
            continue;
        pairs->at[to] = pairs->at[i];
        moved[i] = to++;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = moved[order[i]];
    pairs->n = n;
    return 0;
}

static int request_builder_pairs_object(struct request_builder *b, struct pairs *pairs,
                                        enum repeated repeated, struct idem_json *ret) {
    struct idem_object *object;
    uint32_t *order, n;
    int rc = 0;

    if (pairs->n == 0) {
        *ret = (struct idem_json){.type = IDEM_JSON_OBJECT};
        return 0;
    }
    object = request_builder_take(b, 1, sizeof(*object), &rc);
    order = object == NULL ? NULL : request_builder_take(b, pairs->n, sizeof(*order), &rc);
    if (order == NULL)
        return rc;
    for (uint32_t i = 0; i < pairs->n; i++)
        order[i] = i;
    qsort_r(order, pairs->n, sizeof(*order), request_index_compare, pairs->at);
    rc = request_builder_pairs_merge(b, pairs, order, repeated, &n);
    if (rc == 0 && n < pairs->n)
        rc = request_builder_pairs_close(b, pairs, order, n);
    if (rc != 0)
        return rc;
    *object = (struct idem_object){pairs->at, order};
    *ret = (struct idem_json){.type = IDEM_JSON_OBJECT, .n = n, .at.object = object};
    return 0;
}

/* Queries and forms. */

/* 1 and the text as UTF-8; 0 if it is malformed; negative: a code. */
static int request_builder_form_text(struct request_builder *b, struct idem_http_text raw,
                                     struct idem_http_text *ret) {
    char *out;
    size_t len;
    int rc = 0;

    if (raw.len == 0) {
        *ret = IDEM_HTTP_TEXT("");
        return 1;
    }
    out = request_builder_take(b, raw.len, 1, &rc);
    if (out == NULL)
        return rc;
    if (!idem_http_unescape(raw, out, raw.len, &len) || !idem_utf8_valid(out, len))
        return 0;
    *ret = (struct idem_http_text){out, len};
    return 1;
}

static int request_builder_form_object(struct request_builder *b, struct idem_http_text form,
                                       struct idem_json *ret) {
    struct idem_http_text rest = form;
    struct idem_http_pair pair;
    struct pairs pairs;
    size_t n = 0;
    int rc;

    while (idem_http_pair_next(&rest, &pair))
        n++;
    rc = request_builder_pairs_room(b, &pairs, n);
    if (rc != 0)
        return rc;
    while (idem_http_pair_next(&form, &pair)) {
        struct idem_http_text name, value;

        rc = request_builder_form_text(b, pair.name, &name);
        if (rc > 0)
            rc = request_builder_form_text(b, pair.value, &value);
        if (rc == 0)
            *ret = (struct idem_json){.type = IDEM_JSON_NULL};
        if (rc <= 0)
            return rc;
        pairs_add(&pairs, name, request_string_of(value));
    }
    return request_builder_pairs_object(b, &pairs, AS_ARRAY, ret);
}

/* Headers and cookies. */

static int request_builder_lower_name(struct request_builder *b, struct idem_http_text *name) {
    int rc = 0;
    char *out = request_builder_take(b, name->len + 1, 1, &rc);

    if (out == NULL)
        return rc;
    for (size_t i = 0; i < name->len; i++)
        out[i] = idem_lower(name->at[i]);
    name->at = out;
    return request_builder_utf8(b, name);
}

static int request_builder_headers(struct request_builder *b,
                                   const struct idem_http_request *request, struct idem_json *ret) {
    struct pairs pairs;
    int rc = request_builder_pairs_room(b, &pairs, request->headers_n);

    for (size_t i = 0; i < request->headers_n && rc == 0; i++) {
        struct idem_http_header header = request->headers[i];

        if ((rc = request_builder_lower_name(b, &header.name)) == 0 &&
            (rc = request_builder_utf8(b, &header.value)) == 0)
            pairs_add(&pairs, header.name, request_string_of(header.value));
    }
    return rc != 0 ? rc : request_builder_pairs_object(b, &pairs, JOINED, ret);
}

/* Reads the next name=value between semicolons; a part without a name or without = is skipped. */
static bool request_cookie_next(struct idem_http_text *rest, struct idem_http_header *ret) {
    struct idem_http_text part;

    while (idem_http_part_next(rest, ';', &part)) {
        const char *equals = memchr(part.at, '=', part.len);

        if (equals == NULL)
            continue;
        ret->name = (struct idem_http_text){part.at, (size_t)(equals - part.at)};
        ret->value = (struct idem_http_text){equals + 1, part.len - ret->name.len - 1};
        ret->name = idem_http_trim(ret->name);
        ret->value = idem_http_trim(ret->value);
        if (ret->name.len > 0)
            return true;
    }
    return false;
}

static bool request_header_is(const struct idem_http_header *header, const char *name) {
    return idem_http_same(header->name, (struct idem_http_text){name, strlen(name)});
}

static int request_builder_cookies(struct request_builder *b,
                                   const struct idem_http_request *request, struct idem_json *ret) {
    struct idem_http_header cookie;
    struct pairs pairs = {0};
    size_t n = 0;
    int rc = 0;

    for (int pass = 0; pass < 2 && rc == 0; pass++) {
        if (pass == 1)
            rc = request_builder_pairs_room(b, &pairs, n);
        for (size_t i = 0; i < request->headers_n && rc == 0; i++) {
            struct idem_http_text rest = request->headers[i].value;

            if (!request_header_is(&request->headers[i], "cookie"))
                continue;
            while (rc == 0 && request_cookie_next(&rest, &cookie)) {
                n++;
                if (pass == 1 && (rc = request_builder_utf8(b, &cookie.name)) == 0 &&
                    (rc = request_builder_utf8(b, &cookie.value)) == 0)
                    pairs_add(&pairs, cookie.name, request_string_of(cookie.value));
            }
        }
    }
    return rc != 0 ? rc : request_builder_pairs_object(b, &pairs, AS_ARRAY, ret);
}

/* Two Content-Type fields count as none: the backend may use either. */
static enum idem_http_type request_body_type(const struct idem_http_request *request) {
    enum idem_http_type type = IDEM_HTTP_OTHER;
    bool found = false;

    for (size_t i = 0; i < request->headers_n; i++) {
        if (!request_header_is(&request->headers[i], "content-type"))
            continue;
        if (found)
            return IDEM_HTTP_OTHER;
        found = true;
        type = idem_http_type_read(request->headers[i].value);
    }
    return type;
}

static int request_builder_body(struct request_builder *b, const struct idem_http_request *request,
                                struct idem_json *ret) {
    *ret = (struct idem_json){.type = IDEM_JSON_NULL};
    if (request->body.len == 0)
        return 0;
    switch (request_body_type(request)) {
    case IDEM_HTTP_JSON:
        return idem_json_parse(request->body.at, request->body.len, b->arena, ret, b->err);
    case IDEM_HTTP_FORM:
        return request_builder_form_object(b, request->body, ret);
    default:
        *ret = request_string_of(request->body);
        return 0;
    }
}

int idem_http_request_json(const struct idem_http_request *request, struct idem_arena *arena,
                           struct idem_json *ret, struct idem_error *err) {
    struct request_builder b = {arena, err};
    struct idem_json query, headers, cookies, body;
    struct pairs pairs;
    int rc;

    if ((rc = request_builder_pairs_room(&b, &pairs, 7)) != 0 ||
        (rc = request_builder_form_object(&b, request->query, &query)) != 0 ||
        (rc = request_builder_headers(&b, request, &headers)) != 0 ||
        (rc = request_builder_cookies(&b, request, &cookies)) != 0 ||
        (rc = request_builder_body(&b, request, &body)) != 0)
        return rc;
    pairs_add(&pairs, IDEM_HTTP_TEXT("method"), request_string_of(request->method));
    pairs_add(&pairs, IDEM_HTTP_TEXT("path"), request_string_of(request->path));
    pairs_add(&pairs, IDEM_HTTP_TEXT("query"), query);
    pairs_add(&pairs, IDEM_HTTP_TEXT("headers"), headers);
    pairs_add(&pairs, IDEM_HTTP_TEXT("cookies"), cookies);
    pairs_add(&pairs, IDEM_HTTP_TEXT("body"), body);
    pairs_add(&pairs, IDEM_HTTP_TEXT("user"), request_string_of(request->user));
    return request_builder_pairs_object(&b, &pairs, AS_ARRAY, ret);
}
