/*
 * The contract on PostgreSQL and on MariaDB, over every kind of connection. The
 * tests set the servers' time of day.
 */
#include "contract.h"

#include "store/sql/tables.h"

static struct farm farm;

static void begin(void) {
    farm_flush(&farm);
}

static void stop(void) {
    farm_stop(&farm);
}

/* Only the tests sweep. */
static void url(const char *folder, char *out, size_t size) {
    (void)folder;
    farm_url(&farm, "&sweep=no", out, size);
}

static size_t stored(const char *folder) {
    (void)folder;
    return farm_keys(&farm);
}

#define START(name, kind)                                                                          \
    static void start_##name(const char *folder, int clock_fd) {                                   \
        farm_start(&farm, kind, folder, clock_fd);                                                 \
        tables_make(&farm);                                                                        \
    }
START(pg_socket, FARM_PG_SOCKET)
START(pg_tcp, FARM_PG_TCP)
START(pg_tls, FARM_PG_TLS)
START(pg_pooled, FARM_PG_POOLED)
START(my_socket, FARM_MY_SOCKET)
START(my_tcp, FARM_MY_TCP)
START(my_tls, FARM_MY_TLS)

#define DRIVER(kind)                                                                               \
    {                                                                                              \
        .name = #kind, .url = url, .stored = stored, .slow_poll_ms = 2000, .start = start_##kind,  \
        .begin = begin, .stop = stop, .poll_ms = 500, .tally_ms = 1500                             \
    }

static const struct contract_driver drivers[] = {
    DRIVER(pg_socket), DRIVER(pg_tcp), DRIVER(pg_tls), DRIVER(pg_pooled),
    DRIVER(my_socket), DRIVER(my_tcp), DRIVER(my_tls),
};

int main(int argc, char **argv) {
    return contract_main(argc, argv, drivers, sizeof(drivers) / sizeof(drivers[0]));
}
