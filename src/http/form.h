/*
 * Queries and forms: application/x-www-form-urlencoded, strictly. An escape that
 * is none, and a NUL in any form, are malformed: what one reader drops, another
 * keeps.
 */
#ifndef IDEM_HTTP_FORM_H
#define IDEM_HTTP_FORM_H

#include "http/field.h"

/* Name and value as they stand in the text; a name without = has an empty value. Nothing between
   two & is no pair. False after the last. */
struct idem_http_pair {
    struct idem_http_text name, value;
};
bool idem_http_pair_next(struct idem_http_text *form, struct idem_http_pair *ret);

/* Writes at most size bytes, and no NUL behind them. Decoded text is never longer than what it
   was written as. *ret_len is the decoded length, even if there was no room; false and untouched
   if it is malformed. */
bool idem_http_unescape(struct idem_http_text text, char *out, size_t size, size_t *ret_len);

enum idem_http_found {
    IDEM_HTTP_NONE,
    IDEM_HTTP_ONCE,      /* out and *ret_len are its value, which may be empty */
    IDEM_HTTP_REPEATED,  /* more than once, whatever the values are */
    IDEM_HTTP_MALFORMED, /* its value, or a name, which could be this one */
    IDEM_HTTP_TOO_LONG,  /* for `size` */
};
/* Looks for a parameter by its decoded name. Only ONCE sets *ret_len. */
enum idem_http_found idem_http_form_find(struct idem_http_text form, struct idem_http_text name,
                                         char *out, size_t size, size_t *ret_len);

#endif
