/*
 * The meter of a handle: adds each event to one number of the board.
 */
#include "metric/metric_meter.h"

#include <string.h>

static void meter_op(void *data, enum idem_op_kind kind, int rc, int64_t us) {
    enum board_op op = kind == IDEM_OP_CLAIM    ? BOARD_OP_CLAIM
                       : kind == IDEM_OP_FINISH ? BOARD_OP_FINISH
                                                : BOARD_OP_OTHER;
    struct board_meter *meter = data;

    /* Failures are counted as an event. A record that is held or absent is not a failure of the
       store. */
    if (rc == 0 || rc == IDEM_E_ABSENT || rc == IDEM_E_LIVE || rc == IDEM_E_SETTLED)
        board_store_answered(meter->store);
    board_observe(&meter->store->ops[op], us);
}

static void meter_event(void *data, enum idem_event event, uint64_t n) {
    struct board_meter *meter = data;

    board_add(&meter->store->events[event], n);
    if (event == IDEM_EVENT_STORE_ERROR)
        board_store_failed(meter->store);
}

static void meter_connected(void *data, bool again) {
    struct board_meter *meter = data;

    if (again)
        board_add(&meter->store->reconnects, 1);
}

static void meter_claims(void *data, int parked, int running) {
    struct board_meter *meter = data;

    board_change(&meter->process->parked, parked);
    board_change(&meter->process->running, running);
}

void board_meter_init(struct board_meter *meter, struct board_store *store,
                      struct board_process *process) {
    *meter = (struct board_meter){
        .meter = {.data = meter,
                  .op = meter_op,
                  .event = meter_event,
                  .connected = meter_connected,
                  .claims = meter_claims},
        .store = store,
        .process = process,
    };
}

/*
 * A survey: how many records run, how many are uncertain, and which are the oldest. It lists the
 * store page by page; a change during the survey may be seen or missed. If the store cannot be
 * read, the last survey stays, and its age is visible in the report.
 */

#define PAGE 200
#define PAGE_REST_MS 2 /* between pages: other operations go first */

static void survey_page_ask(struct survey *survey);

static void survey_page_timer(struct idem_timer *timer) {
    survey_page_ask(idem_container_of(timer, struct survey, timer));
}

static void survey_found_set(struct board_found *found, const struct idem_entry *entry) {
    memcpy(found->hash, entry->hash, sizeof(found->hash));
    memcpy(found->prefix, entry->prefix, sizeof(found->prefix));
    memcpy(found->label, entry->label, sizeof(found->label));
    memcpy(found->reason, entry->reason, sizeof(found->reason));
    found->attempt = entry->attempt;
    found->changed_ms = entry->changed_ms;
}

/* Inserts the record among the oldest, in order, and drops the youngest if the list is full. */
static void survey_oldest_put(struct board_found *oldest, uint32_t *n,
                              const struct idem_entry *entry) {
    uint32_t at = *n;

    while (at > 0 && oldest[at - 1].changed_ms > entry->changed_ms)
        at--;
    if (at == BOARD_OLDEST)
        return;
    if (*n < BOARD_OLDEST)
        (*n)++;
    memmove(&oldest[at + 1], &oldest[at], (*n - at - 1) * sizeof(*oldest));
    survey_found_set(&oldest[at], entry);
}

static void survey_entry_count(struct board_survey *found, const struct idem_entry *entry) {
    int list = entry->uncertain ? 1 : 0;

    if (entry->state != IDEM_RUNNING)
        return;
    if (entry->uncertain) {
        found->uncertain++;
        if (found->oldest_ms == 0 || entry->changed_ms < found->oldest_ms)
            found->oldest_ms = entry->changed_ms;
    } else {
        found->running++;
    }
    survey_oldest_put(found->oldest[list], &found->oldest_n[list], entry);
}

/* Waits for the next survey. Surveys use at most a twentieth of the time, because each gateway
   runs them. */
static void survey_rest(struct survey *survey) {
    int64_t rest = (idem_loop_now() - survey->begun) * 19;

    memset(&survey->found, 0, sizeof(survey->found));
    memset(&survey->store_call.op.in.list.cursor, 0, sizeof(survey->store_call.op.in.list.cursor));
    idem_timer_set(&survey->h->loop, &survey->timer, rest > SURVEY_REST_MS ? rest : SURVEY_REST_MS);
}

static void survey_page_done(struct idem_store_call *store_call, int rc,
                             const struct idem_error *err) {
    struct survey *survey = idem_container_of(store_call, struct survey, store_call);
    struct idem_cursor cursor = store_call->op.out.list.cursor;

    (void)err; /* the store counts it as an error */
    if (rc == 0)
        for (size_t i = 0; i < store_call->op.out.list.n; i++)
            survey_entry_count(&survey->found, &store_call->op.out.list.entries[i]);
    idem_store_call_stop(store_call);
    if (rc == 0 && !cursor.end) {
        store_call->op.in.list.cursor = cursor;
        idem_timer_set(&survey->h->loop, &survey->timer, PAGE_REST_MS);
        return;
    }
    if (rc == 0) {
        survey->found.at_ms = board_now();
        board_survey_set(survey->store, &survey->found);
    }
    survey_rest(survey);
}

static void survey_page_ask(struct survey *survey) {
    struct idem_cursor cursor = survey->store_call.op.in.list.cursor;

    if (cursor.len == 0)
        survey->begun = idem_loop_now();
    memset(&survey->store_call.op, 0, sizeof(survey->store_call.op));
    survey->store_call.op.kind = IDEM_OP_LIST;
    survey->store_call.op.in.list =
        (struct idem_list_in){.state = IDEM_RUNNING, .cursor = cursor, .max = PAGE};
    survey->store_call.answered = survey_page_done;
    idem_store_call_start(survey->h, &survey->store_call);
}

void survey_start(struct survey *survey, struct idem *h, struct board_store *store) {
    *survey = (struct survey){.h = h, .store = store};
    survey->timer.fire = survey_page_timer;
    idem_timer_set(&h->loop, &survey->timer, PAGE_REST_MS);
}

void survey_stop(struct survey *survey) {
    if (survey->h == NULL)
        return;
    idem_timer_clear(&survey->h->loop, &survey->timer);
    idem_store_call_stop(&survey->store_call);
    survey->h = NULL;
}
