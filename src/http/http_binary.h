/*
 * Bytes encoded as text: base64 (as in RFC 9651: padding may be missing) and hex.
 */
#ifndef IDEM_HTTP_HTTP_BINARY_H
#define IDEM_HTTP_HTTP_BINARY_H

#include "http/http_field.h"

/* Decode at most `size` bytes. False if the text is malformed or longer; *ret_len is then
   untouched. */
bool idem_base64_decode(struct idem_http_text text, unsigned char *out, size_t size,
                        size_t *ret_len);
bool idem_hex_decode(struct idem_http_text text, unsigned char *out, size_t size, size_t *ret_len);

/* Write a NUL at the end; base64 with padding, hex in lower case. */
#define IDEM_BASE64_TEXT(len) (((len) + 2) / 3 * 4 + 1)
void idem_base64_encode(const unsigned char *bytes, size_t len, char *out);
#define IDEM_HEX_TEXT(len) (2 * (len) + 1)
void idem_hex_encode(const unsigned char *bytes, size_t len, char *out);

#endif
