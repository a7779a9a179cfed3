/*
 * A message, as every broker brings it: a body, headers and properties.
 *
 * A message and all that it points to is one allocation, made by the broker that
 * brought it and freed with queue_message_free(); `link` says which that is, and
 * a broker puts a struct of its own around it to find the message again in its
 * own terms (a delivery tag, an entry's id).
 */
#ifndef IDEM_QUEUE_MESSAGE_H
#define IDEM_QUEUE_MESSAGE_H

#include "core/record.h"
#include "idem.h"

/* More headers than these, and no key is made of a message. */
#define QUEUE_FIELDS_MAX 1024

/* One header or property. A value that is no text (a number, a truth value, a table) is JSON. */
struct queue_field {
    struct idem_bytes name, value;
    bool json;
};

struct queue_message {
    struct idem_bytes body;
    const struct queue_field *headers; /* what the sender put beside the body */
    size_t headers_n;
    const struct queue_field *properties; /* what the broker knows of it: message_id, ... */
    size_t properties_n;
    const char *queue;          /* where it was taken from */
    bool redelivered;           /* the broker says that it was delivered before */
    void *owner;                /* the consumer's own */
    struct queue_message *next; /* likewise */
};

/* The value of a header, by its name in any case; NULL: there is none. */
const struct queue_field *queue_header(const struct queue_message *message, const char *name);
/* Whether it is there more than once, in whatever case. */
bool queue_header_is_twice(const struct queue_message *message, const char *name);
/* Of a property, by its very name. */
const struct queue_field *queue_property(const struct queue_message *message, const char *name);

/*
 * The variables of expressions: {"body": ..., "headers": {...}, "properties": {...}, "queue": ...}.
 * A body that is a JSON document is that document; one that is other UTF-8 is a text; what is
 * neither is left out, so that an expression that reads it says so. A header that is there twice
 * counts as the sender's mistake: IDEM_E_INVALID. *ret is the caller's: free().
 */
int queue_variables(const struct queue_message *message, char **ret, size_t *ret_len,
                    struct idem_error *err);

/* Whether the body is one JSON document. */
bool queue_body_is_json(struct idem_bytes body);

/*
 * What logs call it: the trace id of a `traceparent` header (W3C), or its message id, or "-".
 * Cleaned of what does not belong into a line. Returns buf.
 */
#define QUEUE_TRACE_TEXT 72
const char *queue_trace(const struct queue_message *message, char buf[QUEUE_TRACE_TEXT]);
/* Whether that shows the key, which no log may: then it goes by the name of its record. */
bool queue_trace_is_key(const struct queue_message *message, struct idem_bytes key);

#endif
