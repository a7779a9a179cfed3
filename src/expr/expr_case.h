/*
 * Upper and lower case, for characters with a simple mapping.
 */
#ifndef IDEM_EXPR_EXPR_CASE_H
#define IDEM_EXPR_EXPR_CASE_H

#include <stdbool.h>
#include <stdint.h>

/* The character in the other case, with the same number of bytes; false if the mapping is not
   simple. */
bool idem_case_upper(uint32_t c, uint32_t *ret);
bool idem_case_lower(uint32_t c, uint32_t *ret);

#endif
