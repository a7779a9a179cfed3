/*
 * Hexadecimal digits. One table for the digits that are written, one function for those that are
 * read.
 */
#include "base/hex.h"

#include "base/chars.h"

int idem_hex_digit(char c) {
    if (idem_is_digit(c))
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int idem_hex_byte(const char *digits) {
    int high = idem_hex_digit(digits[0]), low = high < 0 ? -1 : idem_hex_digit(digits[1]);

    return low < 0 ? -1 : high << 4 | low;
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

void idem_hex_encode(const void *bytes, size_t len, char *out) {
    *idem_hex_write(bytes, len, out) = '\0';
}

bool idem_hex_decode(const char *text, size_t len, unsigned char *out, size_t size,
                     size_t *ret_len) {
    if (len % 2 != 0 || len / 2 > size)
        return false;
    for (size_t i = 0; i < len; i += 2) {
        int byte = idem_hex_byte(text + i);

        if (byte < 0)
            return false;
        *out++ = (unsigned char)byte;
    }
    *ret_len = len / 2;
    return true;
}

bool idem_hex_parse(const char *text, size_t len, unsigned char out[IDEM_HASH_LEN]) {
    return len == IDEM_HEX_LEN && idem_hex_decode(text, len, out, IDEM_HASH_LEN, &len);
}
