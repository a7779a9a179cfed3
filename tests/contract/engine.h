/*
 * Which store the property and the crowd test are about: engine_lmdb.c or
 * engine_redis.c.
 */
#ifndef IDEM_CONTRACT_ENGINE_H
#define IDEM_CONTRACT_ENGINE_H

#include "conn.h"

/* Starts what it needs in the folder, under the clock that is also behind clock_fd, and gives its
   URL with these options. */
void engine_start(const char *folder, const char *options, struct shared_clock *clock, int clock_fd,
                  char *url, size_t size);
void engine_stop(void);

#endif
