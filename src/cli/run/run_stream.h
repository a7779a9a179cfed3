/*
 * One output of the command: read from its pipe, kept, and passed on to idem's own descriptor,
 * without making the loop wait.
 */
#ifndef IDEM_CLI_RUN_RUN_STREAM_H
#define IDEM_CLI_RUN_RUN_STREAM_H

#include "cli/run/run_result.h"
#include "cli/run/run_sink.h"

struct cli_stream {
    int number; /* 1 or 2: the descriptor it is passed on to */
    int from;   /* idem's end of the pipe; -1: at its end */
    unsigned char *buf;
    size_t at, len, size; /* read but not passed on: buf[at..len) */
    struct cli_sink sink;
    bool deaf; /* the descriptor takes no more bytes; the output is only kept */
    int fault; /* the errno of that; 0 if the reader has closed it */
};

/* Takes over `from`; `other` is the other stream of the command, or NULL. 0, or -1 with errno. */
int cli_stream_init(struct cli_stream *stream, int number, int from,
                    const struct cli_stream *other);
void cli_stream_release(struct cli_stream *stream);

/* The event that the stream waits for; false at its end. While the reader is slow, the pipe is not
   read, which slows the command down as it would be without idem. */
bool cli_stream_poll(const struct cli_stream *stream, struct pollfd *ret);

/* Reads and writes as much as it can without waiting. */
void cli_stream_turn(struct cli_stream *stream, struct cli_result *keep);

/* Takes what is left in the pipe, even if another process still holds its other end, and closes
   it. */
void cli_stream_sweep(struct cli_stream *stream, struct cli_result *keep);

/* The event to wait for until all bytes that were read are written; false: all are. */
bool cli_stream_pending(struct cli_stream *stream, struct pollfd *ret);

/* Writes as much as it can without waiting. */
void cli_stream_pass(struct cli_stream *stream);

static inline bool cli_stream_over(const struct cli_stream *stream) {
    return stream->from < 0 && stream->at == stream->len;
}

#endif
