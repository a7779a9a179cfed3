/*
 * A free list of blocks of one size. Allocation fails only if malloc() fails.
 */
#include "base/freelist.h"

#include <stdlib.h>

/* With AddressSanitizer the list keeps no block, so that each use after release is reported. */
#if defined(__SANITIZE_ADDRESS__)
#define FREELIST_MAX 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FREELIST_MAX 0
#endif
#endif
#ifndef FREELIST_MAX
#define FREELIST_MAX 64
#endif

unsigned idem_freelist_max = FREELIST_MAX;

struct idem_freelist_block {
    struct idem_freelist_block *next;
};

void *idem_freelist_take(struct idem_freelist *freelist, size_t size) {
    struct idem_freelist_block *block = freelist->first;

    if (block == NULL)
        return malloc(size);
    freelist->first = block->next;
    freelist->n--;
    return block;
}

void idem_freelist_put(struct idem_freelist *freelist, void *at) {
    struct idem_freelist_block *block = at;

    if (freelist->n >= idem_freelist_max) {
        free(at);
        return;
    }
    block->next = freelist->first;
    freelist->first = block;
    freelist->n++;
}

void idem_freelist_free(struct idem_freelist *freelist) {
    struct idem_freelist_block *block;

    while ((block = freelist->first) != NULL) {
        freelist->first = block->next;
        free(block);
    }
    freelist->n = 0;
}
