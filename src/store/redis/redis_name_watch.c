/*
 * Detects that the name in the URL has a new address. A lookup that fails, or may be incomplete,
 * changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/redis_store.h"

/*
 * An operator may move a name to another master while the old one goes on responding. Its
 * acknowledgements are worthless from then on. So the name is looked up once a second, and a
 * connection is dropped when two lookups in a row do not list its address: the next connection goes
 * to a listed one. A single lookup may list only some of the addresses, as rotating DNS servers do.
 */

#define LOOKUP_MS 1000
#define MISSES_MAX 2 /* lookups in a row without an address until it is given up */

/* The connections to the server. */
enum { COMMANDS, WAKE_UPS, REPLICATION, CONNECTIONS };

struct redis_name_watch {
    struct redis_store *store;
    struct idem_timer timer;
    struct redis_resolve *resolve;
    unsigned misses[CONNECTIONS]; /* lookups in a row */
};

static bool name_watch_lists(const struct sockaddr_storage *addresses, size_t n,
                             const struct sockaddr_storage *address) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&addresses[i], address, sizeof(*address)) == 0)
            return true;
    return false;
}

static void name_watch_check(struct redis_conn *conn, unsigned *misses,
                             const struct sockaddr_storage *addresses, size_t n) {
    bool missing = conn->state == REDIS_CONN_READY &&
                   !name_watch_lists(addresses, n, &conn->addresses[conn->address_at]);

    *misses = missing ? *misses + 1 : 0;
    if (*misses < MISSES_MAX)
        return;
    *misses = 0;
    redis_conn_fail(conn, IDEM_E_REFUSED, "its name has another address now");
}

static void name_watch_resolved(void *data, const struct sockaddr_storage *addresses, size_t n,
                                const char *why) {
    struct redis_name_watch *watch = data;
    struct redis_store *store = watch->store;
    struct redis_conn *conns[CONNECTIONS] = {[COMMANDS] = &store->nodes->conn,
                                             [WAKE_UPS] = &store->nodes->wake,
                                             [REPLICATION] = &store->nodes->replication.conn};

    (void)why;
    redis_resolve_free(watch->resolve);
    watch->resolve = NULL;
    idem_timer_set(store->remote.base.loop, &watch->timer, LOOKUP_MS);
    remote_enter(&store->remote);
    for (size_t i = 0;
         n > 0 && n < REDIS_ADDRESSES_MAX && i < CONNECTIONS && !store->remote.closing; i++)
        name_watch_check(conns[i], &watch->misses[i], addresses, n);
    (void)remote_leave(&store->remote);
}

static void name_watch_fire(struct idem_timer *timer) {
    struct redis_name_watch *watch = idem_container_of(timer, struct redis_name_watch, timer);
    struct redis_store *store = watch->store;
    struct redis_conn *conn = &store->nodes->conn;

    if (conn->state == REDIS_CONN_READY)
        watch->resolve = redis_resolve_new(store->remote.base.loop, &conn->host,
                                           name_watch_resolved, watch, NULL);
    if (watch->resolve == NULL)
        idem_timer_set(store->remote.base.loop, timer, LOOKUP_MS);
}

int redis_name_watch_new(struct redis_store *store, struct idem_error *err) {
    struct redis_name_watch *watch;

    if (redis_host_is_address(&store->nodes->conn.host))
        return 0;
    watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    watch->store = store;
    watch->timer.fire = name_watch_fire;
    store->name_watch = watch;
    idem_timer_set(store->remote.base.loop, &watch->timer, LOOKUP_MS);
    return 0;
}

void redis_name_watch_free(struct redis_name_watch *watch) {
    if (watch == NULL)
        return;
    idem_timer_clear(watch->store->remote.base.loop, &watch->timer);
    redis_resolve_free(watch->resolve);
    free(watch);
}
