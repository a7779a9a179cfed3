/*
 * Passes on one output of the command. If its descriptor takes no more bytes (the reader has closed
 * it, the disk is full), the stream is marked deaf: it is still read to its end and kept. Without
 * memory for the last bytes of a pipe, the result is not kept.
 */
#include "cli/run/run_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_SIZE 65536

int cli_stream_init(struct cli_stream *stream, int number, int from,
                    const struct cli_stream *other) {
    *stream = (struct cli_stream){.number = number, .from = from, .size = BUFFER_SIZE};
    stream->buf = malloc(stream->size);
    if (stream->buf == NULL || fcntl(from, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    return cli_sink_open(&stream->sink, number, other == NULL ? NULL : &other->sink);
}

void cli_stream_release(struct cli_stream *stream) {
    if (stream->from >= 0)
        close(stream->from);
    cli_sink_close(&stream->sink);
    free(stream->buf);
    *stream = (struct cli_stream){.from = -1};
}

bool cli_stream_poll(const struct cli_stream *stream, struct pollfd *ret) {
    if (cli_stream_over(stream))
        return false;
    if (stream->at < stream->len)
        *ret = cli_sink_poll(&stream->sink);
    else
        *ret = (struct pollfd){.fd = stream->from, .events = POLLIN};
    return true;
}

static void stream_sink_fail(struct cli_stream *stream) {
    if (errno != EPIPE && errno != ECONNRESET)
        stream->fault = errno;
    stream->deaf = true;
    stream->at = stream->len = 0;
}

/* poll(2) may report room where write(2) finds none, as for a terminal with room for half a line
   end. Retrying at once would use the whole processor. */
static void run_stream_pause(void) {
    poll(NULL, 0, 1);
}

void cli_stream_pass(struct cli_stream *stream) {
    size_t before = stream->at;
    ssize_t n;

    while (stream->at < stream->len) {
        n = cli_sink_write(&stream->sink, stream->buf + stream->at, stream->len - stream->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (stream->at == before)
                run_stream_pause();
            return;
        }
        if (n < 0) {
            stream_sink_fail(stream);
            return;
        }
        stream->at += (size_t)n;
    }
    stream->at = stream->len = 0;
}

/* Reads once, behind the bytes that wait. False if there is nothing to read, or at the end. */
static bool stream_read(struct cli_stream *stream, struct cli_result *keep) {
    ssize_t n;

    do
        n = read(stream->from, stream->buf + stream->len, stream->size - stream->len);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        cli_result_add(keep, stream->number, stream->buf + stream->len, (size_t)n);
        if (!stream->deaf)
            stream->len += (size_t)n;
        return true;
    }
    if (n == 0 || errno != EAGAIN) {
        close(stream->from);
        stream->from = -1;
    }
    return false;
}

void cli_stream_turn(struct cli_stream *stream, struct cli_result *keep) {
    cli_stream_pass(stream);
    if (stream->from >= 0 && stream->at == stream->len && stream_read(stream, keep))
        cli_stream_pass(stream);
}

static bool stream_reserve(struct cli_stream *stream) {
    unsigned char *buf;

    memmove(stream->buf, stream->buf + stream->at, stream->len - stream->at);
    stream->len -= stream->at;
    stream->at = 0;
    if (stream->size - stream->len >= BUFFER_SIZE)
        return true;
    buf = realloc(stream->buf, stream->size + BUFFER_SIZE);
    if (buf == NULL)
        return false;
    stream->buf = buf;
    stream->size += BUFFER_SIZE;
    return true;
}

void cli_stream_sweep(struct cli_stream *stream, struct cli_result *keep) {
    size_t before, swept = 0, most;
    int pipe_size;

    if (stream->from < 0)
        return;
    /* A background process may write for ever. The command itself can have left no more in the pipe
       than the pipe can hold. */
    pipe_size = fcntl(stream->from, F_GETPIPE_SZ);
    most = pipe_size > 0 ? (size_t)pipe_size : BUFFER_SIZE;
    while (swept < most) {
        if (!stream_reserve(stream)) {
            cli_result_release(keep);
            break;
        }
        before = keep->output;
        if (!stream_read(stream, keep))
            break;
        swept += keep->over ? BUFFER_SIZE : keep->output - before;
    }
    if (stream->from >= 0)
        close(stream->from);
    stream->from = -1;
}

bool cli_stream_pending(struct cli_stream *stream, struct pollfd *ret) {
    int state = stream->deaf ? 1 : cli_sink_state(&stream->sink);

    if (state < 0)
        stream_sink_fail(stream);
    if (state < 0 || (state > 0 && stream->at == stream->len))
        return false;
    *ret = cli_sink_poll(&stream->sink);
    return true;
}
