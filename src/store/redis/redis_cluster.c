/*
 * A cluster: the map of slots to servers, and redirections.
 *
 * The map is the reply to CLUSTER SLOTS of any server. It is requested again when a redirection or
 * a lost connection shows that it is old; meanwhile redirections are followed one by one. A server
 * that the newest map does not name is removed when nothing waits for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/redis_store.h"

#define REFRESH_PAUSE_MS 100 /* between two requests for the map */

struct redis_cluster {
    struct redis_store *store;
    struct idem_timer timer;
    bool mapped;    /* a map was received */
    unsigned at;    /* index of the server to ask next */
    unsigned fails; /* failed requests in a row */
    bool under_way;
};

/* Slots. */

static uint16_t cluster_crc16(const char *bytes, size_t len) {
    uint16_t crc = 0;

    for (size_t i = 0; i < len; i++) {
        crc = (uint16_t)(crc ^ (uint16_t)((unsigned char)bytes[i] << 8));
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)((crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

/* Only the part in braces counts, if it exists and is not empty. */
uint16_t redis_cluster_slot(const char *name, size_t len) {
    const char *open = memchr(name, '{', len), *close;

    if (open != NULL) {
        close = memchr(open + 1, '}', len - (size_t)(open + 1 - name));
        if (close != NULL && close > open + 1)
            return cluster_crc16(open + 1, (size_t)(close - open - 1)) % REDIS_SLOTS;
    }
    return cluster_crc16(name, len) % REDIS_SLOTS;
}

/* Nodes. */

static struct redis_node *store_get_node(struct redis_store *store,
                                         const struct idem_host_name *host) {
    struct redis_node *node = redis_node_find(store, host);

    if (node == NULL)
        node = redis_node_new(store, host);
    if (node != NULL)
        redis_conn_open(&node->conn);
    return node;
}

static bool store_node_is_idle(const struct redis_store *store, const struct redis_node *node) {
    if (node->conn.pending_n > 0 || node->conn.gone != NULL || node->wake.gone != NULL)
        return false;
    for (struct remote_op *op = store->remote.ops; op != NULL; op = op->next)
        if (redis_job_of(op)->target == node)
            return false;
    return true;
}

static void store_drop_nodes(struct redis_store *store) {
    struct redis_node **at = &store->nodes, *node;

    while ((node = *at) != NULL) {
        if (node->known || !store_node_is_idle(store, node)) {
            at = &node->next;
            continue;
        }
        *at = node->next;
        redis_node_free(node);
    }
}

/* The map. */

/* [first, last, [host, port, id...], replicas...] */
static bool store_take_range(struct redis_store *store, const struct redis_reply *range,
                             const struct redis_conn *from) {
    const struct redis_reply *master;
    struct idem_host_name host = {0};
    struct redis_node *node;
    long long first, last;

    if (range->type != REDIS_REPLY_ARRAY || range->items_n < 3 ||
        range->items[2]->type != REDIS_REPLY_ARRAY || range->items[2]->items_n < 2)
        return false;
    first = range->items[0]->integer;
    last = range->items[1]->integer;
    master = range->items[2];
    /* Port 0 would be the path of a socket. */
    if (first < 0 || last >= REDIS_SLOTS || first > last ||
        master->items[0]->len >= sizeof(host.name) || master->items[1]->integer < 1 ||
        master->items[1]->integer > UINT16_MAX)
        return false;
    /* A server that does not know its own name returns an empty one: use the address that was
       asked. */
    snprintf(host.name, sizeof(host.name), "%s",
             master->items[0]->len == 0 ? from->host.name : master->items[0]->text);
    host.port = (uint16_t)master->items[1]->integer;
    node = store_get_node(store, &host);
    if (node == NULL)
        return false;
    node->known = true;
    redis_fact(&node->conn, "cluster_master", "yes");
    for (long long slot = first; slot <= last; slot++)
        store->slots[slot] = node;
    return true;
}

static void store_take_map(struct redis_store *store, const struct redis_reply *reply,
                           const struct redis_conn *from) {
    for (size_t i = 0; i < REDIS_SLOTS; i++)
        store->slots[i] = NULL;
    for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
        node->known = false;
    for (size_t i = 0; i < reply->items_n; i++)
        (void)store_take_range(store, reply->items[i], from);
    store->cluster->mapped = true;
}

static void cluster_take_slots(struct redis_conn *conn, void *data,
                               const struct redis_reply *reply) {
    struct redis_store *store = data;

    store->cluster->under_way = false;
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->items_n == 0) {
        if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
            remote_trouble(&store->remote, IDEM_E_REFUSED, !store->cluster->mapped, "%s: %.150s",
                           conn->place, reply->text);
        if (store->cluster->fails < 16)
            store->cluster->fails++;
        redis_cluster_refresh(store);
        return;
    }
    store->cluster->fails = 0;
    store_take_map(store, reply, conn);
    store_drop_nodes(store);
    redis_store_ready(store); /* also renews the subscriptions */
}

/* Returns the next ready server, or NULL. */
static struct redis_node *store_next_ready(struct redis_store *store) {
    struct redis_node *node, *found = NULL;
    unsigned n = 0, skip = store->cluster->at++;

    for (node = store->nodes; node != NULL; node = node->next)
        n += node->conn.state == REDIS_CONN_READY;
    if (n == 0)
        return NULL;
    skip %= n;
    for (node = store->nodes; node != NULL && found == NULL; node = node->next)
        if (node->conn.state == REDIS_CONN_READY && skip-- == 0)
            found = node;
    return found;
}

static void cluster_fire_refresh(struct idem_timer *timer) {
    struct redis_cluster *cluster = idem_container_of(timer, struct redis_cluster, timer);
    struct redis_store *store = cluster->store;
    struct redis_node *node = store_next_ready(store);

    if (cluster->under_way)
        return;
    if (node == NULL) { /* a host of the URL may know the map; its connection retries by itself */
        for (size_t i = 0; i < store->config.hosts_n; i++)
            (void)store_get_node(store, &store->config.hosts[i]);
        idem_timer_set(store->remote.base.loop, timer, REFRESH_PAUSE_MS);
        return;
    }
    cluster->under_way =
        redis_conn_command(&node->conn, cluster_take_slots, store, "CLUSTER", "SLOTS", NULL);
    if (cluster->under_way)
        redis_conn_flush(&node->conn);
    else
        idem_timer_set(store->remote.base.loop, timer, REFRESH_PAUSE_MS);
}

void redis_cluster_refresh(struct redis_store *store) {
    struct redis_cluster *cluster = store->cluster;

    /* With redis: there is no map, though that server may be in cluster mode. */
    if (cluster == NULL || cluster->under_way || cluster->timer.link != NULL)
        return;
    idem_timer_set(store->remote.base.loop, &cluster->timer,
                   cluster->fails > 0 ? redis_pause_ms(cluster->fails)
                   : cluster->mapped  ? REFRESH_PAUSE_MS
                                      : 0);
}

void redis_cluster_begin(struct redis_store *store) {
    struct redis_cluster *cluster = store->cluster;

    if (cluster != NULL && !cluster->mapped && !cluster->under_way && cluster->fails == 0)
        idem_timer_set(store->remote.base.loop, &cluster->timer, 0);
}

int redis_cluster_new(struct redis_store *store, struct idem_error *err) {
    struct redis_cluster *cluster = calloc(1, sizeof(*cluster));

    store->slots = calloc(REDIS_SLOTS, sizeof(struct redis_node *));
    store->cluster = cluster;
    if (cluster == NULL || store->slots == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    cluster->store = store;
    cluster->timer.fire = cluster_fire_refresh;
    redis_cluster_refresh(store);
    return 0;
}

void redis_cluster_free(struct redis_cluster *cluster) {
    if (cluster == NULL)
        return;
    if (cluster->store != NULL)
        idem_timer_clear(cluster->store->remote.base.loop, &cluster->timer);
    free(cluster);
}

/* Routes. */

bool redis_cluster_is_mapped(const struct redis_store *store) {
    return store->cluster == NULL || store->cluster->mapped;
}

struct redis_node *redis_cluster_route(struct redis_store *store, struct redis_job *job) {
    if (job->target != NULL)
        return job->target;
    if (store->config.kind != REDIS_CLUSTER)
        return store->nodes;
    if (store->slots[job->slot] == NULL)
        redis_cluster_refresh(store);
    return store->slots[job->slot];
}

/* "MOVED 3999 127.0.0.1:6381", "ASK ...". An empty host means the server that replied. */
static bool reply_read_target(const struct redis_reply *reply, const char *asked,
                              struct idem_host_name *ret, unsigned *ret_slot) {
    const char *slot = strchr(reply->text, ' '), *place, *colon;
    unsigned long number;
    char *end;

    if (slot == NULL)
        return false;
    number = strtoul(slot + 1, &end, 10);
    if (*end != ' ' || number >= REDIS_SLOTS)
        return false;
    *ret_slot = (unsigned)number;
    place = end + 1;
    colon = strrchr(place, ':');
    if (colon == NULL || (size_t)(colon - place) >= sizeof(ret->name))
        return false;
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)(colon - place), place);
    if (colon == place)
        snprintf(ret->name, sizeof(ret->name), "%s", asked);
    number = strtoul(colon + 1, &end, 10);
    ret->port = (uint16_t)number;
    return end > colon + 1 && number > 0 && number < 65536;
}

bool redis_cluster_take_moved(struct redis_store *store, const struct redis_reply *reply,
                              const char *asked, unsigned *ret_slot) {
    struct idem_host_name host = {0};
    struct redis_node *node;

    if (store->cluster == NULL || !reply_read_target(reply, asked, &host, ret_slot))
        return false;
    node = store_get_node(store, &host);
    if (node == NULL)
        return false;
    node->known = true;
    store->slots[*ret_slot] = node;
    redis_cluster_refresh(store);
    return true;
}

bool redis_cluster_redirect(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_store *store = job->store;
    struct redis_node *from = redis_cluster_route(store, job);
    const char *asked = from == NULL ? "" : from->conn.host.name;
    struct idem_host_name host = {0};
    unsigned slot;

    job->target = NULL;
    if (redis_reply_is(reply, "MOVED")) {
        if (!redis_cluster_take_moved(store, reply, asked, &slot))
            return false;
    } else {
        if (store->cluster == NULL || !reply_read_target(reply, asked, &host, &slot))
            return false;
        job->target = store_get_node(store, &host);
        if (job->target == NULL)
            return false;
        job->asking = true;
    }
    job->redirects++;
    return true;
}
