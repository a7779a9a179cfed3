/*
 * One server for all tests of a program. A process of its own keeps it, so that
 * each test, which is also a process of its own, can kill it and start it
 * again.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_FARM_H
#define IDEM_TEST_QUEUE_AMQP_FARM_H

#include "server.h"

struct farm {
    struct server server; /* as it was started: its ports and its directory */
    int line;             /* the socket to the keeper */
    pid_t keeper;
};

void farm_start(struct farm *farm, const char *folder);
void farm_stop(struct farm *farm);

void farm_kill(const struct farm *farm);
void farm_restart(const struct farm *farm);
void farm_pause(const struct farm *farm);
void farm_go_on(const struct farm *farm);

/* Makes the server evaluate an Erlang expression, without the dot at its end. */
void farm_eval(const struct farm *farm, const char *expression);

/* The URL of the server or of a proxy, with options ("a=b&c=d"); "": with timeouts that a busy
 * machine does not exceed. In one of four buffers that are used in turn. */
const char *farm_url(int port, const char *options);

#endif
