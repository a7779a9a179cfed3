/*
 * The command's output: how it is read, kept and passed on, so that the loop never waits for a
 * reader.
 *
 *     pipe ──> stream ──> sink ──> idem's own descriptor (a pump's thread, if writing may block)
 *                └──────> result, which the store keeps (cli_result.h)
 */
#ifndef IDEM_CLI_RUN_RUN_OUTPUT_H
#define IDEM_CLI_RUN_RUN_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/cli_result.h"

/*
 * A thread for writes that may block, so that the loop never waits for them. It writes one piece at
 * a time.
 */
struct cli_pump;

/*
 * A descriptor of idem's that is written to without waiting, whatever it is and whichever process
 * shares it.
 *
 * Poll(2) promises too little: a terminal takes part of a write and blocks on the rest, and another
 * writer may fill a pipe before idem writes to it. O_NONBLOCK would help, but it is a property of
 * the open file, which the process that started idem shares. So pipes and terminals are opened a
 * second time, as an open file of idem's own; where that is not possible, a thread does the
 * waiting.
 */

enum cli_sink_kind {
    CLI_SINK_NONE,
    CLI_SINK_DIRECT, /* files and devices that take every write at once */
    CLI_SINK_OWN,    /* an open file of idem's own, with O_NONBLOCK */
    CLI_SINK_SOCKET,
    CLI_SINK_PUMP,
};

struct cli_sink {
    enum cli_sink_kind kind;
    int fd;
    struct cli_pump *pump;
};

/* The descriptor stays the caller's. If `other` (or NULL) is the same file, writes to both keep
   their order. 0, or -1 with errno. Signals that the caller reads from a descriptor must be blocked
   before: a thread may be started. */
int cli_sink_open(struct cli_sink *sink, int fd, const struct cli_sink *other);

/* NULL is not allowed; a sink of zeros counts as closed. */
void cli_sink_close(struct cli_sink *sink);

/* As write(2) with O_NONBLOCK: EAGAIN means to try again after cli_sink_poll(). */
ssize_t cli_sink_write(struct cli_sink *sink, const void *bytes, size_t len);

/* Writes bytes[*at..len) as far as the sink takes them, and moves *at. 1: all are written; 0: not
   yet; -1 with errno: a write has failed. */
int cli_sink_drain(struct cli_sink *sink, const void *bytes, size_t *at, size_t len);

/* The event to wait for until the sink takes more, or has written everything it took. */
struct pollfd cli_sink_poll(const struct cli_sink *sink);

/* 1: everything it took is written; 0: not yet; -1 with errno: a write has failed. */
int cli_sink_state(struct cli_sink *sink);

/*
 * One output of the command: read from its pipe, kept, and passed on to idem's own descriptor,
 * without making the loop wait.
 */

struct cli_stream {
    int number; /* 1 or 2: the descriptor it is passed on to */
    int from;   /* idem's end of the pipe; -1: at its end */
    unsigned char *buf;
    size_t at, len, size; /* read but not passed on: buf[at..len) */
    struct cli_sink sink;
    bool sink_failed; /* the descriptor takes no more bytes; the output is only kept */
    int fault;        /* the errno of that; 0 if the reader has closed it */
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
