/*
 * Blocks of one size that are needed again and again: a few are kept, because malloc() takes long
 * for what is larger than a kilobyte. For one thread at a time. All zero: none.
 */
#ifndef IDEM_CORE_SPARE_H
#define IDEM_CORE_SPARE_H

#include <stddef.h>

/* How many are kept. Variable only so that tests can have every allocation seen. */
extern unsigned idem_spare_max;

struct idem_spare {
    struct idem_spare_block *first;
    unsigned n;
};

/* Of that size always; not cleared. NULL: no memory. */
void *idem_spare_take(struct idem_spare *spare, size_t size);
void idem_spare_give(struct idem_spare *spare, void *block);
void idem_spare_free(struct idem_spare *spare);

#endif
