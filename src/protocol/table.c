/*
 * The two tables of the protocol, and the search for the rule that decides. Pure: no I/O, no clock,
 * no allocation; nothing here can fail.
 */
#include "protocol/table.h"

#define ABSENT IDEM_IN(IDEM_ABSENT)
#define ISSUED IDEM_IN(IDEM_ISSUED)
#define RUNNING IDEM_IN(IDEM_RUNNING)
#define DONE IDEM_IN(IDEM_DONE)
#define FAILED IDEM_IN(IDEM_FAILED)

#define TOKEN IDEM_FACT_TOKEN
#define BOUND IDEM_FACT_BOUND
#define MINE IDEM_FACT_MINE
#define DIFFERS IDEM_FACT_DIFFERS
#define LIVE IDEM_FACT_LIVE
#define RERUN IDEM_FACT_RERUN
#define LEFT IDEM_FACT_ATTEMPTS_LEFT
#define LOCK IDEM_FACT_LOCK
#define REPLAY IDEM_FACT_REPLAY
#define KEPT IDEM_FACT_KEPT
#define FINAL IDEM_FACT_FINAL
#define PROBE IDEM_FACT_PROBE
#define SAME IDEM_FACT_SAME

/* clang-format off */
const struct idem_claim_rule idem_claim_table[] = {
    {"absent or expired, and the key is a token",
     ABSENT, TOKEN, 0, IDEM_NO_TOKEN, IDEM_MOVE_NONE},
    {"absent or expired",
     ABSENT, 0, 0, IDEM_RUN, IDEM_MOVE_START},

    /* This rule precedes all others for existing records: a token of another caller looks like an
       unknown token, used or not. */
    {"bound to another caller",
     ISSUED | RUNNING | DONE | FAILED, 0, BOUND, IDEM_NO_TOKEN, IDEM_MOVE_NONE},
    {"issued, bound to this caller",
     ISSUED, BOUND, 0, IDEM_RUN, IDEM_MOVE_START},

    {"running under this very prober: its first response was lost",
     RUNNING, MINE | PROBE, 0, IDEM_PROBE, IDEM_MOVE_NONE},
    {"running under this very owner id: its first response was lost",
     RUNNING, MINE, 0, IDEM_RUN, IDEM_MOVE_NONE},
    {"fingerprints comparable and different",
     RUNNING | DONE | FAILED, DIFFERS, 0, IDEM_MISMATCH, IDEM_MOVE_NONE},

    {"running, lease live",
     RUNNING, LIVE, 0, IDEM_BUSY, IDEM_MOVE_NONE},
    {"running, lease over, recover=rerun, attempts left",
     RUNNING, RERUN | LEFT, LIVE, IDEM_RUN, IDEM_MOVE_START},
    {"running, lease over, recover=rerun, none left",
     RUNNING, RERUN, LIVE | LEFT, IDEM_DEAD, IDEM_MOVE_BURY},
    {"running, lease over, recover=hold, and the claim is a prober's",
     RUNNING, PROBE, LIVE | RERUN, IDEM_PROBE, IDEM_MOVE_TAKE},
    {"running, lease over, recover=hold",
     RUNNING, 0, LIVE | RERUN, IDEM_UNCERTAIN, IDEM_MOVE_NONE},

    {"done by mode=lock",
     DONE, LOCK, 0, IDEM_RUN, IDEM_MOVE_START},
    {"done, mode=replay and the result was kept",
     DONE, REPLAY | KEPT, LOCK, IDEM_REPLAY, IDEM_MOVE_NONE},
    {"done, otherwise",
     DONE, 0, LOCK, IDEM_DUPLICATE, IDEM_MOVE_NONE},

    {"failed for good, or on_failure=keep",
     FAILED, FINAL, 0, IDEM_DEAD, IDEM_MOVE_NONE},
    {"failed, no attempts left",
     FAILED, 0, FINAL | LEFT, IDEM_DEAD, IDEM_MOVE_NONE},
    {"failed, not due yet",
     FAILED, LIVE | LEFT, FINAL, IDEM_BUSY, IDEM_MOVE_NONE},
    {"failed, retry due",
     FAILED, LEFT, FINAL | LIVE, IDEM_RUN, IDEM_MOVE_START},
    {NULL, 0, 0, 0, 0, 0},
};

#define ACTION(what) (1u << IDEM_OWNER_##what)
#define OWNER_ANY ((1u << IDEM_OWNER_ACTION__COUNT) - 1)

const struct idem_finish_rule idem_finish_table[] = {
    {"done, still the owner",
     ACTION(DONE), RUNNING, MINE, 0, IDEM_ACK, IDEM_MOVE_DONE},
    {"fail, still the owner",
     ACTION(FAIL), RUNNING, MINE, 0, IDEM_ACK, IDEM_MOVE_FAIL},
    {"release of a lock, still the owner: its number is not given out again",
     ACTION(RELEASE), RUNNING, MINE | LOCK, SAME, IDEM_ACK, IDEM_MOVE_FREE},
    {"release, still the owner",
     ACTION(RELEASE), RUNNING, MINE, LOCK | SAME, IDEM_ACK, IDEM_MOVE_RESTORE},
    {"unknown, still the owner",
     ACTION(UNKNOWN), RUNNING, MINE, 0, IDEM_ACK, IDEM_MOVE_END},
    {"renew, still the owner",
     ACTION(RENEW), RUNNING, MINE, 0, IDEM_ACK, IDEM_MOVE_EXTEND},

    /* The first response was lost and the owner repeats its finish. */
    {"done again, in the same words",
     ACTION(DONE), DONE, MINE | SAME, 0, IDEM_ACK, IDEM_MOVE_NONE},
    {"fail again, in the same words",
     ACTION(FAIL), FAILED, MINE | SAME, 0, IDEM_ACK, IDEM_MOVE_NONE},
    {"release again: it is what it was claimed from",
     ACTION(RELEASE), ISSUED | RUNNING | DONE | FAILED, MINE | SAME, 0, IDEM_ACK, IDEM_MOVE_NONE},
    {"release, and nothing is there to be released",
     ACTION(RELEASE), ABSENT, 0, 0, IDEM_ACK, IDEM_MOVE_NONE},

    {"otherwise",
     OWNER_ANY, IDEM_IN_ANY, 0, 0, IDEM_LOST, IDEM_MOVE_NONE},
    {NULL, 0, 0, 0, 0, 0, 0},
};
/* clang-format on */

static bool table_rule_matches(unsigned states, unsigned yes, unsigned no, enum idem_state state,
                               unsigned facts) {
    return (states & IDEM_IN(state)) != 0 && (facts & yes) == yes && (facts & no) == 0;
}

const struct idem_claim_rule *idem_claim_rule_find(enum idem_state state, unsigned facts) {
    const struct idem_claim_rule *rule;

    for (rule = idem_claim_table; rule->when != NULL; rule++)
        if (table_rule_matches(rule->states, rule->yes, rule->no, state, facts))
            return rule;
    return NULL;
}

const struct idem_finish_rule *idem_finish_rule_find(enum idem_owner_action action,
                                                     enum idem_state state, unsigned facts) {
    const struct idem_finish_rule *rule;

    for (rule = idem_finish_table; rule->when != NULL; rule++)
        if ((rule->actions & (1u << action)) != 0 &&
            table_rule_matches(rule->states, rule->yes, rule->no, state, facts))
            return rule;
    return NULL;
}

const char *idem_fact_name(unsigned fact) {
    static const char *const names[IDEM_FACT__COUNT] = {
        "token", "bound",  "mine", "differs", "live",  "rerun", "attempts_left",
        "lock",  "replay", "kept", "final",   "probe", "same",
    };

    for (unsigned i = 0; i < IDEM_FACT__COUNT; i++)
        if (fact == 1u << i)
            return names[i];
    return "?";
}

const char *idem_move_name(enum idem_move move) {
    static const char *const names[IDEM_MOVE__COUNT] = {
        "none", "start", "bury", "take", "done", "fail", "restore", "free", "end", "extend",
    };

    return (unsigned)move < IDEM_MOVE__COUNT ? names[move] : "?";
}

const char *idem_owner_action_name(enum idem_owner_action action) {
    static const char *const names[IDEM_OWNER_ACTION__COUNT] = {
        "done", "fail", "release", "unknown", "renew",
    };

    return (unsigned)action < IDEM_OWNER_ACTION__COUNT ? names[action] : "?";
}
