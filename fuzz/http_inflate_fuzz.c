/*
 * Any bytes as gzip, and packed as gzip: refused, or decoded within the bound;
 * packed bytes come out again, in steps of any size.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_inflate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns 0 with all output in `out`, which has room for `max`. */
static int unpack(const void *bytes, size_t len, size_t step, char *out, size_t max, size_t *ret) {
    struct idem_http_inflate z;
    size_t at = 0, n;
    char *piece = malloc(step);
    int rc;

    assert(idem_http_inflate_init(&z, bytes, len, max) == 0);
    while ((rc = idem_http_inflate_next(&z, piece, step, &n)) == 0 && (n != 0 || !z.done)) {
        assert(n <= step && n <= max - at);
        memcpy(out + at, piece, n);
        at += n;
    }
    idem_http_inflate_release(&z);
    free(piece);
    *ret = at;
    return rc;
}

/* Measures in pieces of `step`; the measure must predict the result of unpacking. */
static void measure(const uint8_t *bytes, size_t len, size_t step, size_t max, int rc, size_t out) {
    struct idem_http_measure m;
    struct idem_http_decoded decoded;

    idem_http_measure_begin(&m, max);
    for (size_t at = 0; at < len; at += step)
        idem_http_measure_add(&m, bytes + at, len - at < step ? len - at : step);
    decoded = idem_http_measure_end(&m);
    if (rc == 0)
        assert(decoded.kind == IDEM_HTTP_DECODED_EXACT && decoded.size == out);
    else /* bytes beyond the bound may also be damaged */
        assert(decoded.kind ==
                   (rc == IDEM_E_FULL ? IDEM_HTTP_DECODED_OVER : IDEM_HTTP_DECODED_NEVER) ||
               rc == IDEM_E_CORRUPT || decoded.kind == IDEM_HTTP_DECODED_NEVER);
    idem_http_measure_drop(&m);
}

static void pack_and_unpack(const uint8_t *data, size_t size, size_t step) {
    z_stream z = {0};
    size_t room, len;
    unsigned char *packed;
    char *out = malloc(size + 1);

    assert(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    room = deflateBound(&z, size);
    packed = malloc(room);
    z.next_in = (Bytef *)data;
    z.avail_in = (uInt)size;
    z.next_out = packed;
    z.avail_out = (uInt)room;
    assert(deflate(&z, Z_FINISH) == Z_STREAM_END);
    assert(unpack(packed, z.total_out, step, out, size, &len) == 0);
    assert(len == size && memcmp(out, data, size) == 0);
    measure(packed, z.total_out, step, size, 0, size);
    assert(idem_http_gzip_claims((struct idem_http_text){(char *)packed, z.total_out}) == size);
    assert(size == 0 || unpack(packed, z.total_out, step, out, size - 1, &len) == IDEM_E_FULL);
    assert(unpack(packed, z.total_out - 1, step, out, size, &len) == IDEM_E_CORRUPT);
    deflateEnd(&z);
    free(packed);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char out[4096];
    size_t len, step = size == 0 ? 1 : data[0] % 64u + 1;
    int rc = unpack(data, size, step, out, sizeof(out), &len);

    measure(data, size, step, sizeof(out), rc, len);
    pack_and_unpack(data, size, step);
    return 0;
}
