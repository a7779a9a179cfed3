/*
 * Bytes that are written as text: base64 (as RFC 9651 has it: padding may be missing) and hex.
 */
#ifndef IDEM_HTTP_BINARY_H
#define IDEM_HTTP_BINARY_H

#include "http/field.h"

/* At most `size` bytes. False if it is not what it should be, or longer; *ret_len is untouched. */
bool idem_base64_decode(struct idem_http_text text, unsigned char *out, size_t size,
                        size_t *ret_len);
bool idem_hex_decode(struct idem_http_text text, unsigned char *out, size_t size, size_t *ret_len);

/* With a NUL; base64 with padding, hex in lower case. */
#define IDEM_BASE64_TEXT(len) (((len) + 2) / 3 * 4 + 1)
void idem_base64_encode(const unsigned char *bytes, size_t len, char *out);
#define IDEM_HEX_TEXT(len) (2 * (len) + 1)
void idem_hex_encode(const unsigned char *bytes, size_t len, char *out);

#endif
