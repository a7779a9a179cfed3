/*
 * A descriptor of ours that is written to without ever waiting, whatever it is
 * and whoever shares it.
 *
 * Poll(2) is no promise: a terminal takes part of a write and blocks on the
 * rest, and a pipe's room may be another writer's before we use it. O_NONBLOCK
 * would be, but is a property of the open file, which belongs to who started us
 * as well. So pipes and terminals are opened once more, for an open file of our
 * own; where that cannot be done, a thread does the waiting.
 */
#ifndef IDEM_CLI_SINK_H
#define IDEM_CLI_SINK_H

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cli/pump.h"

enum cli_sink_kind {
    CLI_SINK_NONE,
    CLI_SINK_DIRECT, /* files and the like, which take all at once */
    CLI_SINK_OWN,    /* an open file of our own, with O_NONBLOCK */
    CLI_SINK_SOCKET,
    CLI_SINK_PUMP,
};

struct cli_sink {
    enum cli_sink_kind kind;
    int fd;
    struct cli_pump *pump;
};

/* The descriptor stays the caller's. Where `other` (NULL: none) is the same file, what both are
   given keeps its order. 0, or -1 with errno. Signals that the caller reads from a descriptor must
   be blocked before: there may be a thread. */
int cli_sink_open(struct cli_sink *sink, int fd, const struct cli_sink *other);

/* NULL is not allowed; one that is zeros is closed already. */
void cli_sink_close(struct cli_sink *sink);

/* As write(2) with O_NONBLOCK: EAGAIN means to try again after cli_sink_poll(). */
ssize_t cli_sink_write(struct cli_sink *sink, const void *bytes, size_t len);

/* What to wait for until it takes more, or has passed all on. */
struct pollfd cli_sink_poll(const struct cli_sink *sink);

/* 1: what it took is passed on; 0: not yet; -1 with errno: it cannot be. */
int cli_sink_state(struct cli_sink *sink);

#endif
