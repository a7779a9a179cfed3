/*
 * The sources of a board: the meter of a handle, which counts the operations of its store, and a
 * survey, which periodically reads the store's records and counts those that run or are uncertain.
 */
#ifndef IDEM_METRIC_METRIC_METER_H
#define IDEM_METRIC_METRIC_METER_H

#include "core/store_call.h"
#include "metric/metric_board.h"

/* An argument of idem_handle_measure(); it must outlive the handle. */
struct board_meter {
    struct idem_meter meter;
    struct board_store *store;
    struct board_process *process;
};
void board_meter_init(struct board_meter *meter, struct board_store *store,
                      struct board_process *process);

/*
 * Reads all records page by page, then rests for at least SURVEY_REST_MS, and long enough that it
 * uses at most a twentieth of the time. Only one process should run a survey.
 */
#define SURVEY_REST_MS 10000
struct survey {
    struct idem *h; /* NULL: not started */
    struct board_store *store;
    struct board_survey found;
    struct idem_store_call store_call;
    struct idem_timer timer;
    int64_t begun;
};
void survey_start(struct survey *survey, struct idem *h, struct board_store *store);
void survey_stop(struct survey *survey); /* call before the handle is closed; a survey that was not
                                            started is fine */

#endif
