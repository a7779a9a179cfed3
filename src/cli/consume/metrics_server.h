/*
 * A board over HTTP, for setups without nginx: `idem consume --metrics ADDR:PORT`. It serves GET
 * and HEAD of /metrics (and /) in the board's three forms, and nothing else; each connection gets
 * one response. Any client that can connect may read it: it contains no key, no user and no body.
 * A page of another site must not, so the Host of a request is checked (http/http_host.h).
 */
#ifndef IDEM_CLI_CONSUME_METRICS_SERVER_H
#define IDEM_CLI_CONSUME_METRICS_SERVER_H

#include "loop/loop.h"
#include "metric/metric_meter.h"
#include "metric/metric_report.h"
#include "queue/consumer.h"

#define METRICS_HEAD_MAX 8192

/* The parts of a request's head that matter here. Borrowed from the text. */
struct metrics_request {
    struct idem_http_text method, path, query;
    struct idem_http_text host; /* without its port; empty if there is none */
    struct idem_http_accept accept;
};

/* 1: the head is complete; 0: more bytes are needed; -1: it is not HTTP. */
int metrics_request_read(const char *text, size_t len, struct metrics_request *ret);

struct metrics;

/* Names that a request's Host may have besides addresses, localhost and the host to listen on. */
struct metrics_hosts {
    const char *const *names; /* borrowed; NAME, .NAME, *.NAME, NAME.*, or "any" */
    size_t n;
};

/* Listens on PORT (of 127.0.0.1), HOST:PORT or [V6]:PORT; port 0 picks any free port. The board
   and the names stay the caller's. IDEM_E_INVALID if `address` is no address, IDEM_E_REFUSED if it
   cannot listen there. */
int metrics_open(const char *address, struct metrics_hosts hosts, const struct board *board,
                 const char *door, struct idem_loop *loop, struct metrics **ret,
                 struct idem_error *err);
/* The address as a client would use it, "127.0.0.1:9100". */
const char *metrics_address(const struct metrics *metrics);
void metrics_close(struct metrics *metrics);

/*
 * The metrics of `idem consume --metrics`: a board of its own, and the server that shows it.
 */

struct consume_metrics {
    struct board *board; /* NULL: --metrics is not set */
    struct board_route *route;
    struct board_store *store;
    struct board_process *process;
    struct board_meter meter;
    struct survey survey;
    struct metrics *server;
};

/* Listens on `address`, and measures the handle from now on. `url` is the store's. */
int consume_metrics_open(struct consume_metrics *m, const char *address, struct metrics_hosts hosts,
                         struct idem *h, const char *url, const char *queue, const char *prefix,
                         struct idem_error *err);
/* Counts one message, and publishes all counts of the consumer. */
void consume_metrics_report(struct consume_metrics *m, const struct queue_report *report);
void consume_metrics_counts(struct consume_metrics *m, const struct queue_counts *counts);
/* Call it before the handle is closed. A zeroed struct is allowed. */
void consume_metrics_close(struct consume_metrics *m);
/* Call it after the handle is closed. */
void consume_metrics_release(struct consume_metrics *m);

#endif
