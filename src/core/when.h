/*
 * Moments as people and programs read them: RFC 3339 in UTC.
 */
#ifndef IDEM_CORE_WHEN_H
#define IDEM_CORE_WHEN_H

#include <stddef.h>
#include <stdint.h>

#define IDEM_WHEN_TEXT 40

/* "2026-11-15T20:00:00Z", with milliseconds where `ms` has some; returns buf. "?" outside the
   years 0 to 9999. */
const char *idem_when_print(int64_t ms, char *buf, size_t size);

#endif
