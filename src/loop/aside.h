/*
 * Work that blocks, beside the loop: in a thread of its own, whose end is told from the loop.
 * Whoever asked for it may lose interest at any time; the thread then goes on alone.
 */
#ifndef IDEM_LOOP_ASIDE_H
#define IDEM_LOOP_ASIDE_H

#include "loop/loop.h"

struct idem_aside;

struct idem_aside_kind {
    void (*work)(void *shared);    /* in the thread */
    void (*release)(void *shared); /* by whoever lets go last, in either */
};

/* `done` runs from the loop, once, when the work is. `shared` is released in any case, also where
   this fails: NULL, without memory, a descriptor or a thread. */
struct idem_aside *idem_aside_new(struct idem_loop *loop, const struct idem_aside_kind *kind,
                                  void *shared, void (*done)(void *data), void *data);
/* In `done` or whenever. */
void idem_aside_free(struct idem_aside *aside);

#endif
