/*
 * What Redis says of itself when it is reached. It is reached as the store does; a server that is
 * refused has said it all the same. Of a cluster every master is looked at: each keeps a part of
 * the records. What could not be looked at is told.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/doctor/doctor.h"
#include "loop/poll.h"
#include "store/redis/redis.h"

#define PLACES_MAX 1024 /* Redis advises against clusters of more than 1000 */
#define FACT_MAX 200
#define PATIENCE_MS 6000

/* What is remembered of each server. */
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
    MASTER, /* a cluster's map names it */
    READY,
    LOST, /* why */
    FACTS
};
static const char *const names[FACTS] = {
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
};

struct look {
    struct idem_poll poll;
    struct idem_loop loop;
    struct server servers[PLACES_MAX];
    size_t n, hosts_n; /* hosts_n: of the URL */
    bool cluster, over, answered, cut;
};

static struct server *server_of(struct look *look, const char *place) {
    for (size_t i = 0; i < look->n; i++)
        if (strcmp(look->servers[i].place, place) == 0)
            return &look->servers[i];
    look->cut |= look->n == PLACES_MAX;
    if (look->n == PLACES_MAX)
        return NULL;
    snprintf(look->servers[look->n].place, sizeof(look->servers[0].place), "%s", place);
    return &look->servers[look->n++];
}

static void fact_take(void *data, const char *place, const char *name, const char *value) {
    struct server *server = server_of(data, place);

    for (size_t i = 0; server != NULL && i < FACTS; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        snprintf(server->facts[i], sizeof(server->facts[i]), "%s", value);
        server->known[i] = true;
        if (i == READY || i == LOST) /* what was said last */
            server->known[i == READY ? LOST : READY] = false;
    }
}

/* Judging it. */

static bool is(const struct server *s, enum fact fact, const char *value) {
    return s->known[fact] && strcmp(s->facts[fact], value) == 0;
}

static bool evicts(const struct server *s) {
    return s->known[POLICY] && !is(s, POLICY, "noeviction");
}

static bool keeps_nothing(const struct server *s) {
    return is(s, APPENDONLY, "no") && is(s, SAVE, "");
}

static bool keeps_snapshots(const struct server *s) {
    return is(s, APPENDONLY, "no") && s->known[SAVE] && !is(s, SAVE, "");
}

static bool syncs_never(const struct server *s) {
    return is(s, APPENDONLY, "yes") && is(s, APPENDFSYNC, "no");
}

static bool syncs_each_second(const struct server *s) {
    return is(s, APPENDONLY, "yes") && is(s, APPENDFSYNC, "everysec");
}

static bool pauses_to_sync(const struct server *s) {
    return is(s, APPENDONLY, "yes") && !is(s, APPENDFSYNC, "no") && is(s, REWRITE, "yes");
}

static bool syncs_always(const struct server *s) {
    return is(s, APPENDONLY, "yes") && is(s, APPENDFSYNC, "always") && !is(s, REWRITE, "yes");
}

static bool log_fails(const struct server *s) {
    return is(s, APPENDONLY, "yes") && is(s, AOF_STATUS, "err");
}

static bool replicas_unasked(const struct server *s) {
    return s->known[REPLICAS] && !is(s, REPLICAS, "0") && is(s, REPLICAS_LEAST, "0");
}

static bool is_replica(const struct server *s) {
    return s->known[ROLE] && !is(s, ROLE, "master");
}

/* Of a cluster, also one that has not answered until now. */
static bool is_away(const struct server *s) {
    return s->known[LOST] || (s->known[MASTER] && !s->known[READY]);
}

static bool is_silent(const struct server *s) {
    return !is_away(s) && (!s->known[POLICY] || !s->known[APPENDONLY]);
}

static bool evicts_nothing(const struct server *s) {
    return is(s, POLICY, "noeviction");
}

static const struct {
    bool (*is)(const struct server *s);
    enum doctor_grade grade;
    const char *check, *found, *todo;
} checks[] = {
    {evicts, DOCTOR_UNSAFE, "eviction",
     "maxmemory-policy evicts: what was done is forgotten when memory is short, and runs again",
     "CONFIG SET maxmemory-policy noeviction"},
    {evicts_nothing, DOCTOR_OK, "eviction", "noeviction: nothing is forgotten for want of memory",
     NULL},
    {keeps_nothing, DOCTOR_UNSAFE, "persistence",
     "neither appendonly nor save is set: a restart forgets all that was done, and it runs again",
     "CONFIG SET appendonly yes, and appendfsync always"},
    {keeps_snapshots, DOCTOR_UNSAFE, "persistence",
     "snapshots only: a crash forgets all that was done since the last one, and it runs again",
     "CONFIG SET appendonly yes, and appendfsync always"},
    {syncs_never, DOCTOR_UNSAFE, "persistence",
     "appendfsync no: a crash of the machine forgets the last half minute, and it runs again",
     "CONFIG SET appendfsync always"},
    {syncs_each_second, DOCTOR_NOTE, "persistence",
     "appendfsync everysec: a crash of the machine may forget the last second",
     "CONFIG SET appendfsync always, where a second is too much"},
    {pauses_to_sync, DOCTOR_UNSAFE, "persistence",
     "no-appendfsync-on-rewrite yes: a crash of the machine while the log is rewritten forgets the "
     "last half minute, and it runs again",
     "CONFIG SET no-appendfsync-on-rewrite no"},
    {syncs_always, DOCTOR_OK, "persistence", "what was acknowledged is on its disk", NULL},
    {log_fails, DOCTOR_UNSAFE, "persistence", "the last write to its log has failed",
     "see to its disk"},
    {is_replica, DOCTOR_BROKEN, "role", "it is a replica, which takes no writes",
     "name its master, or the sentinels"},
    {replicas_unasked, DOCTOR_NOTE, "replicas",
     "it has replicas and acknowledges without them: a failover forgets what they had not got",
     "CONFIG SET min-replicas-to-write 1, where that is too much"},
    {is_silent, DOCTOR_NOTE, "settings",
     "not all of its settings may be looked at: eviction or persistence are not known",
     "allow the user +info and +config|get, or ask who runs it"},
};

static void server_judge(struct doctor *d, const char *subject, const struct server *server) {
    if (server->known[VERSION])
        doctor_find(d, DOCTOR_OK, subject, "version", NULL, "Redis %s", server->facts[VERSION]);
    if (server->known[MASTER] && is_away(server))
        doctor_find(d, DOCTOR_BROKEN, subject, "reachable",
                    "see what it says; until then requests whose records it keeps are refused",
                    "a master of the cluster cannot be used: %s",
                    server->known[LOST] ? server->facts[LOST] : "it does not answer");
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (checks[i].is(server))
            doctor_find(d, checks[i].grade, subject, checks[i].check, checks[i].todo, "%s",
                        checks[i].found);
}

static size_t count(const struct look *look, enum fact fact) {
    size_t n = 0;

    for (size_t i = 0; i < look->n; i++)
        n += look->servers[i].known[fact];
    return n;
}

/* Where there is a map, those that it names: a replica may well be in the URL. */
static void servers_judge(struct doctor *d, const char *subject, const struct look *look) {
    bool mapped = count(look, MASTER) > 0;

    for (size_t i = 0; i < look->n; i++)
        if (!mapped || look->servers[i].known[MASTER])
            server_judge(d, look->n == 1 ? subject : look->servers[i].place, &look->servers[i]);
    if (look->cut)
        doctor_find(d, DOCTOR_UNSAFE, subject, "limits", "examine the others one by one",
                    "it has more than %d servers: of the others nothing is known", PLACES_MAX);
}

/* Reaching it. */

static void look_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void look_timeout(void *sink) {
    idem_loop_timeout(sink);
}

static void asked(struct idem_op *op, int rc) {
    struct look *look = op->data;

    look->over = true;
    look->answered = rc == 0; /* why not, is looked at elsewhere */
}

/* One answer is enough, but of a cluster each master must have told all or be lost; and before its
   map is there somebody of the URL's may still bring it. */
static bool is_over(const struct look *look) {
    const struct server *s = look->servers;

    if (!look->over || !look->cluster)
        return look->over;
    for (size_t i = 0; i < look->n; i++)
        if (s[i].known[MASTER] && !s[i].known[READY] && !s[i].known[LOST])
            return false; /* it is being asked */
    return count(look, MASTER) > 0 || count(look, LOST) >= look->hosts_n;
}

static void look_run(struct look *look, struct idem_store *store) {
    int64_t end = idem_loop_now() + PATIENCE_MS;
    struct idem_op op = {.kind = IDEM_OP_TIME, .complete = asked, .data = look};

    store->fact = fact_take;
    store->fact_data = look;
    if (idem_store_submit(store, &op) != 0)
        return;
    while (!is_over(look) && idem_loop_now() < end)
        if (idem_poll_turn(&look->poll, NULL, 0, end - idem_loop_now()) < 0)
            break;
    if (!look->over)
        idem_store_cancel(store, &op);
}

static void config_look(struct doctor *d, const char *subject, const struct idem_url *url,
                        struct look *look) {
    struct redis_config config;
    bool loopback = true;

    if (redis_config_read(url, &config, NULL) != 0)
        return;
    for (size_t i = 0; i < config.hosts_n; i++)
        loopback &= config.hosts[i].port == 0 || doctor_is_loopback(config.hosts[i].name);
    doctor_network(d, subject, loopback, config.tls, config.password != NULL);
    look->cluster = config.kind == REDIS_CLUSTER;
    look->hosts_n = config.hosts_n;
    redis_config_release(&config);
}

void doctor_redis(struct doctor *d, const char *subject, const char *text,
                  const struct idem_url *url) {
    struct look *look = calloc(1, sizeof(*look));
    struct idem_store *store = NULL;
    struct idem_host host;

    if (look == NULL)
        return;
    config_look(d, subject, url, look);
    idem_poll_init(&look->poll);
    host = idem_poll_host(&look->poll);
    idem_loop_init(&look->loop, &host);
    look->poll.ready = look_ready;
    look->poll.timeout = look_timeout;
    look->poll.sink = &look->loop;
    if (idem_store_open(text, &look->loop, NULL, &store, NULL) == 0) {
        look_run(look, store);
        idem_store_close(store);
    }
    idem_loop_stop(&look->loop);
    idem_poll_release(&look->poll);
    if (look->n == 0 && look->answered) /* it is there, and says nothing of itself */
        (void)server_of(look, subject);
    servers_judge(d, subject, look);
    free(look);
}
