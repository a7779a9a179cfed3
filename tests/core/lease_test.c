/*
 * When a lease is renewed, when it is lost, and when a retry is due, to the millisecond: the clock
 * is the test's own, and so is the store, whose answers and their times the test sets.
 */
#include <sys/syscall.h>
#include <time.h>

#include "core/handle.h"
#include "temp.h"
#include "test.h"

#define LEASE_MS 3000
#define NEVER INT64_MAX

static int64_t now = 1000000000;

/* In place of the C library's. */
int clock_gettime(clockid_t id, struct timespec *ret) {
    if (id != CLOCK_BOOTTIME)
        return (int)syscall(SYS_clock_gettime, id, ret);
    *ret = (struct timespec){.tv_sec = (time_t)(now / 1000), .tv_nsec = now % 1000 * 1000000};
    return 0;
}

/* The store, and the host that keeps one timer. */
static struct {
    struct idem_store base;
    struct idem_store *real;
    struct idem_op *claim, *finish; /* under way */
    int64_t claim_at, finish_at;    /* when it was sent */
    struct idem_finish_in sent;
    bool down; /* refuses every finish */
    int64_t timer_at, lost_at;
    struct idem *h;
    struct idem_guard *guard;
} rig;

static int rig_submit(struct idem_store *base, struct idem_op *op) {
    (void)base;
    if (op->kind == IDEM_OP_CLAIM) {
        rig.claim = op;
        rig.claim_at = now;
    } else {
        CHECK_INT(op->kind, IDEM_OP_FINISH);
        rig.sent = op->in.finish;
        rig.finish_at = now;
        if (rig.down)
            return op->error.code = IDEM_E_REFUSED;
        rig.finish = op;
    }
    op->driver = &rig;
    return 0;
}

static void rig_cancel(struct idem_store *base, struct idem_op *op) {
    (void)base;
    op->driver = NULL;
    if (rig.finish == op)
        rig.finish = NULL;
}

static void rig_close(struct idem_store *base) {
    (void)base;
    rig.real->driver->close(rig.real);
}

static void rig_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    (void)base;
    (void)event;
    (void)n;
}

static const struct idem_driver rig_driver = {
    .name = "rig",
    .close = rig_close,
    .submit = rig_submit,
    .cancel = rig_cancel,
    .tally = rig_tally,
};

static int rig_watch(void *data, int fd, int events) {
    (void)data;
    (void)fd;
    (void)events;
    return 0;
}

static void rig_timer(void *data, int64_t ms) {
    (void)data;
    rig.timer_at = ms < 0 ? NEVER : now + ms;
}

static void start(struct idem_policy policy) {
    struct idem_host host = {.watch = rig_watch, .timer = rig_timer};

    rig.timer_at = rig.lost_at = NEVER;
    CHECK_INT(idem_open_on(temp_url("store", "sync=off"), NULL, &host, &rig.h, NULL), 0);
    rig.real = rig.h->store;
    rig.base = (struct idem_store){.driver = &rig_driver, .loop = &rig.h->loop};
    rig.h->store = &rig.base;
    policy.prefix = "t:";
    policy.scope = IDEM_SCOPE_NONE;
    policy.lease_ms = LEASE_MS;
    CHECK_INT(idem_guard_new(NULL, &policy, &rig.guard, NULL), 0);
}

static void stop(void) {
    idem_guard_free(rig.guard);
    idem_close(rig.h);
}

/* Goes on to then, with all that is due before. */
static void pass_to(int64_t then) {
    while (rig.timer_at <= then) {
        if (now < rig.timer_at)
            now = rig.timer_at;
        rig.timer_at = NEVER;
        idem_timeout(rig.h);
    }
    now = then;
}

static void answer(struct idem_op **at) {
    struct idem_op *op = *at;

    CHECK(op != NULL);
    *at = NULL;
    op->driver = NULL;
    op->complete(op, 0);
}

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *given,
                      const struct idem_error *err, void *data) {
    (void)claim;
    (void)err;
    CHECK_INT(rc, 0);
    CHECK_INT(given->verdict, IDEM_RUN);
    ++*(int *)data;
}

static void on_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    (void)claim;
    (void)data;
    CHECK_INT(why, IDEM_END_LEASE);
    rig.lost_at = now;
}

/* A run whose claim was under way for so many ms. */
static struct idem_claim *run(int64_t ms, uint32_t tries) {
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_claim *claim;
    int answers = 0;

    CHECK_INT(idem_claim_new(rig.h, rig.guard, &args, on_answer, &answers, &claim, NULL), 0);
    idem_claim_on_lost(claim, on_lost, NULL);
    pass_to(now);
    pass_to(now + ms);
    memset(&rig.claim->out, 0, sizeof(rig.claim->out));
    rig.claim->out.claim.verdict = IDEM_RUN;
    rig.claim->out.claim.record.state = IDEM_RUNNING;
    rig.claim->out.claim.record.attempt = rig.claim->out.claim.record.tries = tries;
    answer(&rig.claim);
    CHECK_INT(answers, 1);
    return claim;
}

static void pass_to_renewal(void) {
    while (rig.finish == NULL && rig.timer_at != NEVER)
        pass_to(rig.timer_at);
    CHECK(rig.finish != NULL);
    CHECK_INT(rig.sent.action, IDEM_OWNER_RENEW);
}

TEST(each_renewal_is_sent_at_a_third_of_the_lease_from_when_it_was_asked_for) {
    struct idem_claim *claim;
    int64_t asked;

    start((struct idem_policy){0});
    claim = run(200, 1);
    asked = rig.claim_at;
    for (int i = 0; i < 3; i++) {
        pass_to_renewal();
        CHECK_INT(rig.finish_at - asked, LEASE_MS / 3);
        asked = rig.finish_at;
        pass_to(now + 150);
        answer(&rig.finish);
    }
    idem_claim_free(claim);
    stop();
}

TEST(a_lease_counts_from_before_its_claim_was_sent) {
    struct idem_claim *claim;

    start((struct idem_policy){.recover = IDEM_RECOVER_RERUN});
    claim = run(200, 1);
    rig.down = true;
    pass_to(rig.claim_at + 2 * LEASE_MS);
    CHECK_INT(rig.lost_at - rig.claim_at, LEASE_MS);
    idem_claim_free(claim);
    stop();
}

TEST(a_renewed_lease_counts_from_before_its_renewal_was_sent) {
    struct idem_claim *claim;
    int64_t renewed;

    start((struct idem_policy){.recover = IDEM_RECOVER_RERUN});
    claim = run(200, 1);
    pass_to_renewal();
    renewed = rig.finish_at;
    pass_to(now + 150);
    answer(&rig.finish);
    rig.down = true;
    pass_to(renewed + 2 * LEASE_MS);
    CHECK_INT(rig.lost_at - renewed, LEASE_MS);
    idem_claim_free(claim);
    stop();
}

TEST(a_lease_is_over_in_time_while_the_store_says_nothing) {
    struct idem_claim *claim;

    start((struct idem_policy){.recover = IDEM_RECOVER_RERUN});
    claim = run(0, 1);
    pass_to(rig.claim_at + 2 * LEASE_MS); /* renewals are sent, and none is answered */
    CHECK_INT(rig.sent.action, IDEM_OWNER_RENEW);
    CHECK_INT(rig.lost_at - rig.claim_at, LEASE_MS);
    idem_claim_free(claim);
    stop();
}

TEST(under_hold_renewing_goes_on_after_the_lease) {
    struct idem_claim *claim;

    start((struct idem_policy){0});
    claim = run(0, 1);
    pass_to(rig.claim_at + 5 * LEASE_MS);
    CHECK_INT(rig.lost_at, NEVER);
    CHECK(rig.finish_at > rig.claim_at + 4 * LEASE_MS);
    idem_claim_free(claim);
    stop();
}

/* The back-off. */

static int64_t delay_of(uint32_t tries, bool unknown) {
    struct idem_claim *claim = run(0, tries);
    int rc = unknown ? idem_claim_unknown(claim, NULL, NULL, NULL)
                     : idem_claim_fail(claim, 0, NULL, NULL, 0, false, NULL, NULL);

    CHECK_INT(rc, 0);
    pass_to(now);
    answer(&rig.finish);
    idem_claim_free(claim);
    return rig.sent.delay_ms;
}

/* All of the range is used, and nothing else. */
static void check_delays(uint32_t tries, bool unknown, int64_t low, int64_t high) {
    int64_t least = NEVER, most = 0;

    for (int i = 0; i < 300; i++) {
        int64_t delay = delay_of(tries, unknown);

        least = delay < least ? delay : least;
        most = delay > most ? delay : most;
    }
    CHECK(least >= low && least <= low + (high - low) / 5);
    CHECK(most <= high && most >= high - (high - low) / 5);
}

TEST(a_back_off_doubles_and_is_lengthened_by_chance_between_its_bounds) {
    start((struct idem_policy){.backoff_min_ms = 1000, .backoff_max_ms = 10000});
    check_delays(1, false, 1000, 1500);
    check_delays(2, false, 2000, 3000);
    check_delays(3, false, 4000, 6000);
    check_delays(4, false, 6667, 10000);
    check_delays(5, false, 6667, 10000);
    check_delays(UINT32_MAX, false, 6667, 10000);
    stop();
}

TEST(a_back_off_stays_between_bounds_that_are_close_together) {
    start((struct idem_policy){.backoff_min_ms = 1000, .backoff_max_ms = 1200});
    check_delays(1, false, 1000, 1200);
    check_delays(9, false, 1000, 1200);
    stop();
}

TEST(a_back_off_with_one_bound_is_that) {
    start((struct idem_policy){.backoff_min_ms = 1, .backoff_max_ms = 1});
    check_delays(1, false, 1, 1);
    check_delays(9, false, 1, 1);
    stop();
}

TEST(an_unknown_outcome_under_rerun_backs_off_alike) {
    start((struct idem_policy){
        .recover = IDEM_RECOVER_RERUN, .backoff_min_ms = 1000, .backoff_max_ms = 10000});
    check_delays(2, true, 2000, 3000);
    stop();
}

TEST_MAIN
