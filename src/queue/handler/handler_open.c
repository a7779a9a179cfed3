/*
 * Shared by the handlers: the check of their settings, and the close.
 */
#include "queue/handler/handler_open.h"

#include <string.h>

#include "base/error.h"

/* The kernel accepts no longer string as an argument. */
#define COMMAND_MAX 131071

void handler_close(struct handler *handler) {
    if (handler->close != NULL)
        handler->close(handler->queue.data);
    *handler = (struct handler){0};
}

int handler_open_check_workers(unsigned workers, struct idem_error *err) {
    if (workers >= 1 && workers <= HANDLER_WORKERS_MAX)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "%u workers: there are 1 to %d", workers,
                          HANDLER_WORKERS_MAX);
}

int handler_open_check_program(const char *option, const struct handler_program *program,
                               unsigned workers, struct idem_error *err) {
    if (program->command == NULL || program->command[strspn(program->command, " \t\n")] == '\0')
        return idem_error_set(err, IDEM_E_INVALID, "%s: the command is empty", option);
    if (strlen(program->command) > COMMAND_MAX)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: the command is longer than the system takes (%d bytes); put it "
                              "into a file",
                              option, COMMAND_MAX);
    return handler_open_check_workers(workers, err);
}
