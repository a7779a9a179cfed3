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
/* Writes 2 * len digits and no NUL; returns the end. */
char *idem_hex_write(const void *bytes, size_t len, char *out);
/* Reads len digits. False if there is another character, or an odd number of digits; bytes may then
 * be written. */
bool idem_hex_read(const char *digits, size_t len, unsigned char *out);

/* A hash, with a NUL behind its digits. */
void idem_hex_put(const unsigned char hash[IDEM_HASH_LEN], char out[IDEM_HEX_LEN + 1]);
bool idem_hex_parse(const char *hex, unsigned char out[IDEM_HASH_LEN]);

#endif
