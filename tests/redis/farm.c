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
#include <time.h>
#include <unistd.h>

#include "../certificates.h"

#define SLOTS 16384
#define WAIT_TRIES 600 /* of 50 ms */

#define USER "idem"
#define PASSWORD "a:b@c/d?e"
#define PASSWORD_IN_URL "a:b%40c%2Fd%3Fe"

static void fail(const char *what) {
    fprintf(stderr, "# %s\n", what);
    exit(1);
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
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
        /* What docs/stores.md says that a user needs, but for INFO and CONFIG. */
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
        args[n++] = farm->clock_fd >= 0 ? "2000000000" : "2000";
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

static void sentinel_start(struct farm *farm, size_t i) {
    struct server *server = &farm->servers[i];
    static const char *const none[] = {NULL};
    char folder[512], path[600];
    FILE *file;

    snprintf(folder, sizeof(folder), "%.200s/%zu", farm->folder, i);
    mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%s/sentinel.conf", folder);
    file = fopen(path, "w");
    if (file == NULL)
        fail(path);
    fprintf(file,
            "sentinel monitor shop 127.0.0.1 %d 2\n"
            "sentinel down-after-milliseconds shop 1000\n"
            "sentinel failover-timeout shop 4000\n",
            farm->servers[0].port);
    fclose(file);
    server->sentinel = true;
    server_start(server, folder, "redis-sentinel", true, none, -1);
}

/* Servers that get to know each other wait for time to pass. */
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

static void cluster_join(struct farm *farm) {
    char answer[4096], first[16], last[16], port[16];

    for (size_t i = 0; i < farm->servers_n; i++) {
        snprintf(first, sizeof(first), "%zu", SLOTS * i / farm->servers_n);
        snprintf(last, sizeof(last), "%zu", SLOTS * (i + 1) / farm->servers_n - 1);
        server_ask(&farm->servers[i], answer, sizeof(answer), "CLUSTER", "ADDSLOTSRANGE", first,
                   last, NULL);
        snprintf(port, sizeof(port), "%d", farm->servers[i].port);
        if (i > 0)
            server_ask(&farm->servers[0], answer, sizeof(answer), "CLUSTER", "MEET", "127.0.0.1",
                       port, NULL);
    }
    for (size_t i = 0, tries = 0; i < farm->servers_n; tries++) {
        server_ask(&farm->servers[i], answer, sizeof(answer), "CLUSTER", "INFO", NULL);
        if (strstr(answer, "cluster_state:ok") != NULL &&
            strstr(answer, "cluster_slots_ok:16384") != NULL &&
            strstr(answer, "cluster_size:3") != NULL) {
            i++;
            continue;
        }
        if (tries == WAIT_TRIES)
            fail("the cluster does not come together");
        clock_tick(farm, 100);
        pause_ms(50);
    }
}

static void replica_wait(struct farm *farm) {
    char answer[4096];

    for (int tries = 0; tries < WAIT_TRIES; tries++) {
        server_ask(&farm->servers[1], answer, sizeof(answer), "INFO", "replication", NULL);
        if (strstr(answer, "master_link_status:up") != NULL)
            return;
        pause_ms(50);
    }
    fail("the replica does not find its master");
}

void farm_start(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd) {
    *farm = (struct farm){.kind = kind, .clock_fd = clock_fd};
    snprintf(farm->folder, sizeof(farm->folder), "%s/farm", folder);
    mkdir(farm->folder, 0700);
    if (kind == FARM_TLS)
        certificates_make(farm->folder, farm->clock_fd);
    farm->servers_n = kind == FARM_SENTINEL ? 2 : kind == FARM_CLUSTER ? 3 : 1;
    for (size_t i = 0; i < farm->servers_n; i++)
        farm_restart(farm, i);
    farm->all_n = farm->servers_n;
    if (kind == FARM_CLUSTER)
        cluster_join(farm);
    if (kind != FARM_SENTINEL)
        return;
    replica_wait(farm);
    for (int i = 0; i < 3; i++)
        sentinel_start(farm, farm->all_n++);
}

void farm_stop(struct farm *farm) {
    for (size_t i = farm->all_n; i-- > 0;)
        server_stop(&farm->servers[i]);
}

void farm_flush(struct farm *farm) {
    char answer[256];

    for (size_t i = 0; i < (farm->kind == FARM_SENTINEL ? 1 : farm->servers_n); i++)
        server_ask(&farm->servers[i], answer, sizeof(answer), "FLUSHALL", NULL);
}

size_t farm_keys(struct farm *farm) {
    static const char mark[] = ":keys=";
    char answer[1024];
    const char *at;
    size_t n = 0;

    for (size_t i = 0; i < (farm->kind == FARM_SENTINEL ? 1 : farm->servers_n); i++) {
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
