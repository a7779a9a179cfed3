/*
 * Values in the form that people write: times ("90s", "2h30m"), sizes ("64k", "1MiB"), counts, and
 * UTF-8.
 *
 * Inputs are bytes with a length and need no NUL. A parser returns 0, or IDEM_E_INVALID with a
 * text that explains the fault; *ret is then untouched.
 */
#ifndef IDEM_BASE_UNITS_H
#define IDEM_BASE_UNITS_H

#include "idem.h"

/* A buffer of this size holds the output of either printer. */
#define IDEM_UNITS_TEXT 48

/* One or more of d, h, m, s, ms, in descending order. A number without a unit is refused,
   because it is ambiguous. */
int idem_duration_parse(const char *text, size_t len, int64_t *ret_ms, struct idem_error *err);

/* Bytes, or a number with k, M, G (KiB, MiB, GiB): always powers of 1024, as in nginx. */
int idem_size_parse(const char *text, size_t len, int64_t *ret, struct idem_error *err);

/* Decimal digits only. */
int idem_count_parse(const char *text, size_t len, int64_t *ret, struct idem_error *err);

/* Write the form that the parsers read ("24h", "30d", "2h30m", "1MiB"); return buf. */
const char *idem_duration_print(int64_t ms, char *buf, size_t size);
const char *idem_size_print(int64_t bytes, char *buf, size_t size);

/* Writes decimal digits, at most 20, backwards from `end`; returns their start. */
char *idem_digits_put(uint64_t n, char *end);

/* Sets *ret_char to the first character of `text` and returns its length in bytes; 0 if it is
   not UTF-8. */
size_t idem_utf8_next(const char *text, size_t len, uint32_t *ret_char);
bool idem_utf8_valid(const char *text, size_t len);
/* Writes a character and returns its length in bytes. */
size_t idem_utf8_put(uint32_t c, char out[4]);

/* True for the control characters of C0, DEL and C1. */
static inline bool idem_utf8_is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

#endif
