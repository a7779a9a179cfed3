/*
 * A survey: how many records run, how many are uncertain, and which are the oldest. It reads the
 * store as a list does: page by page, and what changes meanwhile may be seen or missed. A store
 * that cannot be read keeps the last survey, whose age everybody sees.
 */
#include <string.h>

#include "metric/meter.h"

#define PAGE 200
#define PAGE_REST_MS 2 /* between pages: others come first */

static void page_ask(struct survey *survey);

static void page_timer(struct idem_timer *timer) {
    page_ask(idem_container_of(timer, struct survey, timer));
}

static void found_set(struct board_found *found, const struct idem_entry *entry) {
    memcpy(found->hash, entry->hash, sizeof(found->hash));
    memcpy(found->prefix, entry->prefix, sizeof(found->prefix));
    memcpy(found->label, entry->label, sizeof(found->label));
    memcpy(found->reason, entry->reason, sizeof(found->reason));
    found->attempt = entry->attempt;
    found->changed_ms = entry->changed_ms;
}

/* Among the oldest, in their order; the youngest makes room. */
static void oldest_put(struct board_found *oldest, uint32_t *n, const struct idem_entry *entry) {
    uint32_t at = *n;

    while (at > 0 && oldest[at - 1].changed_ms > entry->changed_ms)
        at--;
    if (at == BOARD_OLDEST)
        return;
    if (*n < BOARD_OLDEST)
        (*n)++;
    memmove(&oldest[at + 1], &oldest[at], (*n - at - 1) * sizeof(*oldest));
    found_set(&oldest[at], entry);
}

static void entry_see(struct board_survey *found, const struct idem_entry *entry) {
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
    oldest_put(found->oldest[list], &found->oldest_n[list], entry);
}

/* Until the next one; a twentieth of the time at most is spent on them: each gateway does so. */
static void survey_rest(struct survey *survey) {
    int64_t rest = (idem_loop_now() - survey->begun) * 19;

    memset(&survey->found, 0, sizeof(survey->found));
    memset(&survey->ask.op.in.list.cursor, 0, sizeof(survey->ask.op.in.list.cursor));
    idem_timer_set(&survey->h->loop, &survey->timer, rest > SURVEY_REST_MS ? rest : SURVEY_REST_MS);
}

static void page_answered(struct idem_ask *ask, int rc, const struct idem_error *err) {
    struct survey *survey = idem_container_of(ask, struct survey, ask);
    struct idem_cursor cursor = ask->op.out.list.cursor;

    (void)err; /* it is counted, as an error of the store */
    if (rc == 0)
        for (size_t i = 0; i < ask->op.out.list.n; i++)
            entry_see(&survey->found, &ask->op.out.list.entries[i]);
    idem_ask_stop(ask);
    if (rc == 0 && !cursor.end) {
        ask->op.in.list.cursor = cursor;
        idem_timer_set(&survey->h->loop, &survey->timer, PAGE_REST_MS);
        return;
    }
    if (rc == 0) {
        survey->found.at_ms = board_now();
        board_survey_set(survey->store, &survey->found);
    }
    survey_rest(survey);
}

static void page_ask(struct survey *survey) {
    struct idem_cursor cursor = survey->ask.op.in.list.cursor;

    if (cursor.len == 0)
        survey->begun = idem_loop_now();
    memset(&survey->ask.op, 0, sizeof(survey->ask.op));
    survey->ask.op.kind = IDEM_OP_LIST;
    survey->ask.op.in.list =
        (struct idem_list_in){.state = IDEM_RUNNING, .cursor = cursor, .max = PAGE};
    survey->ask.answered = page_answered;
    idem_ask_start(survey->h, &survey->ask);
}

void survey_start(struct survey *survey, struct idem *h, struct board_store *store) {
    *survey = (struct survey){.h = h, .store = store};
    survey->timer.fire = page_timer;
    idem_timer_set(&h->loop, &survey->timer, PAGE_REST_MS);
}

void survey_stop(struct survey *survey) {
    if (survey->h == NULL)
        return;
    idem_timer_clear(&survey->h->loop, &survey->timer);
    idem_ask_stop(&survey->ask);
    survey->h = NULL;
}
