/*
 * Decodes a stored gzip body for a client that does not accept gzip. Only gzip, which servers send
 * by default; "deflate" has two meanings, and other encodings would need more libraries.
 */
#ifndef IDEM_HTTP_HTTP_INFLATE_H
#define IDEM_HTTP_HTTP_INFLATE_H

#include <zlib.h>

#include "http/http_answer.h"

struct idem_http_inflate {
    z_stream zlib;
    size_t unread; /* bytes that zlib was not given yet */
    size_t left;   /* bytes of the limit that remain */
    bool done;     /* the whole input is decoded, and valid */
};

/* The bytes are borrowed until release. At most `max` bytes are decoded. 0 or IDEM_E_NOMEM; call
   release only after 0. */
int idem_http_inflate_init(struct idem_http_inflate *inflate, const void *bytes, size_t len,
                           size_t max);
void idem_http_inflate_release(struct idem_http_inflate *inflate);

/*
 * One step: reads at most 16 KiB and writes up to `size` bytes (not 0) to `out`. A step may write
 * nothing; *ret_len of 0 with `done` is the end. IDEM_E_CORRUPT: not gzip, damaged, truncated, or
 * followed by other data. IDEM_E_FULL: more than `max` bytes. On failure *ret_len is untouched, and
 * no further step is allowed.
 */
int idem_http_inflate_next(struct idem_http_inflate *inflate, void *out, size_t size,
                           size_t *ret_len);

/*
 * Measures the decoded length of a body that arrives in pieces, before it is stored. Stops
 * decoding once it exceeds `max` bytes or is found damaged.
 */
struct idem_http_measure {
    z_stream zlib;
    size_t size, max;
    bool open;  /* zlib has memory */
    bool ended; /* between two members, or after the last */
    bool damaged;
    bool failed; /* no memory: the length is unknown */
};
/* End and drop release a measurement; both may be called again. */
void idem_http_measure_begin(struct idem_http_measure *measure, size_t max);
void idem_http_measure_add(struct idem_http_measure *measure, const void *bytes, size_t len);
struct idem_http_decoded idem_http_measure_end(struct idem_http_measure *measure);
void idem_http_measure_drop(struct idem_http_measure *measure);

/* The length that the last member of a gzip body claims (RFC 1952, ISIZE); 0 if the body is too
   short. The whole is at least as long, unless it is damaged. */
size_t idem_http_gzip_claims(struct idem_http_text body);

#endif
