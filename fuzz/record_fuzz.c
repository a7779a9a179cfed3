/*
 * The record codec against any bytes. The checksum is corrected first, so that
 * the fuzzer reaches the code after it. A decoded record must be sane, and must
 * survive being encoded and decoded again.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/checksum.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void bytes_check(struct idem_bytes a, struct idem_bytes b) {
    assert(a.len == b.len);
    assert(a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static void again_check(const struct idem_record *record, uint32_t epoch,
                        const struct idem_record_key *key) {
    size_t size = idem_record_size(record, epoch);
    unsigned char *bytes = malloc(size);
    struct idem_record again;
    uint32_t epoch_again;

    idem_record_encode(record, epoch, key, bytes);
    assert(idem_record_decode((struct idem_bytes){bytes, size}, key, &again, &epoch_again) == 0);
    assert(again.state == record->state && again.attempt == record->attempt &&
           again.tries == record->tries && again.lease_end == record->lease_end &&
           again.expires == record->expires && again.status == record->status &&
           again.prior.state == record->prior.state);
    bytes_check(again.result, record->result);
    bytes_check(again.reason, record->reason);
    bytes_check(again.label, record->label);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_record_key key = {.prefix_len = 1, .at = "p"};
    unsigned char *bytes = malloc(size + 4);
    struct idem_record record;
    uint32_t epoch;
    int rc;

    memcpy(bytes, data, size);
    idem_checksum_put(idem_checksum(&key, bytes, size), bytes + size);
    rc = idem_record_decode((struct idem_bytes){bytes, size + 4}, &key, &record, &epoch);
    assert(rc == 0 || rc == IDEM_E_CORRUPT || rc == IDEM_E_VERSION);
    if (rc == 0) {
        assert(record.state > IDEM_ABSENT && record.state <= IDEM_FAILED);
        again_check(&record, epoch, &key);
    }
    free(bytes);
    return 0;
}
