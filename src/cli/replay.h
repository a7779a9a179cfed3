/*
 * Giving a stored result out: each stream to its own descriptor, in order.
 */
#ifndef IDEM_CLI_REPLAY_H
#define IDEM_CLI_REPLAY_H

#include "cli/result.h"

/* Writes all of it, waiting where the descriptor must be waited for; false if it cannot be
   written, with errno. */
bool cli_write_all(int fd, const void *bytes, size_t len);

/* What could not be written. A reader who left is no failure. */
struct cli_fault {
    int stream;
    int why; /* an errno; 0: all was written */
};

/* False if the bytes are no result of a command: nothing was written then. A stream that cannot be
   written is no reason to withhold the other one. */
bool cli_replay(const void *bytes, size_t len, struct cli_end *ret_end,
                struct cli_fault *ret_fault);

#endif
