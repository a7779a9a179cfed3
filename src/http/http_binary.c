/*
 * Base64 and hex. The decoder ignores the padding bits of the last base64 digit.
 */
#include "http/http_binary.h"

#include <string.h>

#include "base/hex.h"

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool idem_base64_decode(struct idem_http_text text, unsigned char *out, size_t size,
                        size_t *ret_len) {
    uint32_t bits = 0;
    size_t len = 0, n = text.len;

    while (n > 0 && text.at[n - 1] == '=')
        n--;
    if (text.len - n > 2 || n % 4 == 1 || (text.len != n && text.len % 4 != 0))
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text.at[i] != '\0' ? strchr(digits64, text.at[i]) : NULL;

        if (digit == NULL)
            return false;
        bits = bits << 6 | (uint32_t)(digit - digits64);
        if (i % 4 == 0)
            continue;
        if (len == size)
            return false;
        out[len++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    *ret_len = len;
    return true;
}

void idem_base64_encode(const unsigned char *bytes, size_t len, char *out) {
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (n > 2 ? bytes[i + 2] : 0);

        for (size_t k = 0; k < 4; k++)
            *out++ = k <= n ? digits64[bits >> (18 - 6 * k) & 63] : '=';
    }
    *out = '\0';
}

bool idem_hex_decode(struct idem_http_text text, unsigned char *out, size_t size, size_t *ret_len) {
    if (text.len / 2 > size || !idem_hex_read(text.at, text.len, out))
        return false;
    *ret_len = text.len / 2;
    return true;
}

void idem_hex_encode(const unsigned char *bytes, size_t len, char *out) {
    *idem_hex_write(bytes, len, out) = '\0';
}
