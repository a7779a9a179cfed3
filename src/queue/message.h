/*
 * A message, in one form for all brokers: a body, headers and properties.
 *
 * A message and all that it points to is one allocation, made and freed by its broker. A
 * broker embeds the message in a struct of its own, which has the broker's handle for it (a
 * delivery tag, an entry's id).
 */
#ifndef IDEM_QUEUE_MESSAGE_H
#define IDEM_QUEUE_MESSAGE_H

#include "idem.h"
#include "protocol/record.h"

/* No key is computed for a message with more headers. */
#define QUEUE_FIELDS_MAX 1024

/* One header or property. A value that is not text (a number, a boolean, a table) is JSON. */
struct queue_field {
    struct idem_bytes name, value;
    bool json;
};

struct queue_message {
    struct idem_bytes body;
    const struct queue_field *headers; /* set by the sender */
    size_t headers_n;
    const struct queue_field *properties; /* set by the broker: message_id, ... */
    size_t properties_n;
    const char *queue;          /* the queue it was taken from */
    bool redelivered;           /* the broker reports an earlier delivery */
    void *owner;                /* for the consumer's own use */
    struct queue_message *next; /* likewise */
};

/* Finds a header by its name in any case; NULL: there is none. */
const struct queue_field *queue_message_header(const struct queue_message *message,
                                               const char *name);
/* True if the message has the header more than once, in any case. */
bool queue_message_header_is_repeated(const struct queue_message *message, const char *name);
/* Finds a property by its exact name. */
const struct queue_field *queue_message_property(const struct queue_message *message,
                                                 const char *name);

/*
 * The variables of expressions: {"body": ..., "headers": {...}, "properties": {...}, "queue":
 * ...}. A JSON body becomes that document; a body of other UTF-8 becomes a text; any other
 * body is left out, so that an expression that reads it fails. A header that occurs twice is
 * the sender's mistake: IDEM_E_INVALID. The caller frees *ret.
 */
int queue_message_variables(const struct queue_message *message, char **ret, size_t *ret_len,
                            struct idem_error *err);

/* True if the body is one JSON document. */
bool queue_message_body_is_json(struct idem_bytes body);

/*
 * The message's name in logs: the trace id of a `traceparent` header (W3C), or its message id,
 * or "-". Unprintable bytes are replaced. Returns buf.
 */
#define QUEUE_TRACE_TEXT 72
const char *queue_message_trace(const struct queue_message *message, char buf[QUEUE_TRACE_TEXT]);
/* True if that name would reveal the key, which must not be logged: logs then use the hash of
   the record. */
bool queue_message_trace_is_key(const struct queue_message *message, struct idem_bytes key);

#endif
