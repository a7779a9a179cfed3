/*
 * One operation of the store on a handle's own loop: one request, and one result or a timeout.
 */
#ifndef IDEM_CORE_STORE_CALL_H
#define IDEM_CORE_STORE_CALL_H

#include "core/handle.h"

/* A member of a struct that its user allocates. `answered` is called last and may free that
   struct. err is NULL if rc is 0. */
struct idem_ask {
    struct idem *h; /* NULL: the handle was closed, or nothing is under way */
    struct idem_ask *next, **link;
    struct idem_op op; /* the user fills it, except complete and data */
    struct idem_timer timer;
    struct idem_task task;
    void (*answered)(struct idem_ask *ask, int rc, const struct idem_error *err);
};

void idem_ask_start(struct idem *h, struct idem_ask *ask);
/* Stops the operation: no callback follows. Also works in a forked child and after the handle
   closed. */
void idem_ask_stop(struct idem_ask *ask);

#endif
