/*
 * Decides which characters of untrusted texts (labels, reasons, names, error texts) are shown
 * unchanged. An invisible character is escaped or replaced: control characters (Cc: C0, DEL, C1),
 * format characters (Cf: zero-width and bidirectional ones, tags) and the two separators that
 * break a line (Zl, Zp). Without this a label could reorder its line, look like another label, or
 * hide words from people that programs read.
 *
 * Only the displayed text changes. Stored and compared bytes stay as they are.
 */
#ifndef IDEM_BASE_VISIBLE_H
#define IDEM_BASE_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False for the categories Cc, Cf, Zl and Zp of Unicode 17. */
bool idem_visible(uint32_t c);

/* Copies a text and adds a NUL; a text that is too long is cut between characters. `instead`
   replaces each character that is not visible, '?' each byte that is not UTF-8. `buf` may be
   `text`; `size` is at least 1. Returns the length. */
size_t idem_visible_copy(const char *text, size_t len, char instead, char *buf, size_t size);

/* Writes a JSON escape with a NUL: \u202e, or a surrogate pair for characters beyond the first
   plane. */
#define IDEM_VISIBLE_JSON 13
void idem_visible_json(uint32_t c, char buf[IDEM_VISIBLE_JSON]);

#endif
