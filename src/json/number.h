/*
 * Numbers as text: the shortest digits that read back as the same double, and
 * the forms that ECMAScript and Java print them in. Independent of the locale.
 */
#ifndef IDEM_JSON_NUMBER_H
#define IDEM_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#define IDEM_NUMBER_MAX 32 /* bytes of a printed double, with its NUL */

/* A JSON number, as written; infinite when it is too large. */
double idem_number_read(const char *text, size_t len);

/* As ECMAScript prints it (RFC 8785); finite numbers only. Returns the length. */
size_t idem_number_es(double d, char out[IDEM_NUMBER_MAX]);
/* The same of the double that is nearest to 0.DIGITS * 10^point, without making it: n digits with
   no zero at either end. 0 when that is not certain, as with more than 17 digits. */
size_t idem_number_es_decimal(const char *digits, size_t n, long long point, bool negative,
                              char out[IDEM_NUMBER_MAX]);

/* As Java's Double.toString() and Float.toString() print it, up to JDK 18, which is not always
   the shortest form. */
size_t idem_number_java(double d, char out[IDEM_NUMBER_MAX]);
size_t idem_number_java_float(float f, char out[IDEM_NUMBER_MAX]);

#endif
