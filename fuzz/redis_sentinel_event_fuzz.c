/*
 * Events of sentinels: the channel up to the first line feed, and the text behind it. An address
 * that is accepted has a name and a port.
 */
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis_sentinel_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = memchr(data, '\n', size);
    struct sentinel_event event;
    char channel[64];
    size_t len = end == NULL ? size : (size_t)(end - data);

    if (end == NULL || len >= sizeof(channel))
        return 0;
    memcpy(channel, data, len);
    channel[len] = '\0';
    if (sentinel_event_read(channel, (const char *)end + 1, size - len - 1, "shop", &event) &&
        (event.host.name[0] == '\0' || event.host.port == 0))
        abort();
    return 0;
}
