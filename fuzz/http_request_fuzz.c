/*
 * Any bytes as a request: the first part, up to a |, is its query, the next
 * parts are headers, and after an empty one comes its body. The tree is one
 * that the JSON parser could have made: its canonical form parses, and is its
 * own canonical form.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct out {
    char *bytes;
    size_t len;
};

static int put(void *data, const char *bytes, size_t len) {
    struct out *out = data;

    out->bytes = realloc(out->bytes, out->len + len + 1);
    assert(out->bytes != NULL);
    memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
    return 0;
}

static struct idem_http_text part(struct idem_http_text *rest) {
    const char *end = rest->len == 0 ? NULL : memchr(rest->at, '|', rest->len);
    struct idem_http_text text = {rest->at, end == NULL ? rest->len : (size_t)(end - rest->at)};
    size_t skip = text.len + (end != NULL);

    if (skip > 0)
        rest->at += skip;
    rest->len -= skip;
    return text;
}

static void members_check(const struct idem_json *object) {
    for (uint32_t i = 0; object->type == IDEM_JSON_OBJECT && i < object->n; i++) {
        const struct idem_member *member = &object->at.object->members[i];

        assert(idem_json_get(object, member->name, member->len) == &member->value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_http_text rest = {(const char *)data, size}, text;
    struct idem_http_header headers[32];
    struct idem_http_request request = {.query = part(&rest), .headers = headers};
    struct out once = {0}, twice = {0};
    struct idem_arena arena, second;
    struct idem_json json, again;

    while (request.headers_n < 32 && (text = part(&rest)).len > 0) {
        const char *colon = memchr(text.at, ':', text.len);
        size_t n = colon == NULL ? text.len : (size_t)(colon - text.at);

        headers[request.headers_n++] = (struct idem_http_header){
            {text.at, n}, {text.at + n + (colon != NULL), text.len - n - (colon != NULL)}};
    }
    request.body = request.method = request.user = rest;
    request.path = request.query;
    idem_arena_init(&arena, (size_t)1 << 20);
    if (idem_http_request_json(&request, &arena, &json, NULL) == 0) {
        members_check(&json);
        for (uint32_t i = 0; i < json.n; i++)
            members_check(&json.at.object->members[i].value);
        if (idem_json_canon(&json, put, &once, NULL) == 0) {
            idem_arena_init(&second, (size_t)16 << 20);
            if (idem_json_parse(once.bytes, once.len, &second, &again, NULL) == 0) {
                assert(idem_json_canon(&again, put, &twice, NULL) == 0);
                assert(once.len == twice.len && memcmp(once.bytes, twice.bytes, once.len) == 0);
            } else { /* a body of the greatest depth is one level deeper here */
                assert(once.len > 256);
            }
            idem_arena_free(&second);
        }
    }
    idem_arena_free(&arena);
    free(once.bytes);
    free(twice.bytes);
    return 0;
}
