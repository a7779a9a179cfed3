/*
 * Maps a status to the result for a message: the exit status of a program (--on-exit), or the
 * status of an HTTP response (--on-status).
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_RULES_H
#define IDEM_QUEUE_HANDLER_HANDLER_RULES_H

#include "queue/handler.h"

#define HANDLER_STATUS_MAX 599

/* Each is an enum queue_result, or 0 if there is no rule. An exact number takes precedence over
   its class, and the class over the rest. */
struct handler_rules {
    unsigned char exact[HANDLER_STATUS_MAX + 1];
    unsigned char classes[HANDLER_STATUS_MAX / 100 + 1]; /* 4: 400 to 499 */
    unsigned char rest;
};

/*
 * Reads "65=dead,1=retry,*=unknown" over the defaults; NULL: the defaults. 0 is done, and
 * cannot be changed; 75 (EX_TEMPFAIL) is retry; 129 to 192, a shell's statuses for commands
 * ended by a signal, are unknown; every other status is `*`, which is retry. Results are done,
 * retry, dead and unknown. IDEM_E_INVALID comes with the fault and the allowed form.
 */
int handler_on_exit_parse(const char *text, struct handler_rules *ret, struct idem_error *err);

/*
 * Reads "404=retry,5xx=dead" over the defaults, which are 2xx=done, 3xx=dead, 4xx=dead,
 * 409=retry, 425=retry, 429=retry, 5xx=retry, 502=unknown, 504=unknown, 503=retry: 5xx=dead
 * leaves the last three unchanged. Every other status is unknown.
 */
int handler_on_status_parse(const char *text, struct handler_rules *ret, struct idem_error *err);

enum queue_result handler_rule(const struct handler_rules *rules, int status);

#endif
