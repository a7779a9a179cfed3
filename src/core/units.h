/*
 * Values as people write them: times ("90s", "2h30m"), sizes ("64k", "1MiB"), counts, and UTF-8.
 *
 * Inputs are bytes with a length and need no NUL. A parser answers 0, or IDEM_E_INVALID with a
 * text that says what is wrong with the value; *ret is untouched then.
 */
#ifndef IDEM_CORE_UNITS_H
#define IDEM_CORE_UNITS_H

#include "idem.h"

/* Room for whatever the two printers write. */
#define IDEM_UNITS_TEXT 48

/* One or more of d, h, m, s, ms, from large to small. A bare number is refused: of what? */
int idem_duration_parse(const char *text, size_t len, int64_t *ret_ms, struct idem_error *err);

/* Bytes, or with k, M, G (KiB, MiB, GiB): always powers of 1024, as in nginx. */
int idem_size_parse(const char *text, size_t len, int64_t *ret, struct idem_error *err);

/* Decimal digits and nothing else. */
int idem_count_parse(const char *text, size_t len, int64_t *ret, struct idem_error *err);

/* Write what the parsers read ("24h", "30d", "2h30m", "1MiB"); return buf. */
const char *idem_duration_print(int64_t ms, char *buf, size_t size);
const char *idem_size_print(int64_t bytes, char *buf, size_t size);

/* The length of the character that `text` begins with, 0 if it is not UTF-8; *ret_char is it. */
size_t idem_utf8_next(const char *text, size_t len, uint32_t *ret_char);
bool idem_utf8_valid(const char *text, size_t len);
/* Writes a character; returns its bytes. */
size_t idem_utf8_put(uint32_t c, char out[4]);

/* A control character of either set, C0 (with DEL) or C1. */
static inline bool idem_utf8_is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

#endif
