/*
 * JSON, read strictly (RFC 8259) and exactly: numbers keep their digits, names
 * keep their order, and what could be understood in two ways is refused: a name
 * twice in an object, half a surrogate pair, bytes that are not UTF-8.
 *
 * A document is a tree in an arena; strings without escapes point into the
 * text, which must stay while the document is used. Nothing here recurses
 * deeper than IDEM_JSON_DEPTH_MAX.
 */
#ifndef IDEM_JSON_JSON_H
#define IDEM_JSON_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "core/arena.h"
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
        const struct idem_object *object; /* OBJECT; NULL when it has no members */
    } at;
};

struct idem_member {
    const char *name;
    uint32_t len;
    struct idem_json value;
};

struct idem_object {
    const struct idem_member *members; /* as written */
    const uint32_t *order;             /* the same, by the UTF-16 units of their names */
};

/*
 * Reads one document of `len` bytes into the arena. On failure IDEM_E_INVALID
 * with line and column, or IDEM_E_NOMEM; the text of the document is never part
 * of the error, because it may be secret.
 */
int idem_json_parse(const char *text, size_t len, struct idem_arena *arena, struct idem_json *ret,
                    struct idem_error *err);

/* The member's value, or NULL. */
const struct idem_json *idem_json_get(const struct idem_json *object, const char *name, size_t len);

/* Order by UTF-16 units, of valid UTF-8: what RFC 8785 and Java's compareTo() go by. */
int idem_utf16_cmp(const char *a, size_t a_len, const char *b, size_t b_len);
/* Length in UTF-16 units. */
size_t idem_utf16_len(const char *s, size_t len);

/*
 * The canonical form of RFC 8785, in pieces: `put` takes each (0, or a code that
 * ends it). Numbers are printed as ECMAScript does, but an integer beyond 2^53
 * keeps its exact value (canon.c).
 */
typedef int idem_json_put(void *data, const char *bytes, size_t len);
int idem_json_canon(const struct idem_json *value, idem_json_put *put, void *data,
                    struct idem_error *err);
/*
 * The same for digests, in which no two numbers may become one: one that no
 * double keeps (idem_number_kept) has its exact value, as DIGITSeEXPONENT, and
 * one text in whatever form it was written. What is beyond the range of a
 * double and no integer is refused in both.
 */
int idem_json_canon_exact(const struct idem_json *value, idem_json_put *put, void *data,
                          struct idem_error *err);

/* Whether the shortest digits of the nearest double are the very value of the number, as those of
   up to 15 digits are: of all that read as one double, one alone. */
bool idem_number_kept(const struct idem_json *number);
/* Whether the number and a printed one, of less than IDEM_NUMBER_MAX bytes, have one value. */
bool idem_number_is(const struct idem_json *number, const char *printed, size_t len);

#endif
