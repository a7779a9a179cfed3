/*
 * A handle on a poll loop that a test turns by hand.
 */
#ifndef IDEM_TEST_CORE_POLL_HANDLE_H
#define IDEM_TEST_CORE_POLL_HANDLE_H

#include "loop/poll.h"
#include "temp.h"
#include "test.h"

struct rig {
    struct idem_poll poll;
    struct idem *h;
};

static inline void rig_ready(void *sink, int fd, int events) {
    idem_ready(((struct rig *)sink)->h, fd, events);
}

static inline void rig_timeout(void *sink) {
    idem_timeout(((struct rig *)sink)->h);
}

static inline void rig_begin(struct rig *rig, const char *store,
                             const struct idem_options *options) {
    struct idem_host host;

    idem_poll_init(&rig->poll);
    rig->poll.ready = rig_ready;
    rig->poll.timeout = rig_timeout;
    rig->poll.sink = rig;
    host = idem_poll_host(&rig->poll);
    CHECK_INT(idem_open_on(temp_url("store", store), options, &host, &rig->h, NULL), 0);
}

static inline void rig_end(struct rig *rig) {
    idem_close(rig->h);
    idem_poll_release(&rig->poll);
}

#endif
