/*
 * The two tables of decide.h. Pure; nothing here can fail: every verdict and every result has
 * a row, which a test proves.
 */
#include "queue/decide.h"

#include <string.h>

/* clang-format off */
static const struct queue_verdict_row verdict_rows[] = {
    {IDEM_RUN,       IDEM_ABSENT, QUEUE_STEP_WORK,  NULL},
    {IDEM_PROBE,     IDEM_ABSENT, QUEUE_STEP_WORK,  NULL},
    {IDEM_REPLAY,    IDEM_ABSENT, QUEUE_STEP_ACK,   NULL},
    {IDEM_DUPLICATE, IDEM_ABSENT, QUEUE_STEP_ACK,   NULL},
    {IDEM_BUSY,      IDEM_FAILED, QUEUE_STEP_DELAY, NULL},
    {IDEM_BUSY,      IDEM_ABSENT, QUEUE_STEP_HOLD,  NULL},
    {IDEM_MISMATCH,  IDEM_ABSENT, QUEUE_STEP_BURY,  "mismatch"},
    {IDEM_UNCERTAIN, IDEM_ABSENT, QUEUE_STEP_BURY,  "uncertain"},
    {IDEM_DEAD,      IDEM_ABSENT, QUEUE_STEP_BURY,  "dead"},
    {IDEM_NO_TOKEN,  IDEM_ABSENT, QUEUE_STEP_BURY,  "no-token"},
};

static const struct queue_result_row result_rows[] = {
    {QUEUE_DONE,    QUEUE_ROOM_ANY,     IDEM_RESULT_DONE,    false, QUEUE_STEP_ACK,   NULL},
    {QUEUE_RETRY,   QUEUE_ROOM_LEFT,    IDEM_RESULT_RETRY,   false, QUEUE_STEP_DELAY, NULL},
    {QUEUE_RETRY,   QUEUE_ROOM_NONE,    IDEM_RESULT_FINAL,   false, QUEUE_STEP_BURY,  "dead"},
    {QUEUE_RETRY,   QUEUE_ROOM_RELEASE, IDEM_RESULT_RETRY,   true,  QUEUE_STEP_DELAY, NULL},
    {QUEUE_REFUSED, QUEUE_ROOM_ANY,     IDEM_RESULT_FINAL,   false, QUEUE_STEP_BURY,  "refused"},
    {QUEUE_UNKNOWN, QUEUE_ROOM_ANY,     IDEM_RESULT_UNKNOWN, false, QUEUE_STEP_DELAY, NULL},
    {QUEUE_UNBEGUN, QUEUE_ROOM_ANY,     IDEM_RESULT_RETRY,   true,  QUEUE_STEP_HOLD,  NULL},
};
/* clang-format on */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

const struct queue_verdict_row *queue_verdict_row(enum idem_verdict verdict,
                                                  enum idem_state state) {
    for (size_t i = 0; i < COUNT_OF(verdict_rows); i++) {
        const struct queue_verdict_row *row = &verdict_rows[i];

        if (row->verdict == verdict && (row->state == IDEM_ABSENT || row->state == state))
            return row;
    }
    return &verdict_rows[COUNT_OF(verdict_rows) - 1];
}

const struct queue_result_row *queue_result_row(enum queue_result result, enum queue_room room) {
    for (size_t i = 0; i < COUNT_OF(result_rows); i++) {
        const struct queue_result_row *row = &result_rows[i];

        if (row->result == result && (row->room == QUEUE_ROOM_ANY || row->room == room))
            return row;
    }
    return queue_result_row(QUEUE_UNKNOWN, QUEUE_ROOM_ANY);
}

enum queue_room queue_room(const struct idem_policy *policy, bool last) {
    if (policy->on_failure == IDEM_ON_FAILURE_RELEASE)
        return QUEUE_ROOM_RELEASE;
    return last ? QUEUE_ROOM_NONE : QUEUE_ROOM_LEFT;
}

const char *queue_result_name(enum queue_result result) {
    static const char *const names[] = {
        [QUEUE_DONE] = "done",       [QUEUE_RETRY] = "retry",     [QUEUE_REFUSED] = "refused",
        [QUEUE_UNKNOWN] = "unknown", [QUEUE_UNBEGUN] = "unbegun",
    };

    return (size_t)result < COUNT_OF(names) && names[result] != NULL ? names[result] : "?";
}

const char *queue_epitaph_text(const char *epitaph) {
    static const struct {
        const char *epitaph, *text;
    } texts[] = {
        {"mismatch", "the key came back with another message under it"},
        {"uncertain", "a run vanished, and its outcome is unknown"},
        {"dead", "no attempts are left"},
        {"refused", "the handler refused it"},
    };

    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (strcmp(texts[i].epitaph, epitaph) == 0)
            return texts[i].text;
    return "it cannot be handled";
}
