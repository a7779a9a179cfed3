/*
 * The events of a failover, as sentinels publish them.
 */
#ifndef IDEM_STORE_REDIS_REDIS_SENTINEL_EVENT_H
#define IDEM_STORE_REDIS_REDIS_SENTINEL_EVENT_H

#include "store/store_url.h"

enum sentinel_sign {
    SENTINEL_BEGINS, /* a replica is being promoted: writes to the master may be lost */
    SENTINEL_MOVES,  /* `host` is the master now */
    SENTINEL_ABORTS, /* the master stays */
};

struct sentinel_event {
    enum sentinel_sign sign;
    struct idem_host_name host;
};

/* Returns the channel with index i; NULL after the last. */
const char *sentinel_channel(size_t i);

/* Parses a message; false: it is about another master, or not an event. */
bool sentinel_event_read(const char *channel, const char *text, size_t len, const char *master,
                         struct sentinel_event *ret);

#endif
