/*
 * Numbers as text: the shortest digits that read back as the same double, in the forms of
 * ECMAScript and Java. Independent of the locale.
 */
#ifndef IDEM_JSON_JSON_NUMBER_H
#define IDEM_JSON_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#define IDEM_NUMBER_MAX 32 /* bytes of a printed double, including the NUL */

/* Reads a JSON number; infinite if it is too large, NaN without memory. */
double idem_number_read(const char *text, size_t len);

/* Prints as ECMAScript does (RFC 8785); finite numbers only. Returns the length. */
size_t idem_number_es(double d, char out[IDEM_NUMBER_MAX]);
/* The same for the double nearest to 0.DIGITS * 10^point, without computing that double. The n
   digits have no zero at either end. Returns 0 if the result is not certain, for example with more
   than 17 digits. */
size_t idem_number_es_decimal(const char *digits, size_t n, long long point, bool negative,
                              char out[IDEM_NUMBER_MAX]);

/* Print as Java's Double.toString() and Float.toString() do, up to JDK 18, which is not always the
   shortest form. */
size_t idem_number_java(double d, char out[IDEM_NUMBER_MAX]);
size_t idem_number_java_float(float f, char out[IDEM_NUMBER_MAX]);

#endif
