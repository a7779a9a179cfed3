/*
 * The stored form of a command's result: how it ended, and what it wrote, in
 * the order in which it was read.
 *
 *     'R'  version 1  how (0 exited, 1 by signal)  status or signal number
 *     then any number of chunks: stream (1 or 2), length (4 bytes, little
 *     endian, not 0), bytes
 */
#ifndef IDEM_CLI_RESULT_H
#define IDEM_CLI_RESULT_H

#include "idem.h"

struct cli_end {
    bool signalled;
    int number; /* exit status, or signal */
};

/* The exit status as a shell has it: 128 + N for signal N. */
static inline int cli_end_status(const struct cli_end *end) {
    return end->signalled ? 128 + end->number : end->number;
}

/* A result being gathered. `over` is set once it was more than `limit` bytes of output, or there
   was no memory for it; nothing is kept from then on. */
struct cli_result {
    unsigned char *bytes;
    size_t len, size;
    size_t limit, output;
    size_t chunk; /* where the last chunk begins; 0: there is none */
    bool over;
};

void cli_result_init(struct cli_result *result, size_t limit);
void cli_result_release(struct cli_result *result);
void cli_result_add(struct cli_result *result, int stream, const void *bytes, size_t len);

/* Writes the header: bytes and len are the whole result now. False if nothing can be kept. */
bool cli_result_end(struct cli_result *result, const struct cli_end *end);

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

/* True only if all of it is well formed: nothing of a damaged result is given out. */
bool cli_result_read(const void *bytes, size_t len, struct cli_end *ret_end,
                     struct cli_reader *ret_reader);

/* The next chunk; false after the last. */
bool cli_reader_next(struct cli_reader *reader, struct cli_chunk *ret);

#endif
