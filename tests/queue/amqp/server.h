/*
 * A RabbitMQ of a test's own: Debian's rabbitmq-server, without root's system
 * service, on free ports of 127.0.0.1, in a folder. Its epmd is its own, too.
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
    char folder[256]; /* also of the certificates, see certificates.h */
    int port, tls_port, dist_port, epmd_port;
    pid_t pid, epmd; /* 0: it does not run */
    bool syncs;
};

/* Starts it; returns when it takes messages, also of quorum queues. Ends the program if it does
 * not. */
/* Without `syncs` nothing that it writes waits for the disk. */
void server_start(struct server *server, const char *folder, bool syncs);
void server_kill(struct server *server); /* -9 */
/* As it was, on the same data and ports. */
void server_restart(struct server *server);
void server_pause(const struct server *server);
void server_go_on(const struct server *server);
void server_stop(struct server *server);
/* Has it evaluate an expression of Erlang, without the dot at its end. */
void server_eval(const struct server *server, const char *expression);
/* Has it write down which queues there are: else it forgets young ones when it is killed. */
void server_settle(const struct server *server);

#endif
