/*
 * Timestamps as text: RFC 3339 in UTC.
 */
#ifndef IDEM_BASE_RFC3339_H
#define IDEM_BASE_RFC3339_H

#include <stddef.h>
#include <stdint.h>

#define IDEM_RFC3339_TEXT 40

/* Writes "2026-11-15T20:00:00Z", with milliseconds unless they are 0, and returns buf. Writes
   "?" outside the years 0 to 9999. */
const char *idem_rfc3339_print(int64_t ms, char *buf, size_t size);

#endif
