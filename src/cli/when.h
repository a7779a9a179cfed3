/*
 * Moments on the command line: RFC 3339, and how long ago.
 */
#ifndef IDEM_CLI_WHEN_H
#define IDEM_CLI_WHEN_H

#include "core/when.h"
#include "json/out.h"

/* "3m ago", "in 2h", one unit only, for people; returns buf. */
const char *cli_when_relative(int64_t ms, int64_t now_ms, char *buf, size_t size);

/* A member of an object, as RFC 3339; null for 0. */
void cli_json_when(struct json_out *json, const char *name, int64_t ms);

/* RFC 3339 with any offset, or a time span, which is that long before `now_ms`. 0, or
   IDEM_E_INVALID with *ret_ms untouched. */
int cli_when_parse(const char *text, int64_t now_ms, int64_t *ret_ms, struct idem_error *err);

#endif
