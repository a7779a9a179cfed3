/*
 * The store that the property test and the crowd test use: engine_lmdb.c,
 * engine_redis.c or engine_sql.c.
 */
#ifndef IDEM_CONTRACT_ENGINE_H
#define IDEM_CONTRACT_ENGINE_H

#include "conn.h"

/* Starts the engine's servers in the directory, under the clock that is also behind clock_fd,
 * and gives the store's URL with these options. */
void engine_start(const char *folder, const char *options, struct shared_clock *clock, int clock_fd,
                  char *url, size_t size);
void engine_stop(void);

#endif
