/*
 * A fingerprint as a text, which a table of the caller's has a column for: the number of its
 * definition, and its hash in hexadecimal digits. What is read there was written by anybody.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "sql/tx.h"

const char *idem_print_write(const struct idem_fingerprint *print, char text[IDEM_PRINT_TEXT]) {
    static const char digits[] = "0123456789abcdef";
    int n;

    if (print->definition == 0)
        return NULL;
    n = snprintf(text, IDEM_PRINT_TEXT, "%lu:", (unsigned long)print->definition);
    for (size_t i = 0; i < IDEM_HASH_LEN; i++) {
        text[n++] = digits[print->hash[i] >> 4];
        text[n++] = digits[print->hash[i] & 15];
    }
    text[n] = '\0';
    return text;
}

bool idem_print_read(struct idem_bytes bytes, struct idem_fingerprint *ret) {
    struct idem_fingerprint print;
    char text[IDEM_PRINT_TEXT];
    unsigned long definition;
    char *end;

    if (bytes.len == 0 || bytes.len >= sizeof(text) || memchr(bytes.at, '\0', bytes.len) != NULL)
        return false;
    memcpy(text, bytes.at, bytes.len);
    text[bytes.len] = '\0';
    if (text[0] < '1' || text[0] > '9')
        return false;
    definition = strtoul(text, &end, 10);
    if (definition > UINT32_MAX || *end != ':' || !idem_hex_parse(end + 1, print.hash))
        return false;
    print.definition = (uint32_t)definition;
    *ret = print;
    return true;
}
