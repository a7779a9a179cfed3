/*
 * What `idem consume` counts for others: a board of its own, and who serves it (--metrics).
 */
#ifndef IDEM_CLI_CONSUME_METRICS_H
#define IDEM_CLI_CONSUME_METRICS_H

#include "cli/metrics.h"
#include "metric/meter.h"
#include "queue/consumer.h"

struct consume_metrics {
    struct board *board; /* NULL: nobody asked for it */
    struct board_row *row;
    struct board_store *store;
    struct board_process *process;
    struct board_meter meter;
    struct survey survey;
    struct metrics *server;
};

/* Listens, and measures the handle from now on. The URL is the store's. */
int consume_metrics_open(struct consume_metrics *m, const char *address, struct idem *h,
                         const char *url, const char *queue, const char *prefix,
                         struct idem_error *err);
/* A message that was dealt with, and all that was counted so far. */
void consume_metrics_report(struct consume_metrics *m, const struct queue_report *report);
void consume_metrics_counts(struct consume_metrics *m, const struct queue_counts *counts);
/* Before the handle is closed; takes one that was not opened. */
void consume_metrics_close(struct consume_metrics *m);
/* After it was closed. */
void consume_metrics_release(struct consume_metrics *m);

#endif
