/*
 * A message's parts as JSON, for programs: on one line, every string valid
 * whatever its bytes are. Written into a struct idem_out, first to count, then to
 * put.
 */
#ifndef IDEM_CLI_HANDLER_JSON_H
#define IDEM_CLI_HANDLER_JSON_H

#include "core/out.h"
#include "queue/message.h"

/* A string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void handler_json_text(struct idem_out *out, const void *bytes, size_t len);

/* A string of base64, with its quotes. */
void handler_json_base64(struct idem_out *out, const void *bytes, size_t len);

/* Fields by their names, each name once: of those that have one name the first counts. Names that
   are not UTF-8 are left out. */
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

/* {"name":"value",...}; a value that is JSON stands as it is. */
void handler_json_fields(struct idem_out *out, const struct handler_fields *fields);

#endif
