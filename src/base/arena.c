/*
 * Arena allocation: memory in chunks within a limit, freed all at once.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>

#define ALIGN 16
#define CHUNK_MIN 4000
#define CHUNK_MAX ((size_t)1 << 20)

struct idem_chunk {
    struct idem_chunk *next;
    size_t size;
    _Alignas(ALIGN) char bytes[];
};

void idem_arena_init(struct idem_arena *arena, size_t limit) {
    *arena = (struct idem_arena){.left = limit};
}

static void arena_chunks_free(struct idem_chunk *chunk) {
    while (chunk != NULL) {
        struct idem_chunk *next = chunk->next;

        free(chunk);
        chunk = next;
    }
}

void idem_arena_free(struct idem_arena *arena) {
    arena_chunks_free(arena->chunks);
    *arena = (struct idem_arena){0};
}

void idem_arena_reset(struct idem_arena *arena, size_t limit) {
    struct idem_chunk *last = arena->chunks;

    arena->left = limit;
    if (last == NULL)
        return;
    arena_chunks_free(last->next);
    last->next = NULL;
    arena->at = last->bytes;
    arena->end = last->bytes + last->size;
}

/* Doubles the size of the last chunk, so that many small allocations need few chunks. */
static struct idem_chunk *arena_chunk_new(const struct idem_arena *arena, size_t size) {
    size_t want = arena->chunks == NULL ? CHUNK_MIN : 2 * arena->chunks->size;
    struct idem_chunk *chunk;

    if (want > CHUNK_MAX)
        want = CHUNK_MAX;
    if (want < size)
        want = size;
    chunk = malloc(sizeof(*chunk) + want);
    if (chunk != NULL)
        chunk->size = want;
    return chunk;
}

void *idem_arena_alloc(struct idem_arena *arena, size_t size) {
    struct idem_chunk *chunk;
    void *at;

    if (size > SIZE_MAX / 4)
        return NULL;
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (size > arena->left)
        return NULL;
    if (size > (size_t)(arena->end - arena->at)) {
        chunk = arena_chunk_new(arena, size);
        if (chunk == NULL)
            return NULL;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        arena->at = chunk->bytes;
        arena->end = chunk->bytes + chunk->size;
    }
    at = arena->at;
    arena->at += size;
    arena->left -= size;
    return at;
}
