/*
 * Runs work that blocks in a thread of its own, and reports its end on the loop. The owner may
 * free its handle at any time; the thread then finishes alone.
 */
#ifndef IDEM_LOOP_OFFLOAD_H
#define IDEM_LOOP_OFFLOAD_H

#include "loop/loop.h"

struct idem_offload;

struct idem_offload_kind {
    void (*work)(void *shared);    /* in the thread */
    void (*release)(void *shared); /* by the last user, in the thread or in the owner's thread */
};

/* `done` runs once on the loop when the work has ended. `shared` is always released, also on
   failure. NULL: no memory, descriptor or thread. */
struct idem_offload *idem_offload_new(struct idem_loop *loop, const struct idem_offload_kind *kind,
                                      void *shared, void (*done)(void *data), void *data);
/* May be called in `done`, or at any other time. */
void idem_offload_free(struct idem_offload *offload);

#endif
