/*
 * The functions of malloc(3), which call those of glibc. Not for builds with a
 * sanitizer, which brings its own.
 */
#include "alloc_fault.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *old);

static _Atomic long live;
static _Atomic long until; /* allocations until one fails; at 0 or less, none fails */
static _Atomic int armed, failed, since;

void alloc_arm(long n, enum alloc_fault how) {
    failed = 0;
    since = how == ALLOC_FAIL_SINCE;
    until = n;
    armed = 1;
}

bool alloc_disarm(void) {
    armed = 0;
    return failed != 0;
}

long alloc_live(void) {
    return live;
}

static bool refused(void) {
    long turn;

    if (!armed)
        return false;
    turn = --until;
    if (turn > 0 || (turn < 0 && !since))
        return false;
    failed = 1;
    errno = ENOMEM;
    return true;
}

static void *counted(void *fresh) {
    if (fresh != NULL)
        live++;
    return fresh;
}

void *malloc(size_t size) {
    return refused() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size) {
    return refused() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *old, size_t size) {
    void *fresh;

    if (refused())
        return NULL;
    fresh = __libc_realloc(old, size);
    if (old == NULL)
        return counted(fresh);
    if (fresh == NULL && size == 0)
        live--; /* glibc frees the block in this case */
    return fresh;
}

void *reallocarray(void *old, size_t n, size_t size) {
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, bytes);
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size) {
    return refused() ? NULL : counted(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size) {
    void *fresh = memalign(alignment, size);

    if (fresh == NULL)
        return ENOMEM;
    *ret = fresh;
    return 0;
}

void free(void *old) {
    if (old != NULL)
        live--;
    __libc_free(old);
}

char *strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);

    return copy == NULL ? NULL : memcpy(copy, text, size);
}
