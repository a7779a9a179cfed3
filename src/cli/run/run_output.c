/*
 * The command's output, from its pipe to idem's own descriptors and into the stored result: pumps,
 * sinks and streams.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cli/run/run_output.h"

#include "cli/cli.h"

/*
 * The thread of a pump. Starting it fails without memory, descriptors or threads. After a failed
 * write the pump takes nothing more.
 */

#define PIECE 16384

struct cli_pump {
    int fd;
    int idle_fd;    /* an eventfd: readable while no piece is being written */
    unsigned users; /* only the thread that made it changes this */
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t changed;
    bool busy, stop;
    int fault; /* an errno */
    size_t len;
    unsigned char piece[PIECE];
};

static void pump_idle_set(const struct cli_pump *pump) {
    uint64_t one = 1;

    while (write(pump->idle_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static void pump_idle_clear(const struct cli_pump *pump) {
    uint64_t n;

    while (read(pump->idle_fd, &n, sizeof(n)) < 0 && errno == EINTR)
        ;
}

/* While `busy` is set, the piece belongs to the thread. */
static void *pump_main(void *data) {
    struct cli_pump *pump = data;
    int fault;

    pthread_mutex_lock(&pump->lock);
    for (;;) {
        while (!pump->busy && !pump->stop)
            pthread_cond_wait(&pump->changed, &pump->lock);
        if (!pump->busy)
            break;
        pthread_mutex_unlock(&pump->lock);
        fault = cli_write_all(pump->fd, pump->piece, pump->len) ? 0 : errno;
        pthread_mutex_lock(&pump->lock);
        pump->fault = fault;
        pump->busy = false;
        pump_idle_set(pump);
    }
    pthread_mutex_unlock(&pump->lock);
    return NULL;
}

/* Starts the thread, which writes to `fd` and has the caller's signal mask. NULL with errno. */
static struct cli_pump *pump_new(int fd) {
    struct cli_pump *pump = calloc(1, sizeof(*pump));
    int why;

    if (pump == NULL)
        return NULL;
    pump->fd = fd;
    pump->users = 1;
    pump->idle_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pump->idle_fd < 0) {
        free(pump);
        return NULL;
    }
    pthread_mutex_init(&pump->lock, NULL);
    pthread_cond_init(&pump->changed, NULL);
    why = pthread_create(&pump->thread, NULL, pump_main, pump);
    if (why == 0)
        return pump;
    close(pump->idle_fd);
    free(pump);
    errno = why;
    return NULL;
}

/* Adds a user, which must free the pump as well; returns the pump. */
static struct cli_pump *pump_share(struct cli_pump *pump) {
    pump->users++;
    return pump;
}

/* NULL is allowed. A thread in the middle of a write cannot be stopped: it is detached, and ends
   with the process. */
static void pump_free(struct cli_pump *pump) {
    bool busy;

    if (pump == NULL || --pump->users != 0)
        return;
    pthread_mutex_lock(&pump->lock);
    busy = pump->busy;
    pump->stop = true;
    pthread_cond_signal(&pump->changed);
    pthread_mutex_unlock(&pump->lock);
    if (busy) {
        pthread_detach(pump->thread);
        return;
    }
    pthread_join(pump->thread, NULL);
    pthread_cond_destroy(&pump->changed);
    pthread_mutex_destroy(&pump->lock);
    close(pump->idle_fd);
    free(pump);
}

/* 1: idle; 0: a piece is being written; -1 with errno: a write has failed. */
static int pump_state(struct cli_pump *pump) {
    int state;

    pthread_mutex_lock(&pump->lock);
    state = pump->busy ? 0 : pump->fault != 0 ? -1 : 1;
    if (state < 0)
        errno = pump->fault;
    pthread_mutex_unlock(&pump->lock);
    return state;
}

/* Hands over a part of the bytes, which then count as written. -1 with EAGAIN while the last piece
   is being written, or with the errno of a failed write. */
static ssize_t pump_write(struct cli_pump *pump, const void *bytes, size_t len) {
    int state = pump_state(pump);

    if (state == 0)
        errno = EAGAIN;
    if (state <= 0)
        return -1;
    if (len > PIECE)
        len = PIECE;
    pthread_mutex_lock(&pump->lock);
    memcpy(pump->piece, bytes, len);
    pump->len = len;
    pump->busy = true;
    pump_idle_clear(pump);
    pthread_cond_signal(&pump->changed);
    pthread_mutex_unlock(&pump->lock);
    return (ssize_t)len;
}

/*
 * Chooses how to write to each kind of descriptor without waiting. Opening fails where a thread is
 * needed and cannot be started.
 */

#define MEMORY_MAJOR 1 /* /dev/null, /dev/full and so on */

/* True for a terminal, but not for its master end: opening that again makes a new terminal. */
static bool run_sink_is_terminal(int fd) {
    unsigned number;

    return isatty(fd) && ioctl(fd, TIOCGPTN, &number) < 0;
}

/* Opens the same pipe or terminal as an open file of its own. -1 if the system refuses: it belongs
   to another user, or its reader has closed it. */
static int run_sink_reopen(int fd) {
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* A file is not opened again: its offset belongs to the open file, which is shared. */
static enum cli_sink_kind run_sink_kind(int fd) {
    struct stat stat;

    if (fstat(fd, &stat) < 0 || S_ISREG(stat.st_mode) || S_ISBLK(stat.st_mode))
        return CLI_SINK_DIRECT;
    if (S_ISCHR(stat.st_mode) && major(stat.st_rdev) == MEMORY_MAJOR)
        return CLI_SINK_DIRECT;
    if (S_ISSOCK(stat.st_mode))
        return CLI_SINK_SOCKET;
    return S_ISFIFO(stat.st_mode) || run_sink_is_terminal(fd) ? CLI_SINK_OWN : CLI_SINK_PUMP;
}

static bool run_sink_is_same_file(int a, int b) {
    struct stat of_a, of_b;

    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* Two threads that write to one file could exchange the order of their pieces. */
static struct cli_pump *run_sink_pump(int fd, const struct cli_sink *other) {
    if (other != NULL && other->kind == CLI_SINK_PUMP && run_sink_is_same_file(fd, other->fd))
        return pump_share(other->pump);
    return pump_new(fd);
}

int cli_sink_open(struct cli_sink *sink, int fd, const struct cli_sink *other) {
    struct cli_sink got = {.kind = run_sink_kind(fd), .fd = fd};

    if (got.kind == CLI_SINK_OWN) {
        got.fd = run_sink_reopen(fd);
        if (got.fd < 0)
            got = (struct cli_sink){.kind = CLI_SINK_PUMP, .fd = fd};
    }
    if (got.kind == CLI_SINK_PUMP) {
        got.pump = run_sink_pump(fd, other);
        if (got.pump == NULL)
            return -1;
    }
    *sink = got;
    return 0;
}

void cli_sink_close(struct cli_sink *sink) {
    if (sink->kind == CLI_SINK_OWN)
        close(sink->fd);
    pump_free(sink->pump);
    *sink = (struct cli_sink){.kind = CLI_SINK_NONE};
}

ssize_t cli_sink_write(struct cli_sink *sink, const void *bytes, size_t len) {
    switch (sink->kind) {
    case CLI_SINK_SOCKET:
        return send(sink->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    case CLI_SINK_PUMP:
        return pump_write(sink->pump, bytes, len);
    default:
        return write(sink->fd, bytes, len);
    }
}

int cli_sink_drain(struct cli_sink *sink, const void *bytes, size_t *at, size_t len) {
    ssize_t n;

    while (*at < len) {
        n = cli_sink_write(sink, (const char *)bytes + *at, len - *at);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
        *at += n < 0 ? 0 : (size_t)n;
    }
    return 1;
}

struct pollfd cli_sink_poll(const struct cli_sink *sink) {
    if (sink->kind == CLI_SINK_PUMP)
        return (struct pollfd){.fd = sink->pump->idle_fd, .events = POLLIN};
    return (struct pollfd){.fd = sink->fd, .events = POLLOUT};
}

int cli_sink_state(struct cli_sink *sink) {
    return sink->kind == CLI_SINK_PUMP ? pump_state(sink->pump) : 1;
}

/*
 * Passes on one output of the command. If its descriptor takes no more bytes (the reader has closed
 * it, the disk is full), `sink_failed` is set: the output is still read to its end and kept.
 * Without memory for the last bytes of a pipe, the result is not kept.
 */

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
    stream->sink_failed = true;
    stream->at = stream->len = 0;
}

void cli_stream_pass(struct cli_stream *stream) {
    size_t before = stream->at;
    int done = cli_sink_drain(&stream->sink, stream->buf, &stream->at, stream->len);

    if (done > 0)
        stream->at = stream->len = 0;
    else if (done < 0)
        stream_sink_fail(stream);
    else if (stream->at == before)
        /* poll(2) may report room where write(2) finds none, as for a terminal with room for half a
           line end. Retrying at once would use the whole processor. */
        poll(NULL, 0, 1);
}

/* Reads once, behind the bytes that wait. False if there is nothing to read, or at the end. */
static bool stream_read(struct cli_stream *stream, struct cli_result *keep) {
    ssize_t n;

    do
        n = read(stream->from, stream->buf + stream->len, stream->size - stream->len);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        cli_result_add(keep, stream->number, stream->buf + stream->len, (size_t)n);
        if (!stream->sink_failed)
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
    int state = stream->sink_failed ? 1 : cli_sink_state(&stream->sink);

    if (state < 0)
        stream_sink_fail(stream);
    if (state < 0 || (state > 0 && stream->at == stream->len))
        return false;
    *ret = cli_sink_poll(&stream->sink);
    return true;
}
