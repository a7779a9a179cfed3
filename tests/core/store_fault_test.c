/*
 * Claims on a store that is down, silent, or whose answers are lost: what no
 * embedded store can be made to do. A driver that can stands in front of a real
 * one; the same will happen to every store behind a network.
 */
#include "core/handle.h"
#include "core/policy.h"
#include "loop_clock.h"
#include "poll_handle.h"
#include "temp.h"
#include "test.h"

enum fault {
    FAULT_NONE,
    FAULT_DOWN,   /* refuses at once */
    FAULT_FULL,   /* has no room */
    FAULT_SILENT, /* never answers, and never did anything */
    FAULT_DEAF,   /* does what it is asked; the answer is lost */
};

static struct {
    struct idem_store base;
    struct idem_store *real;
    enum fault fault;
    enum idem_op_kind only; /* the fault concerns these */
    int submits;
} faulty;

static void nobody_hears(struct idem_op *op, int rc) {
    (void)rc;
    free(op);
}

static int faulty_submit(struct idem_store *base, struct idem_op *op) {
    struct idem_op *copy;

    (void)base;
    faulty.submits++;
    if (faulty.fault == FAULT_NONE || op->kind != faulty.only)
        return faulty.real->driver->submit(faulty.real, op);
    if (faulty.fault == FAULT_DOWN) {
        op->error = (struct idem_error){.code = IDEM_E_REFUSED, .text = "down"};
        return IDEM_E_REFUSED;
    }
    if (faulty.fault == FAULT_FULL) {
        op->error = (struct idem_error){.code = IDEM_E_FULL, .text = "full"};
        return IDEM_E_FULL;
    }
    if (faulty.fault == FAULT_DEAF) {
        copy = malloc(sizeof(*copy));
        *copy = *op;
        copy->complete = nobody_hears;
        CHECK_INT(faulty.real->driver->submit(faulty.real, copy), 0);
    }
    op->driver = &faulty; /* under way, for ever */
    return 0;
}

static void faulty_cancel(struct idem_store *base, struct idem_op *op) {
    (void)base;
    if (op->driver == &faulty)
        op->driver = NULL;
    else
        faulty.real->driver->cancel(faulty.real, op);
}

static int faulty_watch(struct idem_store *base, struct idem_watch *watch) {
    (void)base;
    return faulty.real->driver->watch(faulty.real, watch);
}

static void faulty_unwatch(struct idem_store *base, struct idem_watch *watch) {
    (void)base;
    faulty.real->driver->unwatch(faulty.real, watch);
}

static void faulty_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    (void)base;
    faulty.real->driver->tally(faulty.real, event, n);
}

static void faulty_close(struct idem_store *base) {
    (void)base;
    faulty.real->driver->close(faulty.real);
}

static const struct idem_driver faulty_driver = {
    .name = "faulty",
    .close = faulty_close,
    .submit = faulty_submit,
    .cancel = faulty_cancel,
    .watch = faulty_watch,
    .unwatch = faulty_unwatch,
    .tally = faulty_tally,
};

/* The handle's store is the faulty one. */
static void rig_open(struct rig *rig) {
    struct idem_options options = {.op_timeout_ms = 100};

    loop_clock_stop();
    rig_begin(rig, "sync=off", &options);
    faulty.real = rig->h->store;
    faulty.base = (struct idem_store){.driver = &faulty_driver, .loop = &rig->h->loop};
    faulty.fault = FAULT_NONE;
    rig->h->store = &faulty.base;
}

static void rig_close(struct rig *rig) {
    faulty.fault = FAULT_NONE;
    rig_end(rig);
}

#define STEP_MS 2

/* So long by the loop's clock, which stands still otherwise: all that is asked is answered in the
   turns themselves. */
static void time_pass(struct rig *rig, int64_t ms) {
    for (int64_t passed = 0; passed < ms; passed += STEP_MS) {
        loop_clock_forward(STEP_MS);
        CHECK_INT(idem_poll_turn(&rig->poll, NULL, 0, 0), 0);
    }
}

struct seen {
    int answers, finishes, lost;
    int rc;
    enum idem_verdict verdict;
    bool unguarded, late, free_when_lost;
    char text[512];
};

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *err, void *data) {
    struct seen *seen = data;

    (void)claim;
    seen->answers++;
    seen->rc = rc;
    if (rc == 0) {
        seen->verdict = answer->verdict;
        seen->unguarded = answer->unguarded;
    } else {
        snprintf(seen->text, sizeof(seen->text), "%s", err->text);
    }
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
    struct seen *seen = data;

    CHECK_INT(why, IDEM_END_LEASE);
    seen->lost++;
    if (seen->free_when_lost)
        idem_claim_free(claim);
}

static struct idem_claim *ask(struct rig *rig, struct idem_policy policy, struct seen *seen) {
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_guard *guard;
    struct idem_claim *claim;

    policy.prefix = "t:";
    policy.scope = IDEM_SCOPE_NONE;
    CHECK_INT(idem_guard_new(rig->h, &policy, &guard, NULL), 0);
    CHECK_INT(idem_claim_new(rig->h, guard, &args, on_answer, seen, &claim, NULL), 0);
    idem_claim_on_lost(claim, on_lost, seen);
    idem_guard_free(guard);
    time_pass(rig, 20);
    return claim;
}

static void break_it(enum fault fault, enum idem_op_kind only) {
    faulty.fault = fault;
    faulty.only = only;
}

TEST(a_store_that_refuses_never_yields_a_run) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    break_it(FAULT_DOWN, IDEM_OP_CLAIM);
    claim = ask(&rig, (struct idem_policy){0}, &seen);
    CHECK_INT(seen.answers, 1);
    CHECK_INT(seen.rc, IDEM_E_REFUSED);
    CHECK_STR(seen.text, "down");
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_store_that_refuses_is_passed_by_where_the_policy_says_open) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    break_it(FAULT_DOWN, IDEM_OP_CLAIM);
    claim = ask(&rig, (struct idem_policy){.on_store_error = IDEM_ON_STORE_ERROR_OPEN}, &seen);
    CHECK_INT(seen.rc, 0);
    CHECK_INT(seen.verdict, IDEM_RUN);
    CHECK(seen.unguarded);
    CHECK_INT(idem_claim_done(claim, 0, "", 0, on_finish, &seen), IDEM_E_INVALID);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(open_never_covers_tokens) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    break_it(FAULT_DOWN, IDEM_OP_CLAIM);
    claim = ask(&rig,
                (struct idem_policy){.on_store_error = IDEM_ON_STORE_ERROR_OPEN,
                                     .key_kind = IDEM_KEY_TOKEN},
                &seen);
    CHECK_INT(seen.rc, IDEM_E_REFUSED);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_claim_that_is_not_answered_is_unknown_and_released_behind) {
    struct seen seen = {0}, next = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    break_it(FAULT_DEAF, IDEM_OP_CLAIM); /* granted, but the answer is lost */
    claim = ask(&rig, (struct idem_policy){0}, &seen);
    CHECK_INT(seen.answers, 0);
    time_pass(&rig, 200);
    CHECK_INT(seen.answers, 1);
    CHECK_INT(seen.rc, IDEM_E_UNKNOWN);
    idem_claim_free(claim);
    break_it(FAULT_NONE, IDEM_OP_CLAIM);
    claim = ask(&rig, (struct idem_policy){0}, &next);
    CHECK_INT(next.verdict, IDEM_RUN);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_finish_whose_answer_is_lost_is_said_again_and_acknowledged) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    claim = ask(&rig, (struct idem_policy){0}, &seen);
    CHECK_INT(seen.verdict, IDEM_RUN);
    break_it(FAULT_DEAF, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_done(claim, 7, "result", 6, on_finish, &seen), 0);
    time_pass(&rig, 30);
    CHECK_INT(seen.finishes, 0);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 300);
    CHECK_INT(seen.finishes, 1);
    CHECK_INT(seen.rc, 0);
    CHECK(!seen.late);
    idem_claim_free(claim);
    rig_close(&rig);
}

/* A lock is given back, the reply is lost, and another caller takes the lock before the first one
   asks again. */
TEST(a_finish_is_not_called_superseded_where_it_may_have_been_stored) {
    struct idem_policy lock = {.mode = IDEM_MODE_LOCK};
    struct seen seen = {0}, other = {0};
    struct rig rig;
    struct idem_claim *claim, *next;

    rig_open(&rig);
    claim = ask(&rig, lock, &seen);
    CHECK_INT(seen.verdict, IDEM_RUN);
    break_it(FAULT_DEAF, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_done(claim, 0, "", 0, on_finish, &seen), 0);
    time_pass(&rig, 20);
    CHECK_INT(seen.finishes, 0);
    next = ask(&rig, lock, &other);
    CHECK_INT(other.verdict, IDEM_RUN);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 300);
    CHECK_INT(seen.finishes, 1);
    CHECK_INT(seen.rc, IDEM_E_UNKNOWN);
    CHECK(!seen.late);
    idem_claim_free(claim);
    idem_claim_free(next);
    rig_close(&rig);
}

/* It is stored with its result, the reply is lost, and the next try leaves the result out. */
TEST(a_done_that_was_stored_is_not_called_lost_when_its_result_finds_no_room_afterwards) {
    struct idem_policy policy = {.mode = IDEM_MODE_REPLAY, .finish_timeout_ms = 60000};
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    claim = ask(&rig, policy, &seen);
    CHECK_INT(seen.verdict, IDEM_RUN);
    break_it(FAULT_DEAF, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_done(claim, 7, "result", 6, on_finish, &seen), 0);
    time_pass(&rig, 20);
    break_it(FAULT_FULL, IDEM_OP_FINISH);
    time_pass(&rig, 300);
    CHECK_INT(seen.finishes, 0);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 2000);
    CHECK_INT(seen.finishes, 1);
    CHECK(!seen.late);
    idem_claim_free(claim);
    rig_close(&rig);
}

/* The first `done` gets no reply and is not stored; its lease ends, and another owner takes over.
 */
static struct seen superseded(struct idem_policy policy) {
    struct seen seen = {0}, other = {0};
    struct rig rig;
    struct idem_claim *claim, *next;

    policy.recover = IDEM_RECOVER_RERUN;
    policy.lease_ms = 1000;
    policy.finish_timeout_ms = 60000;
    rig_open(&rig);
    claim = ask(&rig, policy, &seen);
    CHECK_INT(seen.verdict, IDEM_RUN);
    break_it(FAULT_SILENT, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_done(claim, 0, "", 0, on_finish, &seen), 0);
    time_pass(&rig, 2000);
    CHECK_INT(seen.finishes, 0);
    next = ask(&rig, policy, &other);
    CHECK_INT(other.verdict, IDEM_RUN);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 300);
    CHECK_INT(seen.finishes, 1);
    idem_claim_free(claim);
    idem_claim_free(next);
    rig_close(&rig);
    return seen;
}

/* In these modes a stored `done` would have excluded the takeover. */
static void check_lost(enum idem_mode mode) {
    struct seen seen = superseded((struct idem_policy){.mode = mode});

    CHECK_INT(seen.rc, 0);
    CHECK(seen.late);
}

TEST(a_late_done_in_mode_replay_is_lost_though_its_first_try_got_no_reply) {
    check_lost(IDEM_MODE_REPLAY);
}

TEST(a_late_done_in_mode_reject_is_lost_though_its_first_try_got_no_reply) {
    check_lost(IDEM_MODE_REJECT);
}

TEST(a_late_done_is_unknown_where_a_stored_one_may_have_expired_before_the_takeover) {
    struct seen seen = superseded((struct idem_policy){.mode = IDEM_MODE_REPLAY, .ttl_s = 1});

    CHECK_INT(seen.rc, IDEM_E_UNKNOWN);
    CHECK(!seen.late);
}

TEST(a_finish_waits_for_a_store_that_comes_back) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    claim = ask(&rig, (struct idem_policy){0}, &seen);
    break_it(FAULT_DOWN, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_done(claim, 7, "result", 6, on_finish, &seen), 0);
    time_pass(&rig, 300);
    CHECK_INT(seen.finishes, 0);
    CHECK(faulty.submits > 3);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 700);
    CHECK_INT(seen.finishes, 1);
    CHECK_INT(seen.rc, 0);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_finish_that_cannot_be_stored_is_unknown_in_the_end) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    claim = ask(&rig, (struct idem_policy){.finish_timeout_ms = 200}, &seen);
    break_it(FAULT_SILENT, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_done(claim, 7, "result", 6, on_finish, &seen), 0);
    time_pass(&rig, 600);
    CHECK_INT(seen.finishes, 1);
    CHECK_INT(seen.rc, IDEM_E_UNKNOWN);
    idem_claim_free(claim);
    rig_close(&rig);
}

/* The store does not answer renewals for longer than a lease. */
static void renewals_fail(struct rig *rig, enum fault fault, enum idem_recover recover,
                          struct seen *seen, struct idem_claim **claim) {
    struct idem_policy policy = {.lease_ms = 300, .recover = recover};

    rig_open(rig);
    *claim = ask(rig, policy, seen);
    CHECK_INT(seen->verdict, IDEM_RUN);
    break_it(fault, IDEM_OP_FINISH);
    time_pass(rig, 200);
    CHECK_INT(seen->lost, 0); /* the lease is not over yet */
    time_pass(rig, 400);
}

TEST(a_run_under_rerun_is_cancelled_when_its_lease_is_over_by_our_clock) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    renewals_fail(&rig, FAULT_DOWN, IDEM_RECOVER_RERUN, &seen, &claim);
    CHECK_INT(seen.lost, 1);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_store_that_is_silent_cancels_a_run_under_rerun_too) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    renewals_fail(&rig, FAULT_SILENT, IDEM_RECOVER_RERUN, &seen, &claim);
    CHECK_INT(seen.lost, 1);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_run_under_hold_goes_on_and_renewing_is_tried_again) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;
    int before;

    renewals_fail(&rig, FAULT_DOWN, IDEM_RECOVER_HOLD, &seen, &claim);
    CHECK_INT(seen.lost, 0);
    before = faulty.submits;
    time_pass(&rig, 200);
    CHECK(faulty.submits > before);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 200);
    CHECK_INT(idem_claim_done(claim, 0, "", 0, on_finish, &seen), 0);
    time_pass(&rig, 50);
    CHECK_INT(seen.finishes, 1);
    CHECK(!seen.late);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_claim_may_be_freed_when_it_is_told_that_its_lease_is_lost) {
    struct seen seen = {.free_when_lost = true};
    struct rig rig;
    struct idem_claim *claim;

    renewals_fail(&rig, FAULT_DOWN, IDEM_RECOVER_RERUN, &seen, &claim);
    CHECK_INT(seen.lost, 1);
    rig_close(&rig);
}

TEST(a_renewal_that_was_asked_for_is_told_of_the_failure_first) {
    struct idem_policy policy = {.lease_ms = 200, .recover = IDEM_RECOVER_RERUN};
    struct seen seen = {.free_when_lost = true};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    claim = ask(&rig, policy, &seen);
    break_it(FAULT_DEAF, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_renew(claim, on_finish, &seen), 0);
    time_pass(&rig, 500);
    CHECK_INT(seen.finishes, 1);
    CHECK_INT(seen.rc, IDEM_E_UNKNOWN);
    CHECK_INT(seen.lost, 1);
    rig_close(&rig);
}

static void on_renew_close(struct idem_claim *claim, int rc, bool lost,
                           const struct idem_error *err, void *data) {
    struct rig *rig = data;

    (void)claim;
    (void)rc;
    (void)lost;
    (void)err;
    idem_close(rig->h);
}

TEST(a_handle_may_be_closed_inside_a_renewals_call_back) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;
    struct idem *h;

    rig_open(&rig);
    claim = ask(&rig, (struct idem_policy){0}, &seen);
    break_it(FAULT_DOWN, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_renew(claim, on_renew_close, &rig), 0);
    h = rig.h;
    idem_timeout(h); /* the handle is gone when this returns */
    idem_claim_free(claim);
    idem_poll_release(&rig.poll);
}

static void on_answer_free(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                           const struct idem_error *err, void *data) {
    struct seen *seen = data;

    (void)answer;
    seen->answers++;
    idem_claim_free(claim);
    CHECK_INT(rc, IDEM_E_REFUSED);
    CHECK_STR(err->text, "down"); /* lent until this returns, whatever is freed */
}

TEST(an_error_outlives_the_claim_that_is_freed_in_its_call_back) {
    struct idem_policy policy = {.prefix = "t:", .scope = IDEM_SCOPE_NONE};
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_guard *guard;
    struct idem_claim *claim;
    struct seen seen = {0};
    struct rig rig;

    rig_open(&rig);
    break_it(FAULT_DOWN, IDEM_OP_CLAIM);
    CHECK_INT(idem_guard_new(rig.h, &policy, &guard, NULL), 0);
    CHECK_INT(idem_claim_new(rig.h, guard, &args, on_answer_free, &seen, &claim, NULL), 0);
    time_pass(&rig, 20);
    CHECK_INT(seen.answers, 1);
    idem_guard_free(guard);
    rig_close(&rig);
}

/* Frees the claim first, and then reads what it was lent. */
static void on_finish_free(struct idem_claim *claim, int rc, bool lost,
                           const struct idem_error *err, void *data) {
    struct seen *seen = data;

    idem_claim_free(claim);
    seen->finishes++;
    seen->rc = rc;
    seen->late = lost;
    snprintf(seen->text, sizeof(seen->text), "%s", err->text);
}

TEST(a_renewals_error_outlives_the_claim_that_is_freed_in_its_call_back) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    claim = ask(&rig, (struct idem_policy){0}, &seen);
    break_it(FAULT_DOWN, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_renew(claim, on_finish_free, &seen), 0);
    time_pass(&rig, 20);
    CHECK_INT(seen.rc, IDEM_E_REFUSED);
    CHECK_STR(seen.text, "down");
    rig_close(&rig);
}

TEST(a_finishs_error_outlives_the_claim_that_is_freed_in_its_call_back) {
    struct seen seen = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    claim = ask(&rig, (struct idem_policy){.finish_timeout_ms = 50}, &seen);
    break_it(FAULT_DOWN, IDEM_OP_FINISH);
    CHECK_INT(idem_claim_done(claim, 0, "", 0, on_finish_free, &seen), 0);
    time_pass(&rig, 200);
    CHECK_INT(seen.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(seen.text, "down");
    rig_close(&rig);
}

TEST(a_release_in_the_background_that_is_not_answered_is_sent_again) {
    struct seen seen = {0}, next = {0};
    struct rig rig;
    struct idem_claim *claim;

    rig_open(&rig);
    break_it(FAULT_DEAF, IDEM_OP_CLAIM); /* granted, but the answer is lost */
    claim = ask(&rig, (struct idem_policy){0}, &seen);
    break_it(FAULT_SILENT, IDEM_OP_FINISH);
    time_pass(&rig, 150);
    CHECK_INT(seen.rc, IDEM_E_UNKNOWN);
    idem_claim_free(claim);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 150);
    claim = ask(&rig, (struct idem_policy){0}, &next);
    CHECK_INT(next.verdict, IDEM_RUN);
    idem_claim_free(claim);
    rig_close(&rig);
}

/* A run that is late is given back, and that is refused: tried on in the background. */
TEST(what_was_not_begun_does_not_stay_uncertain_when_giving_it_back_fails) {
    struct seen seen = {0}, next = {0};
    struct idem_policy policy = {.lease_ms = 100, .prefix = "t:", .scope = IDEM_SCOPE_NONE};
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_guard *guard;
    struct idem_claim *claim;
    struct rig rig;

    rig_open(&rig);
    rig.h->op_timeout_ms = 5000;
    CHECK_INT(idem_guard_new(rig.h, &policy, &guard, NULL), 0);
    CHECK_INT(idem_claim_new(rig.h, guard, &args, on_answer, &seen, &claim, NULL), 0);
    idem_guard_free(guard);
    idem_timeout(rig.h);     /* it is sent */
    loop_clock_forward(150); /* and we are away for longer than the lease */
    break_it(FAULT_DOWN, IDEM_OP_FINISH);
    time_pass(&rig, 30);
    CHECK_INT(seen.rc, IDEM_E_REFUSED);
    idem_claim_free(claim);
    break_it(FAULT_NONE, IDEM_OP_FINISH);
    time_pass(&rig, 300);
    claim = ask(&rig, (struct idem_policy){0}, &next);
    CHECK_INT(next.verdict, IDEM_RUN);
    idem_claim_free(claim);
    rig_close(&rig);
}

TEST(a_run_whose_lease_is_over_when_the_answer_comes_does_not_begin) {
    struct idem_policy policy = {
        .mode = IDEM_MODE_LOCK, .lease_ms = 100, .prefix = "t:", .scope = IDEM_SCOPE_NONE};
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_guard *guard;
    struct idem_claim *claim;
    struct seen seen = {0};
    struct rig rig;

    rig_open(&rig);
    rig.h->op_timeout_ms = 5000;
    CHECK_INT(idem_guard_new(rig.h, &policy, &guard, NULL), 0);
    CHECK_INT(idem_claim_new(rig.h, guard, &args, on_answer, &seen, &claim, NULL), 0);
    idem_timeout(rig.h);     /* it is sent */
    loop_clock_forward(150); /* and we are away for longer than the lease */
    time_pass(&rig, 30);
    CHECK_INT(seen.answers, 1);
    CHECK_INT(seen.verdict, IDEM_RUN);
    /* Given back and asked for anew: the lease that runs now began after that. */
    CHECK_INT(idem_claim_done(claim, 0, "", 0, on_finish, &seen), 0);
    time_pass(&rig, 30);
    CHECK(seen.finishes == 1 && !seen.late && seen.lost == 0);
    idem_claim_free(claim);
    idem_guard_free(guard);
    rig_close(&rig);
}

TEST_MAIN
