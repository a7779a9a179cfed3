/*
 * What fills a board from below: the meter of a handle, which counts what its store does, and a
 * survey, which now and then goes through the store's records for those that run or are uncertain.
 */
#ifndef IDEM_METRIC_METER_H
#define IDEM_METRIC_METER_H

#include "core/ask.h"
#include "metric/board.h"

/* Given to idem_handle_measure(); it must outlive the handle. */
struct board_meter {
    struct idem_meter meter;
    struct board_store *store;
    struct board_process *process;
};
void board_meter_init(struct board_meter *meter, struct board_store *store,
                      struct board_process *process);

/*
 * Goes through all records, page by page, and rests: at least SURVEY_REST_MS, and so long that it
 * takes no more than a twentieth of the time. One process should have it.
 */
#define SURVEY_REST_MS 10000
struct survey {
    struct idem *h; /* NULL: it is not under way */
    struct board_store *store;
    struct board_survey found;
    struct idem_ask ask;
    struct idem_timer timer;
    int64_t begun;
};
void survey_start(struct survey *survey, struct idem *h, struct board_store *store);
void survey_stop(struct survey *survey); /* before its handle is closed; takes one that is not */

#endif
