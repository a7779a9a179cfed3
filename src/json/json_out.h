/*
 * A small writer of JSON: one object per line. Every string is valid JSON, whatever its bytes are.
 */
#ifndef IDEM_JSON_JSON_OUT_H
#define IDEM_JSON_JSON_OUT_H

#include <stdio.h>

#include "base/visible.h"
#include "idem.h"

struct json_out {
    FILE *out;
    bool more; /* this object has a member already */
};

/* Writes a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, and invisible
   characters (base/visible.h) become \uXXXX. */
void json_out_string(FILE *out, const char *bytes, size_t len);

/* Escapes the next character into `ret`, with a NUL; returns the number of bytes that it has in the
   text. */
#define JSON_OUT_CHARACTER IDEM_VISIBLE_JSON
size_t json_out_escape_character(const char *bytes, size_t len, char ret[JSON_OUT_CHARACTER]);

/* `name` is that of an object inside another, or NULL for the outermost. */
void json_out_open(struct json_out *json, const char *name);
void json_out_close(struct json_out *json);
void json_out_line(struct json_out *json); /* closes the outermost object and ends its line */

void json_out_text(struct json_out *json, const char *name, const char *text);
/* Writes at most `max` bytes of the escaped text, and dots for the rest. */
void json_out_cut(struct json_out *json, const char *name, const char *text, size_t max);
void json_out_int(struct json_out *json, const char *name, int64_t value);
void json_out_uint(struct json_out *json, const char *name, uint64_t value);
void json_out_bool(struct json_out *json, const char *name, bool value);
void json_out_null(struct json_out *json, const char *name);

/* A list: its items are written as members with the name NULL. */
void json_out_list(struct json_out *json, const char *name);
void json_out_list_end(struct json_out *json);

#endif
