/*
 * A stored body that was encoded with gzip, decoded for a client that does not
 * take it so. Only gzip: it is what servers send unasked; "deflate" means two
 * things, and the others would need more libraries.
 */
#ifndef IDEM_HTTP_INFLATE_H
#define IDEM_HTTP_INFLATE_H

#include <zlib.h>

#include "http/field.h"

struct idem_http_inflate {
    z_stream zlib;
    size_t left; /* of the bound on what comes out */
    bool done;
};

/* The bytes are borrowed until release. At most `max` bytes come out. 0 or IDEM_E_NOMEM; only
   after 0 is there something to release. */
int idem_http_inflate_init(struct idem_http_inflate *inflate, const void *bytes, size_t len,
                           size_t max);
void idem_http_inflate_release(struct idem_http_inflate *inflate);

/*
 * Writes up to `size` bytes, not 0, to `out`; *ret_len of 0 is the end, and only then is it
 * known that all of it was good. IDEM_E_CORRUPT: it is no gzip, is damaged, ends too early, or
 * something follows it. IDEM_E_FULL: it is more than `max`. Untouched then, and no use to go on.
 */
int idem_http_inflate_next(struct idem_http_inflate *inflate, void *out, size_t size,
                           size_t *ret_len);

#endif
