/*
 * Clocks that jump, and machines that restart. A jump of more than a day is
 * refused and reported, and no record is lost to it. The same holds for smaller
 * jumps forward that add up to more than a day in a week. A smaller jump back
 * never makes time go back. A new boot ends every lease.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include "raw.h"
#include "rig.h"
#include "test.h"

#define HOUR_MS ((int64_t)3600 * 1000)

static struct rig_clock *ticks; /* the machine's clocks */
static struct idem_clock calls;

static void machine_start(void) {
    ticks = rig_clock_new();
    calls = rig_clock_calls(ticks);
}

static const char *url(const char *options) {
    return rig_url("store", options);
}

static int64_t store_time(struct rig *rig) {
    struct idem_op op = {.kind = IDEM_OP_TIME};

    CHECK_INT(rig_run(rig, &op, NULL, NULL), 0);
    return op.out.time.ms;
}

/* A store with one record, which is done now and kept for two days. */
static void store_open(struct rig *rig, const char *options) {
    machine_start();
    rig_open(rig, url(options), &calls);
    rig->policy.ttl_ms = 2 * DAY_MS;
    rig_once(rig, "kept", "result", 6);
}

static bool is_kept(struct rig *rig) {
    return rig_holds(rig, "kept", "result", 6);
}

static void check_jump_text(const struct idem_error *err, const char *way) {
    CHECK_INT(err->code, IDEM_E_CLOCK);
    CHECK_HAS(err->text, rig_path(rig_folder(), "store"));
    CHECK_HAS(err->text, way);
    CHECK_HAS(err->text, "accept_clock=yes");
}

/* Jumps while the store is open. */

static void check_all_refused(struct rig *rig, const char *way) {
    struct idem_op sweep = {.kind = IDEM_OP_SWEEP, .in.sweep.max = 100},
                   stats = {.kind = IDEM_OP_STATS}, list = {.kind = IDEM_OP_LIST},
                   lookup = {.kind = IDEM_OP_LOOKUP};
    struct rig_claim claim;

    list.in.list.max = 10;
    lookup.key = rig_key(IDEM_NAME_RECORD, rig->prefix, "kept");
    CHECK_INT(rig_claim(rig, "kept", &claim), IDEM_E_CLOCK);
    check_jump_text(&rig->error, way);
    CHECK_INT(rig_claim(rig, "fresh", &claim), IDEM_E_CLOCK);
    CHECK_INT(rig_run(rig, &sweep, NULL, NULL), IDEM_E_CLOCK);
    CHECK_INT(rig_run(rig, &stats, NULL, NULL), IDEM_E_CLOCK);
    CHECK_INT(rig_run(rig, &list, NULL, NULL), IDEM_E_CLOCK);
    CHECK_INT(rig_run(rig, &lookup, NULL, NULL), IDEM_E_CLOCK);
}

static void jump_while_open(int64_t by, const char *way, const char *options) {
    struct rig rig;
    struct rig_claim claim;
    enum idem_ack ack;

    store_open(&rig, options);
    CHECK_INT(rig_claim(&rig, "running", &claim), 0);
    ticks->wall += by;
    check_all_refused(&rig, way);
    CHECK_INT(rig_finish(&rig, &claim, IDEM_OWNER_DONE, "x", 1, &ack), IDEM_E_CLOCK);
    rig_clock_pass(ticks, HOUR_MS);
    check_all_refused(&rig, way);
    ticks->wall -= by;
    CHECK(is_kept(&rig));
    CHECK_INT(rig_finish(&rig, &claim, IDEM_OWNER_DONE, "x", 1, &ack), 0);
    CHECK_INT(ack, IDEM_ACK);
    rig_once(&rig, "fresh", "y", 1);
    rig_close(&rig);
}

TEST(a_jump_forward_by_more_than_a_day_is_refused_and_forgets_nothing) {
    jump_while_open(25 * HOUR_MS, "forward by 25 hours", "sync=off");
}

TEST(a_jump_forward_by_years_is_refused_and_forgets_nothing) {
    jump_while_open(4000 * DAY_MS, "forward", "sync=always");
}

TEST(a_jump_back_by_more_than_a_day_is_refused_and_forgets_nothing) {
    jump_while_open(-25 * HOUR_MS, "back by 25 hours", "sync=always");
}

TEST(a_jump_back_by_years_is_refused_and_forgets_nothing) {
    jump_while_open(-4000 * DAY_MS, "back", "sync=off");
}

/* The count of jumps is at the end of idem.shared. */
static void shared_spoil(size_t at, int64_t value) {
    const char *path = rig_path(rig_path(rig_folder(), "store"), "idem.shared");

    rig_file_poke(path, rig_file_size(path) - (off_t)sizeof(struct lmdb_jumps) + (off_t)at, &value,
                  sizeof(value));
}

static const struct {
    size_t at;
    int64_t value;
} impossible[] = {
    {offsetof(struct lmdb_jumps, uptime), -3 * DAY_MS},
    {offsetof(struct lmdb_jumps, uptime), INT64_MAX},
    {offsetof(struct lmdb_jumps, lease), -1},
    {offsetof(struct lmdb_jumps, offset), INT64_MIN},
    {offsetof(struct lmdb_jumps, days[3]), INT64_MAX},
    {offsetof(struct lmdb_jumps, days[3]), -1},
};
#define IMPOSSIBLE (sizeof(impossible) / sizeof(impossible[0]))

TEST(an_impossible_count_of_jumps_in_the_shared_file_is_refused_and_not_used) {
    for (size_t i = 0; i < IMPOSSIBLE; i++) {
        struct rig rig;
        struct rig_claim claim;

        store_open(&rig, "sync=off");
        shared_spoil(impossible[i].at, impossible[i].value);
        ticks->wall += HOUR_MS;
        CHECK_INT(rig_claim(&rig, "kept", &claim), IDEM_E_CORRUPT);
        CHECK_HAS(rig.error.text, "idem.shared is damaged");
        rig_close(&rig);
        /* The next process continues with the state in data.mdb. */
        rig_open(&rig, url("sync=off"), &calls);
        CHECK(is_kept(&rig));
        rig_close(&rig);
        CHECK(unlink(rig_path(rig_path(rig_folder(), "store"), "data.mdb")) == 0);
        CHECK(unlink(rig_path(rig_path(rig_folder(), "store"), "idem.state")) == 0);
        CHECK(unlink(rig_path(rig_path(rig_folder(), "store"), "idem.shared")) == 0);
    }
}

TEST(a_jump_back_by_less_than_a_day_makes_time_stand_still) {
    struct rig rig;
    int64_t before;

    store_open(&rig, "sync=off");
    before = store_time(&rig);
    CHECK_INT(before, ticks->wall);
    ticks->wall -= 5 * HOUR_MS;
    CHECK_INT(store_time(&rig), before);
    rig_clock_pass(ticks, 2 * HOUR_MS);
    CHECK_INT(store_time(&rig), before);
    CHECK(is_kept(&rig));
    rig_clock_pass(ticks, 4 * HOUR_MS);
    CHECK_INT(store_time(&rig), before + HOUR_MS);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

TEST(a_jump_forward_by_less_than_a_day_is_taken_for_time) {
    struct rig rig;
    int64_t before;

    store_open(&rig, "sync=off");
    before = store_time(&rig);
    ticks->wall += 23 * HOUR_MS;
    CHECK_INT(store_time(&rig), before + 23 * HOUR_MS);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

/* The machine's date is set back and forth; the run is not affected. */
TEST(a_lease_does_not_care_for_the_date) {
    struct rig rig;
    struct rig_claim first, other;

    store_open(&rig, "sync=off");
    CHECK_INT(rig_claim(&rig, "running", &first), 0);
    ticks->wall += 20 * HOUR_MS;
    CHECK_INT(rig_claim(&rig, "running", &other), 0);
    CHECK_INT(other.verdict, IDEM_BUSY);
    CHECK_INT(other.left_ms, rig.policy.lease_ms);
    ticks->wall -= 20 * HOUR_MS;
    ticks->lease += 10000;
    CHECK_INT(rig_claim(&rig, "running", &other), 0);
    CHECK_INT(other.verdict, IDEM_BUSY);
    CHECK_INT(other.left_ms, rig.policy.lease_ms - 10000);
    ticks->lease += 20000;
    CHECK_INT(rig_claim(&rig, "running", &other), 0);
    CHECK_INT(other.verdict, IDEM_UNCERTAIN);
    rig_close(&rig);
}

/* When a machine sleeps for a month, both clocks advance: that is no jump. */
TEST(a_long_sleep_is_not_a_jump) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_clock_pass(ticks, DAY_MS + HOUR_MS);
    CHECK(is_kept(&rig));
    rig_clock_pass(ticks, 40 * DAY_MS);
    CHECK(!is_kept(&rig));
    rig_close(&rig);
}

/* Jumps while the store is closed. */

static void check_open_refused(const char *options, const char *way) {
    struct rig rig;

    CHECK_INT(rig_try(&rig, url(options), &calls), IDEM_E_CLOCK);
    check_jump_text(&rig.error, way);
}

static void jump_while_closed(int64_t by, const char *way, const char *options) {
    struct rig rig;

    store_open(&rig, options);
    rig_close(&rig);
    rig_clock_pass(ticks, HOUR_MS);
    ticks->wall += by;
    check_open_refused(options, way);
    check_open_refused(options, way);
    ticks->wall -= by;
    rig_open(&rig, url(options), &calls);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

TEST(a_jump_forward_while_it_was_closed_is_refused_and_forgets_nothing) {
    jump_while_closed(25 * HOUR_MS, "forward by 25 hours", "sync=off");
}

TEST(a_jump_back_while_it_was_closed_is_refused_and_forgets_nothing) {
    jump_while_closed(-26 * HOUR_MS, "back by 26 hours", "sync=always");
}

TEST(a_jump_back_while_it_was_closed_by_less_than_a_day_makes_time_stand_still) {
    struct rig rig;
    int64_t before;

    store_open(&rig, "sync=off");
    before = store_time(&rig);
    rig_close(&rig);
    ticks->wall -= 20 * HOUR_MS;
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(store_time(&rig), before);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

TEST(the_highest_time_that_was_used_for_a_write_outlives_the_process) {
    struct rig rig;
    int64_t high;

    store_open(&rig, "sync=off");
    ticks->wall += 20 * HOUR_MS;
    rig_once(&rig, "later", "x", 1);
    high = store_time(&rig);
    rig_close(&rig);
    ticks->wall -= 20 * HOUR_MS;
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(store_time(&rig), high);
    rig_close(&rig);
}

TEST(a_clock_that_is_said_to_be_right_is_taken_as_it_is) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    ticks->wall -= 500 * DAY_MS;
    check_open_refused("sync=off", "back");
    rig_open(&rig, url("sync=off&accept_clock=yes"), &calls);
    CHECK_INT(store_time(&rig), ticks->wall);
    CHECK(is_kept(&rig));
    rig_once(&rig, "now", "x", 1);
    rig_close(&rig);
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(store_time(&rig), ticks->wall);
    CHECK(rig_holds(&rig, "now", "x", 1));
    rig_close(&rig);
}

/* The handle was refused because of the clock, and then closed: that is a clean close all the
 * same. */
TEST(a_store_that_was_refused_for_its_clock_is_still_a_clean_one) {
    static const char boot[] = "00000000-0000-0000-0000-000000000000";
    char path[512], text[256], *at;
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    ticks->wall -= 500 * DAY_MS;
    check_open_refused("sync=off", "back");
    ticks->wall += 500 * DAY_MS;
    snprintf(path, sizeof(path), "%s/store/idem.state", rig_folder());
    text[rig_file_read(path, text, sizeof(text) - 1)] = '\0';
    at = strstr(text, "boot ");
    CHECK(at != NULL);
    memcpy(at + 5, boot, strlen(boot));
    rig_file_write(path, text, strlen(text));
    rig_open(&rig, url("sync=off"), &calls);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

/* Jumps forward that add up. */

static void check_sum_refused(struct rig *rig) {
    struct rig_claim claim;

    CHECK_INT(rig_claim(rig, "kept", &claim), IDEM_E_CLOCK);
    check_jump_text(&rig->error, "jumped forward by ");
    CHECK_HAS(rig->error.text, "24 h in all are accepted");
}

/* A record that is done for 24 h must not run again earlier unless an operator acts. */
TEST(two_jumps_of_23_hours_are_not_both_accepted) {
    struct rig rig;
    int64_t high;

    store_open(&rig, "sync=off");
    rig.policy.ttl_ms = DAY_MS;
    rig_once(&rig, "paid", "once", 4);
    ticks->wall += 23 * HOUR_MS;
    CHECK_INT(rig_ask(&rig, "paid"), IDEM_REPLAY);
    high = store_time(&rig);
    ticks->wall += 23 * HOUR_MS;
    check_all_refused(&rig, "forward by 23 h 0 min, after 23 h 0 min in the last 7 days");
    rig_clock_pass(ticks, HOUR_MS / 2);
    check_sum_refused(&rig);
    ticks->wall -= 23 * HOUR_MS;
    CHECK_INT(store_time(&rig), high + HOUR_MS / 2);
    CHECK_INT(rig_ask(&rig, "paid"), IDEM_REPLAY);
    rig_close(&rig);
}

TEST(many_small_jumps_are_accepted_up_to_a_day_in_all) {
    struct rig rig;

    store_open(&rig, "sync=always");
    for (int i = 0; i < 48; i++) {
        ticks->wall += HOUR_MS / 2;
        CHECK(is_kept(&rig));
        rig_clock_pass(ticks, 60000);
    }
    ticks->wall += 5000;
    check_sum_refused(&rig);
    ticks->wall -= 5000;
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

TEST(jumps_are_accepted_again_after_a_week_of_uptime) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig.policy.ttl_ms = 90 * DAY_MS;
    rig_once(&rig, "long", "result", 6);
    for (int i = 0; i < 4; i++) {
        ticks->wall += 24 * HOUR_MS;
        CHECK(rig_holds(&rig, "long", "result", 6));
        rig_clock_pass(ticks, 7 * DAY_MS - HOUR_MS);
        CHECK(rig_holds(&rig, "long", "result", 6));
        ticks->wall += HOUR_MS;
        check_sum_refused(&rig);
        ticks->wall -= HOUR_MS;
        rig_clock_pass(ticks, DAY_MS + HOUR_MS);
    }
    rig_close(&rig);
}

/* The window slides: no seven days hold more than a day of jumps, wherever they begin. */
TEST(no_seven_days_of_uptime_hold_more_than_a_day_of_jumps) {
    enum { HOURS = 60 * 24, WEEK = 7 * 24 };
    static int64_t taken[HOURS];
    int64_t all = 0;
    uint64_t seed = 21;
    struct rig rig;

    store_open(&rig, "sync=off");
    rig.policy.ttl_ms = 300 * DAY_MS;
    rig_once(&rig, "long", "x", 1);
    for (int hour = 0; hour < HOURS; hour++) {
        int64_t by = (int64_t)(rig_random(&seed) % (3 * (uint64_t)HOUR_MS)) + 1001, sum = 0;
        struct idem_op op = {.kind = IDEM_OP_TIME};

        ticks->wall += by;
        if (rig_run(&rig, &op, NULL, NULL) == 0)
            taken[hour] = by;
        else
            ticks->wall -= by;
        for (int i = hour; i >= 0 && i > hour - WEEK; i--)
            sum += taken[i];
        CHECK(sum <= DAY_MS);
        all += taken[hour];
        rig_clock_pass(ticks, HOUR_MS);
    }
    CHECK(all > 60 / LMDB_JUMP_DAYS * (DAY_MS - 3 * HOUR_MS));
    rig_close(&rig);
}

TEST(a_jump_that_was_set_right_and_comes_again_counts_once) {
    struct rig rig;

    store_open(&rig, "sync=off");
    for (int i = 0; i < 5; i++) {
        ticks->wall += 20 * HOUR_MS;
        CHECK(is_kept(&rig));
        rig_clock_pass(ticks, 60000);
        ticks->wall -= 20 * HOUR_MS;
        CHECK(is_kept(&rig));
        rig_clock_pass(ticks, 60000);
    }
    ticks->wall += 23 * HOUR_MS; /* three hours more than ever */
    CHECK(is_kept(&rig));
    ticks->wall += 2 * HOUR_MS;
    check_sum_refused(&rig);
    rig_close(&rig);
}

/* Time that stands still is no reserve: the store counts the lag when the clock makes it up. */
TEST(a_jump_after_time_stood_still_counts_in_full) {
    struct rig rig;

    store_open(&rig, "sync=off");
    ticks->wall -= 20 * HOUR_MS;
    CHECK(is_kept(&rig));
    rig_clock_pass(ticks, 21 * HOUR_MS);
    CHECK(is_kept(&rig));
    ticks->wall += 20 * HOUR_MS;
    CHECK(is_kept(&rig));
    ticks->wall += 5 * HOUR_MS;
    check_sum_refused(&rig);
    rig_close(&rig);
}

/* Two clocks are never read at the same instant; the delay between the reads is no jump. */
TEST(how_the_clocks_are_read_does_not_add_up) {
    struct rig rig;

    store_open(&rig, "sync=off");
    for (int i = 0; i < 20000; i++) {
        int64_t by = i % 2 == 0 ? 900 : -900;

        ticks->wall += by;
        rig_clock_pass(ticks, 1000);
        (void)store_time(&rig);
    }
    ticks->wall += 23 * HOUR_MS;
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

/* Events that the count of jumps survives. */

static void again_after(const char *options, void (*meanwhile)(void), bool refused) {
    struct rig rig;

    store_open(&rig, options);
    ticks->wall += 23 * HOUR_MS;
    rig_once(&rig, "later", "x", 1);
    rig_close(&rig);
    meanwhile();
    rig_clock_pass(ticks, HOUR_MS);
    rig_open(&rig, url(options), &calls);
    CHECK(is_kept(&rig));
    ticks->wall += 2 * HOUR_MS;
    if (refused)
        check_sum_refused(&rig);
    else
        CHECK(is_kept(&rig));
    rig_close(&rig);
}

static void nothing(void) {
}

static void shared_lost(void) {
    CHECK(unlink(rig_path(rig_path(rig_folder(), "store"), "idem.shared")) == 0);
}

static void restart(void) {
    raw_boot_change(rig_path(rig_folder(), "store"));
    ticks->lease = 5000;
}

static void restart_and_shared_lost(void) {
    restart();
    shared_lost();
}

TEST(jumps_are_counted_over_restarts_of_the_process) {
    again_after("sync=off", nothing, true);
}

TEST(jumps_are_counted_without_the_shared_file) {
    again_after("sync=always", shared_lost, true);
}

TEST(jumps_are_counted_over_boots) {
    again_after("sync=always", restart, true);
}

TEST(jumps_are_counted_over_boots_without_the_shared_file) {
    again_after("sync=always", restart_and_shared_lost, true);
}

/* Each restart of the machine loses a little of the uptime, never much. */
TEST(a_week_of_uptime_may_lie_in_many_boots) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig.policy.ttl_ms = 90 * DAY_MS;
    rig_once(&rig, "long", "result", 6);
    ticks->wall += 23 * HOUR_MS;
    rig_once(&rig, "first", "x", 1);
    for (int day = 0; day < 9; day++) {
        char name[16];

        rig_clock_pass(ticks, DAY_MS);
        snprintf(name, sizeof(name), "day%d", day);
        rig_once(&rig, name, "x", 1);
        rig_close(&rig);
        restart();
        rig_open(&rig, url("sync=off"), &calls);
        rig.policy.ttl_ms = 90 * DAY_MS;
    }
    ticks->wall += 23 * HOUR_MS;
    CHECK(rig_holds(&rig, "long", "result", 6));
    rig_close(&rig);
}

TEST(a_jump_while_it_was_closed_counts) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    ticks->wall += 23 * HOUR_MS;
    rig_open(&rig, url("sync=off"), &calls);
    CHECK(is_kept(&rig));
    ticks->wall += 2 * HOUR_MS;
    check_sum_refused(&rig);
    rig_close(&rig);
    CHECK_INT(rig_try(&rig, url("sync=off"), &calls), IDEM_E_CLOCK);
    check_jump_text(&rig.error, "forward by ");
    ticks->wall -= 2 * HOUR_MS;
    rig_open(&rig, url("sync=off"), &calls);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

/* The release before this one has no count: each of the two reads the other's files. */
static void count_removed(void) {
    static const char *const folder = "store";
    struct raw raw;
    size_t len = 0;
    void *clock;
    MDB_val name = {5, "jumps"};
    MDB_dbi meta;

    raw_begin(&raw, rig_path(rig_folder(), folder), true);
    clock = raw_get(&raw, "meta", "clock", 5, &len);
    CHECK(clock != NULL);
    CHECK_INT(len, 16); /* the length that the release reads */
    free(clock);
    CHECK(mdb_dbi_open(raw.txn, "meta", 0, &meta) == 0);
    CHECK(mdb_del(raw.txn, meta, &name, NULL) == 0);
    raw_end(&raw);
    shared_lost();
}

TEST(a_store_of_the_release_before_begins_to_count) {
    again_after("sync=off", count_removed, false);
}

TEST(a_jump_between_the_release_before_and_this_one_counts) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    count_removed();
    ticks->wall += 23 * HOUR_MS;
    rig_open(&rig, url("sync=off"), &calls);
    ticks->wall += 2 * HOUR_MS;
    check_sum_refused(&rig);
    rig_close(&rig);
}

TEST(what_the_release_before_has_accepted_is_in_force) {
    struct {
        int64_t lease, wall;
    } clock;
    struct rig rig;
    struct raw raw;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    rig_clock_pass(ticks, HOUR_MS);
    ticks->wall += 3 * DAY_MS;
    clock.lease = ticks->lease;
    clock.wall = ticks->wall;
    raw_begin(&raw, rig_path(rig_folder(), "store"), true);
    raw_put(&raw, "meta", "clock", 5, &clock, sizeof(clock));
    raw_end(&raw);
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(store_time(&rig), ticks->wall);
    rig_close(&rig);
}

TEST(a_damaged_count_is_refused) {
    struct rig rig;
    struct raw raw;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    raw_begin(&raw, rig_path(rig_folder(), "store"), true);
    raw_put(&raw, "meta", "jumps", 5, "damaged", 7);
    raw_end(&raw);
    CHECK_INT(rig_try(&rig, url("sync=off"), &calls), IDEM_E_CORRUPT);
    CHECK_HAS(rig.error.text, "the clock's record is damaged");
}

/* Restarts of the machine. */

/* The lease clock begins anew, `hours` later. */
static void machine_restart(int64_t hours) {
    raw_boot_change(rig_path(rig_folder(), "store"));
    ticks->lease = 5000;
    ticks->wall += hours * HOUR_MS;
}

TEST(a_new_boot_ends_every_lease) {
    struct rig rig;
    struct rig_claim held, again;

    store_open(&rig, "sync=off");
    rig.policy.lease_ms = 20 * HOUR_MS;
    CHECK_INT(rig_claim(&rig, "held", &held), 0);
    CHECK_INT(rig_claim(&rig, "rerun", &again), 0);
    rig_close(&rig);
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(rig_ask(&rig, "held"), IDEM_BUSY);
    CHECK_INT(rig_stats(&rig).running, 2);
    rig_close(&rig);
    machine_restart(0);
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(rig_ask(&rig, "held"), IDEM_UNCERTAIN);
    CHECK_INT(rig_stats(&rig).uncertain, 2);
    rig.policy.recover = IDEM_RECOVER_RERUN;
    CHECK_INT(rig_claim(&rig, "rerun", &again), 0);
    CHECK_INT(again.verdict, IDEM_RUN);
    CHECK_INT(again.attempt, 2);
    CHECK_INT(rig_ask(&rig, "rerun"), IDEM_BUSY);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

TEST(an_uncertain_run_is_remembered_over_boots_until_its_hold_is_over) {
    struct rig rig;
    struct rig_claim held;

    store_open(&rig, "sync=off");
    CHECK_INT(rig_claim(&rig, "held", &held), 0);
    rig_close(&rig);
    machine_restart(29 * 24);
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(rig_ask(&rig, "held"), IDEM_UNCERTAIN);
    rig_close(&rig);
    machine_restart(2 * 24);
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(rig_ask(&rig, "held"), IDEM_RUN);
    rig_close(&rig);
}

TEST(a_machine_may_be_off_for_long) {
    struct rig rig;

    store_open(&rig, "sync=always");
    rig_close(&rig);
    machine_restart(47);
    rig_open(&rig, url("sync=always"), &calls);
    CHECK(is_kept(&rig));
    rig_close(&rig);
    machine_restart(300 * 24);
    rig_open(&rig, url("sync=always"), &calls);
    CHECK(!is_kept(&rig));
    rig_close(&rig);
}

TEST(a_machine_that_starts_with_a_date_of_the_past_is_refused) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    machine_restart(-48);
    check_open_refused("sync=off", "back by 48 hours");
    ticks->wall += 40 * HOUR_MS;
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(store_time(&rig), ticks->wall + 8 * HOUR_MS);
    CHECK(is_kept(&rig));
    rig_close(&rig);
}

/* One process saw the clock two hours ahead, and only read; the other opens the store after the
 * clock was set right. A record that the second finishes must not have expired for the first. */
struct pair {
    const char *url;
    int go[2], said[2];
};

static void see_ahead(void *data) {
    struct pair *pair = data;
    struct rig rig;
    char byte;

    rig_open(&rig, pair->url, &calls);
    (void)store_time(&rig);
    CHECK_INT(write(pair->said[1], "", 1), 1);
    CHECK_INT(read(pair->go[0], &byte, 1), 1);
    rig.policy.ttl_ms = HOUR_MS;
    CHECK_INT(rig_ask(&rig, "pay"), IDEM_REPLAY);
    rig_close(&rig);
}

TEST(the_highest_time_is_one_for_all_processes) {
    struct pair pair = {.url = url("sync=off")};
    struct rig rig;
    pid_t pid;
    char byte;
    int status;

    machine_start();
    CHECK(pipe(pair.go) == 0 && pipe(pair.said) == 0);
    ticks->wall += 2 * HOUR_MS;
    pid = rig_spawn(see_ahead, &pair);
    CHECK_INT(read(pair.said[0], &byte, 1), 1);
    ticks->wall -= 2 * HOUR_MS;
    rig_open(&rig, pair.url, &calls);
    rig.policy.ttl_ms = HOUR_MS;
    rig_once(&rig, "pay", "paid", 4);
    CHECK(rig_holds(&rig, "pay", "paid", 4));
    CHECK_INT(write(pair.go[1], "", 1), 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    rig_close(&rig);
}

/* Several processes. */

struct watcher {
    const char *url;
    int go[2], said[2];
};

/* Asks the store for its time at each request, and reports the result. */
static void look_on(void *data) {
    struct watcher *watcher = data;
    struct rig rig;
    char byte;

    rig_open(&rig, watcher->url, &calls);
    do {
        struct idem_op op = {.kind = IDEM_OP_TIME};

        byte = rig_run(&rig, &op, NULL, NULL) == 0 ? 'y' : 'n';
        CHECK_INT(write(watcher->said[1], &byte, 1), 1);
        CHECK_INT(read(watcher->go[0], &byte, 1), 1);
    } while (byte == 'g');
    rig_close(&rig);
}

static bool watcher_sees(const struct watcher *watcher, bool first) {
    char byte = 'g';

    CHECK(first || write(watcher->go[1], &byte, 1) == 1);
    CHECK_INT(read(watcher->said[0], &byte, 1), 1);
    return byte == 'y';
}

static pid_t watcher_start(struct watcher *watcher) {
    pid_t pid;

    CHECK(pipe(watcher->go) == 0 && pipe(watcher->said) == 0);
    pid = rig_spawn(look_on, watcher);
    CHECK(watcher_sees(watcher, true));
    return pid;
}

static void watcher_end(const struct watcher *watcher, pid_t pid) {
    int status;

    CHECK_INT(write(watcher->go[1], "e", 1), 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

TEST(a_jump_that_several_processes_see_counts_once) {
    struct watcher watcher = {.url = url("sync=off")};
    struct rig rig;
    pid_t pid;

    store_open(&rig, "sync=off");
    pid = watcher_start(&watcher);
    for (int i = 0; i < 3; i++) {
        ticks->wall += 8 * HOUR_MS;
        if (i % 2 == 0)
            CHECK(is_kept(&rig));
        CHECK(watcher_sees(&watcher, false));
        CHECK(is_kept(&rig));
    }
    ticks->wall += HOUR_MS;
    CHECK(!watcher_sees(&watcher, false));
    check_sum_refused(&rig);
    watcher_end(&watcher, pid);
    rig_close(&rig);
}

/* The jump is not yet written to the file. */
TEST(a_jump_that_was_only_read_by_is_known_to_processes_that_open_later) {
    struct watcher watcher = {.url = url("sync=off")};
    struct rig rig;
    pid_t pid;

    store_open(&rig, "sync=off");
    ticks->wall += 23 * HOUR_MS;
    CHECK(is_kept(&rig));
    pid = watcher_start(&watcher);
    ticks->wall += 2 * HOUR_MS;
    CHECK(!watcher_sees(&watcher, false));
    check_sum_refused(&rig);
    watcher_end(&watcher, pid);
    rig_close(&rig);
}

static void accept(void *data) {
    struct rig rig;

    rig_open(&rig, data, &calls);
    (void)store_time(&rig);
    rig_close(&rig);
}

/* An operator's process opens the store with accept_clock, and writes nothing. */
static void accepted_meanwhile(int64_t first, int64_t second) {
    struct watcher watcher = {.url = url("sync=off")};
    const char *accepting = url("sync=off&accept_clock=yes");
    struct rig rig;
    pid_t pid;

    store_open(&rig, "sync=off");
    pid = watcher_start(&watcher);
    ticks->wall += first;
    CHECK(is_kept(&rig));
    ticks->wall += second;
    CHECK(!watcher_sees(&watcher, false));
    rig_child_ok("accepting", accept, (void *)accepting);
    CHECK(watcher_sees(&watcher, false));
    CHECK_INT(store_time(&rig), ticks->wall);
    ticks->wall += 23 * HOUR_MS; /* the count starts anew */
    CHECK_INT(store_time(&rig), ticks->wall);
    ticks->wall += 2 * HOUR_MS;
    CHECK(!watcher_sees(&watcher, false));
    watcher_end(&watcher, pid);
    rig_close(&rig);
}

TEST(a_sum_that_the_operator_accepts_is_accepted_by_processes_that_run) {
    accepted_meanwhile(23 * HOUR_MS, 23 * HOUR_MS);
}

TEST(a_jump_that_the_operator_accepts_is_accepted_by_processes_that_run) {
    accepted_meanwhile(HOUR_MS, 100 * DAY_MS);
}

TEST(a_jump_back_that_the_operator_accepts_is_accepted_by_processes_that_run) {
    accepted_meanwhile(HOUR_MS, -100 * DAY_MS);
}

TEST(what_the_operator_accepts_is_stored_although_nothing_else_is_written) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_close(&rig);
    ticks->wall += 100 * DAY_MS;
    check_open_refused("sync=off", "forward");
    rig_child_ok("accepting", accept, (void *)url("sync=off&accept_clock=yes"));
    shared_lost();
    rig_open(&rig, url("sync=off"), &calls);
    CHECK_INT(store_time(&rig), ticks->wall);
    rig_close(&rig);
}

/* Each write sweeps a little: a claim must not wait until all expired records are swept. */
TEST(what_a_write_sweeps_along_the_way_is_bounded) {
    struct rig rig;
    char name[16];

    store_open(&rig, "sync=off");
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "k%u", i);
        rig_once(&rig, name, "x", 1);
    }
    rig_close(&rig);
    rig_clock_pass(ticks, 5 * DAY_MS);
    rig_open(&rig, url("sync=off"), &calls);
    rig_once(&rig, "one", "x", 1);
    rig_close(&rig);
    CHECK(raw_count(rig_path(rig_folder(), "store"), "records") > 280);
}

/* Each time namespace has its own CLOCK_BOOTTIME: leases of one mean nothing in another. */
static void from_another_time(void *data) {
    struct idem_error err;
    int status, fd;
    pid_t pid;

    if (unshare(CLONE_NEWTIME) < 0) {
        fprintf(stderr, "# no time namespaces here: %s\n", strerror(errno));
        return;
    }
    fd = open("/proc/self/timens_offsets", O_WRONLY);
    CHECK(fd >= 0 && write(fd, "boottime 3600 0", 15) == 15);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK_INT(rig_refused(data, &err), IDEM_E_REFUSED);
        CHECK_HAS(err.text, "another time namespace");
        _exit(0); /* a leak check would wait by the other namespace's clock */
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

TEST(a_store_that_is_open_in_another_time_namespace_is_refused) {
    struct idem *h = rig_handle(url(NULL));

    rig_child_ok("another time namespace", from_another_time, (void *)url(NULL));
    idem_close(h);
}

TEST_MAIN
