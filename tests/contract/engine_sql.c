/*
 * A PostgreSQL of the test's own, whose time of day is the test's. PostgreSQL
 * judges leases by the same clock.
 */
#include "engine.h"
#include "model.h"

#include "store/sql/tables.h"

static struct farm farm;

void engine_start(const char *folder, const char *options, struct shared_clock *clock, int clock_fd,
                  char *url, size_t size) {
    char more[200];

    model_times = MODEL_UNTIMED_CLAIMS;
    clock->lease = (int64_t)clock->wall;
    farm_start(&farm, ENGINE_SQL, folder, clock_fd);
    tables_make(&farm);
    snprintf(more, sizeof(more), "&sweep=no%s%s", options[0] == '\0' ? "" : "&", options);
    farm_url(&farm, more, url, size);
}

void engine_stop(void) {
    farm_stop(&farm);
}
