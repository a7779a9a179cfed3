/*
 * A clock that a test moves while another program runs: a library that is preloaded into the
 * program reads it from a file that the test writes.
 */
#ifndef IDEM_TESTS_CLOCK_FILE_H
#define IDEM_TESTS_CLOCK_FILE_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Maps the first bytes of the file that an environment variable names. NULL: there is none. */
static const volatile void *clock_file_map(const char *variable, size_t size) {
    const char *path = getenv(variable);
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *at = MAP_FAILED;

    if (fd >= 0) {
        at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    return at == MAP_FAILED ? NULL : at;
}

#endif
