/*
 * gzip, decoded step by step and within a bound, so that a few kilobytes cannot
 * become gigabytes (fuzz/http_inflate_fuzz.c).
 */
#include "http/inflate.h"

#include <limits.h>
#include <string.h>

#define GZIP_ONLY (15 + 16) /* windowBits */

int idem_http_inflate_init(struct idem_http_inflate *z, const void *bytes, size_t len, size_t max) {
    struct idem_http_inflate fresh = {.left = max};

    /* A stored answer has less. */
    if (len > UINT_MAX)
        return IDEM_E_NOMEM;
    *z = fresh;
    z->zlib.next_in = (Bytef *)bytes; /* zlib does not write there */
    z->zlib.avail_in = (uInt)len;
    return inflateInit2(&z->zlib, GZIP_ONLY) == Z_OK ? 0 : IDEM_E_NOMEM;
}

void idem_http_inflate_release(struct idem_http_inflate *z) {
    inflateEnd(&z->zlib);
}

/* After the end of a member: another may follow (RFC 1952, 2.2), and nothing else. */
static int member_next(struct idem_http_inflate *z) {
    if (z->zlib.avail_in == 0) {
        z->done = true;
        return 0;
    }
    return inflateReset(&z->zlib) == Z_OK ? 0 : IDEM_E_CORRUPT;
}

int idem_http_inflate_next(struct idem_http_inflate *z, void *out, size_t size, size_t *ret_len) {
    unsigned char beyond; /* one byte more than may come out, to see whether it does */
    size_t room = size < z->left ? size : z->left;
    int rc;

    if (room > UINT_MAX)
        room = UINT_MAX;
    z->zlib.next_out = room == 0 ? &beyond : out;
    z->zlib.avail_out = room == 0 ? 1 : (uInt)room;
    while (!z->done && z->zlib.avail_out > 0) {
        rc = inflate(&z->zlib, Z_NO_FLUSH);
        if (rc == Z_MEM_ERROR)
            return IDEM_E_NOMEM;
        if (rc != Z_OK && rc != Z_STREAM_END)
            return IDEM_E_CORRUPT; /* Z_BUF_ERROR: it ends too early */
        if (rc == Z_STREAM_END && member_next(z) != 0)
            return IDEM_E_CORRUPT;
    }
    if (room == 0 && z->zlib.avail_out == 0)
        return IDEM_E_FULL;
    room = room == 0 ? 0 : room - z->zlib.avail_out;
    z->left -= room;
    *ret_len = room;
    return 0;
}
