/*
 * A log line about one operation, in the form that every front door writes: words for people, then
 * fields in a fixed order for programs,
 *
 *     WORDS record=31b2584f6d5d prefix=order: label="order 7" attempt=2 ... do="..."
 *
 * A value of letters, digits and ._:/@+- is written without quotes. Any other value is quoted: a
 * backslash precedes each quote and backslash, and each byte of a character that is not visible
 * (base/visible.h) or not UTF-8 becomes \xHH. So a label cannot start a line, send an escape
 * sequence to a terminal, or reorder the text around it.
 */
#ifndef IDEM_BASE_LOG_LINE_H
#define IDEM_BASE_LOG_LINE_H

#include <stddef.h>
#include <stdint.h>

#define IDEM_LINE_MAX 1536      /* of the whole line, with its NUL */
#define IDEM_LINE_VALUE_MAX 256 /* of one value, escaped; a longer value ends in "..." */

/* The members are in the order of the fields. A text that is NULL or empty has no field, except
   `record`, which is written as "-". */
struct idem_line {
    const char *words; /* fixed words of the caller; not escaped */
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

/* Writes the line with a NUL and cuts it to fit; returns its length. `size` is at least 1. */
size_t idem_line_print(const struct idem_line *line, char *buf, size_t size);

#endif
