/*
 * Any bytes as a field's value: a parsed key has a length within its bounds,
 * and parses as itself when it is quoted, and when it is bare if that is
 * possible; numbers stay within their bounds, and so does Retry-After, in each
 * form.
 */
#include <assert.h>
#include <string.h>

#include "http/http_field.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void key_again(const char *key, size_t len) {
    char quoted[2 * IDEM_HTTP_KEY_MAX + 2], again[IDEM_HTTP_KEY_MAX];
    size_t n = 0, again_len = 0;
    bool bare = key[0] != '"';

    quoted[n++] = '"';
    for (size_t i = 0; i < len; i++) {
        assert(key[i] >= 0x20 && key[i] <= 0x7e);
        bare = bare && key[i] != ' ';
        if (key[i] == '"' || key[i] == '\\')
            quoted[n++] = '\\';
        quoted[n++] = key[i];
    }
    quoted[n++] = '"';
    assert(idem_http_key_read((struct idem_http_text){quoted, n}, again, &again_len) == NULL);
    assert(again_len == len && memcmp(again, key, len) == 0);
    if (bare) {
        assert(idem_http_key_read((struct idem_http_text){key, len}, again, &again_len) == NULL);
        assert(again_len == len && memcmp(again, key, len) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_http_text value = {(const char *)data, size};
    char key[IDEM_HTTP_KEY_MAX];
    enum idem_http_outcome outcome = IDEM_HTTP_DONE;
    int64_t number = -1, after = -1, date = -1;
    size_t len = 0;

    if (idem_http_key_read(value, key, &len) == NULL) {
        assert(len >= 1 && len <= IDEM_HTTP_KEY_MAX);
        key_again(key, len);
    } else {
        assert(len == 0);
    }
    assert(idem_http_number(value, 0, 100000, &number) == (number >= 0) && number <= 100000);
    assert(idem_http_retry_after(value, 1700000000, 86400, &after) == (after >= 0));
    assert(after <= 86400);
    assert(idem_http_date(value, 1700000000, &date) == (date >= 0));
    assert(!idem_http_outcome_read(value, &outcome) || outcome <= IDEM_HTTP_UNKNOWN);
    assert(idem_http_type_read(value) <= IDEM_HTTP_EVENTS);
    return 0;
}
