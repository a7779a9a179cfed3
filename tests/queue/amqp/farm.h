/*
 * One server for all tests of a program, kept by a process of its own, so that
 * each test, in a process of its own, too, can kill it and start it again.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_FARM_H
#define IDEM_TEST_QUEUE_AMQP_FARM_H

#include "server.h"

struct farm {
    struct server server; /* as it was started: where it is */
    int line;             /* to the keeper */
    pid_t keeper;
};

void farm_start(struct farm *farm, const char *folder);
void farm_stop(struct farm *farm);

void farm_kill(const struct farm *farm);
void farm_restart(const struct farm *farm);
void farm_pause(const struct farm *farm);
void farm_go_on(const struct farm *farm);

/* Has the server evaluate an expression of Erlang, without the dot at its end. */
void farm_eval(const struct farm *farm, const char *expression);

/* Its URL, at a port of its own or of a proxy's, with options ("a=b&c=d"); "": with times that a
   busy machine does not overrun. In one of four buffers that take turns. */
const char *farm_url(int port, const char *options);

#endif
