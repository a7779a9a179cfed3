/*
 * The IDEM_* variables that describe a message to a program, beside our own environment.
 *
 *     IDEM_KEY           the key, unless it contains a NUL
 *     IDEM_KEY_HASH      the record's hash, as in logs and idem show
 *     IDEM_ATTEMPT       the fencing number
 *     IDEM_QUEUE         the queue it was taken from
 *     IDEM_TRACE         its name in logs
 *     IDEM_REDELIVERED   1: the broker reports an earlier delivery; or 0
 *     IDEM_MESSAGE_ID, IDEM_CONTENT_TYPE, if it has them
 *     IDEM_PROPERTIES, IDEM_HEADERS    all of them, JSON objects
 *     IDEM_HEADER_NAME   each header that is text: NAME in capitals, with _ for
 *                        everything but letters and digits of ASCII
 *     IDEM_OMITTED       the names of those that did not fit, that contain a NUL,
 *                        or whose spelling another header already has
 *
 * There is room for 128 KiB, or less if the system has less for a program.
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_VARIABLES_H
#define IDEM_QUEUE_HANDLER_HANDLER_VARIABLES_H

#include "queue/handler.h"

#define HANDLER_VARIABLES_MAX 131071 /* the kernel accepts no longer string either */
#define HANDLER_HEADERS_MAX 256      /* limit for headers with a variable of their own */

/* The whole environment, for a program with `args_len` bytes of arguments. NULL without memory.
   Inherited variables are borrowed: our environment must not change while it is used. */
char **handler_variables(const struct queue_work *work, size_t args_len);
void handler_variables_free(char **env);

#endif
