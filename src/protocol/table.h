/*
 * The protocol as data: the verdict of each claim, and the effect of each finish.
 *
 * The rules are in these two tables only. protocol.c applies them; tools/promela.c converts them
 * into the model that spin checks; the table test prints them into docs/protocol.md and checks
 * that they cover every case; drivers that decide inside a server generate their script from them.
 *
 * A rule matches if the record's state is in `states`, every fact in `yes` holds and no fact in
 * `no` does. The first rule that matches decides.
 */
#ifndef IDEM_PROTOCOL_TABLE_H
#define IDEM_PROTOCOL_TABLE_H

#include "idem.h"

#define IDEM_IN(state) (1u << (state))
#define IDEM_IN_ANY 0x1fu

/* The facts about a claim and the record it meets. */
enum idem_fact {
    IDEM_FACT_TOKEN = 1u << 0,         /* the key is a token */
    IDEM_FACT_BOUND = 1u << 1,         /* both have the same binding, or neither has one */
    IDEM_FACT_MINE = 1u << 2,          /* the record's owner is this caller */
    IDEM_FACT_DIFFERS = 1u << 3,       /* fingerprints comparable and different */
    IDEM_FACT_LIVE = 1u << 4,          /* running: the lease is live; failed: not due yet */
    IDEM_FACT_RERUN = 1u << 5,         /* recover=rerun */
    IDEM_FACT_ATTEMPTS_LEFT = 1u << 6, /* the policy allows another attempt */
    IDEM_FACT_LOCK = 1u << 7,   /* the record was made by mode=lock; finish: and it was absent or a
                                   free lock before */
    IDEM_FACT_REPLAY = 1u << 8, /* mode=replay */
    IDEM_FACT_KEPT = 1u << 9,   /* the record has a result */
    IDEM_FACT_FINAL = 1u << 10, /* the failure is final, or on_failure=keep */
    IDEM_FACT_PROBE = 1u << 11, /* the claim comes from a prober */
    IDEM_FACT_SAME = 1u << 12,  /* finish: the record already has this outcome */
};
#define IDEM_FACT__COUNT 13

enum idem_move {
    IDEM_MOVE_NONE,    /* the record is unchanged */
    IDEM_MOVE_START,   /* running under the caller, attempt + 1, prior state saved */
    IDEM_MOVE_BURY,    /* failed permanently: the last attempt vanished */
    IDEM_MOVE_TAKE,    /* running under the prober, attempt + 1; the try is not counted */
    IDEM_MOVE_DONE,    /* done */
    IDEM_MOVE_FAIL,    /* failed, due after the delay */
    IDEM_MOVE_RESTORE, /* the state before the claim */
    IDEM_MOVE_FREE,    /* done by mode=lock: free, and the attempt is kept */
    IDEM_MOVE_END,     /* running; the lease ends now or after the back-off */
    IDEM_MOVE_EXTEND,  /* running; the lease is extended */
};
#define IDEM_MOVE__COUNT 10

struct idem_claim_rule {
    const char *when; /* for people: the case of the design that the rule implements */
    unsigned states;
    unsigned yes, no;
    enum idem_verdict verdict;
    enum idem_move move;
};

enum idem_owner_action {
    IDEM_OWNER_DONE,
    IDEM_OWNER_FAIL,
    IDEM_OWNER_RELEASE,
    IDEM_OWNER_UNKNOWN,
    IDEM_OWNER_RENEW,
};
#define IDEM_OWNER_ACTION__COUNT 5

enum idem_ack { IDEM_ACK, IDEM_LOST };

struct idem_finish_rule {
    const char *when;
    unsigned actions; /* 1 << enum idem_owner_action */
    unsigned states;
    unsigned yes, no;
    enum idem_ack ack;
    enum idem_move move;
};

/* Both tables end with a rule whose `when` is NULL. */
extern const struct idem_claim_rule idem_claim_table[];
extern const struct idem_finish_rule idem_finish_table[];

/* Returns the rule that decides; never NULL (the table test proves it). */
const struct idem_claim_rule *idem_claim_rule_find(enum idem_state state, unsigned facts);
const struct idem_finish_rule *idem_finish_rule_find(enum idem_owner_action action,
                                                     enum idem_state state, unsigned facts);

const char *idem_fact_name(unsigned fact);
const char *idem_move_name(enum idem_move move);
const char *idem_owner_action_name(enum idem_owner_action action);

#endif
