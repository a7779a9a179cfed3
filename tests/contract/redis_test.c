/*
 * The contract on Redis, in every arrangement of servers. The tests set the
 * servers' time of day.
 */
#include "contract.h"

#include "store/redis/farm.h"

static struct farm farm;

static void start_socket(const char *folder, int clock_fd) {
    farm_start(&farm, FARM_SOCKET, folder, clock_fd);
}

static void start_tcp(const char *folder, int clock_fd) {
    farm_start(&farm, FARM_TCP, folder, clock_fd);
}

static void start_limited(const char *folder, int clock_fd) {
    farm_start(&farm, FARM_LIMITED, folder, clock_fd);
}

static void start_tls(const char *folder, int clock_fd) {
    farm_start(&farm, FARM_TLS, folder, clock_fd);
}

static void start_sentinel(const char *folder, int clock_fd) {
    farm_start(&farm, FARM_SENTINEL, folder, clock_fd);
}

static void start_cluster(const char *folder, int clock_fd) {
    farm_start(&farm, FARM_CLUSTER, folder, clock_fd);
}

static void begin(void) {
    farm_flush(&farm);
}

static void stop(void) {
    farm_stop(&farm);
}

static void url(const char *folder, char *out, size_t size) {
    (void)folder;
    farm_url(&farm, "", out, size);
}

static size_t stored(const char *folder) {
    (void)folder;
    return farm_keys(&farm);
}

#define DRIVER(kind)                                                                               \
    {                                                                                              \
        .name = #kind, .url = url, .stored = stored, .slow_poll_ms = 2000, .start = start_##kind,  \
        .begin = begin, .stop = stop, .unordered = true, .sweeps_itself = true, .tally_ms = 1500   \
    }

static const struct contract_driver drivers[] = {
    DRIVER(socket), DRIVER(tcp), DRIVER(limited), DRIVER(tls), DRIVER(sentinel), DRIVER(cluster),
};

int main(int argc, char **argv) {
    return contract_main(argc, argv, drivers, sizeof(drivers) / sizeof(drivers[0]));
}
