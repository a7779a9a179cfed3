/*
 * A board over HTTP, for who runs no nginx: `idem consume --metrics ADDR:PORT`. It answers GET and
 * HEAD for /metrics (and /) in the board's three forms, and nothing else; each connection gets one
 * answer. Whoever may connect may read it: it holds no key, no user and no body.
 */
#ifndef IDEM_CLI_METRICS_H
#define IDEM_CLI_METRICS_H

#include "loop/loop.h"
#include "metric/report.h"

#define METRICS_HEAD_MAX 8192

/* A request's head, as far as it matters here. Borrowed from the text. */
struct metrics_request {
    struct idem_http_text method, path, query;
    struct idem_http_accept accept;
};

/* 1: it is whole; 0: more of it is to come; -1: it is no HTTP. */
int metrics_request_read(const char *text, size_t len, struct metrics_request *ret);

struct metrics;

/* Listens on PORT (of 127.0.0.1), HOST:PORT or [V6]:PORT; a port of 0 is any that is free. The
   board stays the caller's. IDEM_E_INVALID for what is no address, IDEM_E_REFUSED where nobody may
   listen. */
int metrics_open(const char *address, const struct board *board, const char *door,
                 struct idem_loop *loop, struct metrics **ret, struct idem_error *err);
/* As it can be asked, "127.0.0.1:9100". */
const char *metrics_address(const struct metrics *metrics);
void metrics_close(struct metrics *metrics);

#endif
