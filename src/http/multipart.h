/*
 * Forms with files: multipart/form-data (RFC 7578). A browser draws a new boundary
 * each time it sends a form, so that the same form twice is never the same bytes:
 * what is compared, and what a key is made of, are the parts between the boundaries.
 *
 * A type that cannot be read has no boundary, and a body in which the boundary is
 * not found is one part: nothing is left out, whatever is sent.
 */
#ifndef IDEM_HTTP_MULTIPART_H
#define IDEM_HTTP_MULTIPART_H

#include "http/form.h"

#define IDEM_HTTP_BOUNDARY_MAX 70 /* RFC 2046, 5.1.1 */

/* What stands between two parts: CR LF -- and the boundary. */
struct idem_http_delimiter {
    char text[4 + IDEM_HTTP_BOUNDARY_MAX];
    uint8_t len;
};

/* Of a Content-Type. False, and untouched, if that is another type, or names no boundary that can
   be read, or two. */
bool idem_http_delimiter_read(struct idem_http_text type, struct idem_http_delimiter *ret);

/* A part's bytes, in as many pieces as they come in; NULL where a delimiter stands. */
typedef void idem_http_split_cb(void *data, const void *bytes, size_t len);

/* A walk over a body that comes in pieces, too. The delimiter that begins a body has no CR LF
   before it: the walk takes it as if there was one, before every body. */
struct idem_http_split {
    struct idem_http_delimiter delimiter;
    uint8_t back[4 + IDEM_HTTP_BOUNDARY_MAX]; /* how much still fits where so much did */
    uint8_t fits;                             /* of the delimiter, at the end of what came */
    idem_http_split_cb *take;
    void *data;
};
void idem_http_split_begin(struct idem_http_split *split,
                           const struct idem_http_delimiter *delimiter, idem_http_split_cb *take,
                           void *data);
void idem_http_split_add(struct idem_http_split *split, const void *bytes, size_t len);
void idem_http_split_end(struct idem_http_split *split);

/* Looks for the field of that name in a whole body, as idem_http_form_find() does. A file is no
   field. */
enum idem_http_found idem_http_multipart_find(struct idem_http_text body,
                                              const struct idem_http_delimiter *delimiter,
                                              struct idem_http_text name, char *out, size_t size,
                                              size_t *ret_len);

#endif
