/*
 * Header fields, as the front door for HTTP reads them. Values are bytes with a length, as
 * received; surrounding blanks are not part of them. Nothing here allocates, keeps a pointer, or
 * depends on a server.
 */
#ifndef IDEM_HTTP_HTTP_FIELD_H
#define IDEM_HTTP_HTTP_FIELD_H

#include "base/bytes.h"
#include "idem.h"

/* Text from outside, with its length; borrowed, and not NUL-terminated. */
struct idem_http_text {
    const char *at;
    size_t len;
};
/* The text of a string literal. */
#define IDEM_HTTP_TEXT(literal) ((struct idem_http_text){(literal), sizeof(literal) - 1})
/* A text without its NUL; NULL: an empty one. */
static inline struct idem_http_text idem_http_text_of(const char *text) {
    return (struct idem_http_text){text, text == NULL ? 0 : strlen(text)};
}

struct idem_http_header {
    struct idem_http_text name, value;
};

/* Returns the text without surrounding blanks (SP, HTAB). */
struct idem_http_text idem_http_trim(struct idem_http_text text);
/* Returns the text up to the separator or the end, and moves *rest past it. False at the end. */
bool idem_http_part_next(struct idem_http_text *rest, char separator, struct idem_http_text *ret);
/* True for one or more token characters (RFC 9110, 5.6.2), as in names, types and methods. */
bool idem_http_is_token(struct idem_http_text text);
/* Equal byte by byte. */
static inline bool idem_http_equal(struct idem_http_text a, struct idem_http_text b) {
    return idem_same(a.at, a.len, b.at, b.len);
}

static inline bool idem_http_is(struct idem_http_text text, const char *word) {
    return idem_is_word(text.at, text.len, word);
}

/* Equal, ignoring the case of ASCII letters. */
static inline bool idem_http_same(struct idem_http_text a, struct idem_http_text b) {
    return idem_same_ignoring_case(a.at, a.len, b.at, b.len);
}

/* True if a program that reads headers as CGI variables (HTTP_X_ORDER_KEY) cannot distinguish
   the two names. Variables ignore case, and replace a hyphen by an underscore; some programs
   replace every character that is neither a letter nor a digit. */
bool idem_http_same_variable(struct idem_http_text a, struct idem_http_text b);

/*
 * Reads the key from a field's value: either a string of structured fields (RFC 9651), whose
 * parameters are checked and ignored, or 1 to 255 visible ASCII characters: `abc` and `"abc"` are
 * the same key. NULL, or a sentence that explains the fault without showing the key; `out` may
 * have been written to then, and *ret_len is untouched.
 */
#define IDEM_HTTP_KEY_MAX 255
const char *idem_http_key_read(struct idem_http_text value, char out[IDEM_HTTP_KEY_MAX],
                               size_t *ret_len);

/* Reads decimal digits only (Idem-Ttl; Retry-After that is not a date), from min to max. *ret is
   untouched if false. */
bool idem_http_number(struct idem_http_text value, int64_t min, int64_t max, int64_t *ret);

/*
 * Reads a date (RFC 9110, 5.6.7) in any of its three forms, as seconds since 1970. A year of two
 * digits is the one within 50 years of `now_s`. *ret_s is untouched if false.
 */
bool idem_http_date(struct idem_http_text value, int64_t now_s, int64_t *ret_s);

/*
 * Reads Retry-After: seconds, or a date, which is converted to seconds after `now_s`. The result
 * is at most `max_s`, and 0 for a date in the past. *ret_s is untouched if false.
 */
bool idem_http_retry_after(struct idem_http_text value, int64_t now_s, int64_t max_s,
                           int64_t *ret_s);

/* Idem-Outcome, ignoring case. *ret is untouched if false. */
enum idem_http_outcome {
    IDEM_HTTP_DONE,
    IDEM_HTTP_RELEASE,
    IDEM_HTTP_KEEP,
    IDEM_HTTP_UNKNOWN,
};
bool idem_http_outcome_read(struct idem_http_text value, enum idem_http_outcome *ret);

/* The types of Content-Type that matter here. Parameters are ignored; a malformed type is OTHER. */
enum idem_http_type {
    IDEM_HTTP_OTHER,
    IDEM_HTTP_JSON,   /* application/json, and every type that ends in +json */
    IDEM_HTTP_FORM,   /* application/x-www-form-urlencoded */
    IDEM_HTTP_EVENTS, /* text/event-stream */
};
enum idem_http_type idem_http_type_read(struct idem_http_text value);

/*
 * Accept (RFC 9110, 12.5.1), from any number of fields: init, add each, then query. HTML is
 * preferred if text/html is named and weighs more than both kinds of JSON; never if the field is
 * absent or malformed.
 */
struct idem_http_accept {
    int16_t q[2][5]; /* thousandths, or -1; ranges with parameters of their own, and without */
    bool malformed;
};
void idem_http_accept_init(struct idem_http_accept *accept);
void idem_http_accept_add(struct idem_http_accept *accept, struct idem_http_text value);
bool idem_http_accept_html(const struct idem_http_accept *accept);
/* True if JSON is requested by name. */
bool idem_http_accept_json(const struct idem_http_accept *accept);

/*
 * Accept-Encoding (12.5.3), likewise. A client gets no gzip if the field is absent or malformed:
 * many clients that omit it cannot decode gzip, though the RFC permits it. Identity is acceptable
 * unless it is refused by name or by `*;q=0`.
 */
struct idem_http_codings {
    int16_t gzip, identity, any; /* thousandths, or -1 */
    bool malformed;
};
void idem_http_codings_init(struct idem_http_codings *codings);
void idem_http_codings_add(struct idem_http_codings *codings, struct idem_http_text value);
bool idem_http_codings_gzip(const struct idem_http_codings *codings);
bool idem_http_codings_identity(const struct idem_http_codings *codings);

/* True if a list of tokens (Connection, Vary) contains the name, ignoring case. */
bool idem_http_list_has(struct idem_http_text list, struct idem_http_text name);

#endif
