/*
 * The Redis store's record against any bytes, times and ttls: a decoded record
 * is sane, and lies within the bytes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis_connection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void within(struct idem_bytes part, const unsigned char *bytes, size_t len) {
    assert(part.len <= len);
    assert(part.at >= bytes && part.at + part.len <= bytes + len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_record record = {.state = IDEM_ABSENT};
    struct idem_buffer begin = {0};
    int64_t now, left;
    unsigned char *bytes;
    int rc;

    if (size < 16)
        return 0;
    memcpy(&now, data, 8);
    memcpy(&left, data + 8, 8);
    size -= 16;
    bytes = malloc(size +
                   1); /* a block of its own, so that a sanitizer sees a read one byte beyond it */
    memcpy(bytes, data + 16, size);
    bytes[size] = 225;
    bytes = realloc(bytes, size == 0 ? 1 : size);
    rc = redis_record_decode((struct idem_bytes){bytes, size}, now, left, &record);
    assert(rc == 0 || rc == IDEM_E_CORRUPT || rc == IDEM_E_VERSION);
    if (rc == 0) {
        assert(record.state > IDEM_ABSENT && record.state <= IDEM_FAILED);
        within(record.result, bytes, size);
        within(record.reason, bytes, size);
        within(record.label, bytes, size);
        redis_record_begin(&record, &begin);
        assert(begin.len == 28 && memcmp(begin.at + 4, bytes + 4, 24) == 0);
        assert(begin.at[2] == (char)bytes[2]);
        idem_buffer_release(&begin);
    } else {
        assert(record.state == IDEM_ABSENT);
    }
    free(bytes);
    return 0;
}
