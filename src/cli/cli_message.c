/*
 * Messages on stderr, each in one write, so that lines of two processes do not mix. If stderr does
 * not take them they are lost; the exit status still reports the outcome.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/visible.h"
#include "cli/cli.h"

const char *cli_printable(const char *text, char *buf, size_t size) {
    (void)idem_visible_copy(text, strlen(text), '?', buf, size);
    return buf;
}

static void cli_message_write(const char *text, size_t len) {
    ssize_t done;

    fflush(stdout);
    for (size_t at = 0; at < len; at += (size_t)done) {
        done = write(STDERR_FILENO, text + at, len - at);
        if (done < 0 && errno == EINTR)
            done = 0;
        else if (done <= 0)
            return;
    }
}

__attribute__((format(printf, 1, 0))) static void cli_message_format(const char *fmt,
                                                                     va_list args) {
    char text[1536], line[1600] = "idem: ";
    size_t len;

    vsnprintf(text, sizeof(text), fmt, args);
    cli_printable(text, line + strlen(line), sizeof(line) - strlen(line) - 1);
    len = strlen(line);
    line[len++] = '\n';
    cli_message_write(line, len);
}

void cli_message(const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    cli_message_format(fmt, args);
    va_end(args);
}

int cli_fail(int status, const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    cli_message_format(fmt, args);
    va_end(args);
    return status;
}

int cli_usage(const char *command, const char *fmt, ...) {
    char text[1536];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return cli_fail(CLI_USAGE, "%s: %s (see: idem help %s)", command, text, command);
}

/* An error in an expression has three lines: the message, the expression, and a caret below the
   error. */
static void cli_message_write_error(const char *doing, const char *text) {
    char lines[1600], part[sizeof(((struct idem_error *)0)->text)];
    size_t len = (size_t)snprintf(lines, sizeof(lines), "idem: %s: ", doing), n;

    for (const char *at = text; *at != '\0'; at += n + (at[n] == '\n')) {
        n = strcspn(at, "\n");
        snprintf(part, sizeof(part), "%.*s", (int)n, at);
        cli_printable(part, lines + len, sizeof(lines) - len - 1);
        len += strlen(lines + len);
        lines[len++] = '\n';
    }
    cli_message_write(lines, len);
}

int cli_message_error(const char *doing, const struct idem_error *err) {
    /* The library's own text is about the arguments of its C caller. */
    cli_message_write_error(
        doing,
        err->code == IDEM_E_LIVE
            ? "its lease is not over: it is running, or waits to run again; wait, or use --force"
            : err->text);
    switch (err->code) {
    case IDEM_E_INVALID:
        return CLI_USAGE;
    case IDEM_E_NOMEM:
        return CLI_SYSTEM;
    case IDEM_E_ABSENT:
        return CLI_ABSENT;
    case IDEM_E_LIVE:
        return CLI_BUSY;
    case IDEM_E_SETTLED:
        return CLI_MISMATCH;
    default:
        return CLI_STORE;
    }
}

int cli_flush(void) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CLI_OK;
    if (errno == EPIPE)
        return CLI_OK;
    return cli_fail(CLI_IO, "writing to stdout: %s", strerror(errno));
}

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
