/*
 * Examines the settings that Redis servers report while the store's own driver connects to them; a
 * server that the driver then refuses has reported them all the same. In a cluster every master is
 * examined, since each keeps a part of the records. Servers that could not be examined are
 * reported.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/doctor/doctor.h"
#include "loop/poll.h"
#include "store/redis/redis_connection.h"

#define PLACES_MAX 1024 /* Redis advises against clusters of more than 1000 */
#define FACT_MAX 200
#define PATIENCE_MS 6000

/* The facts that are kept of each server. */
enum fact {
    VERSION,
    ROLE,
    POLICY,
    SAVE,
    APPENDONLY,
    APPENDFSYNC,
    REWRITE,
    REPLICAS,
    REPLICAS_LEAST,
    AOF_STATUS,
    MASTER, /* the cluster's map names it as a master */
    READY,
    LOST, /* the reason why the connection was lost */
    FACTS
};
static const char *const fact_names[FACTS] = {
    [VERSION] = "redis_version",
    [ROLE] = "role",
    [POLICY] = "maxmemory_policy",
    [SAVE] = "save",
    [APPENDONLY] = "appendonly",
    [APPENDFSYNC] = "appendfsync",
    [REWRITE] = "no-appendfsync-on-rewrite",
    [REPLICAS] = "connected_slaves",
    [REPLICAS_LEAST] = "min-replicas-to-write",
    [AOF_STATUS] = "aof_last_write_status",
    [MASTER] = "cluster_master",
    [READY] = "ready",
    [LOST] = "lost",
};

struct server {
    char place[280];
    char facts[FACTS][FACT_MAX];
    bool known[FACTS];
    bool sentinel; /* the URL names sentinels */
    int waits;     /* replicas= of the URL */
};

struct probe {
    struct idem_poll poll;
    struct idem_loop loop;
    struct server servers[PLACES_MAX];
    size_t n, hosts_n; /* hosts_n: hosts in the URL */
    bool cluster, over, answered, cut;
    bool sentinel;
    int waits;
};

static struct server *probe_server(struct probe *probe, const char *place) {
    for (size_t i = 0; i < probe->n; i++)
        if (strcmp(probe->servers[i].place, place) == 0)
            return &probe->servers[i];
    probe->cut |= probe->n == PLACES_MAX;
    if (probe->n == PLACES_MAX)
        return NULL;
    snprintf(probe->servers[probe->n].place, sizeof(probe->servers[0].place), "%s", place);
    probe->servers[probe->n].sentinel = probe->sentinel;
    probe->servers[probe->n].waits = probe->waits;
    return &probe->servers[probe->n++];
}

static void doctor_redis_add_fact(void *data, const char *place, const char *name,
                                  const char *value) {
    struct server *server = probe_server(data, place);

    for (size_t i = 0; server != NULL && i < FACTS; i++) {
        if (strcmp(fact_names[i], name) != 0)
            continue;
        snprintf(server->facts[i], sizeof(server->facts[i]), "%s", value);
        server->known[i] = true;
        if (i == READY || i == LOST) /* the later one counts */
            server->known[i == READY ? LOST : READY] = false;
    }
}

/* The rules. */

static bool server_has(const struct server *s, enum fact fact, const char *value) {
    return s->known[fact] && strcmp(s->facts[fact], value) == 0;
}

/* True if the server was lost, or is a master of the cluster that has not responded yet. */
static bool server_is_away(const struct server *s) {
    return s->known[LOST] || (s->known[MASTER] && !s->known[READY]);
}

static void doctor_redis_memory_examine(struct doctor *d, const char *subject,
                                        const struct server *s) {
    bool appends = server_has(s, APPENDONLY, "yes"), snapshots = server_has(s, APPENDONLY, "no");
    const struct doctor_rule rules[] = {
        {s->known[POLICY] && !server_has(s, POLICY, "noeviction"), DOCTOR_UNSAFE, "eviction",
         "maxmemory-policy evicts: what was done is forgotten when memory is short, and runs again",
         "CONFIG SET maxmemory-policy noeviction"},
        {server_has(s, POLICY, "noeviction"), DOCTOR_OK, "eviction",
         "noeviction: nothing is forgotten for want of memory", NULL},
        {snapshots && server_has(s, SAVE, ""), DOCTOR_UNSAFE, "persistence",
         "neither appendonly nor save is set: a restart forgets all that was done, and it runs "
         "again",
         "CONFIG SET appendonly yes, and appendfsync always"},
        {snapshots && s->known[SAVE] && !server_has(s, SAVE, ""), DOCTOR_UNSAFE, "persistence",
         "snapshots only: a crash forgets all that was done since the last one, and it runs again",
         "CONFIG SET appendonly yes, and appendfsync always"},
        {appends && server_has(s, APPENDFSYNC, "no"), DOCTOR_UNSAFE, "persistence",
         "appendfsync no: a crash of the machine forgets the last half minute, and it runs again",
         "CONFIG SET appendfsync always"},
        {appends && server_has(s, APPENDFSYNC, "everysec"), DOCTOR_NOTE, "persistence",
         "appendfsync everysec: a crash of the machine may forget the last second",
         "CONFIG SET appendfsync always, where a second is too much"},
        {appends && !server_has(s, APPENDFSYNC, "no") && server_has(s, REWRITE, "yes"),
         DOCTOR_UNSAFE, "persistence",
         "no-appendfsync-on-rewrite yes: a crash of the machine while the log is rewritten forgets "
         "the last half minute, and it runs again",
         "CONFIG SET no-appendfsync-on-rewrite no"},
        {appends && server_has(s, APPENDFSYNC, "always") && !server_has(s, REWRITE, "yes"),
         DOCTOR_OK, "persistence", "what was acknowledged is on its disk", NULL},
        {appends && server_has(s, AOF_STATUS, "err"), DOCTOR_UNSAFE, "persistence",
         "the last write to its log has failed", "see to its disk"},
    };

    DOCTOR_FIND_ALL(d, subject, rules);
}

static void doctor_redis_replicas_examine(struct doctor *d, const char *subject,
                                          const struct server *s) {
    bool master = server_has(s, ROLE, "master") && s->known[REPLICAS];
    long replicas = strtol(s->facts[REPLICAS], NULL, 10);
    const struct doctor_rule rules[] = {
        {s->known[ROLE] && !server_has(s, ROLE, "master"), DOCTOR_BROKEN, "role",
         "it is a replica, which takes no writes", "name its master, or the sentinels"},
        {s->sentinel && master && server_has(s, REPLICAS, "0"), DOCTOR_NOTE, "replicas",
         "it has no replica: when it dies, Sentinel has none to promote", "add a replica"},
        {master && replicas < s->waits, DOCTOR_BROKEN, "replicas",
         "it has fewer replicas than replicas= in the URL: claims are refused",
         "add replicas, or lower replicas="},
        {master && !server_has(s, REPLICAS, "0") && s->waits == 0 &&
             server_has(s, REPLICAS_LEAST, "0"),
         DOCTOR_NOTE, "replicas",
         "it has replicas and acknowledges without them: a failover forgets what they had not got",
         "set replicas=1 in the URL, or CONFIG SET min-replicas-to-write 1, where that is too "
         "much"},
        {master && s->waits == 0 && s->known[REPLICAS_LEAST] && !server_has(s, REPLICAS_LEAST, "0"),
         DOCTOR_OK, "replicas",
         "min-replicas-to-write: a master without its replicas acknowledges nothing for long",
         NULL},
        {master && s->waits > 0 && replicas > s->waits, DOCTOR_NOTE, "replicas",
         "it has more replicas than replicas= in the URL: the one that is promoted may lack a "
         "change",
         "set replicas= to the number of replicas that can be promoted, or replica-priority 0 on "
         "the others"},
        {master && s->waits > 0 && replicas == s->waits, DOCTOR_OK, "replicas",
         "all replicas have what was acknowledged", NULL},
    };

    DOCTOR_FIND_ALL(d, subject, rules);
}

static void doctor_redis_server_examine(struct doctor *d, const char *subject,
                                        const struct server *server) {
    if (server->known[VERSION])
        doctor_find(d, DOCTOR_OK, subject, "version", NULL, "Redis %s", server->facts[VERSION]);
    if (server->known[MASTER] && server_is_away(server))
        doctor_find(d, DOCTOR_BROKEN, subject, "reachable",
                    "resolve this error; until then requests whose records it keeps are refused",
                    "a master of the cluster cannot be used: %s",
                    server->known[LOST] ? server->facts[LOST] : "it does not answer");
    doctor_redis_memory_examine(d, subject, server);
    doctor_redis_replicas_examine(d, subject, server);
    if (!server_is_away(server) && (!server->known[POLICY] || !server->known[APPENDONLY]))
        doctor_find(
            d, DOCTOR_NOTE, subject, "settings",
            "allow the user +info and +config|get, or ask who runs it",
            "not all of its settings may be looked at: eviction or persistence are not known");
}

static size_t probe_count(const struct probe *probe, enum fact fact) {
    size_t n = 0;

    for (size_t i = 0; i < probe->n; i++)
        n += probe->servers[i].known[fact];
    return n;
}

/* With a map, only servers in the map are examined: the URL may well name a replica. */
static void doctor_redis_servers_examine(struct doctor *d, const char *subject,
                                         const struct probe *probe) {
    bool mapped = probe_count(probe, MASTER) > 0;

    for (size_t i = 0; i < probe->n; i++)
        if (!mapped || probe->servers[i].known[MASTER])
            doctor_redis_server_examine(d, probe->n == 1 ? subject : probe->servers[i].place,
                                        &probe->servers[i]);
    if (probe->cut)
        doctor_find(d, DOCTOR_UNSAFE, subject, "limits", "examine the others one by one",
                    "it has more than %d servers: of the others nothing is known", PLACES_MAX);
}

/* Connecting. */

static void doctor_redis_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void doctor_redis_timeout(void *sink) {
    idem_loop_timeout(sink);
}

static void doctor_redis_complete(struct idem_op *op, int rc) {
    struct probe *probe = op->data;

    probe->over = true;
    probe->answered = rc == 0; /* doctor_store() reports the error */
}

/* One response is enough, except in a cluster: there each master must have reported everything or
   be lost, and until the map arrives any host of the URL may still send it. */
static bool probe_is_over(const struct probe *probe) {
    const struct server *s = probe->servers;

    if (!probe->over || !probe->cluster)
        return probe->over;
    for (size_t i = 0; i < probe->n; i++)
        if (s[i].known[MASTER] && !s[i].known[READY] && !s[i].known[LOST])
            return false; /* its reports are not complete */
    return probe_count(probe, MASTER) > 0 || probe_count(probe, LOST) >= probe->hosts_n;
}

static void probe_run(struct probe *probe, struct idem_store *store) {
    int64_t end = idem_loop_now() + PATIENCE_MS;
    struct idem_op op = {.kind = IDEM_OP_TIME, .complete = doctor_redis_complete, .data = probe};

    store->fact = doctor_redis_add_fact;
    store->fact_data = probe;
    if (idem_store_submit(store, &op) != 0)
        return;
    while (!probe_is_over(probe) && idem_loop_now() < end)
        if (idem_poll_turn(&probe->poll, NULL, 0, end - idem_loop_now()) < 0)
            break;
    if (!probe->over)
        idem_store_cancel(store, &op);
}

static void doctor_redis_config_examine(struct doctor *d, const char *subject,
                                        const struct idem_url *url, struct probe *probe) {
    struct redis_config config;
    bool loopback = true;

    if (redis_config_read(url, &config, NULL) != 0)
        return;
    for (size_t i = 0; i < config.hosts_n; i++)
        loopback &= config.hosts[i].port == 0 || doctor_is_loopback(config.hosts[i].name);
    doctor_network(d, subject, loopback, config.tls, config.password != NULL);
    probe->cluster = config.kind == REDIS_CLUSTER;
    probe->sentinel = config.kind == REDIS_SENTINEL;
    probe->waits = config.replicas;
    probe->hosts_n = config.hosts_n;
    redis_config_release(&config);
}

void doctor_redis(struct doctor *d, const char *subject, const char *text,
                  const struct idem_url *url) {
    struct probe *probe = calloc(1, sizeof(*probe));
    struct idem_store *store = NULL;
    struct idem_host host;

    if (probe == NULL)
        return;
    doctor_redis_config_examine(d, subject, url, probe);
    idem_poll_init(&probe->poll);
    host = idem_poll_host(&probe->poll);
    idem_loop_init(&probe->loop, &host);
    probe->poll.ready = doctor_redis_ready;
    probe->poll.timeout = doctor_redis_timeout;
    probe->poll.sink = &probe->loop;
    if (idem_store_open(text, &probe->loop, NULL, &store, NULL) == 0) {
        probe_run(probe, store);
        idem_store_close(store);
    }
    idem_loop_stop(&probe->loop);
    idem_poll_release(&probe->poll);
    if (probe->n == 0 && probe->answered) /* it responds, but reports no facts */
        (void)probe_server(probe, subject);
    doctor_redis_servers_examine(d, subject, probe);
    free(probe);
}
