/*
 * Arrangements of servers, for tests.
 */
#include "farm.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "certificates.h"
#include "wait.h"

/* How long the nodes of a cluster wait for each other. A node forgets a node that it has met if
 * no reply comes within that time. */
#define LONG_MS "2000000000"

#define SLOTS 16384
#define SENTINELS 3

#define USER "idem"
#define PASSWORD "a:b@c/d?e"
#define PASSWORD_IN_URL "a:b%40c%2Fd%3Fe"

static void fail(const char *what) {
    fprintf(stderr, "# %s\n", what);
    exit(1);
}

static const char *const needed[] = {
    "+set",         "+get",     "+getrange",   "+strlen",         "+pttl",        "+del",
    "+incrby",      "+pexpire", "+publish",    "+spublish",       "+time",        "+scan",
    "+hincrby",     "+hgetall", "+eval",       "+evalsha",        "+script|load", "+subscribe",
    "+unsubscribe", "+select",  "+ssubscribe", "+client|setname", "+client|id",   "+client|kill",
};

static void args_of(const struct farm *farm, size_t i, const char **args, char texts[8][400]) {
    size_t n = 0;

    args[n++] = "--save";
    args[n++] = "";
    args[n++] = "--appendonly";
    args[n++] = "no";
    switch (farm->kind) {
    case FARM_TCP:
    case FARM_LIMITED:
        args[n++] = "--user";
        args[n++] = USER;
        args[n++] = "on";
        args[n++] = ">" PASSWORD;
        args[n++] = "~*";
        args[n++] = "&*";
        if (farm->kind == FARM_TCP)
            args[n++] = "+@all";
        /* The rights that docs/stores.md lists for a user, without INFO and CONFIG. */
        for (size_t k = 0; farm->kind == FARM_LIMITED && k < sizeof(needed) / sizeof(needed[0]);
             k++)
            args[n++] = needed[k];
        break;
    case FARM_TLS:
        snprintf(texts[0], sizeof(texts[0]), "%d", farm->servers[i].port);
        snprintf(texts[1], sizeof(texts[1]), "%s/server.crt", farm->folder);
        snprintf(texts[2], sizeof(texts[2]), "%s/server.key", farm->folder);
        snprintf(texts[3], sizeof(texts[3]), "%s/ca.crt", farm->folder);
        args[n++] = "--port";
        args[n++] = "0";
        args[n++] = "--tls-port";
        args[n++] = texts[0];
        args[n++] = "--tls-cert-file";
        args[n++] = texts[1];
        args[n++] = "--tls-key-file";
        args[n++] = texts[2];
        args[n++] = "--tls-ca-cert-file";
        args[n++] = texts[3];
        args[n++] = "--tls-auth-clients";
        args[n++] = "yes";
        break;
    case FARM_PAIR:
    case FARM_SENTINEL:
        if (i > 0) {
            snprintf(texts[0], sizeof(texts[0]), "127.0.0.1 %d", farm->servers[0].port);
            args[n++] = "--replicaof";
            args[n++] = texts[0];
        }
        args[n++] = "--repl-diskless-sync-delay";
        args[n++] = "0";
        break;
    case FARM_CLUSTER:
        args[n++] = "--cluster-enabled";
        args[n++] = "yes";
        args[n++] = "--cluster-node-timeout";
        args[n++] = LONG_MS;
        args[n++] = "--repl-diskless-sync-delay";
        args[n++] = "0";
        break;
    default:
        break;
    }
    args[n] = NULL;
}

void farm_restart(struct farm *farm, size_t i) {
    char texts[8][400], folder[512];
    const char *args[64];

    snprintf(folder, sizeof(folder), "%.200s/%zu", farm->folder, i);
    if (farm->kind != FARM_SOCKET && farm->servers[i].port == 0)
        farm->servers[i].port = port_free();
    args_of(farm, i, args, texts);
    server_start(&farm->servers[i], folder, "redis-server", farm->kind != FARM_SOCKET, args,
                 farm->clock_fd);
}

/* Other servers never take a server for dead because the machine is busy: farm_deaths_noticed(). */
#define NEVER_MS "3600000"
#define SOON_MS "1000"

/* The sentinel knows the replica and the other sentinels from the start: none has to be discovered.
 */
static void sentinel_configure(const struct farm *farm, size_t i, const char *path) {
    FILE *file = fopen(path, "w");

    if (file == NULL)
        fail(path);
    fprintf(file,
            "sentinel myid %040zx\n"
            "sentinel monitor shop 127.0.0.1 %d 2\n"
            "sentinel down-after-milliseconds shop " NEVER_MS "\n"
            "sentinel failover-timeout shop 4000\n"
            "sentinel known-replica shop 127.0.0.1 %d\n",
            i, farm->servers[0].port, farm->servers[1].port);
    for (size_t k = farm->servers_n; k < farm->all_n; k++)
        if (k != i)
            fprintf(file, "sentinel known-sentinel shop 127.0.0.1 %d %040zx\n",
                    farm->servers[k].port, k);
    fclose(file);
}

static void sentinel_start(struct farm *farm, size_t i) {
    struct server *server = &farm->servers[i];
    static const char *const none[] = {NULL};
    char folder[512], path[600];

    snprintf(folder, sizeof(folder), "%.200s/%zu", farm->folder, i);
    mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%s/sentinel.conf", folder);
    sentinel_configure(farm, i, path);
    server->sentinel = true;
    server_start(server, folder, "redis-sentinel", true, none, -1);
}

static void sentinels_start(struct farm *farm) {
    for (size_t i = 0; i < SENTINELS; i++)
        farm->servers[farm->all_n++].port = port_free();
    for (size_t i = farm->servers_n; i < farm->all_n; i++)
        sentinel_start(farm, i);
}

/* Nodes wait for time to pass before they meet each other, and the test's clock stands still. */
static void clock_tick(const struct farm *farm, int64_t ms) {
    int64_t *clock;

    if (farm->clock_fd < 0)
        return;
    clock = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, farm->clock_fd, 0);
    if (clock == MAP_FAILED)
        fail("the clock");
    clock[1] += ms;
    munmap(clock, 16);
}

/* A node of a cluster, as another node or the node itself reports it. */
struct seen {
    char id[41];
    unsigned long long epoch;
    char slots[600]; /* its slots, without those that are being moved */
};

/* Reads one line of CLUSTER NODES: id address flags master ping pong epoch link slots... Returns
 * false if the node has not fully joined the cluster, or there is no connection to it. */
static bool seen_read(char *line, struct seen *seen) {
    const char *words[8] = {NULL};
    char *rest = line, *word;
    size_t n = 0;

    *seen = (struct seen){.id = ""};
    while ((word = strsep(&rest, " ")) != NULL) {
        if (n < 8)
            words[n++] = word;
        else if (word[0] != '[')
            snprintf(seen->slots + strlen(seen->slots), sizeof(seen->slots) - strlen(seen->slots),
                     "%s ", word);
    }
    if (n < 8 || strstr(words[2], "master") == NULL || strstr(words[2], "fail") != NULL ||
        strcmp(words[7], "connected") != 0)
        return false;
    snprintf(seen->id, sizeof(seen->id), "%s", words[0]);
    seen->epoch = strtoull(words[6], NULL, 10);
    return true;
}

static int seen_order(const void *a, const void *b) {
    return strcmp(((const struct seen *)a)->id, ((const struct seen *)b)->id);
}

/* All nodes as the server reports them, in the order of their ids; false: some are missing. */
static bool view_read(const struct farm *farm, size_t i, struct seen view[FARM_MAX]) {
    char answer[8192], *rest = answer, *line;
    size_t n = 0;

    memset(view, 0, FARM_MAX * sizeof(view[0]));
    server_ask(&farm->servers[i], answer, sizeof(answer), "CLUSTER", "INFO", NULL);
    if (strstr(answer, "cluster_state:ok\r") == NULL)
        return false;
    server_ask(&farm->servers[i], answer, sizeof(answer), "CLUSTER", "NODES", NULL);
    (void)strsep(&rest, "\n"); /* skips the length */
    while ((line = strsep(&rest, "\r\n")) != NULL)
        if (line[0] != '\0' && (n == farm->servers_n || !seen_read(line, &view[n++])))
            return false;
    qsort(view, n, sizeof(view[0]), seen_order);
    return n == farm->servers_n;
}

static bool epochs_differ(const struct seen *view, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (view[i].epoch == view[k].epoch)
                return false;
    return true;
}

/* Also advances the nodes' clock. */
bool farm_agrees(const struct farm *farm) {
    struct seen first[FARM_MAX], other[FARM_MAX];

    clock_tick(farm, 20);
    if (!view_read(farm, 0, first) || !epochs_differ(first, farm->servers_n))
        return false;
    for (size_t i = 1; i < farm->servers_n; i++)
        if (!view_read(farm, i, other) || memcmp(first, other, sizeof(first)) != 0)
            return false;
    return true;
}

static void cluster_command(const struct farm *farm, size_t i, const char *word, const char *first,
                            const char *second) {
    char answer[256];

    server_ask(&farm->servers[i], answer, sizeof(answer), "CLUSTER", word, first, second, NULL);
    if (answer[0] != '+') {
        fprintf(stderr, "# CLUSTER %s: %s", word, answer);
        fail("the cluster is not made");
    }
}

static void setting_change(const struct farm *farm, size_t i, const char *ms) {
    bool sentinel = i >= farm->servers_n;
    char answer[256];

    if (sentinel)
        server_ask(&farm->servers[i], answer, sizeof(answer), "SENTINEL", "SET", "shop",
                   "down-after-milliseconds", ms, NULL);
    else
        server_ask(&farm->servers[i], answer, sizeof(answer), "CONFIG", "SET",
                   "cluster-node-timeout", ms, NULL);
    if (strncmp(answer, "+OK", 3) != 0)
        fail(answer);
}

static void patience_set(const struct farm *farm, const char *ms) {
    for (size_t i = farm->kind == FARM_SENTINEL ? farm->servers_n : 0; i < farm->all_n; i++)
        if (farm->servers[i].pid > 0) /* the server was not stopped */
            setting_change(farm, i, ms);
}

void farm_deaths_noticed(const struct farm *farm) {
    patience_set(farm, SOON_MS);
}

void farm_deaths_unnoticed(const struct farm *farm) {
    patience_set(farm, farm->kind == FARM_SENTINEL ? NEVER_MS : LONG_MS);
}

/* Each node meets each other node, so that none has to wait for gossip. */
static void cluster_join(const struct farm *farm) {
    char first[24], last[24], port[16]; /* first, last: any size_t */

    for (size_t i = 0; i < farm->servers_n; i++) {
        snprintf(first, sizeof(first), "%zu", i + 1);
        cluster_command(farm, i, "SET-CONFIG-EPOCH", first, NULL);
        snprintf(first, sizeof(first), "%zu", SLOTS * i / farm->servers_n);
        snprintf(last, sizeof(last), "%zu", SLOTS * (i + 1) / farm->servers_n - 1);
        cluster_command(farm, i, "ADDSLOTSRANGE", first, last);
        snprintf(port, sizeof(port), "%d", farm->servers[i].port);
        for (size_t k = 0; k < i; k++)
            cluster_command(farm, k, "MEET", "127.0.0.1", port);
    }
    WAIT_UNTIL(farm_agrees(farm));
}

/* The replica has all changes of the master, and keeps receiving. */
static bool replica_follows(const struct farm *farm, size_t i) {
    char answer[8192];

    server_ask(&farm->servers[0], answer, sizeof(answer), "INFO", "replication", NULL);
    if (strstr(answer, "state=online") == NULL)
        return false;
    server_ask(&farm->servers[i], answer, sizeof(answer), "INFO", "replication", NULL);
    return strstr(answer, "master_link_status:up") != NULL;
}

/* True if the server knows all nodes, and has a connection to each. */
static bool knows_all(const struct farm *farm, size_t i) {
    char answer[8192];
    const char *at = answer;
    size_t n = 0;

    server_ask(&farm->servers[i], answer, sizeof(answer), "CLUSTER", "NODES", NULL);
    if (strstr(answer, "handshake") != NULL || strstr(answer, "disconnected") != NULL)
        return false;
    while ((at = strstr(at, " connected")) != NULL) {
        at++;
        n++;
    }
    return n == farm->servers_n;
}

static bool all_know_all(const struct farm *farm) {
    for (size_t i = 0; i < farm->servers_n; i++)
        if (!knows_all(farm, i))
            return false;
    return true;
}

static bool all_know_replica(const struct farm *farm, const char *master) {
    char answer[8192], words[64];

    snprintf(words, sizeof(words), "slave %s", master);
    for (size_t i = 0; i < farm->servers_n; i++) {
        server_ask(&farm->servers[i], answer, sizeof(answer), "CLUSTER", "NODES", NULL);
        if (strstr(answer, words) == NULL)
            return false;
    }
    return true;
}

size_t farm_replica_add(struct farm *farm) {
    size_t added = farm->servers_n++;
    char answer[256], port[16], master[41];

    farm->all_n++;
    farm_restart(farm, added);
    snprintf(port, sizeof(port), "%d", farm->servers[added].port);
    for (size_t i = 0; i < added; i++)
        cluster_command(farm, i, "MEET", "127.0.0.1", port);
    WAIT_UNTIL(all_know_all(farm));
    server_ask(&farm->servers[0], answer, sizeof(answer), "CLUSTER", "MYID", NULL);
    snprintf(master, sizeof(master), "%.40s", answer + 5); /* after $40 and the end of its line */
    cluster_command(farm, added, "REPLICATE", master, NULL);
    WAIT_UNTIL(replica_follows(farm, added));
    WAIT_UNTIL(all_know_replica(farm, master));
    return added;
}

/* True if the sentinel is connected to the master, its replica and the two other sentinels, and
 * could replace the master by the replica. */
static bool sentinel_is_ready(const struct farm *farm, size_t i) {
    static const char *const lists[] = {"MASTERS", "REPLICAS", "SENTINELS"};
    char answer[8192];

    for (size_t k = 0; k < 3; k++) {
        server_ask(&farm->servers[i], answer, sizeof(answer), "SENTINEL", lists[k],
                   k == 0 ? NULL : "shop", NULL);
        if (strstr(answer, "disconnected") != NULL || strstr(answer, "_down") != NULL)
            return false;
        if (k == 1 && strstr(answer, "master-link-status\r\n$2\r\nok\r\n") == NULL)
            return false;
    }
    server_ask(&farm->servers[i], answer, sizeof(answer), "INFO", "sentinel", NULL);
    if (strstr(answer, "status=ok") == NULL || strstr(answer, "slaves=1,sentinels=3") == NULL)
        return false;
    server_ask(&farm->servers[i], answer, sizeof(answer), "SENTINEL", "CKQUORUM", "shop", NULL);
    return strncmp(answer, "+OK 3 usable", 12) == 0;
}

static bool sentinels_are_ready(const struct farm *farm) {
    for (size_t i = farm->servers_n; i < farm->all_n; i++)
        if (!sentinel_is_ready(farm, i))
            return false;
    return true;
}

void farm_start(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd) {
    *farm = (struct farm){.kind = kind, .clock_fd = clock_fd};
    snprintf(farm->folder, sizeof(farm->folder), "%s/farm", folder);
    mkdir(farm->folder, 0700);
    if (kind == FARM_TLS)
        certificates_make(farm->folder, farm->clock_fd);
    farm->servers_n = kind == FARM_SENTINEL || kind == FARM_PAIR ? 2 : kind == FARM_CLUSTER ? 3 : 1;
    for (size_t i = 0; i < farm->servers_n; i++)
        farm_restart(farm, i);
    farm->all_n = farm->servers_n;
    if (kind == FARM_CLUSTER)
        cluster_join(farm);
    if (kind == FARM_PAIR || kind == FARM_SENTINEL)
        WAIT_UNTIL(replica_follows(farm, 1));
    if (kind != FARM_SENTINEL)
        return;
    sentinels_start(farm);
    WAIT_UNTIL(sentinels_are_ready(farm));
}

void farm_stop(struct farm *farm) {
    for (size_t i = farm->all_n; i-- > 0;)
        server_stop(&farm->servers[i]);
}

static size_t masters(const struct farm *farm) {
    return farm->kind == FARM_SENTINEL || farm->kind == FARM_PAIR ? 1 : farm->servers_n;
}

void farm_flush(struct farm *farm) {
    char answer[256];

    for (size_t i = 0; i < masters(farm); i++)
        server_ask(&farm->servers[i], answer, sizeof(answer), "FLUSHALL", NULL);
}

size_t farm_keys(struct farm *farm) {
    static const char mark[] = ":keys=";
    char answer[1024];
    const char *at;
    size_t n = 0;

    for (size_t i = 0; i < masters(farm); i++) {
        server_ask(&farm->servers[i], answer, sizeof(answer), "INFO", "keyspace", NULL);
        for (at = answer; (at = strstr(at, mark)) != NULL; at++)
            n += (size_t)strtoul(at + sizeof(mark) - 1, NULL, 10);
    }
    return n;
}

void farm_url(const struct farm *farm, const char *options, char *url, size_t size) {
    const struct server *s = farm->servers;

    switch (farm->kind) {
    case FARM_SOCKET:
        snprintf(url, size, "redis:%s?name=test%s", s[0].socket, options);
        return;
    case FARM_TCP:
    case FARM_LIMITED:
        snprintf(url, size, "redis://%s:%s@localhost:%d/3?name=test%s", USER, PASSWORD_IN_URL,
                 s[0].port, options);
        return;
    case FARM_TLS:
        snprintf(url, size,
                 "rediss://localhost:%d?tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/"
                 "client.key%s",
                 s[0].port, farm->folder, farm->folder, farm->folder, options);
        return;
    case FARM_PAIR:
        snprintf(url, size, "redis://127.0.0.1:%d?name=test%s", s[0].port, options);
        return;
    case FARM_SENTINEL:
        snprintf(url, size, "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/shop?name=x%s",
                 s[2].port, s[3].port, s[4].port, options);
        return;
    case FARM_CLUSTER:
        snprintf(url, size, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?name=test%s", s[2].port,
                 s[1].port, options);
        return;
    }
}
