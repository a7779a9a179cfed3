/*
 * A thread that does writes which cannot be kept from blocking, so that the
 * loop never waits for them. One piece is on its way at a time.
 */
#ifndef IDEM_CLI_PUMP_H
#define IDEM_CLI_PUMP_H

#include <stddef.h>
#include <sys/types.h>

struct cli_pump;

/* Starts the thread, which writes to `fd`; it has the caller's signal mask. NULL with errno. */
struct cli_pump *cli_pump_new(int fd);

/* One more user of it, who frees it as well; returns it. */
struct cli_pump *cli_pump_share(struct cli_pump *pump);

/* NULL is allowed. A thread that is in the middle of a write is left behind: it cannot be stopped,
   and ends with the process. */
void cli_pump_free(struct cli_pump *pump);

/* Hands some of it over, which then counts as written. -1 with EAGAIN while the last piece is on
   its way, or with the errno of a write that failed. */
ssize_t cli_pump_write(struct cli_pump *pump, const void *bytes, size_t len);

/* 1: nothing is on its way; 0: something is; -1 with errno: a write has failed. */
int cli_pump_state(struct cli_pump *pump);

/* Readable once nothing is on its way. */
int cli_pump_fd(const struct cli_pump *pump);

#endif
