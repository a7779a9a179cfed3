/*
 * A thread for writes that may block, so that the loop never waits for them. It writes one piece at
 * a time.
 */
#ifndef IDEM_CLI_RUN_RUN_PUMP_H
#define IDEM_CLI_RUN_RUN_PUMP_H

#include <stddef.h>
#include <sys/types.h>

struct cli_pump;

/* Starts the thread, which writes to `fd` and has the caller's signal mask. NULL with errno. */
struct cli_pump *cli_pump_new(int fd);

/* Adds a user, which must free the pump as well; returns the pump. */
struct cli_pump *cli_pump_share(struct cli_pump *pump);

/* NULL is allowed. A thread in the middle of a write cannot be stopped: it is detached, and ends
   with the process. */
void cli_pump_free(struct cli_pump *pump);

/* Hands over a part of the bytes, which then count as written. -1 with EAGAIN while the last piece
   is being written, or with the errno of a failed write. */
ssize_t cli_pump_write(struct cli_pump *pump, const void *bytes, size_t len);

/* 1: idle; 0: a piece is being written; -1 with errno: a write has failed. */
int cli_pump_state(struct cli_pump *pump);

/* Readable while the pump is idle. */
int cli_pump_fd(const struct cli_pump *pump);

#endif
