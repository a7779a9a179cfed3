/*
 * The file does not grow without end. The test replaces the set of keys many
 * times under an injected clock, with no other sweep than the one that each
 * write does. After the first rounds the size of the file and the number of
 * used pages stay as they are. The same holds when a process dies while it
 * reads, and for each kind of item in the store.
 */
#include <sys/wait.h>

#include "raw.h"
#include "rig.h"
#include "test.h"

#define ROUNDS 20
#define SETTLED 4 /* rounds until the file has its final size */
#define TTL_MS 60000
/* A round takes as long as a record may be kept, the index's grace included. */
#define ROUND_MS (2 * TTL_MS + 2000)

struct load {
    struct rig rig;
    struct rig_clock *clock;
    unsigned per_round, next;
    off_t size[ROUNDS + 1];
    uint64_t used[ROUNDS + 1];
    /* One step of the load, for the i-th item of all rounds. */
    void (*step)(struct load *load, unsigned i);
};

static unsigned scaled(unsigned n) {
    return getenv("IDEM_LONG") == NULL ? n : 20 * n;
}

static const char *store_folder(void) {
    return rig_path(rig_folder(), "store");
}

static void load_open(struct load *load, unsigned per_round,
                      void (*step)(struct load *load, unsigned i)) {
    struct idem_clock calls;

    *load = (struct load){.per_round = per_round, .step = step, .clock = rig_clock_new()};
    calls = rig_clock_calls(load->clock);
    rig_open(&load->rig, rig_url("store", "sync=off"), &calls);
    load->rig.policy.ttl_ms = TTL_MS;
}

static void round_run(struct load *load, unsigned round) {
    int64_t passed = 0;

    for (unsigned i = 0; i < load->per_round; i++) {
        int64_t until = (int64_t)ROUND_MS * (i + 1) / load->per_round;

        load->step(load, load->next++);
        rig_clock_pass(load->clock, until - passed);
        passed = until;
    }
    load->size[round] = rig_file_size(rig_path(store_folder(), "data.mdb"));
    load->used[round] = rig_stats(&load->rig).bytes_used;
}

static void check_steady(const struct load *load) {
    fprintf(stderr, "# file %lld, %lld, %lld KiB; in use %llu, %llu, %llu KiB in round 1, %d, %d\n",
            (long long)load->size[1] >> 10, (long long)load->size[SETTLED] >> 10,
            (long long)load->size[ROUNDS] >> 10, (unsigned long long)load->used[1] >> 10,
            (unsigned long long)load->used[SETTLED] >> 10,
            (unsigned long long)load->used[ROUNDS] >> 10, SETTLED, ROUNDS);
    CHECK(load->size[ROUNDS] <= load->size[SETTLED] * 13 / 10);
    CHECK(load->used[ROUNDS] <= load->used[SETTLED] * 13 / 10);
}

static void load_run(struct load *load) {
    for (unsigned round = 1; round <= ROUNDS; round++)
        round_run(load, round);
    check_steady(load);
}

/* The items left are at most those of the last round and a half. */
static void check_left(const struct load *load, const char *table, unsigned each) {
    size_t left = raw_count(store_folder(), table);

    if (left > (size_t)load->per_round * each * 3 / 2) {
        fprintf(stderr, "# %zu entries in %s, %u in a round\n", left, table,
                load->per_round * each);
        exit(1);
    }
}

/* Records. */

static void step_small(struct load *load, unsigned i) {
    static unsigned char result[200];
    char name[32];

    snprintf(name, sizeof(name), "k%u", i);
    rig_once(&load->rig, name, result, sizeof(result));
}

TEST_IN(turning_the_keys_over_twenty_times_does_not_grow_the_file, 600) {
    struct load load;

    load_open(&load, scaled(1500), step_small);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "records", 1);
    check_left(&load, "expiry", 1);
}

static void step_mixed(struct load *load, unsigned i) {
    static unsigned char result[40000];
    uint64_t seed = i;
    char name[32];

    snprintf(name, sizeof(name), "k%u", i);
    rig_once(&load->rig, name, result,
             rig_random(&seed) % (i % 8 == 0 ? sizeof(result) : (size_t)300));
}

TEST_IN(results_of_all_sizes_do_not_grow_the_file, 600) {
    struct load load;

    load_open(&load, scaled(600), step_mixed);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "records", 1);
    check_left(&load, "expiry", 1);
}

/* One name under two prefixes, at the same moment: both records must be swept. */
static void step_two_prefixes(struct load *load, unsigned i) {
    static const char *const prefixes[] = {"order:", "pay:"};
    char name[32];

    snprintf(name, sizeof(name), "k%u", i);
    for (unsigned p = 0; p < 2; p++) {
        load->rig.prefix = prefixes[p];
        rig_once(&load->rig, name, "x", 1);
    }
}

TEST_IN(one_key_under_two_prefixes_is_swept_under_both, 600) {
    struct load load;

    load_open(&load, scaled(500), step_two_prefixes);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "records", 2);
    check_left(&load, "expiry", 2);
}

/* Runs that never finish are removed when their hold is over. */
static void step_vanish(struct load *load, unsigned i) {
    char name[32];

    load->rig.policy.hold_ttl_ms = TTL_MS;
    snprintf(name, sizeof(name), "k%u", i);
    CHECK_INT(rig_ask(&load->rig, name), IDEM_RUN);
}

TEST_IN(runs_that_vanish_do_not_grow_the_file, 600) {
    struct load load;

    load_open(&load, scaled(800), step_vanish);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "records", 1);
    check_left(&load, "expiry", 1);
}

static void step_token(struct load *load, unsigned i) {
    struct idem_op op = {.kind = IDEM_OP_ISSUE, .in.issue.ttl_ms = TTL_MS};
    char name[32];

    snprintf(name, sizeof(name), "t%u", i);
    op.key = rig_key(IDEM_NAME_RECORD, "token:", name);
    CHECK_INT(rig_run(&load->rig, &op, NULL, NULL), 0);
    CHECK(op.out.issue.issued);
}

TEST_IN(tokens_that_nobody_uses_do_not_grow_the_file, 600) {
    struct load load;

    load_open(&load, scaled(800), step_token);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "records", 1);
}

/* A reader that dies. */

struct reader {
    const char *folder;
    int ready;
};

/* Reads, reports that it does, and waits to be killed. */
static void read_for_ever(void *data) {
    const struct reader *reader = data;
    struct raw raw;

    raw_begin(&raw, reader->folder, false);
    NEED(write(reader->ready, "r", 1) == 1);
    for (;;)
        pause();
}

static void reader_kill_in_the_middle(void) {
    struct reader reader = {.folder = store_folder()};
    int ends[2], status;
    char byte;
    pid_t pid;

    CHECK(pipe(ends) == 0);
    reader.ready = ends[1];
    pid = rig_spawn(read_for_ever, &reader);
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1);
    close(ends[0]);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
}

TEST_IN(a_reader_that_was_killed_does_not_hold_pages_for_ever, 600) {
    struct load load;

    load_open(&load, scaled(800), step_small);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        round_run(&load, round);
        if (round == 2 || round == 3)
            reader_kill_in_the_middle();
    }
    check_steady(&load);
    /* A dead reader must not hold back pages for long: at full load one minute needs more than the
     * map. */
    CHECK(load.size[4] <= load.size[1] + 2 * (2 << 20));
    rig_close(&load.rig);
    check_left(&load, "records", 1);
}

/* Writers that die. */

struct dying {
    const char *url;
    struct rig_clock *clock;
    unsigned first;
};

/* The state that the writer keeps in memory dies with it. */
static void write_and_die(void *data) {
    const struct dying *dying = data;
    struct idem_clock calls = rig_clock_calls(dying->clock);
    struct rig rig;

    rig_open(&rig, dying->url, &calls);
    rig.policy.ttl_ms = TTL_MS;
    for (unsigned i = 0; i < 40; i++) {
        char name[32];

        snprintf(name, sizeof(name), "dying%u", dying->first + i);
        rig_once(&rig, name, "x", 1);
    }
    raise(SIGKILL);
}

static void step_dying(struct load *load, unsigned i) {
    struct dying dying = {rig_url("store", "sync=off"), load->clock, i};

    step_small(load, i);
    if (i % 40 == 0)
        CHECK_INT(rig_child(write_and_die, &dying), SIGKILL);
}

TEST_IN(what_killed_writers_left_behind_is_swept_all_the_same, 600) {
    struct load load;

    load_open(&load, scaled(400), step_dying);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "records", 2);
    check_left(&load, "expiry", 2);
}

/* One key, many times. */

static void step_release(struct load *load, unsigned i) {
    struct rig_claim claim;
    enum idem_ack ack;

    (void)i;
    CHECK_INT(rig_claim(&load->rig, "one", &claim), 0);
    CHECK_INT(claim.verdict, IDEM_RUN);
    CHECK_INT(rig_finish(&load->rig, &claim, IDEM_OWNER_RELEASE, NULL, 0, &ack), 0);
}

TEST_IN(claiming_and_releasing_one_key_leaves_nothing_behind, 600) {
    struct load load;

    load_open(&load, scaled(500), step_release);
    load_run(&load);
    rig_close(&load.rig);
    CHECK_INT(raw_count(store_folder(), "records"), 0);
    CHECK_INT(raw_count(store_folder(), "expiry"), 0);
}

static void step_lock(struct load *load, unsigned i) {
    struct rig_claim claim;
    enum idem_ack ack;

    load->rig.policy.mode = IDEM_MODE_LOCK;
    load->rig.policy.recover = IDEM_RECOVER_RERUN;
    CHECK_INT(rig_claim(&load->rig, "one", &claim), 0);
    CHECK_INT(claim.verdict, IDEM_RUN);
    CHECK_INT(claim.attempt, i + 1);
    CHECK_INT(rig_finish(&load->rig, &claim, IDEM_OWNER_DONE, NULL, 0, &ack), 0);
}

TEST_IN(one_lock_taken_for_ever_has_one_entry, 600) {
    struct load load;

    load_open(&load, scaled(500), step_lock);
    load_run(&load);
    rig_close(&load.rig);
    CHECK_INT(raw_count(store_folder(), "records"), 1);
    CHECK_INT(raw_count(store_folder(), "expiry"), 1);
}

/* Every operation that an operator and a failing run can do to one record. */
static void step_settle(struct load *load, unsigned i) {
    struct idem_record_key key = rig_key(IDEM_NAME_RECORD, load->rig.prefix, "one");
    struct idem_op settle = {.kind = IDEM_OP_SETTLE, .key = key},
                   forget = {.kind = IDEM_OP_FORGET, .key = key, .in.forget.force = true};
    struct rig_claim claim;
    enum idem_ack ack;

    load->rig.policy.on_failure = IDEM_ON_FAILURE_RETRY;
    CHECK_INT(rig_claim(&load->rig, "one", &claim), 0);
    CHECK_INT(claim.verdict, IDEM_RUN);
    CHECK_INT(rig_finish(&load->rig, &claim, IDEM_OWNER_RENEW, NULL, 0, &ack), 0);
    if (i % 3 == 0) {
        CHECK_INT(rig_finish(&load->rig, &claim, IDEM_OWNER_FAIL, NULL, 0, &ack), 0);
        return;
    }
    settle.in.settle = (struct idem_settle_in){
        .to = i % 3 == 1 ? IDEM_FAILED : IDEM_DONE, .force = true, .ttl_ms = TTL_MS};
    CHECK_INT(rig_run(&load->rig, &settle, NULL, NULL), 0);
    if (i % 3 == 2)
        CHECK_INT(rig_run(&load->rig, &forget, NULL, NULL), 0);
}

TEST_IN(settling_and_forgetting_one_key_leaves_one_entry_at_most, 600) {
    struct load load;

    load_open(&load, scaled(500), step_settle);
    load_run(&load);
    rig_close(&load.rig);
    CHECK(raw_count(store_folder(), "records") <= 1);
    CHECK_INT(raw_count(store_folder(), "expiry"), raw_count(store_folder(), "records"));
}

/* A key that returns each time after it has expired, before it is swept or after. */
static void step_expired(struct load *load, unsigned i) {
    rig_clock_pass(load->clock, i % 2 == 0 ? TTL_MS : 3 * TTL_MS);
    rig_once(&load->rig, "one", "x", 1);
}

TEST_IN(one_key_that_expires_and_comes_back_has_one_entry, 600) {
    struct load load;

    load_open(&load, scaled(300), step_expired);
    load_run(&load);
    rig_close(&load.rig);
    CHECK_INT(raw_count(store_folder(), "records"), 1);
    CHECK_INT(raw_count(store_folder(), "expiry"), 1);
}

/* Nonces and counters. */

static void step_nonce(struct load *load, unsigned i) {
    struct idem_op op = {.kind = IDEM_OP_ONCE, .in.once.ttl_ms = TTL_MS};
    char name[32];

    snprintf(name, sizeof(name), "n%u", i);
    op.key = rig_key(IDEM_NAME_NONCE, "nonce:", name);
    for (unsigned again = 0; again < 2; again++) {
        CHECK_INT(rig_run(&load->rig, &op, NULL, NULL), 0);
        CHECK_INT(op.out.once.first, again == 0);
    }
}

TEST_IN(nonces_do_not_grow_the_file, 600) {
    struct load load;

    load_open(&load, scaled(1500), step_nonce);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "aux", 1);
    check_left(&load, "expiry", 1);
}

/* Many nonces that are used twice, and one that is used all the time. */
static void step_counter(struct load *load, unsigned i) {
    struct idem_op op = {.kind = IDEM_OP_COUNT};
    char name[32];

    op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, TTL_MS};
    op.key = rig_key(IDEM_NAME_COUNTER, "counter:", "all");
    CHECK_INT(rig_run(&load->rig, &op, NULL, NULL), 0);
    CHECK_INT(op.out.count.value, i + 1);
    snprintf(name, sizeof(name), "c%u", i / 2);
    op.key = rig_key(IDEM_NAME_COUNTER, "counter:", name);
    CHECK_INT(rig_run(&load->rig, &op, NULL, NULL), 0);
    CHECK_INT(op.out.count.value, i % 2 + 1);
}

TEST_IN(counters_do_not_grow_the_file, 600) {
    struct load load;

    load_open(&load, scaled(1000), step_counter);
    load_run(&load);
    rig_close(&load.rig);
    check_left(&load, "aux", 1);
    check_left(&load, "expiry", 1);
}

TEST_MAIN
