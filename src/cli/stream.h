/*
 * One output of the command on its way: read from its pipe, kept, and passed on
 * to our own descriptor, without ever making the loop wait.
 */
#ifndef IDEM_CLI_STREAM_H
#define IDEM_CLI_STREAM_H

#include <poll.h>

#include "cli/result.h"

struct cli_stream {
    int number; /* 1 or 2: the descriptor it is passed on to */
    int from;   /* our end of the pipe; -1: at its end */
    unsigned char *buf;
    size_t at, len, size; /* read and not passed on: buf[at..len) */
    bool deaf;            /* nobody takes it any more; it is only kept */
    bool regular, socket; /* what our descriptor is */
};

/* Takes over `from`. 0, or -1 with errno. */
int cli_stream_init(struct cli_stream *stream, int number, int from);
void cli_stream_release(struct cli_stream *stream);

/* What it waits for; false: it is over. While somebody downstream is slow, the pipe is not read,
   so that the command is slowed down as it would be without us. */
bool cli_stream_poll(const struct cli_stream *stream, struct pollfd *ret);

/* Goes on as far as it can without waiting. */
void cli_stream_turn(struct cli_stream *stream, struct cli_result *keep);

/* Takes what is left in the pipe, whoever still holds its other end, and closes it. */
void cli_stream_sweep(struct cli_stream *stream, struct cli_result *keep);

/* Passes the rest on, waiting for who takes it. */
void cli_stream_flush(struct cli_stream *stream);

static inline bool cli_stream_over(const struct cli_stream *stream) {
    return stream->from < 0 && stream->at == stream->len;
}

#endif
