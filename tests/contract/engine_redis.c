/*
 * A Redis of the test's own, whose time of day is the test's. Redis judges
 * leases by the same clock.
 */
#include "engine.h"
#include "model.h"

#include "store/redis/farm.h"

static struct farm farm;

void engine_start(const char *folder, const char *options, struct shared_clock *clock, int clock_fd,
                  char *url, size_t size) {
    model_times = MODEL_RELATIVE;
    clock->lease = (int64_t)clock->wall;
    farm_start(&farm, FARM_SOCKET, folder, clock_fd);
    farm_url(&farm, options, url, size);
}

void engine_stop(void) {
    farm_stop(&farm);
}
