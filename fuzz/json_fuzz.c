/*
 * Any bytes as a JSON document: refused, or parsed; a parsed document has a
 * canonical form, which is its own canonical form. A number's canonical form,
 * which is made from its digits if possible, is the print of its double, unless
 * the number is an integer beyond 2^53.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json/json.h"
#include "json/json_number.h"

struct out {
    char *bytes;
    size_t len;
};

static int put(void *data, const char *bytes, size_t len) {
    struct out *out = data;
    char *larger = realloc(out->bytes, out->len + len + 1);

    if (larger == NULL)
        abort();
    memcpy(larger + out->len, bytes, len);
    out->bytes = larger;
    out->len += len;
    return 0;
}

static bool only_digits(const char *text, size_t len) {
    size_t i = text[0] == '-';

    while (i < len && text[i] >= '0' && text[i] <= '9')
        i++;
    return i == len;
}

static void number_check(const struct idem_json *number) {
    double d = idem_number_read(number->at.text, number->n);
    char want[IDEM_NUMBER_MAX];
    struct out out = {0};
    size_t len;

    if (isfinite(d)) {
        len = idem_number_es(d, want);
        if (idem_json_canon(number, put, &out, NULL) != 0)
            abort();
        if ((out.len != len || memcmp(out.bytes, want, len) != 0) &&
            (fabs(d) < 9007199254740992 || !only_digits(out.bytes, out.len)))
            abort();
    }
    free(out.bytes);
}

static void numbers_check(const struct idem_json *value) {
    if (value->type == IDEM_JSON_NUMBER)
        number_check(value);
    for (uint32_t i = 0; value->type == IDEM_JSON_ARRAY && i < value->n; i++)
        numbers_check(&value->at.items[i]);
    for (uint32_t i = 0; value->type == IDEM_JSON_OBJECT && i < value->n; i++)
        numbers_check(&value->at.object->members[i].value);
}

static int canon(const char *text, size_t len, struct out *out) {
    struct idem_arena arena;
    struct idem_json value;
    struct idem_error err;
    int rc;

    idem_arena_init(&arena, (size_t)16 << 20);
    rc = idem_json_parse(text, len, &arena, &value, &err);
    if (rc == 0)
        rc = idem_json_canon(&value, put, out, &err);
    if (rc == 0)
        numbers_check(&value);
    idem_arena_free(&arena);
    return rc;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct out once = {0}, twice = {0};

    if (canon((const char *)data, size, &once) == 0 &&
        (canon(once.bytes, once.len, &twice) != 0 || once.len != twice.len ||
         memcmp(once.bytes, twice.bytes, once.len) != 0))
        abort();
    free(once.bytes);
    free(twice.bytes);
    return 0;
}
