/*
 * Fills the consumer's board: counts each message's verdict once, and copies the counts that the
 * consumer keeps itself.
 */
#include "cli/consume/consume_metrics.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

int consume_metrics_open(struct consume_metrics *m, const char *address, struct metrics_hosts hosts,
                         struct idem *h, const char *url, const char *queue, const char *prefix,
                         struct idem_error *err) {
    int rc;

    m->board = calloc(1, BOARD_SIZE);
    if (m->board == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for metrics");
    (void)board_init(m->board);
    m->row = board_row(m->board, "queue", queue, prefix);
    m->store = board_store(m->board, url);
    board_row_keep(m->board, m->row, m->store);
    m->process = board_process(m->board, getpid());
    rc = metrics_open(address, hosts, m->board, "queue", &h->loop, &m->server, err);
    if (rc != 0)
        return rc;
    board_meter_init(&m->meter, m->store, m->process);
    idem_handle_measure(h, &m->meter.meter);
    survey_start(&m->survey, h, m->store);
    return 0;
}

/* Maps the consumer's words to the verdicts of a board. */
static enum board_verdict consume_metrics_verdict(const char *word) {
    static const struct {
        const char *word;
        enum board_verdict verdict;
    } others[] = {{"key", BOARD_MALFORMED}, {"store", BOARD_STORE_ERROR}};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(word, others[i].word) == 0)
            return others[i].verdict;
    return board_verdict_find(word);
}

static bool consume_metrics_is_refusal(enum board_verdict verdict) {
    return verdict != BOARD_RUN && verdict != BOARD_OPEN && verdict != BOARD_DUPLICATE &&
           verdict != BOARD_BUSY;
}

void consume_metrics_report(struct consume_metrics *m, const struct queue_report *report) {
    enum board_verdict verdict;

    if (m->board == NULL)
        return;
    verdict = consume_metrics_verdict(report->verdict);
    if (verdict == BOARD_VERDICTS)
        return;
    board_add(&m->row->verdicts[verdict], 1);
    if (report->result != NULL)
        board_observe(&m->row->handler, report->took_ms * 1000);
    if (consume_metrics_is_refusal(verdict))
        board_refused(m->board, m->row, verdict, report->hash, report->label);
}

void consume_metrics_counts(struct consume_metrics *m, const struct queue_counts *counts) {
    if (m->board == NULL)
        return;
    atomic_store(&m->row->counts[BOARD_DONE], counts->done);
    atomic_store(&m->row->counts[BOARD_RETRIED], counts->retries);
    atomic_store(&m->row->counts[BOARD_BURIED], counts->dead);
    atomic_store(&m->row->counts[BOARD_UNBURIED], counts->unburied);
    atomic_store(&m->row->counts[BOARD_LOST], counts->lost);
    atomic_store(&m->row->counts[BOARD_CANCELLED], counts->cancelled);
    atomic_store(&m->row->counts[BOARD_UNKNOWN], counts->unknown);
    atomic_store(&m->process->in_hand, (int64_t)counts->in_hand);
    atomic_store(&m->process->working, (int64_t)counts->working);
    board_sample(m->board);
}

void consume_metrics_close(struct consume_metrics *m) {
    survey_stop(&m->survey);
    metrics_close(m->server);
    m->server = NULL;
}

void consume_metrics_release(struct consume_metrics *m) {
    free(m->board);
    m->board = NULL;
}
