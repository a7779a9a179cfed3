/*
 * A free list of blocks of one size. Allocation fails only if malloc() fails.
 */
#include "base/freelist.h"

#include <stdlib.h>

/* With AddressSanitizer the list keeps no block, so that each use after release is reported. */
#if defined(__SANITIZE_ADDRESS__)
#define SPARE_MAX 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPARE_MAX 0
#endif
#endif
#ifndef SPARE_MAX
#define SPARE_MAX 64
#endif

unsigned idem_spare_max = SPARE_MAX;

struct idem_spare_block {
    struct idem_spare_block *next;
};

void *idem_spare_take(struct idem_spare *spare, size_t size) {
    struct idem_spare_block *block = spare->first;

    if (block == NULL)
        return malloc(size);
    spare->first = block->next;
    spare->n--;
    return block;
}

void idem_spare_give(struct idem_spare *spare, void *at) {
    struct idem_spare_block *block = at;

    if (spare->n >= idem_spare_max) {
        free(at);
        return;
    }
    block->next = spare->first;
    spare->first = block;
    spare->n++;
}

void idem_spare_free(struct idem_spare *spare) {
    struct idem_spare_block *block;

    while ((block = spare->first) != NULL) {
        spare->first = block->next;
        free(block);
    }
    spare->n = 0;
}
