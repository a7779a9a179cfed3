/*
 * Chooses for each kind of descriptor how it is written to without waiting.
 * Opening fails where a thread is needed and there is none to be had.
 */
#include "cli/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MEMORY_MAJOR 1 /* /dev/null, /dev/full and so on */

/* A terminal, and not the other end of one: to open that again makes a new terminal. */
static bool is_terminal(int fd) {
    unsigned number;

    return isatty(fd) && ioctl(fd, TIOCGPTN, &number) < 0;
}

/* The same pipe or terminal as an open file of its own; -1 where the system refuses it: another
   user's, one whose reader has left. */
static int open_again(int fd) {
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Files are not opened again: the place where the next byte goes is the open file's. */
static enum cli_sink_kind kind_of(int fd) {
    struct stat stat;

    if (fstat(fd, &stat) < 0 || S_ISREG(stat.st_mode) || S_ISBLK(stat.st_mode))
        return CLI_SINK_DIRECT;
    if (S_ISCHR(stat.st_mode) && major(stat.st_rdev) == MEMORY_MAJOR)
        return CLI_SINK_DIRECT;
    if (S_ISSOCK(stat.st_mode))
        return CLI_SINK_SOCKET;
    return S_ISFIFO(stat.st_mode) || is_terminal(fd) ? CLI_SINK_OWN : CLI_SINK_PUMP;
}

static bool is_same_file(int a, int b) {
    struct stat of_a, of_b;

    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* Two threads that write to one file would exchange what they were given in order. */
static struct cli_pump *pump_for(int fd, const struct cli_sink *other) {
    if (other != NULL && other->kind == CLI_SINK_PUMP && is_same_file(fd, other->fd))
        return cli_pump_share(other->pump);
    return cli_pump_new(fd);
}

int cli_sink_open(struct cli_sink *sink, int fd, const struct cli_sink *other) {
    struct cli_sink got = {.kind = kind_of(fd), .fd = fd};

    if (got.kind == CLI_SINK_OWN) {
        got.fd = open_again(fd);
        if (got.fd < 0)
            got = (struct cli_sink){.kind = CLI_SINK_PUMP, .fd = fd};
    }
    if (got.kind == CLI_SINK_PUMP) {
        got.pump = pump_for(fd, other);
        if (got.pump == NULL)
            return -1;
    }
    *sink = got;
    return 0;
}

void cli_sink_close(struct cli_sink *sink) {
    if (sink->kind == CLI_SINK_OWN)
        close(sink->fd);
    cli_pump_free(sink->pump);
    *sink = (struct cli_sink){.kind = CLI_SINK_NONE};
}

ssize_t cli_sink_write(struct cli_sink *sink, const void *bytes, size_t len) {
    switch (sink->kind) {
    case CLI_SINK_SOCKET:
        return send(sink->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    case CLI_SINK_PUMP:
        return cli_pump_write(sink->pump, bytes, len);
    default:
        return write(sink->fd, bytes, len);
    }
}

struct pollfd cli_sink_poll(const struct cli_sink *sink) {
    if (sink->kind == CLI_SINK_PUMP)
        return (struct pollfd){.fd = cli_pump_fd(sink->pump), .events = POLLIN};
    return (struct pollfd){.fd = sink->fd, .events = POLLOUT};
}

int cli_sink_state(struct cli_sink *sink) {
    return sink->kind == CLI_SINK_PUMP ? cli_pump_state(sink->pump) : 1;
}
