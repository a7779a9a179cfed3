/*
 * Moments as people and programs read them: RFC 3339 in UTC, and how long ago.
 */
#ifndef IDEM_CLI_WHEN_H
#define IDEM_CLI_WHEN_H

#include "json/out.h"

#define CLI_WHEN_TEXT 40

/* "2026-11-15T20:00:00Z", with milliseconds where `ms` has some; returns buf. "?" outside the
   years 0 to 9999. */
const char *cli_when_print(int64_t ms, char *buf, size_t size);

/* "3m ago", "in 2h", one unit only, for people; returns buf. */
const char *cli_when_relative(int64_t ms, int64_t now_ms, char *buf, size_t size);

/* A member of an object, as RFC 3339; null for 0. */
void cli_json_when(struct json_out *json, const char *name, int64_t ms);

/* RFC 3339 with any offset, or a time span, which is that long before `now_ms`. 0, or
   IDEM_E_INVALID with *ret_ms untouched. */
int cli_when_parse(const char *text, int64_t now_ms, int64_t *ret_ms, struct idem_error *err);

#endif
