/*
 * Header fields, as the front door for HTTP reads them. Values are bytes with a
 * length, as they came: blanks around them are no part of them. Nothing here
 * allocates, keeps a pointer, or knows a server.
 */
#ifndef IDEM_HTTP_FIELD_H
#define IDEM_HTTP_FIELD_H

#include "idem.h"

/* Text from outside, with its length; borrowed, and not NUL-terminated. */
struct idem_http_text {
    const char *at;
    size_t len;
};
/* Of a literal. */
#define IDEM_HTTP_TEXT(literal) ((struct idem_http_text){(literal), sizeof(literal) - 1})

struct idem_http_header {
    struct idem_http_text name, value;
};

/* Without the blanks (SP, HTAB) around it. */
struct idem_http_text idem_http_trim(struct idem_http_text text);
/* One or more characters of a token (RFC 9110, 5.6.2): what names, types and methods are made of.
 */
bool idem_http_is_token(struct idem_http_text text);
/* Equal but for the case of ASCII letters. */
bool idem_http_same(struct idem_http_text a, struct idem_http_text b);
/* True if programs that read headers as variables of CGI (HTTP_X_ORDER_KEY) take both names for
   one: these have no case, and an underscore for a hyphen, in some for every other character too
   that is neither a letter nor a digit. */
bool idem_http_same_variable(struct idem_http_text a, struct idem_http_text b);

/*
 * The key in a field's value: a string of structured fields (RFC 9651), whose
 * parameters are read and left aside, or 1 to 255 visible ASCII characters as
 * they are: `abc` and `"abc"` are one key. NULL, or a sentence that says what is
 * wrong with it and never shows it; `out` may have been written to then, and
 * *ret_len is untouched.
 */
#define IDEM_HTTP_KEY_MAX 255
const char *idem_http_key_read(struct idem_http_text value, char out[IDEM_HTTP_KEY_MAX],
                               size_t *ret_len);

/* Decimal digits and nothing else (Idem-Ttl; Retry-After that is no date), of min to max. Untouched
   if false. */
bool idem_http_number(struct idem_http_text value, int64_t min, int64_t max, int64_t *ret);

/*
 * A date (RFC 9110, 5.6.7), in each of its three forms, as seconds since 1970. A year of two digits
 * is the one that is less than 50 years from `now_s`. Untouched if false.
 */
bool idem_http_date(struct idem_http_text value, int64_t now_s, int64_t *ret_s);

/*
 * Retry-After: seconds, or a date that is so many of them after `now_s`; what is longer than
 * `max_s` is that long, and what is past is 0. Untouched if false.
 */
bool idem_http_retry_after(struct idem_http_text value, int64_t now_s, int64_t max_s,
                           int64_t *ret_s);

/* Idem-Outcome, in any case of letters. Untouched if false. */
enum idem_http_outcome {
    IDEM_HTTP_DONE,
    IDEM_HTTP_RELEASE,
    IDEM_HTTP_KEEP,
    IDEM_HTTP_UNKNOWN,
};
bool idem_http_outcome_read(struct idem_http_text value, enum idem_http_outcome *ret);

/* Content-Type, as far as it matters here. Parameters are left aside; what is no type is OTHER. */
enum idem_http_type {
    IDEM_HTTP_OTHER,
    IDEM_HTTP_JSON,   /* application/json, and whatever ends in +json */
    IDEM_HTTP_FORM,   /* application/x-www-form-urlencoded */
    IDEM_HTTP_EVENTS, /* text/event-stream */
};
enum idem_http_type idem_http_type_read(struct idem_http_text value);

/*
 * Accept (RFC 9110, 12.5.1), of as many fields as there are: init, add each,
 * ask. HTML is preferred where text/html is named, and wanted more than both
 * kinds of JSON; without the field, or where one is malformed, it is not.
 */
struct idem_http_accept {
    int16_t q[2][5]; /* thousandths, or -1; ranges with parameters of their own, and without */
    bool malformed;
};
void idem_http_accept_init(struct idem_http_accept *accept);
void idem_http_accept_add(struct idem_http_accept *accept, struct idem_http_text value);
bool idem_http_accept_html(const struct idem_http_accept *accept);
/* JSON was asked for by its name. */
bool idem_http_accept_json(const struct idem_http_accept *accept);

/*
 * Accept-Encoding (12.5.3), likewise. A client that says nothing, or what cannot
 * be read, gets no gzip: many that say nothing cannot read it, though the RFC
 * lets us send it. Identity is acceptable unless it was refused by name or by
 * `*;q=0`.
 */
struct idem_http_codings {
    int16_t gzip, identity, any; /* thousandths, or -1 */
    bool malformed;
};
void idem_http_codings_init(struct idem_http_codings *codings);
void idem_http_codings_add(struct idem_http_codings *codings, struct idem_http_text value);
bool idem_http_codings_gzip(const struct idem_http_codings *codings);
bool idem_http_codings_identity(const struct idem_http_codings *codings);

/* Whether a list of tokens (Connection, Vary) has the name, in any case of letters. */
bool idem_http_list_has(struct idem_http_text list, struct idem_http_text name);

#endif
