/*
 * Name lookups off the loop: getaddrinfo(3) in a thread of its own.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "loop/offload.h"
#include "store/redis/redis_connection.h"
#include "store/redis/redis_store.h"

/* Shared by the thread and the owner. */
struct redis_lookup {
    char name[256], port[8];
    struct redis_addresses found;
    int code; /* of getaddrinfo() */
};

static void resolve_work(void *shared) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    struct redis_lookup *lookup = shared;

    lookup->code = getaddrinfo(lookup->name, lookup->port, &hints, &list);
    for (struct addrinfo *at = list; at != NULL && lookup->found.n < REDIS_ADDRESSES_MAX;
         at = at->ai_next)
        memcpy(&lookup->found.at[lookup->found.n++], at->ai_addr, at->ai_addrlen);
    if (list != NULL)
        freeaddrinfo(list);
}

int redis_resolve_begin(struct redis_resolve *resolve, struct idem_loop *loop,
                        const struct idem_host_name *host, void (*done)(void *data), void *data,
                        struct idem_error *err) {
    static const struct idem_offload_kind kind = {resolve_work, free};
    struct redis_lookup *lookup = calloc(1, sizeof(*lookup));

    if (lookup == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to look a name up");
    snprintf(lookup->name, sizeof(lookup->name), "%s", host->name);
    snprintf(lookup->port, sizeof(lookup->port), "%u", host->port);
    resolve->lookup = lookup;
    resolve->offload = idem_offload_new(loop, &kind, lookup, done, data);
    if (resolve->offload != NULL)
        return 0;
    return idem_error_set(err, IDEM_E_REFUSED, "no descriptor or no thread to look a name up");
}

void redis_resolve_cancel(struct redis_resolve *resolve) {
    idem_offload_free(resolve->offload);
    resolve->offload = NULL;
}

struct redis_addresses redis_resolve_end(struct redis_resolve *resolve) {
    struct redis_addresses found = resolve->lookup->found;

    found.why = found.n == 0 ? gai_strerror(resolve->lookup->code) : NULL;
    redis_resolve_cancel(resolve);
    return found;
}

/*
 * Detects that the name in the URL has a new address. A lookup that fails, or may be incomplete,
 * changes nothing.
 */

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
    struct redis_resolve resolve;
    unsigned misses[CONNECTIONS]; /* lookups in a row */
};

static bool name_watch_lists(const struct redis_addresses *found,
                             const struct sockaddr_storage *address) {
    for (size_t i = 0; i < found->n; i++)
        if (memcmp(&found->at[i], address, sizeof(*address)) == 0)
            return true;
    return false;
}

static void name_watch_check(struct redis_conn *conn, unsigned *misses,
                             const struct redis_addresses *found) {
    bool missing = conn->state == REDIS_CONN_READY &&
                   !name_watch_lists(found, &conn->addresses[conn->address_at]);

    *misses = missing ? *misses + 1 : 0;
    if (*misses < MISSES_MAX)
        return;
    *misses = 0;
    redis_conn_fail(conn, IDEM_E_REFUSED, "its name has another address now");
}

static void name_watch_resolved(void *data) {
    struct redis_name_watch *watch = data;
    struct redis_store *store = watch->store;
    struct redis_addresses found = redis_resolve_end(&watch->resolve);
    struct redis_conn *conns[CONNECTIONS] = {[COMMANDS] = &store->nodes->conn,
                                             [WAKE_UPS] = &store->nodes->wake,
                                             [REPLICATION] = &store->nodes->replication.conn};

    idem_timer_set(store->remote.base.loop, &watch->timer, LOOKUP_MS);
    remote_enter(&store->remote);
    for (size_t i = 0;
         found.n > 0 && found.n < REDIS_ADDRESSES_MAX && i < CONNECTIONS && !store->remote.closing;
         i++)
        name_watch_check(conns[i], &watch->misses[i], &found);
    (void)remote_leave(&store->remote);
}

static void name_watch_fire(struct idem_timer *timer) {
    struct redis_name_watch *watch = idem_container_of(timer, struct redis_name_watch, timer);
    struct redis_store *store = watch->store;
    struct redis_conn *conn = &store->nodes->conn;

    if (conn->state != REDIS_CONN_READY ||
        redis_resolve_begin(&watch->resolve, store->remote.base.loop, &conn->host,
                            name_watch_resolved, watch, NULL) != 0)
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
    redis_resolve_cancel(&watch->resolve);
    free(watch);
}
