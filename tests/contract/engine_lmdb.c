/*
 * The embedded store: a folder, and the test's clock by call-backs.
 */
#include "engine.h"

void engine_start(const char *folder, const char *options, struct shared_clock *clock, int clock_fd,
                  char *url, size_t size) {
    (void)clock;
    (void)clock_fd;
    snprintf(url, size, "lmdb:%s/store?%s", folder, options);
}

void engine_stop(void) {
}
