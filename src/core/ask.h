/*
 * One operation of the store on a handle's own loop: asked once, answered once, in time or not.
 */
#ifndef IDEM_CORE_ASK_H
#define IDEM_CORE_ASK_H

#include "core/handle.h"

/* Part of what its owner allocates. `answered` is the last thing that happens to it: it may free
   its owner. err is NULL where rc is 0. */
struct idem_ask {
    struct idem *h; /* NULL: the handle was closed, or it is not under way */
    struct idem_ask *next, **link;
    struct idem_op op; /* but for complete and data, the owner's to fill */
    struct idem_timer timer;
    struct idem_task task;
    void (*answered)(struct idem_ask *ask, int rc, const struct idem_error *err);
};

void idem_ask_start(struct idem *h, struct idem_ask *ask);
/* Nothing is called any more; also in a forked child, and after the handle was closed. */
void idem_ask_stop(struct idem_ask *ask);

#endif
