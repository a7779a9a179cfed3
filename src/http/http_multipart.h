/*
 * Forms with files: multipart/form-data (RFC 7578). A browser draws a new boundary each time it
 * sends a form, so two submissions of one form never have the same bytes. Fingerprints and keys
 * therefore use the parts between the boundaries.
 *
 * A Content-Type that is malformed has no boundary, and a body without its boundary is one part:
 * no bytes are ever left out.
 */
#ifndef IDEM_HTTP_HTTP_MULTIPART_H
#define IDEM_HTTP_HTTP_MULTIPART_H

#include "http/http_form.h"

#define IDEM_HTTP_BOUNDARY_MAX 70 /* RFC 2046, 5.1.1 */

/* The separator of two parts: CR LF -- and the boundary. */
struct idem_http_delimiter {
    char text[4 + IDEM_HTTP_BOUNDARY_MAX];
    uint8_t len;
};

/* Reads a Content-Type. False, with *ret untouched, if it is another type, or has no valid
   boundary, or has two. */
bool idem_http_delimiter_read(struct idem_http_text type, struct idem_http_delimiter *ret);

/* Receives a part's bytes, in any number of pieces; `bytes` is NULL at each delimiter. */
typedef void idem_http_split_cb(void *data, const void *bytes, size_t len);

/* Splits a body that arrives in pieces. The delimiter at the start of a body has no CR LF before
   it: the splitter pretends that one precedes every body. */
struct idem_http_split {
    struct idem_http_delimiter delimiter;
    uint8_t
        back[4 + IDEM_HTTP_BOUNDARY_MAX]; /* the KMP table: the shorter prefix that still matches */
    uint8_t fits; /* length of the delimiter's prefix that matches the end of the input */
    idem_http_split_cb *take;
    void *data;
};
void idem_http_split_begin(struct idem_http_split *split,
                           const struct idem_http_delimiter *delimiter, idem_http_split_cb *take,
                           void *data);
void idem_http_split_add(struct idem_http_split *split, const void *bytes, size_t len);
void idem_http_split_end(struct idem_http_split *split);

/* Finds a field in a whole body, as idem_http_form_find() does. A file is not a field. */
enum idem_http_found idem_http_multipart_find(struct idem_http_text body,
                                              const struct idem_http_delimiter *delimiter,
                                              struct idem_http_text name, char *out, size_t size,
                                              size_t *ret_len);

#endif
