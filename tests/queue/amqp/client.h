/*
 * A plain client of a server, for tests: it declares, publishes with confirms,
 * counts and gets. Whatever fails ends the test.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_CLIENT_H
#define IDEM_TEST_QUEUE_AMQP_CLIENT_H

#include <amqp.h>
#include <amqp_framing.h>
#include <stdbool.h>

struct client {
    amqp_connection_state_t conn;
    uint64_t sent, confirmed; /* publishes; all up to this one */
    bool *acked;              /* those after it */
};

void client_open(struct client *c, int port);
/* The same, but says whether it could. */
bool client_try(struct client *c, int port);
void client_close(struct client *c);

#define CLIENT_ARGS 8
/* Arguments of a queue: texts, or numbers where text is NULL; ends with a NULL name. */
struct client_arg {
    const char *name, *text;
    int64_t number;
};
void client_declare(struct client *c, const char *queue, bool quorum,
                    const struct client_arg *args);
void client_delete(struct client *c, const char *queue);
/* An exchange of type direct, with the queue bound to it. */
void client_bind(struct client *c, const char *exchange, const char *queue, const char *key);

/* Sends one; it is sure when client_confirm() has returned. `properties` may be NULL. */
void client_send(struct client *c, const char *exchange, const char *key,
                 const amqp_basic_properties_t *properties, const void *body, size_t len);
void client_confirm(struct client *c);
/* Both, to a queue, with a body of text. */
void client_publish(struct client *c, const char *queue, const char *body);

/* Messages that are ready in the queue; -1: there is no such queue. */
int client_count(struct client *c, const char *queue);
/* Waits until so many consume from it, for at most so long. */
void client_wait_consumers(struct client *c, const char *queue, int n);
/* Waits until there are so many messages. */
void client_wait_count(struct client *c, const char *queue, int n);
/* The first message, taken away; false: it is empty. Free with amqp_destroy_message(). */
bool client_get(struct client *c, const char *queue, amqp_message_t *ret);
/* A header of it as text ("" if it is none), in one of four buffers that take turns; NULL. */
const char *client_header(const amqp_message_t *message, const char *name);

#endif
