/*
 * Replays a stored result: each stream to its own descriptor, in order.
 */
#ifndef IDEM_CLI_RUN_RUN_REPLAY_H
#define IDEM_CLI_RUN_RUN_REPLAY_H

#include "cli/run/run_result.h"

/* Writes all bytes, and waits until the descriptor takes them; false with errno if it does not. */
bool cli_write_all(int fd, const void *bytes, size_t len);

/* The first stream that could not be written. A reader that has closed its end is no fault. */
struct cli_fault {
    int stream;
    int why; /* an errno; 0: all was written */
};

/* False if the bytes are no result of a command: nothing is written then. If one stream cannot be
   written, the other one still is. */
bool cli_replay(const void *bytes, size_t len, struct spawn_end *ret_end,
                struct cli_fault *ret_fault);

#endif
