/*
 * Servers for tests in every arrangement that a URL can name. A test starts the
 * farm once, in a directory, and may kill, pause and restart each of
 * `farm.servers`.
 */
#ifndef IDEM_TEST_STORE_REDIS_FARM_H
#define IDEM_TEST_STORE_REDIS_FARM_H

#include "server.h"

#define FARM_MAX 8

enum farm_kind {
    FARM_SOCKET,   /* one server on a socket */
    FARM_TCP,      /* one server on a port, with a user and a password */
    FARM_LIMITED,  /* one server whose user may use neither INFO nor CONFIG */
    FARM_TLS,      /* one server with certificates of the test's own authority */
    FARM_PAIR,     /* a master and a replica */
    FARM_SENTINEL, /* a master, a replica, three sentinels */
    FARM_CLUSTER,  /* three masters */
};

struct farm {
    enum farm_kind kind;
    char folder[256];
    int clock_fd;
    struct server servers[FARM_MAX];
    size_t servers_n; /* the servers with data; the sentinels follow them */
    size_t all_n;
};

/* Waits until everything is ready: the nodes of a cluster agree, the sentinels know each other. */
void farm_start(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd);
/* True if all nodes of the cluster are up and connected, have epochs of their own, and name the
 * same owner for each slot. tests/redisserver.py has the same check. */
bool farm_agrees(const struct farm *farm);
/* Adds a replica of the first server to a cluster; returns its number. */
size_t farm_replica_add(struct farm *farm);
void farm_stop(struct farm *farm);
/* From now on the sentinels or the other nodes take a server for dead that has not responded for
 * a second; before that, never. */
void farm_deaths_noticed(const struct farm *farm);
/* From now on never. */
void farm_deaths_unnoticed(const struct farm *farm);
void farm_flush(struct farm *farm);
size_t farm_keys(struct farm *farm); /* the number of keys of all masters */
/* The farm's URL, with further options ("&a=b") or "". */
void farm_url(const struct farm *farm, const char *options, char *url, size_t size);
/* Starts a stopped server again, with the same settings. */
void farm_restart(struct farm *farm, size_t i);

#endif
