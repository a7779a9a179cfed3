/*
 * Queries and forms: application/x-www-form-urlencoded, strictly. An invalid escape, and a NUL in
 * any form, are malformed: parsers disagree whether to drop or keep such bytes.
 */
#ifndef IDEM_HTTP_HTTP_FORM_H
#define IDEM_HTTP_HTTP_FORM_H

#include "http/http_field.h"

/* Returns the next pair, still encoded. A name without = has an empty value; empty pairs are
   skipped. False after the last. */
struct idem_http_pair {
    struct idem_http_text name, value;
};
bool idem_http_pair_next(struct idem_http_text *form, struct idem_http_pair *ret);

/* Returns the character at *i, decoded, and moves *i past it; '\0': it is malformed. */
char idem_http_form_char_next(struct idem_http_text text, size_t *i);

/* Decodes at most `size` bytes into `out`, without a NUL. Decoded text is never longer than its
   encoded form. *ret_len is the decoded length, even if it exceeds `size`. False if the text is
   malformed; *ret_len is then untouched. */
bool idem_http_unescape(struct idem_http_text text, char *out, size_t size, size_t *ret_len);

enum idem_http_found {
    IDEM_HTTP_NONE,
    IDEM_HTTP_ONCE,      /* out and *ret_len hold its value, which may be empty */
    IDEM_HTTP_REPEATED,  /* more than once, even with equal values */
    IDEM_HTTP_MALFORMED, /* its value, or a name that could be this one */
    IDEM_HTTP_TOO_LONG,  /* for `size` */
};
/* Finds a parameter by its decoded name. Only ONCE sets *ret_len. */
enum idem_http_found idem_http_form_find(struct idem_http_text form, struct idem_http_text name,
                                         char *out, size_t size, size_t *ret_len);

#endif
