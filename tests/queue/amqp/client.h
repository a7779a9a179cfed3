/*
 * A plain client of a server, for tests: it declares, publishes with confirms,
 * counts and gets. A failure ends the test.
 */
#ifndef IDEM_TEST_QUEUE_AMQP_CLIENT_H
#define IDEM_TEST_QUEUE_AMQP_CLIENT_H

#include <amqp.h>
#include <amqp_framing.h>
#include <stdbool.h>

struct client {
    amqp_connection_state_t conn;
    uint64_t sent, confirmed; /* publishes; all up to the second are confirmed */
    bool *acked;              /* the confirms after that one */
};

void client_open(struct client *c, int port);
/* The same, but returns false on a failure. */
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

/* Sends a message, which is safe once client_confirm() has returned. `properties` may be NULL. */
void client_send(struct client *c, const char *exchange, const char *key,
                 const amqp_basic_properties_t *properties, const void *body, size_t len);
void client_confirm(struct client *c);
/* Sends a text to a queue, and waits for the confirm. */
void client_publish(struct client *c, const char *queue, const char *body);

/* Returns the number of messages that are ready in the queue; -1: there is no such queue. */
int client_count(struct client *c, const char *queue);
/* Waits until the queue has `n` consumers. */
void client_wait_consumers(struct client *c, const char *queue, int n);
/* Waits until the queue has `n` messages. */
void client_wait_count(struct client *c, const char *queue, int n);
/* Takes the first message; false: the queue is empty. Free with amqp_destroy_message(). */
bool client_get(struct client *c, const char *queue, amqp_message_t *ret);
/* A header as text ("" if it is not a text), in one of four buffers that are used in turn; NULL:
 * there is none. */
const char *client_header(const amqp_message_t *message, const char *name);

#endif
