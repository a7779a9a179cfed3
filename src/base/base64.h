/*
 * Base64 (RFC 4648), as RFC 9651 has it: padding may be missing, and the padding bits of the last
 * digit are ignored.
 */
#ifndef IDEM_BASE_BASE64_H
#define IDEM_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes at most `size` bytes. False if the text is malformed or longer; *ret_len is then
   untouched. */
bool idem_base64_decode(const char *text, size_t len, unsigned char *out, size_t size,
                        size_t *ret_len);

/* Writes the digits with their padding, and a NUL. */
#define IDEM_BASE64_TEXT(len) (((len) + 2) / 3 * 4 + 1)
void idem_base64_encode(const unsigned char *bytes, size_t len, char *out);

#endif
