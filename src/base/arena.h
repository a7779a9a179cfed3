/*
 * An arena: memory that is allocated in chunks, within a limit, and freed all at once. A document
 * or an evaluation keeps all its memory in one arena, so that it cannot leak and cannot exceed its
 * limit.
 */
#ifndef IDEM_BASE_ARENA_H
#define IDEM_BASE_ARENA_H

#include <stddef.h>

struct idem_arena {
    struct idem_chunk *chunks;
    char *at, *end;
    size_t left; /* bytes of the limit that remain */
};

/* Allocates nothing before the first call to idem_arena_alloc(). */
void idem_arena_init(struct idem_arena *arena, size_t limit);
void idem_arena_free(struct idem_arena *arena);
/* Frees every allocation, and keeps one chunk for the next use. */
void idem_arena_reset(struct idem_arena *arena, size_t limit);

/* The memory is aligned for any type. NULL if malloc() fails or the limit is exceeded. */
void *idem_arena_alloc(struct idem_arena *arena, size_t size);
/* True if an allocation of `size` bytes fails because of the limit, not because of malloc(). */
static inline int idem_arena_spent(const struct idem_arena *arena, size_t size) {
    return size > arena->left;
}

#endif
