/*
 * Hexadecimal digits: written in lower case, read in both cases.
 */
#ifndef IDEM_BASE_HEX_H
#define IDEM_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"

/* 0 to 15, or -1. */
int idem_hex_digit(char c);
/* The byte that two digits stand for, or -1. Reads no further than the first that is none. */
int idem_hex_byte(const char *digits);

/* Writes 2 * len digits and no NUL; returns the end. */
char *idem_hex_write(const void *bytes, size_t len, char *out);
/* The same with a NUL. */
#define IDEM_HEX_TEXT(len) (2 * (len) + 1)
void idem_hex_encode(const void *bytes, size_t len, char *out);

/* Decodes at most `size` bytes. False if the text is malformed or longer; *ret_len is then
   untouched. */
bool idem_hex_decode(const char *text, size_t len, unsigned char *out, size_t size,
                     size_t *ret_len);
/* Reads a hash: exactly IDEM_HEX_LEN digits. */
bool idem_hex_parse(const char *text, size_t len, unsigned char out[IDEM_HASH_LEN]);

#endif
