/*
 * A RabbitMQ of a test's own: Debian's rabbitmq-server, without root's system
 * service, on free ports of 127.0.0.1, in a directory. It has an epmd of its
 * own, too.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_SERVER_H
#define IDEM_TEST_QUEUE_AMQP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SERVER_USER "idem"
#define SERVER_PASSWORD "a:b@c/d?e"
#define SERVER_PASSWORD_IN_URL "a:b%40c%2Fd%3Fe"

struct server {
    char folder[256]; /* also holds the certificates, see certificates.h */
    int port, tls_port, dist_port, epmd_port;
    pid_t pid, epmd; /* 0: not running */
    bool syncs;
};

/* Starts the server and returns when it accepts messages, also for quorum queues. Ends the
 * program if it does not start. */
/* Without `syncs` its writes do not wait for the disk. */
void server_start(struct server *server, const char *folder, bool syncs);
void server_kill(struct server *server); /* -9 */
/* Starts it with the same data and ports. */
void server_restart(struct server *server);
void server_pause(const struct server *server);
void server_go_on(const struct server *server);
void server_stop(struct server *server);
/* Makes the server evaluate an Erlang expression, without the dot at its end. */
void server_eval(const struct server *server, const char *expression);
/* Makes the server write the list of its queues to disk: otherwise it forgets young ones when it
 * is killed. */
void server_settle(const struct server *server);

#endif
