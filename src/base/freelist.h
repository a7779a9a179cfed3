/*
 * A free list: keeps a few blocks of one size for reuse, because malloc() is slow above a
 * kilobyte. One thread at a time may use a list. A list that is all zeros is empty.
 */
#ifndef IDEM_BASE_FREELIST_H
#define IDEM_BASE_FREELIST_H

#include <stddef.h>

/* The number of blocks that a list keeps. A variable only for tests, where 0 makes every
   allocation reach malloc(). */
extern unsigned idem_freelist_max;

struct idem_freelist {
    struct idem_freelist_block *first;
    unsigned n;
};

/* `size` is the same for every call on one list. The block is not cleared. NULL: malloc()
   failed. */
void *idem_freelist_take(struct idem_freelist *freelist, size_t size);
void idem_freelist_put(struct idem_freelist *freelist, void *block);
void idem_freelist_free(struct idem_freelist *freelist);

#endif
