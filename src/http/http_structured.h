/*
 * The part of structured fields (RFC 9651) that this project reads: items with their parameters,
 * inner lists and dictionaries. A parser starts at `at` and leaves it after its last byte. Nothing
 * is copied: an item is the text between its marks.
 */
#ifndef IDEM_HTTP_HTTP_STRUCTURED_H
#define IDEM_HTTP_HTTP_STRUCTURED_H

#include "http/http_field.h"

struct idem_sf {
    const char *at, *end;
};

static inline struct idem_sf idem_sf_of(struct idem_http_text text) {
    return (struct idem_sf){text.at, text.at + text.len};
}

static inline bool idem_sf_is(const struct idem_sf *sf, char c) {
    return sf->at < sf->end && *sf->at == c;
}

enum idem_sf_type {
    IDEM_SF_INTEGER,
    IDEM_SF_DECIMAL,
    IDEM_SF_STRING,
    IDEM_SF_TOKEN,
    IDEM_SF_BYTES,
    IDEM_SF_BOOLEAN,
    IDEM_SF_DATE,
    IDEM_SF_DISPLAY,
    IDEM_SF_INNER_LIST, /* only as a dictionary's member */
};

struct idem_sf_bare {
    enum idem_sf_type type;
    struct idem_http_text text; /* without quotes and colons; escapes are not decoded */
    struct idem_http_text all;  /* including the marks */
};
bool idem_sf_bare(struct idem_sf *sf, struct idem_sf_bare *ret);

/* Removes the escapes of a string's text: writes at most `size` bytes (`out` may be NULL), and
   returns the length of the whole. */
size_t idem_sf_unescape(struct idem_http_text text, char *out, size_t size);

enum idem_sf_next { IDEM_SF_END, IDEM_SF_NEXT, IDEM_SF_BAD };

struct idem_sf_parameter {
    struct idem_http_text key;
    struct idem_sf_bare value; /* ?1 if absent, with an empty `all` */
};
/* Reads the next parameter of the item read before; END: no more. */
enum idem_sf_next idem_sf_parameter(struct idem_sf *sf, struct idem_sf_parameter *ret);
/* Skips all parameters. */
bool idem_sf_parameters(struct idem_sf *sf);

struct idem_sf_member {
    struct idem_http_text key;
    struct idem_sf_bare value;        /* an inner list: the text between its parentheses */
    struct idem_http_text parameters; /* of the value */
};
/* Reads the next member of a dictionary; END: the end of the field. */
enum idem_sf_next idem_sf_member(struct idem_sf *sf, struct idem_sf_member *ret);

/* Reads the next item of an inner list's text; the caller must then read its parameters. */
enum idem_sf_next idem_sf_inner(struct idem_sf *sf, struct idem_sf_bare *ret);

#endif
