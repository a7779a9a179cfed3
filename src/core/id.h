/*
 * Identifiers, for their tests: with the clock of the caller.
 */
#ifndef IDEM_CORE_ID_H
#define IDEM_CORE_ID_H

#include "idem.h"

int idem_uuid7_at(int64_t now_ms, char out[IDEM_UUID_LEN + 1], struct idem_error *err);

/* The machine's real time, in ms since 1970. */
int64_t idem_wall_ms(void);

/* Shifts the clock of a generator from now on. */
void idem_snowflake_shift(struct idem_snowflake *s, int64_t ms);

#endif
