/*
 * A small writer of JSON: one object per line, every string valid whatever its
 * bytes are.
 */
#ifndef IDEM_CLI_JSON_H
#define IDEM_CLI_JSON_H

#include <stdio.h>

#include "idem.h"

struct cli_json {
    FILE *out;
    bool more; /* a member was written before in this object */
};

/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void cli_json_string(FILE *out, const char *bytes, size_t len);

/* The name of an object inside another, or NULL for the outermost. */
void cli_json_open(struct cli_json *json, const char *name);
void cli_json_close(struct cli_json *json);
void cli_json_line(struct cli_json *json); /* closes the outermost, and ends its line */

void cli_json_text(struct cli_json *json, const char *name, const char *text);
void cli_json_int(struct cli_json *json, const char *name, int64_t value);
void cli_json_uint(struct cli_json *json, const char *name, uint64_t value);
void cli_json_bool(struct cli_json *json, const char *name, bool value);
void cli_json_null(struct cli_json *json, const char *name);

/* A moment as RFC 3339; null for 0. */
void cli_json_when(struct cli_json *json, const char *name, int64_t ms);

#endif
