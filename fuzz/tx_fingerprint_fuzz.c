/*
 * A fingerprint of any bytes: refused, or parsed; a parsed one is written so
 * that it parses as the same.
 */
#include <assert.h>
#include <string.h>

#include "tx/tx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_fingerprint print, again;
    char text[IDEM_FINGERPRINT_TEXT];

    if (!idem_fingerprint_read((struct idem_bytes){data, size}, &print))
        return 0;
    assert(print.definition != 0 && idem_fingerprint_write(&print, text) == text);
    assert(strlen(text) == size);
    assert(idem_fingerprint_read((struct idem_bytes){(const uint8_t *)text, size}, &again));
    assert(again.definition == print.definition);
    assert(memcmp(again.hash, print.hash, sizeof(print.hash)) == 0);
    return 0;
}
