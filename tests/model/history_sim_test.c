/*
 * The judge of histories against a simulated store: callers, messages and time
 * are drawn by lot, the store is protocol/protocol.c on one record. A correct
 * store must never be condemned, whatever was lost, late or repeated; each of
 * the faults that the model knows must be caught in some of the histories.
 *
 * The time is simulated, in milliseconds: a seed determines a whole history,
 * and a history that fails is printed with its seed.
 */
#include "history.h"
#include "protocol/protocol.h"
#include "test.h"

#include <inttypes.h>
#include <stdarg.h>

#define CALLERS 10
#define PENDING_MAX 512
#define LEASE 100

enum fault { RIGHT, NO_OWNER, FAST_CLOCK, ANYBODY_RELEASES, TWO_STEPS, EARLY_ACK };

enum what {
    CALL,          /* a caller sends its claim */
    ASKED,         /* the store has it */
    JUDGED,        /* TWO_STEPS: and judges what it read */
    ANSWERED,      /* the caller has the answer */
    ASKED_IN_VAIN, /* or gives up waiting for it */
    WORK,
    SAY,   /* the caller sends a finish */
    HEARD, /* the store has it */
    ACKED,
    SAID_IN_VAIN,
    FORGET, /* an operator */
    FORGETS,
    FORGOTTEN,
};

/* Something that will happen. */
struct pending {
    int64_t at;
    enum what what;
    int caller;
    int turn; /* of the caller's claims, or finishes: an answer to an earlier one is not heard */
    enum idem_owner_action said;
    enum idem_ack ack;
    enum idem_verdict verdict;
    uint32_t attempt;
    char digest[16];
    bool was_there;
    struct idem_record seen; /* TWO_STEPS: what was read */
};

struct caller {
    struct idem_claim_in in;
    char digest[16];
    bool waits; /* for the answer to its claim */
    bool finishing;
    int claims, finishes;
    enum idem_owner_action said;
};

static struct {
    uint64_t lot;
    int64_t now, ttl, hold_ttl;
    enum fault fault;
    enum idem_mode mode;
    enum idem_recover recover;
    bool probers;
    struct pending pending[PENDING_MAX];
    size_t n;
    struct caller callers[CALLERS];
    struct idem_record record;
    bool there;
    FILE *log;
} sim;

static int64_t lot(int64_t below) {
    sim.lot ^= sim.lot << 13;
    sim.lot ^= sim.lot >> 7;
    sim.lot ^= sim.lot << 17;
    return (int64_t)(sim.lot % (uint64_t)below);
}

static bool percent(int64_t chance) {
    return lot(100) < chance;
}

/* Mostly soon, sometimes long after the lease. */
static int64_t soon(void) {
    return percent(8) ? lot(6 * LEASE) : lot(20);
}

static struct pending *later(int64_t in, enum what what, int caller) {
    struct pending *pending = &sim.pending[sim.n++];

    CHECK(sim.n < PENDING_MAX);
    *pending = (struct pending){.at = sim.now + in, .what = what, .caller = caller};
    return pending;
}

__attribute__((format(printf, 2, 3))) static void note(int caller, const char *words, ...) {
    va_list args;

    fprintf(sim.log, "%" PRId64 " p%d k ", sim.now * 1000000, caller);
    va_start(args, words);
    vfprintf(sim.log, words, args);
    va_end(args);
    fprintf(sim.log, " .\n");
}

static void claim_send(int who) {
    struct caller *caller = &sim.callers[who];

    note(who, "claim owner=o%d fp=f%d", who, caller->in.fingerprint.hash[0]);
    caller->waits = true;
    caller->claims++;
    if (!percent(5))
        later(soon(), ASKED, who)->turn = caller->claims;
    later(60, ASKED_IN_VAIN, who)->turn = caller->claims;
}

static void finish_send(int who, enum idem_owner_action said) {
    struct caller *caller = &sim.callers[who];
    struct pending *heard;

    note(who, "finish owner=o%d said=%s digest=%s", who, idem_owner_action_name(said),
         caller->digest);
    caller->finishing = true;
    caller->finishes++;
    caller->said = said;
    if (!percent(5)) {
        heard = later(soon(), HEARD, who);
        heard->turn = caller->finishes;
        heard->said = said;
    }
    later(60, SAID_IN_VAIN, who)->turn = caller->finishes;
}

/* The sweep: removes the expired record, and writes the time of its expiry to the history. */
static void store_expire(void) {
    if (!sim.there || sim.record.expires > sim.now)
        return;
    fprintf(sim.log, "%" PRId64 " - k expire .\n", sim.record.expires * 1000000);
    sim.there = false;
}

static struct idem_time store_time(void) {
    return (struct idem_time){.lease = sim.now, .wall = sim.now};
}

static void claim_judge(struct pending *asked) {
    struct idem_record fresh, *found = NULL;
    struct idem_time now = store_time();
    struct pending *answer;
    int64_t left;
    bool write = false;

    if (sim.fault == FAST_CLOCK)
        now.lease += lot(LEASE);
    if (sim.fault == TWO_STEPS)
        found = asked->was_there ? &asked->seen : NULL;
    else
        found = sim.there ? &sim.record : NULL;
    asked->verdict =
        idem_protocol_claim(found, &fresh, &sim.callers[asked->caller].in, now, &write, &left);
    if (found == NULL)
        found = &fresh;
    if (write) {
        sim.record = *found;
        sim.there = true;
    }
    if (percent(10))
        return; /* the answer is lost */
    answer = later(lot(20), ANSWERED, asked->caller);
    answer->turn = asked->turn;
    answer->verdict = asked->verdict;
    answer->attempt = found->attempt;
    if (asked->verdict == IDEM_REPLAY)
        memcpy(answer->digest, found->result.at, found->result.len + 1);
}

static void claim_asked(struct pending *asked) {
    struct pending *read;

    store_expire();
    if (sim.fault != TWO_STEPS) {
        claim_judge(asked);
        return;
    }
    read = later(lot(10), JUDGED, asked->caller);
    read->turn = asked->turn;
    read->was_there = sim.there;
    read->seen = sim.record;
}

static void claim_answered(const struct pending *answer) {
    struct caller *caller = &sim.callers[answer->caller];

    if (!caller->waits || answer->turn != caller->claims)
        return;
    caller->waits = false;
    note(answer->caller, "claimed owner=o%d verdict=%s attempt=%" PRIu32 "%s%s", answer->caller,
         answer->verdict == IDEM_RUN         ? "run"
         : answer->verdict == IDEM_REPLAY    ? "replay"
         : answer->verdict == IDEM_PROBE     ? "probe"
         : answer->verdict == IDEM_BUSY      ? "busy"
         : answer->verdict == IDEM_MISMATCH  ? "mismatch"
         : answer->verdict == IDEM_UNCERTAIN ? "uncertain"
         : answer->verdict == IDEM_DEAD      ? "dead"
                                             : "duplicate",
         answer->attempt, answer->digest[0] == '\0' ? "" : " digest=", answer->digest);
    if (answer->verdict == IDEM_RUN) {
        if (sim.mode == IDEM_MODE_LOCK)
            note(answer->caller, "enter owner=o%d", answer->caller);
        if (percent(30))
            finish_send(answer->caller, IDEM_OWNER_RENEW);
        later(soon(), WORK, answer->caller);
    } else if (answer->verdict == IDEM_PROBE) {
        later(soon(), SAY, answer->caller);
    } else if (answer->verdict == IDEM_BUSY && percent(60)) {
        later(lot(2 * LEASE), CALL, answer->caller); /* a waiter asks again, under its owner id */
    }
}

static void claim_in_vain(const struct pending *pending) {
    struct caller *caller = &sim.callers[pending->caller];

    if (!caller->waits || pending->turn != caller->claims)
        return;
    caller->waits = false;
    note(pending->caller, "claimed owner=o%d verdict=error", pending->caller);
    /* A prober asks once: what a late copy of its claim can do is the model's to find. */
    if (percent(60) && !caller->in.probe)
        claim_send(pending->caller);
    else if (percent(50))
        finish_send(pending->caller, IDEM_OWNER_RELEASE); /* given up */
}

/* The effect happens; then the finish is sent, unless this was the crash. */
static void work(int who) {
    if (percent(10))
        return;
    note(who, "effect owner=o%d attempt=1", who);
    if (!percent(10))
        later(lot(10), SAY, who);
}

static void say(int who) {
    static const enum idem_owner_action words[] = {IDEM_OWNER_DONE,    IDEM_OWNER_DONE,
                                                   IDEM_OWNER_DONE,    IDEM_OWNER_FAIL,
                                                   IDEM_OWNER_RELEASE, IDEM_OWNER_UNKNOWN};

    if (sim.mode == IDEM_MODE_LOCK)
        note(who, "leave owner=o%d", who);
    finish_send(who, words[lot(6)]);
}

static void finish_heard(const struct pending *heard) {
    const struct caller *caller = &sim.callers[heard->caller];
    bool held = heard->said == IDEM_OWNER_UNKNOWN && sim.recover == IDEM_RECOVER_HOLD;
    struct idem_finish_in in = {
        .action = heard->said,
        .result = {(const unsigned char *)caller->digest, strlen(caller->digest)},
        .keep_result = true,
        .delay_ms = held ? 0 : lot(50),
        .lease_ms = LEASE,
        .ttl_ms = sim.ttl,
        .hold_ttl_ms = sim.hold_ttl,
    };
    enum idem_store_write write = IDEM_WRITE_NONE;
    struct idem_record record = sim.record;
    struct pending *answer;
    enum idem_ack ack;

    store_expire();
    memcpy(in.owner, caller->in.owner, sizeof(in.owner));
    if (sim.there && (sim.fault == NO_OWNER ||
                      (sim.fault == ANYBODY_RELEASES && heard->said == IDEM_OWNER_RELEASE)))
        memcpy(in.owner, record.owner, sizeof(in.owner));
    ack = idem_protocol_finish(sim.there ? &record : NULL, &in, store_time(), &write);
    if (write == IDEM_WRITE_PUT &&
        !(sim.fault == EARLY_ACK && heard->said == IDEM_OWNER_DONE && percent(50)))
        sim.record = record;
    if (write == IDEM_WRITE_DELETE)
        sim.there = false;
    if (percent(10))
        return;
    answer = later(lot(20), ACKED, heard->caller);
    answer->turn = heard->turn;
    answer->said = heard->said;
    answer->ack = ack;
}

static void finish_acked(const struct pending *answer) {
    struct caller *caller = &sim.callers[answer->caller];

    if (!caller->finishing || answer->turn != caller->finishes)
        return;
    caller->finishing = false;
    note(answer->caller, "finished owner=o%d said=%s ack=%s", answer->caller,
         idem_owner_action_name(answer->said), answer->ack == IDEM_ACK ? "ack" : "lost");
}

/* Sends the same finish again, a few times. */
static void finish_in_vain(const struct pending *pending) {
    struct caller *caller = &sim.callers[pending->caller];

    if (!caller->finishing || pending->turn != caller->finishes)
        return;
    caller->finishing = false;
    note(pending->caller, "finished owner=o%d said=%s ack=error", pending->caller,
         idem_owner_action_name(caller->said));
    if (caller->finishes < 4)
        finish_send(pending->caller, caller->said);
}

static void forget(void) {
    store_expire();
    sim.there = false;
    later(lot(20), FORGOTTEN, CALLERS);
}

static void happen(struct pending *pending) {
    int who = pending->caller;

    switch (pending->what) {
    case CALL:
        claim_send(who);
        break;
    case ASKED:
        claim_asked(pending);
        break;
    case JUDGED:
        claim_judge(pending);
        break;
    case ANSWERED:
        claim_answered(pending);
        break;
    case ASKED_IN_VAIN:
        claim_in_vain(pending);
        break;
    case WORK:
        work(who);
        break;
    case SAY:
        say(who);
        break;
    case HEARD:
        finish_heard(pending);
        break;
    case ACKED:
        finish_acked(pending);
        break;
    case SAID_IN_VAIN:
        finish_in_vain(pending);
        break;
    case FORGET:
        note(who, "forget");
        later(lot(20), FORGETS, who);
        break;
    case FORGETS:
        forget();
        break;
    case FORGOTTEN:
        note(who, "forgot");
        break;
    }
}

static void callers_draw(void) {
    for (int i = 0; i < CALLERS; i++) {
        struct caller *caller = &sim.callers[i];

        *caller = (struct caller){0};
        snprintf(caller->digest, sizeof(caller->digest), "d%d", i);
        caller->in.owner[0] = (unsigned char)(i + 1);
        caller->in.mode = sim.mode;
        caller->in.recover = sim.recover;
        caller->in.on_failure = IDEM_ON_FAILURE_RETRY;
        caller->in.attempts = percent(50) ? 0 : 4;
        caller->in.lease_ms = LEASE;
        caller->in.ttl_ms = sim.ttl;
        caller->in.hold_ttl_ms = sim.hold_ttl;
        caller->in.probe = sim.probers && percent(50);
        if (sim.mode != IDEM_MODE_LOCK) {
            caller->in.fingerprint.definition = 1;
            caller->in.fingerprint.hash[0] = percent(20);
        }
        later(lot(8 * LEASE), CALL, i);
    }
}

static struct pending next(void) {
    size_t first = 0;
    struct pending pending;

    for (size_t i = 1; i < sim.n; i++)
        if (sim.pending[i].at < sim.pending[first].at)
            first = i;
    pending = sim.pending[first];
    sim.pending[first] = sim.pending[--sim.n];
    return pending;
}

/* Makes one history, and judges it; returns the number of violations. */
static int history_of(uint64_t seed, char **text, char **report, struct history_sum *sum) {
    size_t size, report_size;
    FILE *out = open_memstream(report, &report_size), *in;
    int found;

    sim.lot = seed * 0x9e3779b97f4a7c15u + 1;
    sim.now = 0;
    sim.n = 0;
    sim.there = false;
    sim.ttl = percent(50) ? 1000000 : lot(300);
    sim.hold_ttl = percent(50) ? 1000000 : lot(300);
    sim.log = open_memstream(text, &size);
    CHECK(sim.log != NULL && out != NULL);
    fprintf(sim.log, "0 - * policy mode=%s recover=%s lease_ms=%d .\n",
            sim.mode == IDEM_MODE_LOCK ? "lock" : "replay",
            sim.recover == IDEM_RECOVER_HOLD ? "hold" : "rerun", LEASE);
    callers_draw();
    if (percent(20))
        later(lot(8 * LEASE), FORGET, CALLERS);
    while (sim.n > 0) {
        struct pending pending = next();

        sim.now = pending.at;
        happen(&pending);
    }
    fclose(sim.log);
    in = fmemopen(*text, size, "r");
    CHECK(in != NULL);
    found = history_check(in, out, sum);
    fclose(in);
    fclose(out);
    return found;
}

static void policy(enum idem_mode mode, enum idem_recover recover, enum fault fault) {
    sim.mode = mode;
    sim.recover = recover;
    sim.fault = fault;
}

/* No history of a right store is condemned, and they are not empty. */
static void never_condemned(void) {
    size_t runs = 0, lost = 0, replays = 0, acknowledged = 0;

    for (uint64_t seed = 1; seed <= 3000; seed++) {
        char *text, *report;
        struct history_sum sum;
        int found = history_of(seed, &text, &report, &sum);

        if (found != 0)
            fprintf(stderr, "# seed %" PRIu64 ":\n%s%s", seed, text, report);
        CHECK_INT(found, 0);
        runs += sum.runs;
        lost += sum.lost;
        replays += sum.replays;
        acknowledged += sum.acknowledged;
        free(text);
        free(report);
    }
    CHECK(runs > 3000 && lost > 100 && acknowledged > 1000);
    CHECK(replays > 1000 || sim.mode == IDEM_MODE_LOCK);
}

/* Some histories of a faulty store show the fault, as a breach of this invariant. */
static void caught_by(int invariant) {
    char wanted[40];
    int caught = 0, as_wanted = 0;

    snprintf(wanted, sizeof(wanted), "invariant %d is broken", invariant);
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        char *text, *report;
        struct history_sum sum;
        int found = history_of(seed, &text, &report, &sum);

        CHECK(found >= 0);
        caught += found > 0;
        as_wanted += strstr(report, wanted) != NULL;
        free(text);
        free(report);
    }
    printf("# %d of 1000 histories show it, %d as a breach of %d\n", caught, as_wanted, invariant);
    CHECK(as_wanted > 0);
}

TEST(a_right_store_under_hold_is_never_condemned) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_HOLD, RIGHT);
    never_condemned();
}

TEST(a_right_store_under_hold_with_probers_is_never_condemned) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_HOLD, RIGHT);
    sim.probers = true;
    never_condemned();
}

TEST(a_right_store_under_rerun_is_never_condemned) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_RERUN, RIGHT);
    never_condemned();
}

TEST(a_right_store_of_locks_is_never_condemned) {
    policy(IDEM_MODE_LOCK, IDEM_RECOVER_RERUN, RIGHT);
    never_condemned();
}

TEST(no_owner_check_in_finishes_is_caught) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_RERUN, NO_OWNER);
    caught_by(4);
}

TEST(a_lease_judged_by_a_clock_that_runs_ahead_is_caught) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_RERUN, FAST_CLOCK);
    caught_by(1);
}

TEST(a_release_by_anybody_is_caught) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_HOLD, ANYBODY_RELEASES);
    caught_by(3);
}

TEST(a_lock_released_by_whoever_comes_last_is_caught) {
    policy(IDEM_MODE_LOCK, IDEM_RECOVER_RERUN, ANYBODY_RELEASES);
    caught_by(1);
}

TEST(a_claim_in_two_steps_is_caught) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_HOLD, TWO_STEPS);
    caught_by(1);
}

TEST(a_done_acknowledged_before_it_is_stored_is_caught) {
    policy(IDEM_MODE_REPLAY, IDEM_RECOVER_RERUN, EARLY_ACK);
    caught_by(2);
}

TEST_MAIN
