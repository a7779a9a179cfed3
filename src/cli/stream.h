/*
 * One output of the command on its way: read from its pipe, kept, and passed on
 * to our own descriptor, without ever making the loop wait.
 */
#ifndef IDEM_CLI_STREAM_H
#define IDEM_CLI_STREAM_H

#include "cli/result.h"
#include "cli/sink.h"

struct cli_stream {
    int number; /* 1 or 2: the descriptor it is passed on to */
    int from;   /* our end of the pipe; -1: at its end */
    unsigned char *buf;
    size_t at, len, size; /* read and not passed on: buf[at..len) */
    struct cli_sink sink;
    bool deaf; /* nobody takes it any more; it is only kept */
    int fault; /* why, an errno; 0 where a reader just left */
};

/* Takes over `from`; `other` is the stream beside it, or NULL. 0, or -1 with errno. */
int cli_stream_init(struct cli_stream *stream, int number, int from,
                    const struct cli_stream *other);
void cli_stream_release(struct cli_stream *stream);

/* What it waits for; false: it is over. While somebody downstream is slow, the pipe is not read,
   so that the command is slowed down as it would be without us. */
bool cli_stream_poll(const struct cli_stream *stream, struct pollfd *ret);

/* Goes on as far as it can without waiting. */
void cli_stream_turn(struct cli_stream *stream, struct cli_result *keep);

/* Takes what is left in the pipe, whoever still holds its other end, and closes it. */
void cli_stream_sweep(struct cli_stream *stream, struct cli_result *keep);

/* What it waits for until all that was read is passed on; false: that is so. */
bool cli_stream_pending(struct cli_stream *stream, struct pollfd *ret);

/* Passes on what it can without waiting. */
void cli_stream_pass(struct cli_stream *stream);

static inline bool cli_stream_over(const struct cli_stream *stream) {
    return stream->from < 0 && stream->at == stream->len;
}

#endif
