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
#ifndef IDEM_CLI_RUN_RUN_SINK_H
#define IDEM_CLI_RUN_RUN_SINK_H

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cli/run/run_pump.h"

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

/* The event to wait for until the sink takes more, or has written everything it took. */
struct pollfd cli_sink_poll(const struct cli_sink *sink);

/* 1: everything it took is written; 0: not yet; -1 with errno: a write has failed. */
int cli_sink_state(struct cli_sink *sink);

#endif
