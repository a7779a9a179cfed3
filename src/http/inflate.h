/*
 * A stored body that was encoded with gzip, decoded for a client that does not
 * take it so. Only gzip: it is what servers send unasked; "deflate" means two
 * things, and the others would need more libraries.
 */
#ifndef IDEM_HTTP_INFLATE_H
#define IDEM_HTTP_INFLATE_H

#include <zlib.h>

#include "http/answer.h"

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

/*
 * How long a body would be, decoded, while it comes in pieces: before it is stored. Nothing is
 * decoded once it is more than `max` bytes, or found to be damaged.
 */
struct idem_http_measure {
    z_stream zlib;
    size_t size, max;
    bool open;  /* zlib has memory */
    bool ended; /* between two members, or behind the last */
    bool damaged;
    bool failed; /* no memory: nothing is known */
};
/* End and drop release a measurement; each may be called again. */
void idem_http_measure_begin(struct idem_http_measure *measure, size_t max);
void idem_http_measure_add(struct idem_http_measure *measure, const void *bytes, size_t len);
struct idem_http_decoded idem_http_measure_end(struct idem_http_measure *measure);
void idem_http_measure_drop(struct idem_http_measure *measure);

/* The length that the last member of a body in gzip claims for itself (RFC 1952, ISIZE); 0: it has
   no room for one. The whole is no shorter, unless it is damaged. */
size_t idem_http_gzip_claims(struct idem_http_text body);

#endif
