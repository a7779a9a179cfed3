/*
 * Times on the command line: RFC 3339, or a duration before now.
 */
#ifndef IDEM_CLI_TIME_ARGUMENT_H
#define IDEM_CLI_TIME_ARGUMENT_H

#include "base/rfc3339.h"
#include "json/json_out.h"

/* Prints "3m ago" or "in 2h", in a single unit, for people; returns buf. */
const char *time_argument_relative(int64_t ms, int64_t now_ms, char *buf, size_t size);

/* Writes a member of an object, as RFC 3339; null for 0. */
void time_argument_json(struct json_out *json, const char *name, int64_t ms);

/* Parses RFC 3339 with any offset, or a duration, which counts back from `now_ms`. 0, or
   IDEM_E_INVALID with *ret_ms untouched. */
int time_argument_parse(const char *text, int64_t now_ms, int64_t *ret_ms, struct idem_error *err);

#endif
