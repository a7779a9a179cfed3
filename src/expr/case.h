/*
 * Upper and lower case of the characters for which it is plain.
 */
#ifndef IDEM_EXPR_CASE_H
#define IDEM_EXPR_CASE_H

#include <stdbool.h>
#include <stdint.h>

/* The character in the other case, which has as many bytes; false where it is not plain. */
bool idem_case_upper(uint32_t c, uint32_t *ret);
bool idem_case_lower(uint32_t c, uint32_t *ret);

#endif
