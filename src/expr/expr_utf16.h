/*
 * Text is UTF-8 here and UTF-16 in Java: places and lengths are counted in units of 16 bits. Half
 * of a surrogate pair has no UTF-8, so where Java would produce it, the functions return trouble.
 */
#ifndef IDEM_EXPR_EXPR_UTF16_H
#define IDEM_EXPR_EXPR_UTF16_H

#include "expr/expr_value.h"

/* Java's length(). */
size_t idem_utf16_units(const struct idem_value *text);

/* The byte at which unit `unit` begins. IDEM_TROUBLE_RANGE beyond the end (the end itself is a
   valid place), IDEM_TROUBLE_SURROGATE within a pair. */
int idem_utf16_place(const struct idem_value *text, int64_t unit, size_t *ret);

/* Java's compareTo(): the difference of the first units that differ, or of the lengths. */
int32_t idem_utf16_compare(const struct idem_value *a, const struct idem_value *b);

/*
 * The unit at which `part` is first found at or after `from`, or last found at or before it; -1 if
 * it is not found.
 */
int64_t idem_utf16_find(const struct idem_value *text, const struct idem_value *part, int64_t from);
int64_t idem_utf16_find_last(const struct idem_value *text, const struct idem_value *part,
                             int64_t from);

#endif
