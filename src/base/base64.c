/*
 * Base64, three bytes at a time.
 */
#include "base/base64.h"

#include <stdint.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool idem_base64_decode(const char *text, size_t len, unsigned char *out, size_t size,
                        size_t *ret_len) {
    uint32_t bits = 0;
    size_t written = 0, n = len;

    while (n > 0 && text[n - 1] == '=')
        n--;
    if (len - n > 2 || n % 4 == 1 || (len != n && len % 4 != 0))
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] != '\0' ? strchr(digits, text[i]) : NULL;

        if (digit == NULL)
            return false;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4 == 0)
            continue;
        if (written == size)
            return false;
        out[written++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    *ret_len = written;
    return true;
}

void idem_base64_encode(const unsigned char *bytes, size_t len, char *out) {
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (n > 2 ? bytes[i + 2] : 0);

        for (size_t k = 0; k < 4; k++)
            *out++ = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    *out = '\0';
}
