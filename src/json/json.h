/*
 * JSON, parsed strictly (RFC 8259) and exactly: numbers keep their digits, names keep their order,
 * and ambiguous input is refused: a duplicate name in an object, half a surrogate pair, bytes that
 * are not UTF-8.
 *
 * A document is a tree in an arena. Strings without escapes point into the text, which must stay
 * valid while the document is used. Recursion ends at IDEM_JSON_DEPTH_MAX.
 */
#ifndef IDEM_JSON_JSON_H
#define IDEM_JSON_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "idem.h"

#define IDEM_JSON_DEPTH_MAX 256

enum idem_json_type {
    IDEM_JSON_NULL,
    IDEM_JSON_BOOL,
    IDEM_JSON_NUMBER,
    IDEM_JSON_STRING,
    IDEM_JSON_ARRAY,
    IDEM_JSON_OBJECT,
};

struct idem_json {
    uint8_t type;
    bool flag;  /* BOOL: its value. NUMBER: written as an integer. STRING: all ASCII */
    uint32_t n; /* bytes of text, items, or members */
    union {
        const char *text;              /* STRING: decoded, not NUL-terminated. NUMBER: as written */
        const struct idem_json *items; /* ARRAY */
        const struct idem_object *object; /* OBJECT; NULL if it has no members */
    } at;
};

struct idem_member {
    const char *name;
    uint32_t len;
    struct idem_json value;
};

struct idem_object {
    const struct idem_member *members; /* in the order of the text */
    const uint32_t *order; /* indices of the members, sorted by the UTF-16 units of their names */
};

/*
 * Parses one document of `len` bytes into the arena. Fails with IDEM_E_INVALID, line and column, or
 * with IDEM_E_NOMEM. The error never contains text of the document, which may be secret.
 */
int idem_json_parse(const char *text, size_t len, struct idem_arena *arena, struct idem_json *ret,
                    struct idem_error *err);

/* The member's value; NULL if there is no such member. */
const struct idem_json *idem_json_get(const struct idem_json *object, const char *name, size_t len);

/* Compares valid UTF-8 by UTF-16 units, as RFC 8785 and Java's compareTo() do. */
int idem_utf16_cmp(const char *a, size_t a_len, const char *b, size_t b_len);
/* Length in UTF-16 units. */
size_t idem_utf16_len(const char *s, size_t len);

/*
 * The canonical form of RFC 8785, in pieces: `put` gets each piece, and returns 0, or a code that
 * stops the writer. Numbers are printed as in ECMAScript, except that an integer beyond 2^53 keeps
 * its exact value (json_canon.c).
 */
typedef int idem_json_put(void *data, const char *bytes, size_t len);
int idem_json_canon(const struct idem_json *value, idem_json_put *put, void *data,
                    struct idem_error *err);
/*
 * The same for digests, in which different numbers must differ: a number that no double keeps
 * (idem_number_kept) is written with its exact value, as DIGITSeEXPONENT, in one text for each
 * value. Both functions refuse a number beyond the range of a double, unless it is an integer.
 */
int idem_json_canon_exact(const struct idem_json *value, idem_json_put *put, void *data,
                          struct idem_error *err);

/* True if the shortest digits of the nearest double have exactly the number's value, as those of up
   to 15 digits do. Of all values that read as one double, this holds for only one. */
bool idem_number_kept(const struct idem_json *number);
/* True if the number has the same value as a printed one of less than IDEM_NUMBER_MAX bytes. */
bool idem_number_is(const struct idem_json *number, const char *printed, size_t len);

#endif
