/*
 * Structured fields (RFC 9651), as far as they are read here: items with their
 * parameters, inner lists and dictionaries. A reader begins at `at` and leaves
 * it behind what it read. Nothing is copied: what is read is told as the text
 * between its marks.
 */
#ifndef IDEM_HTTP_STRUCTURED_H
#define IDEM_HTTP_STRUCTURED_H

#include "http/field.h"

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
    IDEM_SF_INNER_LIST, /* a dictionary's member only */
};

struct idem_sf_bare {
    enum idem_sf_type type;
    struct idem_http_text text; /* without quotes and colons; escapes stand as they were written */
    struct idem_http_text all;  /* as it stands in the field */
};
bool idem_sf_bare(struct idem_sf *sf, struct idem_sf_bare *ret);

/* A string's text without its escapes: at most `size` bytes are written (`out` may be NULL). The
   length of the whole. */
size_t idem_sf_unescape(struct idem_http_text text, char *out, size_t size);

enum idem_sf_next { IDEM_SF_END, IDEM_SF_NEXT, IDEM_SF_BAD };

struct idem_sf_parameter {
    struct idem_http_text key;
    struct idem_sf_bare value; /* without one, ?1, whose `all` is empty */
};
/* The next parameter of what was read before; END is no more of them. */
enum idem_sf_next idem_sf_parameter(struct idem_sf *sf, struct idem_sf_parameter *ret);
/* All of them, unread. */
bool idem_sf_parameters(struct idem_sf *sf);

struct idem_sf_member {
    struct idem_http_text key;
    struct idem_sf_bare value;        /* an inner list: what is between its parentheses */
    struct idem_http_text parameters; /* of the value */
};
/* The next member of a dictionary; END is the field's end. */
enum idem_sf_next idem_sf_member(struct idem_sf *sf, struct idem_sf_member *ret);

/* The next item of an inner list's text; its parameters follow, and must be read. */
enum idem_sf_next idem_sf_inner(struct idem_sf *sf, struct idem_sf_bare *ret);

#endif
