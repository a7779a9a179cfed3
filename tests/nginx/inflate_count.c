/*
 * A preload (LD_PRELOAD): for each turn of the event loop that decoded with
 * zlib or changed the number of decoders, writes a line of three numbers into
 * the file that IDEM_INFLATE_COUNT names: bytes of output, bytes of input, and
 * decoders open at the end of the turn.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

int epoll_wait(int epfd, void *events, int max, int timeout);

typedef int init_fn(z_stream *z, int bits, const char *version, int size);
typedef int step_fn(z_stream *z, int flush);
typedef int end_fn(z_stream *z);
typedef int wait_fn(int epfd, void *events, int max, int timeout);

static int log_fd = -1;
static unsigned long bytes, read_bytes;
static long held, told;

/* Before main: nginx clears its environment. */
__attribute__((constructor)) static void count_open(void) {
    const char *path = getenv("IDEM_INFLATE_COUNT");

    if (path != NULL)
        log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

int inflateInit2_(z_stream *z, int bits, const char *version, int size) {
    static init_fn *next;

    if (next == NULL)
        next = (init_fn *)dlsym(RTLD_NEXT, "inflateInit2_");
    held++;
    return next(z, bits, version, size);
}

int inflateEnd(z_stream *z) {
    static end_fn *next;

    if (next == NULL)
        next = (end_fn *)dlsym(RTLD_NEXT, "inflateEnd");
    held--;
    return next(z);
}

int inflate(z_stream *z, int flush) {
    static step_fn *next;
    unsigned before = z->avail_out, unread = z->avail_in;
    int rc;

    if (next == NULL)
        next = (step_fn *)dlsym(RTLD_NEXT, "inflate");
    rc = next(z, flush);
    bytes += before - z->avail_out;
    read_bytes += unread - z->avail_in;
    return rc;
}

int epoll_wait(int epfd, void *events, int max, int timeout) {
    static wait_fn *next;

    if (next == NULL)
        next = (wait_fn *)dlsym(RTLD_NEXT, "epoll_wait");
    if ((read_bytes > 0 || held != told) && log_fd >= 0 &&
        dprintf(log_fd, "%lu %lu %ld\n", bytes, read_bytes, held) < 0)
        abort();
    bytes = read_bytes = 0;
    told = held;
    return next(epfd, events, max, timeout);
}
