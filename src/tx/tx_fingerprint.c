/*
 * A fingerprint as text, for a column of a table of the caller: the number of its definition, a
 * colon, and the hash in hexadecimal digits. The parser trusts nothing: any program can write to
 * that column.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/hex.h"
#include "tx/tx.h"

const char *idem_print_write(const struct idem_fingerprint *fingerprint,
                             char text[IDEM_PRINT_TEXT]) {
    int n;

    if (fingerprint->definition == 0)
        return NULL;
    n = snprintf(text, IDEM_PRINT_TEXT, "%lu:", (unsigned long)fingerprint->definition);
    idem_hex_put(fingerprint->hash, text + n);
    return text;
}

bool idem_print_read(struct idem_bytes bytes, struct idem_fingerprint *ret) {
    struct idem_fingerprint fingerprint;
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
    if (definition > UINT32_MAX || *end != ':' || !idem_hex_parse(end + 1, fingerprint.hash))
        return false;
    fingerprint.definition = (uint32_t)definition;
    *ret = fingerprint;
    return true;
}
