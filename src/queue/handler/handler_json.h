/*
 * Parts of a message as JSON, for programs: on one line, with valid strings whatever the bytes
 * are. Everything is written into a struct idem_out, first to count, then to write.
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_JSON_H
#define IDEM_QUEUE_HANDLER_HANDLER_JSON_H

#include "base/text_out.h"
#include "queue/message.h"

/* A string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void handler_json_text(struct idem_out *out, const void *bytes, size_t len);

/* A string of base64, with its quotes. */
void handler_json_base64(struct idem_out *out, const void *bytes, size_t len);

/* Fields sorted by name, each name once: the first of equal names counts. Names that are not
   UTF-8 are left out. */
struct handler_field {
    const struct queue_field *field;
};
struct handler_fields {
    struct handler_field *list;
    size_t n;
};
/* False without memory. The fields are borrowed. */
bool handler_fields_init(struct handler_fields *fields, const struct queue_field *list, size_t n);
void handler_fields_release(struct handler_fields *fields);

/* {"name":"value",...}; a value that is JSON is copied. */
void handler_json_fields(struct idem_out *out, const struct handler_fields *fields);

#endif
