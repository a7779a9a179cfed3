/*
 * Servers for tests in every arrangement that a URL can name. Started once, in a
 * folder; `farm.servers` can be killed, paused and started again one by one.
 */
#ifndef IDEM_TEST_STORE_REDIS_FARM_H
#define IDEM_TEST_STORE_REDIS_FARM_H

#include "server.h"

#define FARM_MAX 8

enum farm_kind {
    FARM_SOCKET,   /* one server on a socket */
    FARM_TCP,      /* one on a port, with a user and a password */
    FARM_LIMITED,  /* one whose user may neither INFO nor CONFIG */
    FARM_TLS,      /* one with certificates of an authority of our own */
    FARM_PAIR,     /* a master, a replica */
    FARM_SENTINEL, /* a master, a replica, three sentinels */
    FARM_CLUSTER,  /* three masters */
};

struct farm {
    enum farm_kind kind;
    char folder[256];
    int clock_fd;
    struct server servers[FARM_MAX];
    size_t servers_n; /* those with data; sentinels are behind them */
    size_t all_n;
};

/* Waits until all of it is ready: the nodes of a cluster agree, the sentinels know each other. */
void farm_start(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd);
/* True if all nodes of the cluster are up and connected, have epochs of their own, and name the
   same owner for each slot. tests/redisserver.py asks the same. */
bool farm_agrees(const struct farm *farm);
/* Adds a replica of the first server to a cluster; which one it is. */
size_t farm_replica_add(struct farm *farm);
void farm_stop(struct farm *farm);
/* From now on a server that has not answered for a second is taken for dead, by the sentinels or by
   the other nodes; before that, never. */
void farm_deaths_noticed(const struct farm *farm);
/* Never again. */
void farm_deaths_unnoticed(const struct farm *farm);
void farm_flush(struct farm *farm);
size_t farm_keys(struct farm *farm); /* of all masters */
/* Its URL, with further options ("&a=b") or "". */
void farm_url(const struct farm *farm, const char *options, char *url, size_t size);
/* Starts a server that was stopped again, as it was. */
void farm_restart(struct farm *farm, size_t i);

#endif
