/*
 * The embedded store's count of clock jumps against any bytes: read or refused,
 * and safe to continue with, at any time of the clock.
 */
#include "store/lmdb/lmdb_store.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lmdb_jumps jumps = {0};
    int64_t uptime;

    if (lmdb_jumps_parse(data, size, &jumps) != 0) {
        assert(jumps.format == 0);
        return 0;
    }
    uptime = jumps.uptime;
    lmdb_jumps_pass(&jumps, INT64_MAX / 2);
    assert(jumps.uptime >= uptime);
    for (size_t i = 0; i < LMDB_JUMP_DAYS; i++)
        assert(jumps.days[i] >= 0);
    return 0;
}
