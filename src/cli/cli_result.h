/*
 * The stored form of a command's result: how the command ended, and its output in the order in
 * which it was read.
 *
 *     'R'  version 1  how (0 exited, 1 by signal)  status or signal number
 *     then any number of chunks: stream (1 or 2), length (4 bytes, little endian, not 0), bytes
 */
#ifndef IDEM_CLI_CLI_RESULT_H
#define IDEM_CLI_CLI_RESULT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "loop/spawn.h"

/* A result while the command runs. `over` is set once the output exceeds `limit` bytes or memory is
   missing; nothing is kept from then on. */
struct cli_result {
    struct idem_buffer bytes;
    size_t limit, output;
    size_t chunk; /* offset of the last chunk; 0: none */
    bool over;
};

void cli_result_init(struct cli_result *result, size_t limit);
void cli_result_release(struct cli_result *result);
void cli_result_add(struct cli_result *result, int stream, const void *bytes, size_t len);

/* Writes the header: `bytes` are the whole result now. False if nothing was kept. */
bool cli_result_end(struct cli_result *result, const struct spawn_end *end);

/* Reading. The bytes are borrowed. */
struct cli_reader {
    const unsigned char *at;
    size_t left;
};
struct cli_chunk {
    int stream;
    const unsigned char *bytes;
    size_t len;
};

/* True only if the whole result is well formed: no part of a damaged result is replayed. */
bool cli_result_read(const void *bytes, size_t len, struct spawn_end *ret_end,
                     struct cli_reader *ret_reader);

/* The next chunk; false after the last. */
bool cli_reader_next(struct cli_reader *reader, struct cli_chunk *ret);

/*
 * Replays a stored result: each stream to its own descriptor, in order.
 */

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
