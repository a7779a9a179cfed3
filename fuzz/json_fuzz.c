/*
 * Any bytes as a JSON document: refused, or read; and what is read has a
 * canonical form, which is its own canonical form.
 */
#include <stdlib.h>
#include <string.h>

#include "json/json.h"

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

static int canon(const char *text, size_t len, struct out *out) {
    struct idem_arena arena;
    struct idem_json value;
    struct idem_error err;
    int rc;

    idem_arena_init(&arena, (size_t)16 << 20);
    rc = idem_json_parse(text, len, &arena, &value, &err);
    if (rc == 0)
        rc = idem_json_canon(&value, put, out, &err);
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
