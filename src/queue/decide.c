/*
 * The two tables of decide.h. Pure; nothing here can fail: every verdict and every result has
 * a rule, which a test proves.
 */
#include "queue/decide.h"

#include <string.h>

/* clang-format off */
static const struct queue_verdict_rule verdict_rules[] = {
    {IDEM_RUN,       IDEM_ABSENT, QUEUE_STEP_RUN,   NULL},
    {IDEM_PROBE,     IDEM_ABSENT, QUEUE_STEP_RUN,   NULL},
    {IDEM_REPLAY,    IDEM_ABSENT, QUEUE_STEP_ACK,   NULL},
    {IDEM_DUPLICATE, IDEM_ABSENT, QUEUE_STEP_ACK,   NULL},
    {IDEM_BUSY,      IDEM_FAILED, QUEUE_STEP_DELAY, NULL},
    {IDEM_BUSY,      IDEM_ABSENT, QUEUE_STEP_HOLD,  NULL},
    {IDEM_MISMATCH,  IDEM_ABSENT, QUEUE_STEP_BURY,  "mismatch"},
    {IDEM_UNCERTAIN, IDEM_ABSENT, QUEUE_STEP_BURY,  "uncertain"},
    {IDEM_DEAD,      IDEM_ABSENT, QUEUE_STEP_BURY,  "dead"},
    {IDEM_NO_TOKEN,  IDEM_ABSENT, QUEUE_STEP_BURY,  "no-token"},
};

static const struct queue_result_rule result_rules[] = {
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

const struct queue_verdict_rule *queue_decide_verdict(enum idem_verdict verdict,
                                                      enum idem_state state) {
    for (size_t i = 0; i < COUNT_OF(verdict_rules); i++) {
        const struct queue_verdict_rule *rule = &verdict_rules[i];

        if (rule->verdict == verdict && (rule->state == IDEM_ABSENT || rule->state == state))
            return rule;
    }
    return &verdict_rules[COUNT_OF(verdict_rules) - 1];
}

const struct queue_result_rule *queue_decide_result(enum queue_result result,
                                                    enum queue_room room) {
    for (size_t i = 0; i < COUNT_OF(result_rules); i++) {
        const struct queue_result_rule *rule = &result_rules[i];

        if (rule->result == result && (rule->room == QUEUE_ROOM_ANY || rule->room == room))
            return rule;
    }
    return queue_decide_result(QUEUE_UNKNOWN, QUEUE_ROOM_ANY);
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

const char *queue_dead_verdict_text(const char *dead_verdict) {
    static const struct {
        const char *dead_verdict, *text;
    } texts[] = {
        {"mismatch", "the key came back with another message under it"},
        {"uncertain", "a run vanished, and its outcome is unknown"},
        {"dead", "no attempts are left"},
        {"refused", "the handler refused it"},
    };

    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (strcmp(texts[i].dead_verdict, dead_verdict) == 0)
            return texts[i].text;
    return "it cannot be handled";
}
