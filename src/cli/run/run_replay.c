/*
 * Writes a stored result to stdout and stderr. Fails if the bytes do not have the form that `idem
 * run` stores; reports the stream that could not be written.
 */
#include "cli/run/run_replay.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

bool cli_write_all(int fd, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    ssize_t n;

    while (len != 0) {
        n = write(fd, at, len);
        if (n < 0 && errno == EAGAIN)
            poll(&writable, 1, -1);
        else if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        }
    }
    return true;
}

bool cli_replay(const void *bytes, size_t len, struct spawn_end *ret_end,
                struct cli_fault *ret_fault) {
    bool failed[3] = {false, false, false};
    struct cli_fault fault = {0, 0};
    struct cli_reader reader;
    struct cli_chunk chunk;

    if (!cli_result_read(bytes, len, ret_end, &reader))
        return false;
    while (cli_reader_next(&reader, &chunk)) {
        if (failed[chunk.stream] || cli_write_all(chunk.stream, chunk.bytes, chunk.len))
            continue;
        failed[chunk.stream] = true;
        if (fault.why == 0 && errno != EPIPE && errno != ECONNRESET)
            fault = (struct cli_fault){chunk.stream, errno};
    }
    *ret_fault = fault;
    return true;
}
