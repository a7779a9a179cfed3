/*
 * A body that is too large for memory waits in a file until it is among the dead letters. The
 * file has no name, so that nothing of it can be left behind. It is filled by writing: a full
 * disk is then an error, and not a signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "queue/amqp/rabbit.h"

int rabbit_spool_open(size_t size) {
    const char *folder = getenv("TMPDIR");
    int fd = open(folder == NULL || folder[0] == '\0' ? "/tmp" : folder,
                  O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)size) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool rabbit_spool_room(size_t size) {
    int fd = rabbit_spool_open(size);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

bool rabbit_spool_write(int fd, const void *bytes, size_t len, size_t at) {
    const char *from = bytes;
    ssize_t n;

    while (len > 0) {
        n = pwrite(fd, from, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        at += (size_t)n;
        len -= (size_t)n;
    }
    return true;
}

void *rabbit_spool_map(int fd, size_t size) {
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

    close(fd);
    return at == MAP_FAILED ? NULL : at;
}
