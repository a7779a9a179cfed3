/*
 * Memory that is given back all at once: chunks, within a limit. What a
 * document or an evaluation needs lives in one of these, so that neither can
 * leak, and neither can take more than it was allowed.
 */
#ifndef IDEM_CORE_ARENA_H
#define IDEM_CORE_ARENA_H

#include <stddef.h>

struct idem_arena {
    struct idem_chunk *chunks;
    char *at, *end;
    size_t left; /* of the limit */
};

/* No memory is taken before the first allocation. */
void idem_arena_init(struct idem_arena *arena, size_t limit);
void idem_arena_free(struct idem_arena *arena);
/* Gives back what was allocated, keeps one chunk for the next use. */
void idem_arena_reset(struct idem_arena *arena, size_t limit);

/* Aligned for anything; NULL without memory or beyond the limit. */
void *idem_arena_alloc(struct idem_arena *arena, size_t size);
/* Whether the limit, and not the machine, was the reason. */
static inline int idem_arena_spent(const struct idem_arena *arena, size_t size) {
    return size > arena->left;
}

#endif
