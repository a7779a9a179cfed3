/* The embedded store: a directory, and the test's clock through callbacks. */
#include "engine.h"

#include "store/lmdb/lmdb_store.h"

void engine_start(const char *folder, const char *options, struct shared_clock *clock, int clock_fd,
                  char *url, size_t size) {
    (void)clock;
    (void)clock_fd;
    /* The store waits for a process that is slow while it opens, closes or grows it. */
    lmdb_patience = (struct lmdb_patience){.door = 120, .stop = 120, .busy = 120, .length = 120};
    snprintf(url, size, "lmdb:%s/store?%s", folder, options);
}

void engine_stop(void) {
}
