/*
 * A line of a log about one operation, as every front door writes it: words for people, then
 * fields in one fixed order for programs,
 *
 *     WORDS record=31b2584f6d5d prefix=order: label="order 7" attempt=2 ... do="..."
 *
 * A value of letters, digits and ._:/@+- stands as it is. Any other is quoted: a quote and a
 * backslash have a backslash before them, and control characters and bytes that are not UTF-8
 * become \xHH, so that nobody's label begins a line of its own or speaks to a terminal.
 */
#ifndef IDEM_CORE_LINE_H
#define IDEM_CORE_LINE_H

#include <stddef.h>
#include <stdint.h>

#define IDEM_LINE_MAX 1536      /* of all of it, with its NUL */
#define IDEM_LINE_VALUE_MAX 256 /* of a value, as it is written; a longer one ends in dots */

/* In the order of the fields. Texts may be NULL, or empty: then there is no such field, but for the
   record, which is "-" then. */
struct idem_line {
    const char *words; /* our own; as they are */
    const char *record;
    const char *prefix, *label;
    uint32_t attempt; /* 0: none */
    const char *route;
    const char *trace;
    const char *took;
    const char *then, *pause; /* then=delay for=5s */
    const char *reason;
    const char *todo; /* do="..." */
};

/* Writes it with a NUL, cut where it does not fit; returns its length. `size` is at least 1. */
size_t idem_line_print(const struct idem_line *line, char *buf, size_t size);

#endif
