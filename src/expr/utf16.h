/*
 * Text is UTF-8 here and UTF-16 in Java: places and lengths are counted in units
 * of 16 bits. Half a pair has no UTF-8, and where Java would make one there is
 * trouble.
 */
#ifndef IDEM_EXPR_UTF16_H
#define IDEM_EXPR_UTF16_H

#include "expr/value.h"

/* Java's length(). */
size_t idem_utf16_units(const struct idem_value *text);

/* The byte at which unit `unit` begins. IDEM_TROUBLE_RANGE beyond the end (which itself is a
   place), IDEM_TROUBLE_SURROGATE within a pair. */
int idem_utf16_place(const struct idem_value *text, int64_t unit, size_t *ret);

/* The difference of the first units that differ, or of the lengths: Java's compareTo(). */
int32_t idem_utf16_compare(const struct idem_value *a, const struct idem_value *b);

/*
 * The unit at which `part` is first found at or after `from`, or last found at
 * or before it; -1 if it is not.
 */
int64_t idem_utf16_find(const struct idem_value *text, const struct idem_value *part, int64_t from);
int64_t idem_utf16_find_last(const struct idem_value *text, const struct idem_value *part,
                             int64_t from);

#endif
