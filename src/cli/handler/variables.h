/*
 * What a program is told of its message: IDEM_* variables, beside those of our
 * own environment.
 *
 *     IDEM_KEY           the key, unless a NUL is in it
 *     IDEM_KEY_HASH      the record's, as logs and idem show have it
 *     IDEM_ATTEMPT       the fencing number
 *     IDEM_QUEUE         where it comes from
 *     IDEM_TRACE         what logs call it
 *     IDEM_REDELIVERED   1: the broker says that it was delivered before; or 0
 *     IDEM_MESSAGE_ID, IDEM_CONTENT_TYPE, if it has them
 *     IDEM_PROPERTIES, IDEM_HEADERS    all of them, JSON objects
 *     IDEM_HEADER_NAME   each header that is text: NAME in capitals, with _ for
 *                        what is neither a letter nor a digit of ASCII
 *     IDEM_OMITTED       the names of those that there was no room for, that hold
 *                        a NUL, or whose spelling another header has already
 *
 * There is room for 128 KiB, or less where the system has less for a program.
 */
#ifndef IDEM_CLI_HANDLER_VARIABLES_H
#define IDEM_CLI_HANDLER_VARIABLES_H

#include "queue/handler.h"

#define HANDLER_VARIABLES_MAX 131071 /* the kernel takes no longer string either */
#define HANDLER_HEADERS_MAX 256      /* that have a variable of their own */

/* The whole environment, for a program with `args_len` bytes of arguments. NULL without memory.
   What is inherited is borrowed: while it is used, nothing may change ours. */
char **handler_variables(const struct queue_work *work, size_t args_len);
void handler_variables_free(char **env);

#endif
