/*
 * The model: one key, a store that follows the tables of src/protocol/table.c, and
 * callers that may fail at any moment. tests/model/run has spin visit every state
 * of it, for each policy, and for each deliberate fault.
 *
 * The rows are not written here: table.pml is made from the C tables by
 * tools/promela.c. The effect of a move on a record is written here by hand, as
 * protocol/protocol.c does it, without the fields that decide nothing.
 *
 * CALLERS. Three actors that crash and come back as new callers, under new
 * owner ids, are the same to a store as a handful of callers, some of which have
 * not been heard yet: so every caller's claim is on its way from the start, and
 * a crash is final for an owner id.
 *
 * THE NETWORK carries what was sent at any later time, never, or again and
 * again, in any order, also when the sender is long dead. That is every lost
 * request, every lost answer with its repetition under the same owner id, every
 * duplicate and every late finish of an owner that was superseded.
 *
 * TIME is the store's: a lease ends, a failure falls due and a record expires
 * when the clock process decides, at any moment that the rules allow.
 *
 * The invariants read ghost variables (g_...), which follow the answers that
 * were given, not the record. An INVARIANT that does not hold is reported as
 * "assertion violated (N==0)", N being its number in the design, section 2.
 *
 * Chosen with -D: MODE, HOLD, ON_FAILURE, ATTEMPTS, EXPIRY, PROBERS, TOKENS,
 * FINGERPRINTS, MIXED (some callers use mode=lock), TIMED (owners stop when
 * their lease is over by their own clock), CALLERS; STALE (a fail of an earlier
 * attempt excuses no second RUN) and FENCED (finishes name their attempt, and
 * are lost if it is not the record's, as protocol.c has it: without probers the
 * invariants hold even without that); one FAULT_...; and ONLY=N, which looks at
 * invariant N alone.
 */
#define LOCK 1
#define REJECT 2
#define REPLAY 3
#define RELEASE 1
#define RETRY 2
#define KEEP 3

#ifndef CALLERS
#define CALLERS 4
#endif
#ifndef MODE
#define MODE REPLAY
#endif
#ifndef HOLD
#define HOLD 1
#endif
#ifndef ON_FAILURE
#define ON_FAILURE RELEASE
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef EXPIRY
#define EXPIRY 0
#endif
#ifndef PROBERS
#define PROBERS 0
#endif
#ifndef TOKENS
#define TOKENS 0
#endif
#ifndef FINGERPRINTS
#define FINGERPRINTS 0
#endif
#ifndef MIXED
#define MIXED 0
#endif
#ifndef TIMED
#define TIMED 0
#endif
#ifndef FENCED
#define FENCED 0
#endif
#ifndef STALE
#define STALE 0
#endif
#ifndef ONLY
#define ONLY 0
#endif

#define NOBODY CALLERS

/* The arguments of callers may differ: caller 0 is the one that has others. */
#define MODE_OF(o) ((MIXED && o == 0) -> LOCK : MODE)
#define HOLDS(o) (HOLD && MODE_OF(o) != LOCK)
#define PRINT_OF(o) ((!FINGERPRINTS || MODE_OF(o) == LOCK) -> 0 : ((o == 0) -> 1 : 2))
#define STRANGER(o) (TOKENS && o == 0)
#define PROBER(o) (PROBERS && o != 0)

#include "table.pml"

c_decl {
static void row_matched(const char *table, int n)
{
    static unsigned long seen[2];
    unsigned long *in = &seen[table[0] == 'f'];

    if ((*in & (1ul << n)) == 0)
        printf("MATCHED %s %d\n", table, n);
    *in |= 1ul << n;
}

static void state_reached(int n, const char *what)
{
    static unsigned long seen;

    if ((seen & (1ul << n)) == 0)
        printf("REACHED %s\n", what);
    seen |= 1ul << n;
}
};

/* The record. */
byte r_state = (TOKENS -> S_ISSUED : S_ABSENT);
byte r_owner = NOBODY;
byte r_tries;
byte r_print;
byte r_result = NOBODY; /* whose result it is */
bit r_live;             /* running: the lease is live; failed: not due yet */
bit r_lock;
bit r_kept;
bit r_final;
bit r_released;
byte prior_state;
byte prior_tries;
byte prior_print;

/* The callers, by owner id. */
#define WAITING 0 /* for the answer to its claim */
#define AT_WORK 1
#define PROBING 2
#define GONE 3
byte phase[CALLERS];
byte sent[CALLERS]; /* 1 << OWNER_...: what it has sent besides its claim */
#if TIMED
bit own_lease[CALLERS]; /* its lease is live, by its own clock */
#endif
#if STALE || FENCED
bit current[CALLERS]; /* the attempt of its answer is the record's */
#define CURRENT(o) current[o]
#else
#define CURRENT(o) true
#endif

/* The ghosts. */
byte g_holder = NOBODY; /* whose lease is live */
byte g_owner = NOBODY;  /* the last that was let in, and has not been superseded */
bit g_finished;         /* and has sent its finish */
bit g_done;             /* a done was acknowledged, not by mode=lock */
byte g_result = NOBODY; /* and whose */
bit g_run;              /* hold: a caller received RUN, and neither failed nor released */
byte g_ran = NOBODY;    /* and which */
byte g_print;           /* the fingerprint that runs, or ran */

/* Set and used within one step of the store; no part of the state, except where a
   breadth-first search (-DTELL), which cannot hide anything, looks for a short history. */
#ifdef TELL
#define hidden
#endif
hidden byte state;
hidden short facts;
hidden byte verdict;
hidden byte move;
hidden byte ack;

/* Chosen before such a step, and zero after it. */
byte action;
bit answer_lost;
bit fast; /* FAULT_CLOCK: the judging clock runs ahead of the store's */
bit lose; /* FAULT_EARLY_ACK: the store crashes before it has stored */

#define INVARIANT(n, holds)                    \
    if                                         \
    :: (ONLY != 0 && ONLY != n) || (holds)     \
    :: else -> assert(n == 0)                  \
    fi

#define WHEN(holds, fact) ((holds) -> (fact) : 0)
#define SENT(o, what) ((sent[o] >> what) & 1)
#define SAY(o, what) sent[o] = sent[o] | (1 << what)

inline record_clear() {
    r_state = S_ABSENT; r_owner = NOBODY; r_tries = 0; r_print = 0; r_result = NOBODY;
    r_live = 0; r_lock = 0; r_kept = 0; r_final = 0; r_released = 0;
    prior_state = 0; prior_tries = 0; prior_print = 0
}

inline claim_look(o) {
    state = r_state;
    facts = WHEN(TOKENS, F_TOKEN) | WHEN(!HOLDS(o), F_RERUN) |
            WHEN(MODE_OF(o) == REPLAY, F_REPLAY) | WHEN(PROBER(o), F_PROBE);
    if
    :: state != S_ABSENT ->
        facts = facts | WHEN(!STRANGER(o), F_BOUND) |
                WHEN(r_owner == o && !r_released, F_MINE) |
                WHEN(r_print != 0 && PRINT_OF(o) != 0 && r_print != PRINT_OF(o), F_DIFFERS) |
                WHEN(r_live && !fast, F_LIVE) | WHEN(r_tries < ATTEMPTS, F_ATTEMPTS_LEFT) |
                WHEN(r_lock, F_LOCK) | WHEN(r_kept, F_KEPT) |
                WHEN(r_final || ON_FAILURE == KEEP, F_FINAL)
    :: else
    fi
}

/* Checks the claim's answer against the invariants; the record is still as the claim found it. */
inline claim_watch(o) {
    if
    :: move == M_START || move == M_TAKE ->
        INVARIANT(1, g_holder == NOBODY);
        g_holder = o; g_owner = o; g_finished = 0;
#if STALE || FENCED
        current[o] = 0
#endif
    :: move == M_BURY ->
        INVARIANT(1, g_holder == NOBODY);
        g_owner = NOBODY; g_finished = 0
    :: else -> assert(move == M_NONE)
    fi;
    if
    :: verdict == V_RUN || verdict == V_PROBE ->
        INVARIANT(2, !g_done)
    :: else
    fi;
    if
    :: verdict == V_RUN && HOLDS(o) ->
        /* RUN that is repeated counts once; RUN after PROBE counts twice. */
        INVARIANT(3, (move == M_START -> !g_run : g_run && g_ran == o));
        g_run = 1; g_ran = o
    :: verdict == V_RUN && !HOLDS(o) -> g_run = 0; g_ran = NOBODY
    :: else
    fi;
    if
    :: verdict == V_REPLAY ->
        c_code { state_reached(1, "a replay"); };
        INVARIANT(5, g_done && r_result == g_result)
    :: else
    fi;
    INVARIANT(6, !STRANGER(o) || verdict == V_NO_TOKEN);
    INVARIANT(6, verdict == V_MISMATCH || verdict == V_NO_TOKEN || g_print == 0 ||
                 PRINT_OF(o) == 0 || g_print == PRINT_OF(o));
    g_print = (move == M_START -> PRINT_OF(o) : g_print)
}

inline run_begin(o) {
    prior_state = r_state; prior_tries = r_tries; prior_print = r_print;
    r_state = S_RUNNING; r_owner = o; r_released = 0; r_live = 1;
    r_lock = (MODE_OF(o) == LOCK)
}

inline claim_move(o) {
    if
    :: move == M_START ->
        run_begin(o);
        r_tries = ((prior_state == S_RUNNING || prior_state == S_FAILED) ->
                   ((r_tries < ATTEMPTS) -> r_tries + 1 : ATTEMPTS) : 1);
        r_print = PRINT_OF(o)
    :: move == M_TAKE -> run_begin(o)
    :: move == M_BURY ->
        r_state = S_FAILED; r_owner = NOBODY; r_final = 1; r_kept = 0; r_live = 0;
        prior_state = 0; prior_tries = 0; prior_print = 0
    :: else
    fi
}

#if TIMED
#if CALLERS != 3
#error "critical_watch() looks at three callers"
#endif
/* No other caller believes that it holds the key. */
inline critical_watch(o) {
    INVARIANT(1, (o == 0 || phase[0] != AT_WORK || !own_lease[0]) &&
                 (o == 1 || phase[1] != AT_WORK || !own_lease[1]) &&
                 (o == 2 || phase[2] != AT_WORK || !own_lease[2]))
}
#endif

/* An answer to a caller that no longer waits has no effect. */
inline claim_answer(o) {
    if
    :: phase[o] != WAITING || answer_lost -> printf("    (and does not hear it)\n")
    :: else ->
        phase[o] = (verdict == V_RUN -> AT_WORK : (verdict == V_PROBE -> PROBING : GONE));
#if STALE || FENCED
        current[o] = (phase[o] != GONE);
#endif
#if TIMED
#ifdef FAULT_LATE_TIMER
        own_lease[o] = (verdict == V_RUN);
#endif
        own_lease[o] = (own_lease[o] && verdict == V_RUN);
        if
        :: own_lease[o] -> critical_watch(o)
        :: else
        fi
#endif
    fi;
    answer_lost = 0; fast = 0
}

inline finish_look(o) {
    state = r_state;
    facts = 0;
    if
    :: state != S_ABSENT ->
        facts = WHEN(r_owner == o && (!r_released || action == OWNER_RELEASE), F_MINE) |
                WHEN(r_lock && (prior_state == S_ABSENT || prior_state == S_DONE), F_LOCK) |
                WHEN(r_released == (action == OWNER_RELEASE), F_SAME)
    :: else
    fi;
#if FENCED
    if
    :: action != OWNER_RELEASE && !CURRENT(o) -> facts = facts & ~F_MINE
    :: else
    fi;
#endif
#ifdef FAULT_NO_OWNER
    facts = facts | F_MINE;
#endif
#ifdef FAULT_ANYBODY_RELEASES
    facts = facts | WHEN(action == OWNER_RELEASE, F_MINE);
#endif
}

inline finish_accepted(o) {
    if
    :: action == OWNER_RENEW ->
        INVARIANT(1, g_holder == NOBODY || g_holder == o);
        g_holder = o
    :: action == OWNER_UNKNOWN -> g_holder = (HOLDS(o) -> NOBODY : o)
    :: else ->
        g_holder = NOBODY; g_finished = 1;
        g_done = (action == OWNER_DONE && MODE_OF(o) != LOCK);
        g_result = (g_done -> o : NOBODY);
        /* A prober's release proves nothing about the run that it examined; nor does a finish that
           it sent for an earlier run of its own. */
        if
        :: action != OWNER_DONE && (g_ran == o || (action == OWNER_FAIL && CURRENT(o))) ->
            g_run = 0; g_ran = NOBODY
        :: else
        fi;
        if
        :: action == OWNER_RELEASE && (prior_state == S_ABSENT || prior_state == S_ISSUED) ->
            g_print = 0
        :: else
        fi
    fi
}

/* Another owner has the key now. */
inline superseded_reached(o) {
    if
    :: state == S_RUNNING && action == OWNER_DONE ->
        c_code { state_reached(6, "a superseded done"); }
    :: state == S_RUNNING && action == OWNER_FAIL ->
        c_code { state_reached(7, "a superseded fail"); }
    :: state == S_RUNNING && action == OWNER_RELEASE ->
        c_code { state_reached(8, "a superseded release"); }
    :: state == S_RUNNING && action == OWNER_UNKNOWN ->
        c_code { state_reached(9, "a superseded unknown"); }
    :: state == S_RUNNING && action == OWNER_RENEW ->
        c_code { state_reached(10, "a superseded renew"); }
    :: else
    fi
}

inline finish_watch(o) {
    if
    :: o != g_owner ->
        c_code { state_reached(2, "a finish of somebody who is not the owner"); };
        superseded_reached(o);
        INVARIANT(4, move == M_NONE);
        INVARIANT(4, ack == LOST || (action == OWNER_RELEASE && state == S_ABSENT))
    :: o == g_owner && g_finished ->
        c_code { state_reached(3, "a word of the owner after its finish"); };
        INVARIANT(4, move == M_NONE);
        INVARIANT(4, ack == ACK || action == OWNER_RENEW || action == OWNER_UNKNOWN)
    :: else ->
        if
        :: action == OWNER_DONE && state == S_RUNNING && !r_live ->
            c_code { state_reached(11, "a done after the lease was over"); }
        :: else
        fi;
        /* The finish of the current owner must be accepted: without this rule, a store that rejects
           every finish would keep all others. */
        INVARIANT(4, (ack == ACK && (move != M_NONE || lose)) || (FENCED && !CURRENT(o)))
    fi;
    if
    :: ack == ACK && o == g_owner && !g_finished -> finish_accepted(o)
    :: else
    fi
}

#ifdef FAULT_PROBER_FORGETS
#define RESTORES_TO_NOTHING prior_state == S_ABSENT || prior_state == S_RUNNING
#else
#define RESTORES_TO_NOTHING prior_state == S_ABSENT
#endif

inline finish_move(o) {
    if
    :: move == M_DONE ->
        r_state = S_DONE; r_live = 0; r_kept = (MODE_OF(o) == REPLAY); r_result = o; r_tries = 0
    :: move == M_FAIL ->
        r_state = S_FAILED; r_live = 1; r_final = (ON_FAILURE == KEEP)
    :: move == M_FREE ->
        r_state = S_DONE; r_live = 0; r_released = 1; r_tries = 0
    :: move == M_RESTORE && RESTORES_TO_NOTHING -> record_clear()
    :: move == M_RESTORE && !(RESTORES_TO_NOTHING) ->
        r_state = prior_state; r_tries = prior_tries; r_print = prior_print;
        r_lock = (prior_state == S_DONE); r_live = 0; r_released = 1
    :: move == M_END -> r_live = !HOLDS(o) /* rerun: for the back-off */
    :: move == M_EXTEND -> r_live = 1
    :: else
    fi;
    if
    :: r_state != S_RUNNING -> prior_state = 0; prior_tries = 0; prior_print = 0
    :: else
    fi;
    action = 0; lose = 0
}

/* The store takes a claim up. */
inline claim_apply(o) {
    printf("caller %d claims: ", o);
    claim_decide();
    claim_watch(o);
    claim_move(o);
    claim_answer(o)
}

/* Carries one caller's words to the store, and the store's answer back. */
proctype wire(byte o) {
#ifdef FAULT_TWO_STEPS
    byte saw_state;
    short saw_facts;
    bit saw;
#endif
end:
    do
#ifdef FAULT_TWO_STEPS
    :: d_step {
        !saw -> claim_look(o);
        saw = 1; saw_state = state; saw_facts = facts
    }
    :: atomic {
        saw ->
        if
        :: answer_lost = 0
        :: answer_lost = 1
        fi;
        d_step {
            state = saw_state; facts = saw_facts;
            saw = 0; saw_state = 0; saw_facts = 0;
            claim_apply(o)
        }
    }
#else
    :: atomic {
        if
        :: answer_lost = 0
        :: answer_lost = 1
        fi;
#ifdef FAULT_CLOCK
        if
        :: fast = 0
        :: fast = 1
        fi;
#endif
        d_step {
            claim_look(o);
            claim_apply(o)
        }
    }
#endif
    :: atomic {
        if
        :: SENT(o, OWNER_DONE) -> action = OWNER_DONE
        :: SENT(o, OWNER_FAIL) -> action = OWNER_FAIL
        :: SENT(o, OWNER_RELEASE) -> action = OWNER_RELEASE
        :: SENT(o, OWNER_UNKNOWN) -> action = OWNER_UNKNOWN
        :: SENT(o, OWNER_RENEW) -> action = OWNER_RENEW
        fi;
#ifdef FAULT_EARLY_ACK
        if
        :: lose = 0
        :: action == OWNER_DONE -> lose = 1
        fi;
#endif
        d_step {
            finish_look(o);
            printf("caller %d says ", o);
            finish_decide();
            move = (lose -> M_NONE : move);
            finish_watch(o);
            finish_move(o)
        }
    }
    od
}

inline leave(o) {
    printf("caller %d is gone\n", o);
    phase[o] = GONE;
#if TIMED
    own_lease[o] = 0
#endif
}

/* A caller; it may stop anywhere, which is its crash. */
proctype caller(byte o) {
end:
    do
    :: d_step { phase[o] != GONE -> leave(o) }
    :: d_step {
        phase[o] == WAITING || phase[o] == PROBING ->
        /* Given up; released in the background, by owner id. */
        SAY(o, OWNER_RELEASE);
        leave(o)
    }
    :: d_step {
        phase[o] == PROBING ->
        /* It never happened: the run is the prober's now, if it is still the owner. */
        printf("caller %d finds out that it never happened\n", o);
        c_code { state_reached(4, "a probe that lets its prober run"); };
        phase[o] = AT_WORK;
        if
        :: g_owner == o && !g_finished -> g_run = 1; g_ran = o
        :: else
        fi
    }
    :: d_step {
        phase[o] == AT_WORK || phase[o] == PROBING ->
        SAY(o, OWNER_DONE);
        leave(o)
    }
    :: d_step {
        phase[o] == AT_WORK ->
        if
        :: ON_FAILURE == RELEASE -> SAY(o, OWNER_RELEASE)
        :: else -> SAY(o, OWNER_FAIL)
        fi;
        leave(o)
    }
    :: d_step {
        (phase[o] == AT_WORK || phase[o] == PROBING) && !SENT(o, OWNER_UNKNOWN) ->
        /* Under hold it may still finish. */
        SAY(o, OWNER_UNKNOWN);
        if
        :: HOLDS(o)
        :: else -> leave(o)
        fi
    }
    :: d_step {
        (phase[o] == AT_WORK || phase[o] == PROBING) && !SENT(o, OWNER_RENEW) ->
        SAY(o, OWNER_RENEW)
    }
#if TIMED
    :: own_lease[o] -> own_lease[o] = 0
#endif
    od
}

/* An owner times its lease from before it sent its claim: its own clock is never behind. */
#if TIMED
#define LEASE_MAY_END (r_owner == NOBODY || !own_lease[r_owner])
#else
#define LEASE_MAY_END true
#endif

proctype clock() {
end:
    do
    :: d_step {
        r_state == S_RUNNING && r_live && LEASE_MAY_END ->
        printf("the lease is over\n");
        r_live = 0; g_holder = NOBODY
    }
    :: d_step {
        r_state == S_FAILED && r_live ->
        printf("the retry is due\n");
        r_live = 0
    }
    :: d_step {
        EXPIRY && r_state != S_ABSENT && (r_state != S_RUNNING || !r_live) ->
        printf("the record expires\n");
        c_code { state_reached(5, "an expired record"); };
        record_clear();
        g_owner = NOBODY; g_finished = 0; g_done = 0; g_result = NOBODY;
        g_run = 0; g_ran = NOBODY; g_print = 0
    }
    od
}

init {
    byte i;

    atomic {
        do
        :: i < CALLERS ->
#if TIMED
#ifndef FAULT_LATE_TIMER
            own_lease[i] = 1;
#endif
#endif
            run wire(i);
            run caller(i);
            i++
        :: else -> break
        od;
        i = 0;
        run clock()
    }
}
