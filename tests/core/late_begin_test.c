/*
 * A caller that received RUN and begins too late: its loop, its thread or the machine slept for
 * longer than the lease. Another owner may have taken over by then, whatever `recover` is, so
 * nothing is begun: the claim is released and sent anew.
 */
#include "base/error.h"
#include "calls.h"
#include "core/handle.h"
#include "loop_clock.h"
#include "poll_handle.h"

#define LEASE_MS 60000
#define AWAY_MS 61000

/* With the writer thread, which goes on while the loop does not. */
static void rig_open(struct rig *rig) {
    rig_begin(rig, "sync=always", NULL);
}

#define CHECK_TURN(rig) check_turn(idem_poll_turn(&(rig)->poll, NULL, 0, 10))
static void check_turn(int rc) {
    CHECK_INT(rc, 0);
}

static void turn_until(struct rig *rig, const int *count, int want) {
    WAIT_UNTIL((CHECK_TURN(rig), *count >= want));
    CHECK_INT(*count, want);
}

struct seen {
    int answers, finishes, lost;
    int rc;
    enum idem_verdict verdict;
    uint32_t attempt;
    bool late;
    char result[16];
};

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *err, void *data) {
    struct seen *seen = data;

    (void)claim;
    (void)err;
    seen->answers++;
    seen->rc = rc;
    if (rc != 0)
        return;
    seen->verdict = answer->verdict;
    seen->attempt = answer->attempt;
    snprintf(seen->result, sizeof(seen->result), "%.*s", (int)answer->result_len,
             answer->result_len == 0 ? "" : (const char *)answer->result);
}

static void on_finish(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                      void *data) {
    struct seen *seen = data;

    (void)claim;
    (void)err;
    seen->finishes++;
    seen->rc = rc;
    seen->late = lost;
}

static void on_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    (void)claim;
    CHECK_INT(why, IDEM_END_LEASE);
    ((struct seen *)data)->lost++;
}

/* True if the record is stored as one that runs, and whether so far it has been renewed. */
static bool is_stored(struct idem *h, int64_t left) {
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};
    struct idem_entry entry;
    bool stored;

    if (idem_lookup(h, &name, &entry, NULL) != 0)
        return false;
    stored = entry.state == IDEM_RUNNING && entry.left_ms >= left;
    idem_entry_release(&entry);
    return stored;
}

static void stored_wait(int64_t left) {
    struct idem *h = open_store("sync=always");

    WAIT_UNTIL(is_stored(h, left));
    idem_close(h);
}

/* Sends a claim, and is away while it is granted and its lease ends. */
static struct idem_claim *ask_and_sleep(struct rig *rig, const struct idem_guard *guard,
                                        struct seen *seen) {
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_claim *claim;

    CHECK_INT(idem_claim_new(rig->h, guard, &args, on_answer, seen, &claim, NULL), 0);
    idem_timeout(rig->h);
    idem_timeout(rig->h);
    stored_wait(1);
    loop_clock_forward(AWAY_MS);
    CHECK_INT(seen->answers, 0);
    return claim;
}

static void check_finishes(struct rig *rig, struct idem_claim *claim, struct seen *seen) {
    CHECK_INT(seen->verdict, IDEM_RUN);
    CHECK_INT(idem_claim_done(claim, 0, "late", 4, on_finish, seen), 0);
    turn_until(rig, &seen->finishes, 1);
    CHECK(seen->rc == 0 && !seen->late);
}

static const struct idem_policy hold = {.lease_ms = LEASE_MS};

TEST(a_run_under_hold_that_a_prober_took_meanwhile_is_not_begun) {
    struct idem_args args = {.key = "k", .key_len = 1, .probe = true};
    struct work work = {.result = "probed"};
    struct idem_guard *guard;
    struct idem_outcome out;
    struct idem_claim *claim;
    struct seen seen = {0};
    struct rig rig;
    struct idem *other;

    rig_open(&rig);
    guard = guard_of(rig.h, hold);
    claim = ask_and_sleep(&rig, guard, &seen);
    other = open_store("sync=always");
    CHECK_INT(idem_call(other, guard, &args, do_work, &work, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_PROBE);
    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    idem_outcome_release(&out);
    turn_until(&rig, &seen.answers, 1);
    CHECK_INT(seen.verdict, IDEM_REPLAY);
    CHECK_STR(seen.result, "probed");
    CHECK_INT(count_of(other, IDEM_EVENT_RUN), 0);
    idem_claim_free(claim);
    idem_close(other);
    idem_guard_free(guard);
    rig_end(&rig);
}

TEST(a_run_under_hold_that_was_settled_meanwhile_begins_under_a_lease_of_its_own) {
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1};
    struct idem_settlement how = {.to = IDEM_FAILED};
    struct idem_guard *guard;
    struct idem_claim *claim;
    struct seen seen = {0};
    struct rig rig;
    struct idem *other;

    rig_open(&rig);
    guard = guard_of(rig.h, hold);
    claim = ask_and_sleep(&rig, guard, &seen);
    other = open_store("sync=always");
    CHECK_INT(idem_settle(other, &name, &how, NULL), 0);
    turn_until(&rig, &seen.answers, 1);
    CHECK_INT(seen.attempt, 2);
    check_finishes(&rig, claim, &seen);
    idem_claim_free(claim);
    idem_close(other);
    idem_guard_free(guard);
    rig_end(&rig);
}

TEST(a_run_under_hold_that_nobody_took_is_given_back_and_begins) {
    struct idem_guard *guard;
    struct idem_claim *claim;
    struct seen seen = {0};
    struct rig rig;

    rig_open(&rig);
    guard = guard_of(rig.h, hold);
    claim = ask_and_sleep(&rig, guard, &seen);
    turn_until(&rig, &seen.answers, 1);
    check_finishes(&rig, claim, &seen);
    idem_claim_free(claim);
    idem_guard_free(guard);
    rig_end(&rig);
}

TEST(a_renewal_that_is_acknowledged_after_its_lease_is_told_as_lost) {
    struct idem_policy policy = {.lease_ms = LEASE_MS, .recover = IDEM_RECOVER_RERUN};
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_guard *guard;
    struct idem_claim *claim;
    struct seen seen = {0};
    struct rig rig;

    rig_open(&rig);
    guard = guard_of(rig.h, policy);
    CHECK_INT(idem_claim_new(rig.h, guard, &args, on_answer, &seen, &claim, NULL), 0);
    idem_claim_on_lost(claim, on_lost, &seen);
    turn_until(&rig, &seen.answers, 1);
    loop_clock_stop();
    loop_clock_forward(LEASE_MS / 2);
    CHECK_INT(idem_claim_renew(claim, on_finish, &seen), 0);
    idem_timeout(rig.h);
    idem_timeout(rig.h);
    stored_wait(LEASE_MS);
    loop_clock_go_on();
    loop_clock_forward(AWAY_MS);
    turn_until(&rig, &seen.finishes, 1);
    CHECK(seen.rc == 0 && seen.late);
    CHECK_INT(seen.lost, 1); /* at once, and not when it would be renewed */
    idem_claim_free(claim);
    idem_guard_free(guard);
    rig_end(&rig);
}

/* The blocking call. Its store is a wrapper around another one: it sleeps after it delivered an
   answer and before the waiting thread continues, which stands for a sleep between the answer and
   the function. */
static struct {
    struct idem_store base;
    struct idem_store *real;
    void (*complete)(struct idem_op *op, int rc); /* of the claim that is under way */
    void (*asleep)(void);
    int times; /* how often it falls asleep */
} front;

static void front_complete(struct idem_op *op, int rc) {
    bool granted =
        rc == 0 && (op->out.claim.verdict == IDEM_RUN || op->out.claim.verdict == IDEM_PROBE);

    front.complete(op, rc);
    if (granted && front.times > 0) {
        front.times--;
        front.asleep();
    }
}

/* Refuses renewals: after a sleep it would be chance if the renewal or the waiting thread came
   first. */
static int front_submit(struct idem_store *base, struct idem_op *op) {
    (void)base;
    if (op->kind == IDEM_OP_FINISH && op->in.finish.action == IDEM_OWNER_RENEW)
        return idem_error_set(&op->error, IDEM_E_REFUSED, "no renewals here");
    if (op->kind == IDEM_OP_CLAIM) {
        front.complete = op->complete;
        op->complete = front_complete;
    }
    return front.real->driver->submit(front.real, op);
}

static void front_cancel(struct idem_store *base, struct idem_op *op) {
    (void)base;
    front.real->driver->cancel(front.real, op);
}

static int front_watch(struct idem_store *base, struct idem_watch *watch) {
    (void)base;
    return front.real->driver->watch(front.real, watch);
}

static void front_unwatch(struct idem_store *base, struct idem_watch *watch) {
    (void)base;
    front.real->driver->unwatch(front.real, watch);
}

static void front_close(struct idem_store *base) {
    (void)base;
    front.real->driver->close(front.real);
}

static void front_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    (void)base;
    front.real->driver->tally(front.real, event, n);
}

static const struct idem_driver front_driver = {
    .name = "front",
    .close = front_close,
    .submit = front_submit,
    .cancel = front_cancel,
    .watch = front_watch,
    .unwatch = front_unwatch,
    .tally = front_tally,
};

static struct idem *open_front(void (*asleep)(void), int times) {
    struct idem *h = open_store("sync=always");

    front.real = h->store;
    front.base = (struct idem_store){.driver = &front_driver, .loop = &h->loop};
    front.asleep = asleep;
    front.times = times;
    h->store = &front.base;
    return h;
}

static void sleep_alone(void) {
    loop_clock_forward(AWAY_MS);
}

static struct idem *other;
static struct idem_guard *others_guard;

static void sleep_and_be_probed(void) {
    struct idem_args args = {.key = "k", .key_len = 1, .probe = true};
    struct work work = {.result = "probed"};
    struct idem_outcome out;

    loop_clock_forward(AWAY_MS);
    CHECK_INT(idem_call(other, others_guard, &args, do_work, &work, &out, NULL), 0);
    CHECK_INT(out.verdict, IDEM_PROBE);
    idem_outcome_release(&out);
}

TEST(a_call_that_slept_while_a_prober_took_over_does_not_run) {
    struct idem *h = open_front(sleep_and_be_probed, 1);
    struct idem_guard *guard = guard_of(h, hold);
    struct work work = {.result = "late"};
    struct idem_outcome out;

    other = open_store("sync=always");
    others_guard = guard;
    out = call(h, guard, "k", &work);
    CHECK_INT(out.verdict, IDEM_REPLAY);
    CHECK(out.result_len == 6 && memcmp(out.result, "probed", 6) == 0);
    CHECK_INT(work.runs, 0);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(other);
    idem_close(h);
}

static void call_asleep(struct idem_policy policy) {
    struct idem *h = open_front(sleep_alone, 1);
    struct idem_guard *guard = guard_of(h, policy);
    struct work work = {.result = "r"};
    struct idem_outcome out = call(h, guard, "k", &work);

    CHECK_INT(out.verdict, IDEM_RUN);
    CHECK_INT(out.finish, IDEM_FINISH_STORED);
    CHECK_INT(work.runs, 1);
    CHECK(!work.cancelled);
    CHECK_INT(count_of(h, IDEM_EVENT_RUN), 1); /* granted twice */
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_call_that_slept_under_hold_asks_anew_and_runs_once) {
    call_asleep(hold);
}

TEST(a_call_that_slept_under_rerun_asks_anew_and_runs_once) {
    call_asleep((struct idem_policy){.lease_ms = LEASE_MS, .recover = IDEM_RECOVER_RERUN});
}

/* A claim that was given up does not stay uncertain. */
static void call_asleep_each_time(struct idem_policy policy) {
    struct idem *h = open_front(sleep_alone, 3);
    struct idem_guard *guard = guard_of(h, policy);
    struct idem_args args = {.key = "k", .key_len = 1};
    struct work work = {.result = "r"};
    struct idem_outcome out;
    struct idem_error err = {0};

    CHECK_INT(idem_call(h, guard, &args, do_work, &work, &out, &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "nothing was run");
    CHECK_INT(work.runs, 0);
    CHECK_INT(count_of(h, IDEM_EVENT_UNGUARDED), 0);
    CHECK_INT(verdict(h, guard, "k", &work), IDEM_RUN);
    CHECK_INT(work.runs, 1);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_call_that_sleeps_each_time_is_refused_and_leaves_the_key_free) {
    call_asleep_each_time(hold);
}

/* The store is there: open is about one that is not. */
TEST(a_call_that_sleeps_each_time_is_refused_where_the_policy_says_open) {
    call_asleep_each_time(
        (struct idem_policy){.lease_ms = LEASE_MS, .on_store_error = IDEM_ON_STORE_ERROR_OPEN});
}

TEST_MAIN
