/*
 * The metrics of `idem consume --metrics`: a board of its own, and the server that shows it.
 */
#ifndef IDEM_CLI_CONSUME_CONSUME_METRICS_H
#define IDEM_CLI_CONSUME_CONSUME_METRICS_H

#include "cli/consume/metrics_server.h"
#include "metric/metric_meter.h"
#include "queue/consumer.h"

struct consume_metrics {
    struct board *board; /* NULL: --metrics is not set */
    struct board_row *row;
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
