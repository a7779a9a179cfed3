/*
 * What a status says of a message: that of a program (--on-exit), or that of an
 * HTTP answer (--on-status).
 */
#ifndef IDEM_CLI_HANDLER_RULES_H
#define IDEM_CLI_HANDLER_RULES_H

#include "queue/handler.h"

#define HANDLER_STATUS_MAX 599

/* Each an enum queue_result, or 0 where nothing is said. An exact number counts before its class,
   and the class before the rest. */
struct handler_rules {
    unsigned char exact[HANDLER_STATUS_MAX + 1];
    unsigned char classes[HANDLER_STATUS_MAX / 100 + 1]; /* 4: 400 to 499 */
    unsigned char rest;
};

/*
 * "65=dead,1=retry,*=unknown" over the defaults; NULL: these alone. 0 is done, and nobody changes
 * that; 75 (EX_TEMPFAIL) is retry; 129 to 192, which is what a shell says of a command that a
 * signal has ended, are unknown; every other one is `*`, which is retry. Results are done, retry,
 * dead and unknown. IDEM_E_INVALID says what is wrong, and what is allowed.
 */
int handler_on_exit_parse(const char *text, struct handler_rules *ret, struct idem_error *err);

/*
 * "404=retry,5xx=dead" over the defaults, which are 2xx=done, 3xx=dead, 4xx=dead, 409=retry,
 * 425=retry, 429=retry, 5xx=retry, 502=unknown, 504=unknown, 503=retry: 5xx=dead leaves the last
 * three as they are. What is neither is unknown.
 */
int handler_on_status_parse(const char *text, struct handler_rules *ret, struct idem_error *err);

enum queue_result handler_rule(const struct handler_rules *rules, int status);

#endif
