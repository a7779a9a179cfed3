/*
 * An answer as it is stored: status, headers, body, as one run of bytes, which
 * is a record's result.
 *
 *     'A'  version 1  status (2)  headers (2)  body's length (4)
 *     each header: length of its name (1) and of its value (4), name, value
 *     body
 *
 * Where the body is in gzip, the first header is X-Idem-Decoded, which says how long it is without:
 * a replay for a client that does not take gzip is decided by it. It is a header because the
 * release before this one reads headers and would refuse any other form. Reading keeps it apart
 * from the headers of the answer.
 *
 * Numbers are little endian. Reading trusts nothing: a record may be damaged, or
 * written by somebody else.
 */
#ifndef IDEM_HTTP_ANSWER_H
#define IDEM_HTTP_ANSWER_H

#include "http/field.h"

/* Bounds, of writing and of reading. The body's is the caller's (result_max). */
#define IDEM_HTTP_HEADERS_MAX 256
#define IDEM_HTTP_HEAD_MAX (256u << 10)

/*
 * Which headers a replay repeats: those of the table in answer.c, and the
 * `further` names that a user asked for and idem_http_header_refused() let pass.
 * `connection` is the answer's Connection field (empty: it has none), because
 * what that names ends at this hop.
 */
bool idem_http_header_kept(struct idem_http_text name, struct idem_http_text connection,
                           const struct idem_http_text *further, size_t further_n);

/* NULL, or why a replay never repeats a header of this name, as the end of a sentence that begins
   with the name: "Set-Cookie belongs to ...". */
const char *idem_http_header_refused(struct idem_http_text name);

/* How long a body in gzip is, decoded; as far as that was known when it was stored. */
enum idem_http_decoded_kind {
    IDEM_HTTP_DECODED_UNKNOWN, /* stored by the release before, or not in gzip */
    IDEM_HTTP_DECODED_EXACT,   /* so many bytes */
    IDEM_HTTP_DECODED_OVER,    /* more than that */
    IDEM_HTTP_DECODED_NEVER,   /* it is no gzip, or damaged */
};
struct idem_http_decoded {
    enum idem_http_decoded_kind kind;
    size_t size;
};
#define IDEM_HTTP_DECODED_TEXT 24
/* The header, with its value in `room`; of no use if the kind is UNKNOWN. */
struct idem_http_header idem_http_decoded_print(const struct idem_http_decoded *decoded,
                                                char room[IDEM_HTTP_DECODED_TEXT]);

/* Bytes that the whole will take; 0 if it cannot be stored: too many headers, or too long. */
size_t idem_http_answer_size(const struct idem_http_header *headers, size_t n, size_t body_len);

/*
 * Writing, into the caller's room: begin writes all but the body, append the
 * body in as many pieces as it comes in, end the body's length. What was
 * written is whole after end, which returns its length.
 */
struct idem_http_answer_out {
    unsigned char *at;
    size_t size, head, len;
};
/* 0, or IDEM_E_INVALID: no room, a status outside 200 to 999, what is no header, or one that is
   never kept. */
int idem_http_answer_begin(struct idem_http_answer_out *out, void *room, size_t size, int status,
                           const struct idem_http_header *headers, size_t n);
/* 0, or IDEM_E_INVALID if there is no room for it: nothing was added then. */
int idem_http_answer_append(struct idem_http_answer_out *out, const void *bytes, size_t len);
size_t idem_http_answer_end(struct idem_http_answer_out *out);

/* Reading. Everything points into the bytes that were read. */
struct idem_http_answer {
    int status;
    size_t headers_n;
    struct idem_http_text headers; /* for idem_http_answer_next() */
    struct idem_http_text body;
    struct idem_http_decoded decoded;
};
/* 0, IDEM_E_CORRUPT, or IDEM_E_VERSION. Only what is well formed as a whole is given out; *ret is
   untouched otherwise. */
int idem_http_answer_read(const void *bytes, size_t len, struct idem_http_answer *ret);
/* The next header, which `headers` is moved behind; false after the last. */
bool idem_http_answer_next(struct idem_http_text *headers, struct idem_http_header *ret);

#endif
