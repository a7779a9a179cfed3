/*
 * Decodes gzip step by step and within a limit, so that a few kilobytes cannot become gigabytes
 * (fuzz/http_inflate_fuzz.c).
 */
#include "http/http_inflate.h"

#include <limits.h>
#include <string.h>

#define GZIP_ONLY (15 + 16) /* windowBits */
#define GZIP_MIN 18         /* a header and a trailer, with nothing between them */
#define MEASURED 16384      /* bytes per step, which are discarded */
/* The most that a step reads. Blocks without content take time and give no output, so that a bound
   on the output alone would let one step take seconds. */
#define READ_STEP 16384

int idem_http_inflate_init(struct idem_http_inflate *z, const void *bytes, size_t len, size_t max) {
    struct idem_http_inflate fresh = {.unread = len, .left = max};

    /* A stored response is smaller. */
    if (len > UINT_MAX)
        return IDEM_E_NOMEM;
    *z = fresh;
    z->zlib.next_in = (Bytef *)bytes; /* zlib does not write there */
    return inflateInit2(&z->zlib, GZIP_ONLY) == Z_OK ? 0 : IDEM_E_NOMEM;
}

void idem_http_inflate_release(struct idem_http_inflate *z) {
    inflateEnd(&z->zlib);
}

static void inflate_input_fill(struct idem_http_inflate *z) {
    size_t room = READ_STEP - z->zlib.avail_in, len = z->unread < room ? z->unread : room;

    z->zlib.avail_in += (uInt)len;
    z->unread -= len;
}

/* At the end of a member only another member may follow (RFC 1952, 2.2). */
static int inflate_member_next(struct idem_http_inflate *z) {
    if (z->zlib.avail_in == 0 && z->unread == 0) {
        z->done = true;
        return 0;
    }
    return inflateReset(&z->zlib) == Z_OK ? 0 : IDEM_E_CORRUPT;
}

int idem_http_inflate_next(struct idem_http_inflate *z, void *out, size_t size, size_t *ret_len) {
    unsigned char beyond; /* one byte beyond the limit, to detect output that exceeds it */
    size_t room = size < z->left ? size : z->left;
    int rc;

    if (room > UINT_MAX)
        room = UINT_MAX;
    z->zlib.next_out = room == 0 ? &beyond : out;
    z->zlib.avail_out = room == 0 ? 1 : (uInt)room;
    inflate_input_fill(z);
    while (!z->done && z->zlib.avail_out > 0 && (z->zlib.avail_in > 0 || z->unread == 0)) {
        rc = inflate(&z->zlib, Z_NO_FLUSH);
        if (rc == Z_MEM_ERROR)
            return IDEM_E_NOMEM;
        if (rc != Z_OK && rc != Z_STREAM_END)
            return IDEM_E_CORRUPT; /* Z_BUF_ERROR: the data is truncated */
        if (rc == Z_STREAM_END && inflate_member_next(z) != 0)
            return IDEM_E_CORRUPT;
    }
    if (room == 0 && z->zlib.avail_out == 0)
        return IDEM_E_FULL;
    room = room == 0 ? 0 : room - z->zlib.avail_out;
    z->left -= room;
    *ret_len = room;
    return 0;
}

void idem_http_measure_begin(struct idem_http_measure *m, size_t max) {
    *m = (struct idem_http_measure){.max = max};
    m->open = inflateInit2(&m->zlib, GZIP_ONLY) == Z_OK;
    m->failed = !m->open;
}

void idem_http_measure_drop(struct idem_http_measure *m) {
    if (m->open)
        inflateEnd(&m->zlib);
    m->open = false;
}

/* Runs one step. False: no more can be done with the input so far. */
static bool measure_step(struct idem_http_measure *m) {
    unsigned char thrown[MEASURED];
    int rc;

    if (m->ended && (m->zlib.avail_in == 0 || inflateReset(&m->zlib) != Z_OK))
        return false;
    m->ended = false;
    m->zlib.next_out = thrown;
    m->zlib.avail_out = sizeof(thrown);
    rc = inflate(&m->zlib, Z_NO_FLUSH);
    m->size += sizeof(thrown) - m->zlib.avail_out;
    m->ended = rc == Z_STREAM_END;
    m->failed = rc == Z_MEM_ERROR;
    m->damaged |= rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR;
    return !m->damaged && m->size <= m->max && rc != Z_BUF_ERROR &&
           (m->zlib.avail_in > 0 || m->zlib.avail_out == 0);
}

void idem_http_measure_add(struct idem_http_measure *m, const void *bytes, size_t len) {
    if (!m->open || len == 0)
        return;
    if (len > UINT_MAX) /* a stored response is smaller */
        m->damaged = true;
    m->zlib.next_in = (Bytef *)bytes; /* zlib does not write there */
    m->zlib.avail_in = (uInt)len;
    while (!m->damaged && measure_step(m))
        continue;
    if (m->damaged || m->size > m->max)
        idem_http_measure_drop(m);
}

struct idem_http_decoded idem_http_measure_end(struct idem_http_measure *m) {
    struct idem_http_decoded decoded = {.kind = IDEM_HTTP_DECODED_EXACT, .size = m->size};

    idem_http_measure_drop(m);
    if (m->failed)
        return (struct idem_http_decoded){.kind = IDEM_HTTP_DECODED_UNKNOWN};
    if (m->damaged || (!m->ended && m->size <= m->max)) {
        decoded.kind = IDEM_HTTP_DECODED_NEVER;
    } else if (m->size > m->max) {
        decoded.kind = IDEM_HTTP_DECODED_OVER;
        decoded.size = m->max;
    }
    return decoded;
}

size_t idem_http_gzip_claims(struct idem_http_text body) {
    const unsigned char *end = (const unsigned char *)body.at + body.len;

    if (body.len < GZIP_MIN)
        return 0;
    return (size_t)end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
}
