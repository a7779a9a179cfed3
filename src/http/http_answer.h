/*
 * A stored response: status, headers and body in one run of bytes, which is a record's result.
 *
 *     'A'  version 1  status (2)  headers (2)  body's length (4)
 *     each header: length of its name (1) and of its value (4), name, value
 *     body
 *
 * If the body is in gzip, the first header is X-Idem-Decoded, the length of the decoded body. A
 * replay to a client that does not accept gzip depends on it. It is a header because the previous
 * release reads headers and would refuse any other form. Reading returns it separately from the
 * response's headers.
 *
 * Numbers are little endian. Reading trusts nothing: a record may be damaged, or written by
 * another program.
 */
#ifndef IDEM_HTTP_HTTP_ANSWER_H
#define IDEM_HTTP_HTTP_ANSWER_H

#include "http/http_field.h"

/* Limits for writing and for reading. The caller limits the body (result_max). */
#define IDEM_HTTP_HEADERS_MAX 256
#define IDEM_HTTP_HEAD_MAX (256u << 10)

/*
 * True for headers that a replay repeats: those of the table in http_answer.c, and the `further`
 * names that the configuration lists and idem_http_header_refused() allows. `connection` is the
 * response's Connection field (empty: absent), because the headers that it names end at this hop.
 */
bool idem_http_header_kept(struct idem_http_text name, struct idem_http_text connection,
                           const struct idem_http_text *further, size_t further_n);

/* NULL, or the reason why a replay never repeats a header of this name, as the end of a sentence
   that begins with the name: "Set-Cookie belongs to ...". */
const char *idem_http_header_refused(struct idem_http_text name);

/* The decoded length of a gzip body, as far as it was known when the body was stored. */
enum idem_http_decoded_kind {
    IDEM_HTTP_DECODED_UNKNOWN, /* stored by the previous release, or not in gzip */
    IDEM_HTTP_DECODED_EXACT,   /* exactly `size` bytes */
    IDEM_HTTP_DECODED_OVER,    /* more than `size` bytes */
    IDEM_HTTP_DECODED_NEVER,   /* not gzip, or damaged */
};
struct idem_http_decoded {
    enum idem_http_decoded_kind kind;
    size_t size;
};
#define IDEM_HTTP_DECODED_TEXT 24
/* Returns the header, with its value in `room`. The kind must not be UNKNOWN. */
struct idem_http_header idem_http_decoded_print(const struct idem_http_decoded *decoded,
                                                char room[IDEM_HTTP_DECODED_TEXT]);

/* Returns the size of the whole; 0: cannot be stored, because the headers are too many or too
   long. */
size_t idem_http_answer_size(const struct idem_http_header *headers, size_t n, size_t body_len);

/* An upper bound of the bytes before the body, if the names and values of n headers, besides that
   of idem_http_decoded_print(), have `len` bytes together: so much room before a body suffices for
   a head that is written later. */
size_t idem_http_answer_head_max(size_t n, size_t len);

/*
 * Writing into the caller's buffer: begin writes everything before the body, append adds a piece
 * of the body, end writes the body's length and returns the total length. The response is complete
 * only after end.
 */
struct idem_http_answer_out {
    unsigned char *at;
    size_t size, head, len;
};
/* 0, or IDEM_E_INVALID: no room, a status outside 200 to 999, a malformed header, or a header
   that is never stored. */
int idem_http_answer_begin(struct idem_http_answer_out *out, void *room, size_t size, int status,
                           const struct idem_http_header *headers, size_t n);
/* 0, or IDEM_E_INVALID if there is no room; nothing was added then. Bytes that lie in their place
   already are not copied. */
int idem_http_answer_append(struct idem_http_answer_out *out, const void *bytes, size_t len);
size_t idem_http_answer_end(struct idem_http_answer_out *out);

/* Reading. All pointers point into the bytes that were read. */
struct idem_http_answer {
    int status;
    size_t headers_n;
    struct idem_http_text headers; /* for idem_http_answer_next() */
    struct idem_http_text body;
    struct idem_http_decoded decoded;
};
/* 0, IDEM_E_CORRUPT, or IDEM_E_VERSION. Returns only a response that is valid as a whole; *ret
   is untouched otherwise. */
int idem_http_answer_read(const void *bytes, size_t len, struct idem_http_answer *ret);
/* Returns the next header and moves `headers` past it; false after the last. */
bool idem_http_answer_next(struct idem_http_text *headers, struct idem_http_header *ret);

#endif
