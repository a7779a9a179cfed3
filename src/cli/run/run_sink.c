/*
 * Chooses how to write to each kind of descriptor without waiting. Opening fails where a thread is
 * needed and cannot be started.
 */
#include "cli/run/run_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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
        return cli_pump_share(other->pump);
    return cli_pump_new(fd);
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
