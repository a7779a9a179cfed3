/*
 * A preload (LD_PRELOAD): counts the LMDB cursors that a program opens in each
 * turn of its event loop. It writes one number per line, for each turn that
 * opened some, into the file that IDEM_TURN_COUNT names.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int mdb_cursor_open(void *txn, unsigned dbi, void **cursor);
int epoll_wait(int epfd, void *events, int max, int timeout);

typedef int open_fn(void *txn, unsigned dbi, void **cursor);
typedef int wait_fn(int epfd, void *events, int max, int timeout);

static int log_fd = -1;
static unsigned cursors;

/* Before main: nginx clears its environment. */
__attribute__((constructor)) static void count_open(void) {
    const char *path = getenv("IDEM_TURN_COUNT");

    if (path != NULL)
        log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

int mdb_cursor_open(void *txn, unsigned dbi, void **cursor) {
    static open_fn *next;

    if (next == NULL)
        next = (open_fn *)dlsym(RTLD_NEXT, "mdb_cursor_open");
    cursors++;
    return next(txn, dbi, cursor);
}

int epoll_wait(int epfd, void *events, int max, int timeout) {
    static wait_fn *next;

    if (next == NULL)
        next = (wait_fn *)dlsym(RTLD_NEXT, "epoll_wait");
    if (cursors > 0 && log_fd >= 0 && dprintf(log_fd, "%u\n", cursors) < 0)
        abort();
    cursors = 0;
    return next(epfd, events, max, timeout);
}
