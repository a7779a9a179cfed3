/*
 * A preload (LD_PRELOAD): counts the bytes of marked text that a program copies
 * in each turn of its event loop. It writes one number per line, for each turn
 * that copied some, into the file that IDEM_COPY_COUNT names. A copy of at
 * least 64 bytes counts as a whole if the mark is in its middle.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MARK "copied? "
#define MARK_LEN (sizeof(MARK) - 1)

int epoll_wait(int epfd, void *events, int max, int timeout);
void *memcpy(void *to, const void *from, size_t len);
void *memmove(void *to, const void *from, size_t len);
void *mempcpy(void *to, const void *from, size_t len);
void *__memcpy_chk(void *to, const void *from, size_t len, size_t room);
void *__memmove_chk(void *to, const void *from, size_t len, size_t room);

typedef void *move_fn(void *to, const void *from, size_t len);
typedef int wait_fn(int epfd, void *events, int max, int timeout);

static int log_fd = -1;
static size_t copied;
static move_fn *move;

/* Before main: nginx clears its environment. */
__attribute__((constructor)) static void count_open(void) {
    const char *path = getenv("IDEM_COPY_COUNT");

    move = (move_fn *)dlsym(RTLD_NEXT, "memmove");
    if (path != NULL)
        log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* Without calls, which could be copies. The mark recurs, so that one begins within its length. */
static bool count_is_marked(const char *from, size_t len) {
    for (size_t i = 0; len >= 64 && i < MARK_LEN; i++) {
        size_t same = 0;

        while (same < MARK_LEN && from[len / 2 + i + same] == MARK[same])
            same++;
        if (same == MARK_LEN)
            return true;
    }
    return false;
}

static void *count_move(void *to, const void *from, size_t len) {
    volatile char *at = to;

    if (count_is_marked(from, len))
        copied += len;
    if (move != NULL)
        return move(to, from, len);
    for (size_t i = 0; i < len; i++) /* the loader's own copies do not overlap */
        at[i] = ((const char *)from)[i];
    return to;
}

void *memcpy(void *to, const void *from, size_t len) {
    return count_move(to, from, len);
}

void *memmove(void *to, const void *from, size_t len) {
    return count_move(to, from, len);
}

void *mempcpy(void *to, const void *from, size_t len) {
    return (char *)count_move(to, from, len) + len;
}

void *__memcpy_chk(void *to, const void *from, size_t len, size_t room) {
    if (len > room)
        abort();
    return count_move(to, from, len);
}

void *__memmove_chk(void *to, const void *from, size_t len, size_t room) {
    return __memcpy_chk(to, from, len, room);
}

int epoll_wait(int epfd, void *events, int max, int timeout) {
    static wait_fn *next;

    if (next == NULL)
        next = (wait_fn *)dlsym(RTLD_NEXT, "epoll_wait");
    if (copied > 0 && log_fd >= 0 && dprintf(log_fd, "%zu\n", copied) < 0)
        abort();
    copied = 0;
    return next(epfd, events, max, timeout);
}
