/*
 * Clocks that jump, and machines that were started again: a jump of more than a
 * day is refused and reported, and nothing is forgotten by it; a smaller one
 * never makes time go back; a new boot ends every lease.
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

/* A store with one record, done now, for two days. */
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

/* While it is open. */

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
    CHECK_INT(rig_finish(&rig, &claim, IDEM_SAID_DONE, "x", 1, &ack), IDEM_E_CLOCK);
    rig_clock_pass(ticks, HOUR_MS);
    check_all_refused(&rig, way);
    ticks->wall -= by;
    CHECK(is_kept(&rig));
    CHECK_INT(rig_finish(&rig, &claim, IDEM_SAID_DONE, "x", 1, &ack), 0);
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

/* The machine's date is set back and forth; the run goes on all the same. */
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

/* Asleep for a month, both clocks went on: that is no jump. */
TEST(a_long_sleep_is_not_a_jump) {
    struct rig rig;

    store_open(&rig, "sync=off");
    rig_clock_pass(ticks, DAY_MS + HOUR_MS);
    CHECK(is_kept(&rig));
    rig_clock_pass(ticks, 40 * DAY_MS);
    CHECK(!is_kept(&rig));
    rig_close(&rig);
}

/* While it was closed. */

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

/* Refused because of the clock, then switched off: it was closed cleanly all the same. */
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

/* A machine that was started again. */

/* The lease clock begins anew; so many hours went by. */
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

/* One process saw the clock two hours ahead, and only asked; the other comes after it was set
   right. What the second does must not have expired for the first. */
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

/* Whoever writes sweeps a little: a claim must not wait until everything is swept. */
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
        _exit(0); /* a leak check would wait by a clock that stands elsewhere */
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
