/*
 * Hexadecimal digits. One table for the digits that are written, one function for those that are
 * read.
 */
#include "base/hex.h"

#include <string.h>

int idem_hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *idem_hex_write(const void *bytes, size_t len, char *out) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++) {
        *out++ = digits[at[i] >> 4];
        *out++ = digits[at[i] & 15];
    }
    return out;
}

bool idem_hex_read(const char *digits, size_t len, unsigned char *out) {
    if (len % 2 != 0)
        return false;
    for (size_t i = 0; i < len; i += 2) {
        int high = idem_hex_digit(digits[i]), low = idem_hex_digit(digits[i + 1]);

        if (high < 0 || low < 0)
            return false;
        *out++ = (unsigned char)(high << 4 | low);
    }
    return true;
}

void idem_hex_put(const unsigned char hash[IDEM_HASH_LEN], char out[IDEM_HEX_LEN + 1]) {
    *idem_hex_write(hash, IDEM_HASH_LEN, out) = '\0';
}

bool idem_hex_parse(const char *hex, unsigned char out[IDEM_HASH_LEN]) {
    return strlen(hex) == IDEM_HEX_LEN && idem_hex_read(hex, IDEM_HEX_LEN, out);
}
