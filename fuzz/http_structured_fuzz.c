/*
 * Any bytes as a structured field: a parsed dictionary, written again, parses
 * as the same; a list's items are all found; bytes in base64 come back
 * unchanged.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/hex.h"
#include "base/text_out.h"
#include "http/http_structured.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(struct idem_out *out, struct idem_http_text text) {
    idem_out_put(out, text.at, text.len);
}

static void bare_check(const struct idem_sf_bare *bare) {
    unsigned char bytes[256], again[256];
    char text[IDEM_BASE64_TEXT(256)], plain[256];
    size_t len, again_len = 0;

    assert(bare->text.len <= bare->all.len || bare->all.len == 0);
    if (bare->type == IDEM_SF_STRING) {
        len = idem_sf_unescape(bare->text, plain, sizeof(plain));
        assert(len <= bare->text.len && len >= bare->text.len / 2);
    }
    if (bare->type != IDEM_SF_BYTES ||
        !idem_base64_decode(bare->text.at, bare->text.len, bytes, sizeof(bytes), &len))
        return;
    idem_base64_encode(bytes, len, text);
    assert(idem_base64_decode(text, strlen(text), again, len, &again_len));
    assert(again_len == len && memcmp(bytes, again, len) == 0);
}

static void parameters_check(struct idem_sf *sf) {
    struct idem_sf_parameter parameter;
    enum idem_sf_next next;

    while ((next = idem_sf_parameter(sf, &parameter)) == IDEM_SF_NEXT)
        bare_check(&parameter.value);
    assert(next == IDEM_SF_END);
}

static void list_check(struct idem_http_text text) {
    struct idem_sf sf = idem_sf_of(text);
    struct idem_sf_bare bare;
    enum idem_sf_next next;

    while ((next = idem_sf_inner(&sf, &bare)) == IDEM_SF_NEXT) {
        bare_check(&bare);
        parameters_check(&sf);
    }
    assert(next == IDEM_SF_END && sf.at == sf.end);
}

/* Members, each written as it was parsed; false if the field is not valid. */
static bool dictionary(struct idem_http_text field, struct idem_out *out, size_t *ret_n) {
    struct idem_sf sf = idem_sf_of(field);
    struct idem_sf_member member;
    enum idem_sf_next next;

    for (*ret_n = 0; (next = idem_sf_member(&sf, &member)) == IDEM_SF_NEXT; ++*ret_n) {
        struct idem_sf parameters = idem_sf_of(member.parameters);

        if (member.value.type == IDEM_SF_INNER_LIST)
            list_check(member.value.text);
        else
            bare_check(&member.value);
        parameters_check(&parameters);
        assert(parameters.at == parameters.end);
        idem_out_text(out, *ret_n > 0 ? ", " : "");
        put(out, member.key);
        idem_out_text(out, member.value.all.len > 0 ? "=" : "");
        put(out, member.value.all);
        put(out, member.parameters);
    }
    return next == IDEM_SF_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_http_text field = {(const char *)data, size};
    struct idem_out first = {malloc(2 * size + 1), 2 * size + 1, 0};
    struct idem_out second = {malloc(2 * size + 1), 2 * size + 1, 0};
    unsigned char bytes[64];
    size_t n, again;

    assert(first.buf != NULL && second.buf != NULL);
    if (dictionary(field, &first, &n)) {
        assert(first.len <= first.size);
        assert(dictionary((struct idem_http_text){first.buf, first.len}, &second, &again));
        assert(again == n && second.len == first.len);
        assert(memcmp(first.buf, second.buf, first.len) == 0);
    }
    again = 0;
    assert(!idem_hex_decode(field.at, field.len, bytes, sizeof(bytes), &again) ||
           again == size / 2);
    free(first.buf);
    free(second.buf);
    return 0;
}
