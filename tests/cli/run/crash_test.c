/*
 * README's table of the effects of a crash, cell by cell: idem is killed at
 * that point, and another run claims the key. To hold a process at a point, the
 * test takes the store's write lock.
 */
#include "cli/harness.h"

#include "store/lmdb/raw.h"

/* A column of the table: the flag for idem run. */
struct column {
    const char *flag, *value;
    bool reruns;
};

static const struct column hold = {"--recover", "hold", false};
static const struct column rerun = {"--recover", "rerun", true};
static const struct column lock = {"--mode", "lock", true};

/* Appends its attempt to `began`, waits for `go`, and appends to `ended`. */
static char *command(void) {
    return script("echo $IDEM_ATTEMPT >> %s; %s; echo x >> %s", in_folder("began"),
                  until_there("go"), in_folder("ended"));
}

static void go(void) {
    make_there("go");
}

static struct proc start(const struct column *column) {
    return START_SH("k", command(), "--lease", LEASE, column->flag, column->value, "--wait", "120s",
                    "--kill-after", "10m");
}

/* Claims the key without waiting. */
static struct ran ask(const struct column *column) {
    return RUN_SH("k", command(), "--lease", LEASE, column->flag, column->value);
}

static void die(struct proc *proc) {
    kill(proc->pid, SIGKILL);
    proc_wait(proc);
}

/* Blocks all writes to the store until raw_end(). */
static void writes_stop(struct raw *raw) {
    RUN_SH("another", ":"); /* so that the store exists */
    raw_begin(raw, in_folder("store"), true);
}

/* Checks the table's cell for a vanished run: it runs again when the lease is over, or never. */
static void vanished_check(const struct column *column) {
    struct proc next;
    struct ran ran = ask(column);

    CHECK_INT(ran.status, 75);
    CHECK_INT(lines_of("began"), 1);
    leases_end();
    if (column->reruns) {
        next = start(column);
        WAIT_UNTIL(lines_of("began") == 2);
        if (!exists("go"))
            go();
        ran = proc_wait(&next);
        CHECK_INT(ran.status, 0);
        CHECK(starts_with(ran.verdict, "run attempt=2 "));
        return;
    }
    CHECK_INT(ask(column).status, 70);
    CHECK_INT(lines_of("began"), 1);
    CHECK_INT(RUN("settle", "--done", "k").status, 0);
    CHECK(starts_with(ask(column).verdict, "duplicate attempt=1 "));
    if (!exists("go"))
        go();
}

/* The rows. */

static void before_the_claim_is_stored(const struct column *column) {
    struct proc proc;
    struct raw raw;

    writes_stop(&raw);
    clock_stop(); /* so that its timeout does not end */
    proc = start(column);
    WAIT_UNTIL(has_store(proc.pid));
    /* sleep: until the process waits for the lock, which nothing shows; earlier is right, too */
    wait_ms(50);
    CHECK(!wrote(proc.verdict, "run "));
    die(&proc);
    raw_end(&raw);
    CHECK_INT(lines_of("began"), 0);
    go();
    CHECK(starts_with(ask(column).verdict, "run attempt=1 "));
}

static void while_it_runs(const struct column *column) {
    struct proc proc = start(column);

    WAIT_UNTIL(lines_of("began") == 1);
    die(&proc);
    vanished_check(column);
}

static void after_it_ran(const struct column *column) {
    struct proc proc = start(column);
    struct raw raw;

    WAIT_UNTIL(lines_of("began") == 1);
    writes_stop(&raw);
    go();
    WAIT_UNTIL(lines_of("ended") == 1);
    /* sleep: until the process waits for the lock, which nothing shows; earlier is right, too */
    wait_ms(50);
    CHECK(!wrote(proc.verdict, "stored "));
    die(&proc);
    raw_end(&raw);
    vanished_check(column);
}

/* Returns the next claim's verdict. */
static char *after_done_is_stored(const struct column *column) {
    struct proc proc = start(column);

    WAIT_UNTIL(lines_of("began") == 1);
    go();
    WAIT_UNTIL(wrote(proc.verdict, "stored said=done"));
    die(&proc);
    return ask(column).verdict;
}

static void it_was_only_slow(const struct column *column) {
    struct proc slow = start(column), next;

    WAIT_UNTIL(lines_of("began") == 1);
    raw_child_stop(in_folder("store"), slow.pid);
    leases_end();
    next = start(column);
    WAIT_UNTIL(lines_of("began") == 2);
    kill(slow.pid, SIGCONT);
    CHECK_INT(proc_wait(&slow).status, 76);
    go();
    CHECK_HAS(proc_wait(&next).verdict, "stored said=done attempt=2 ");
    CHECK(strstr(RUN("stats", "--json").out, "\"superseded\":0,") == NULL);
}

TEST(hold_before_the_claim_is_stored_nothing_happened_and_a_retry_runs) {
    before_the_claim_is_stored(&hold);
}

TEST(rerun_before_the_claim_is_stored_nothing_happened_and_a_retry_runs) {
    before_the_claim_is_stored(&rerun);
}

TEST(lock_before_the_claim_is_stored_nothing_happened_and_a_retry_runs) {
    before_the_claim_is_stored(&lock);
}

TEST(hold_after_the_claim_while_it_runs_it_is_uncertain_until_somebody_settles_it) {
    while_it_runs(&hold);
}

TEST(rerun_after_the_claim_while_it_runs_it_is_run_again_when_the_lease_is_over) {
    while_it_runs(&rerun);
}

TEST(lock_after_the_claim_while_it_runs_it_is_freed_when_the_lease_is_over) {
    while_it_runs(&lock);
}

TEST(hold_after_it_ran_before_that_is_stored_it_is_uncertain_and_never_run_twice) {
    after_it_ran(&hold);
}

TEST(rerun_after_it_ran_before_that_is_stored_it_is_run_again) {
    after_it_ran(&rerun);
}

TEST(lock_after_it_ran_before_that_is_stored_it_is_freed_when_the_lease_is_over) {
    after_it_ran(&lock);
}

TEST(hold_after_done_is_stored_it_is_never_run_again) {
    CHECK(starts_with(after_done_is_stored(&hold), "replay attempt=1 "));
    CHECK_INT(lines_of("began"), 1);
}

TEST(rerun_after_done_is_stored_it_is_never_run_again) {
    CHECK(starts_with(after_done_is_stored(&rerun), "replay attempt=1 "));
    CHECK_INT(lines_of("began"), 1);
}

TEST(lock_after_done_is_stored_it_is_free) {
    CHECK(starts_with(after_done_is_stored(&lock), "run attempt=2 "));
    CHECK_INT(lines_of("began"), 2);
}

TEST(hold_that_was_only_slow_may_still_finish) {
    struct proc slow = start(&hold);

    WAIT_UNTIL(lines_of("began") == 1);
    raw_child_stop(in_folder("store"), slow.pid);
    leases_end();
    CHECK_INT(ask(&hold).status, 70);
    go();
    kill(slow.pid, SIGCONT);
    CHECK_HAS(proc_wait(&slow).verdict, "stored said=done attempt=1 ");
    CHECK_INT(lines_of("began"), 1);
}

TEST(rerun_that_was_only_slow_is_refused_late_and_counted) {
    it_was_only_slow(&rerun);
}

TEST(lock_that_was_only_slow_is_refused_late_and_counted) {
    it_was_only_slow(&lock);
}

int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
