/*
 * The invariants of the design, each tried over all possible claims. (Two are
 * elsewhere: 4, a superseded owner changes nothing, is with the finishes; 5, a
 * replay is byte-identical, is with the sizes. The front doors test 9.)
 */
#include "contract.h"

#include <sys/mman.h>
#include <time.h>

#include "protocol/record_key.h"

/* Calls fn with each policy that a claim may have. */
static void each_claim(void (*fn)(struct idem_claim_in in, void *data), void *data) {
    for (unsigned bits = 0; bits < 3 * 2 * 3 * 2 * 2 * 2; bits++) {
        struct idem_claim_in in = claim_by(1000 + bits);
        unsigned rest = bits;

        in.mode = (enum idem_mode)(IDEM_MODE_LOCK + rest % 3), rest /= 3;
        in.recover = (enum idem_recover)(IDEM_RECOVER_HOLD + rest % 2), rest /= 2;
        in.on_failure = (enum idem_on_failure)(IDEM_ON_FAILURE_RELEASE + rest % 3), rest /= 3;
        in.attempts = rest % 2, rest /= 2;
        in.probe = rest % 2, rest /= 2;
        in.fingerprint = fingerprint_of(rest % 2, 'z');
        fn(in, data);
    }
}

struct never {
    struct conn *c;
    const char *key;
};

static void check_no_run(struct idem_claim_in in, void *data) {
    struct never *never = data;

    CHECK(claim(never->c, never->key, in).verdict != IDEM_RUN);
}

static void check_no_run_under_hold(struct idem_claim_in in, void *data) {
    if (in.recover == IDEM_RECOVER_HOLD && !in.probe)
        check_no_run(in, data);
}

static void check_no_run_while_live(struct idem_claim_in in, void *data) {
    struct never *never = data;
    enum idem_verdict verdict = claim(never->c, never->key, in).verdict;

    CHECK(verdict == IDEM_BUSY || verdict == IDEM_MISMATCH);
}

CONTRACT(at_most_one_live_lease_per_key_under_any_policy) {
    struct never never = {c, "k"};
    struct idem_claim_in in = claim_by(1);

    in.fingerprint = fingerprint_of(1, 'a');
    CHECK_INT(claim(c, "k", in).verdict, IDEM_RUN);
    each_claim(check_no_run_while_live, &never);
    advance(LEASE_MS - 1);
    each_claim(check_no_run_while_live, &never);
}

CONTRACT(of_many_connections_that_claim_at_once_one_runs) {
    struct conn *others[4] = {c, another(HOST_EDGE), another(HOST_POLL), another(HOST_EDGE)};
    struct idem_record_key key = key_of("k");
    struct call calls[64];
    unsigned runs = 0;

    for (unsigned i = 0; i < 64; i++) {
        call_init(&calls[i], others[i % 4], IDEM_OP_CLAIM, &key);
        calls[i].op.in.claim = i % 2 == 0 ? claim_by(i + 1) : rerun_by(i + 1, 0);
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < 64; i++) {
        CHECK_INT(call_wait(&calls[i]), 0);
        runs += calls[i].op.out.claim.verdict == IDEM_RUN;
        CHECK(calls[i].op.out.claim.verdict == IDEM_RUN ||
              calls[i].op.out.claim.verdict == IDEM_BUSY);
    }
    CHECK_INT(runs, 1);
}

static _Atomic unsigned *runs_shared;

/* Twenty claims on each of two keys, by owners of this process's own. */
static void claim_in_a_crowd(struct conn *c, char word) {
    struct call calls[40];

    for (unsigned i = 0; i < 40; i++) {
        struct idem_record_key key = key_of(i % 2 == 0 ? "even" : "odd");

        call_init(&calls[i], c, IDEM_OP_CLAIM, &key);
        calls[i].op.in.claim = rerun_by((unsigned)word * 100 + i, 0);
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < 40; i++) {
        CHECK_INT(call_wait(&calls[i]), 0);
        runs_shared[i % 2] += calls[i].op.out.claim.verdict == IDEM_RUN;
    }
}

CONTRACT_BARE(of_many_processes_that_claim_at_once_one_runs) {
    struct peer peers[3];

    runs_shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(runs_shared != MAP_FAILED);
    for (unsigned i = 0; i < 3; i++)
        peers[i] = peer_start(claim_in_a_crowd);
    for (char round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 3; i++)
            peer_tell(&peers[i], (char)(1 + 3 * round + (char)i));
        for (unsigned i = 0; i < 3; i++)
            peer_wait(&peers[i]);
        CHECK_INT(runs_shared[0], round + 1);
        CHECK_INT(runs_shared[1], round + 1);
        advance(LEASE_MS);
    }
    for (unsigned i = 0; i < 3; i++)
        peer_stop(&peers[i]);
    munmap(runs_shared, 4096);
}

CONTRACT(after_done_nobody_runs_until_it_expires) {
    struct never kept = {c, "kept"}, bare = {c, "bare"};

    run_done(c, "kept", 1, "r");
    run_done(c, "bare", 1, NULL);
    each_claim(check_no_run, &kept);
    each_claim(check_no_run, &bare);
    advance(TTL_MS - 1);
    each_claim(check_no_run, &kept);
    each_claim(check_no_run, &bare);
    advance(1);
    CHECK_INT(claim(c, "kept", claim_by(2)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "kept", done_by(2, 200, "r")), IDEM_ACK);
    CHECK_INT(forget(c, "kept", false), 0);
    CHECK_INT(claim(c, "kept", claim_by(3)).verdict, IDEM_RUN);
}

CONTRACT(under_hold_a_key_runs_once_until_it_expires) {
    const int64_t moments[] = {0, LEASE_MS - 1, 1, 1, TTL_MS, HOLD_TTL_MS - TTL_MS - 2};
    struct never never = {c, "k"};

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    for (unsigned i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        advance(moments[i]);
        each_claim(check_no_run_under_hold, &never);
    }
    advance(1);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_RUN);
}

CONTRACT(under_hold_a_key_runs_again_after_fail_or_release_only) {
    struct never never = {c, "k"};

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", unknown_by(1, 0)), IDEM_ACK);
    each_claim(check_no_run_under_hold, &never);
    CHECK_INT(finish(c, "k", fail_by(1, 500, "no", 0)), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_RUN);
    each_claim(check_no_run_under_hold, &never);
    CHECK_INT(finish(c, "k", release_by(2)), IDEM_ACK);
    CHECK_INT(claim(c, "k", claim_by(3)).verdict, IDEM_RUN);
}

CONTRACT(scopes_never_meet) {
    static const char *const scopes[] = {NULL, "", "none", "a", "ab", "b", "a\001"};
    struct idem_record_key key;

    for (unsigned i = 0; i < 7; i++) {
        for (unsigned k = 0; k < 2; k++) {
            CHECK(idem_record_key_make(&key, IDEM_NAME_RECORD, bytes_of("s:"), bytes_of(scopes[i]),
                                       bytes_of(k == 0 ? "bc" : "c")) == 0);
            CHECK_INT(claim_at(c, &key, claim_by(1)).verdict, IDEM_RUN);
        }
    }
    CHECK_INT(list_all(c, "s:", (struct idem_list_in){0}, 100).n, 14);
}

CONTRACT(time_is_the_stores_and_nobody_elses) {
    struct idem_claim_in brief = rerun_by(1, 0);

    brief.lease_ms = 1;
    brief.hold_ttl_ms = 1;
    CHECK_INT(claim(c, "k", brief).verdict, IDEM_RUN);
    usleep(5000); /* sleep: longer than the lease, by the clock that must not count */
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_BUSY);
    advance(1);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).record.attempt, 2);
}

/* A caller that stopped waiting cannot know whether its claim arrived, so it sends release. */
CONTRACT(a_claim_given_up_is_released_by_its_owner_id) {
    struct idem_record_key key = key_of("k");
    struct call given_up, release;

    for (unsigned i = 0; i < 20; i++) {
        call_init(&given_up, c, IDEM_OP_CLAIM, &key);
        given_up.op.in.claim = claim_by(i + 1);
        CHECK_INT(call_submit(&given_up), 0);
        if (i % 2 == 1)
            conn_turn(c, 0);
        idem_store_cancel(c->store, &given_up.op);
        call_init(&release, c, IDEM_OP_FINISH, &key);
        release.op.in.finish = release_by(i + 1);
        CHECK_INT(call_run(&release), 0);
        CHECK_INT(release.op.out.finish.ack, IDEM_ACK);
        /* sleep: a record that is removed too late or too early would show by then */
        conn_idle(c, 2);
        CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
    }
}

#define BLOCK ((size_t)100 << 10)

/* Claims and finishes until there is no room; returns the number of keys that are done. */
static unsigned fill_up(struct conn *c, const unsigned char *block) {
    for (unsigned i = 0; i < 400; i++) {
        struct idem_finish_in done = done_by(i + 1, (int32_t)i, "");
        struct idem_record_key key;
        struct call call;
        char name[16];

        snprintf(name, sizeof(name), "k%u", i);
        key = key_of(name);
        call_init(&call, c, IDEM_OP_CLAIM, &key);
        call.op.in.claim = claim_by(i + 1);
        if (call_run(&call) == IDEM_E_FULL) {
            CHECK_INT(peek(c, name).state, IDEM_ABSENT);
            return i;
        }
        CHECK_INT(call.rc, 0);
        call_init(&call, c, IDEM_OP_FINISH, &key);
        done.result = (struct idem_bytes){block, BLOCK};
        call.op.in.finish = done;
        if (call_run(&call) == IDEM_E_FULL) {
            CHECK_INT(peek(c, name).state, IDEM_RUNNING);
            return i;
        }
        CHECK_INT(call.rc, 0);
        keep_reset();
    }
    return 0;
}

CONTRACT_BARE(a_full_store_says_so_and_loses_nothing) {
    const struct contract_driver *driver = contract_driver();
    unsigned char *block;
    struct conn conn;
    char url[512];
    unsigned n;

    if (driver->small == NULL)
        return;
    block = calloc(1, BLOCK);
    CHECK(block != NULL);
    driver->small(contract_folder(), url, sizeof(url));
    conn_open(&conn, url, HOST_POLL, contract_clock());
    CHECK_INT(claim(&conn, "early", claim_by(9000)).verdict, IDEM_RUN);
    n = fill_up(&conn, block);
    CHECK(n > 4);
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        struct told told;

        snprintf(name, sizeof(name), "k%u", i);
        told = claim(&conn, name, claim_by(9001));
        CHECK_INT(told.verdict, IDEM_REPLAY);
        CHECK_INT(told.record.result.len, BLOCK);
        CHECK(memcmp(told.record.result.at, block, BLOCK) == 0);
        keep_reset();
    }
    /* An owner that claimed before the store was full can store its outcome. */
    CHECK_INT(finish(&conn, "early", done_by(9000, 200, "small")), IDEM_ACK);
    advance(HOLD_TTL_MS + LEASE_MS + 120000);
    CHECK(sweep_all(&conn, 10) > 0);
    CHECK_INT(claim(&conn, "k0", claim_by(9002)).record.attempt, 1);
    CHECK_INT(finish(&conn, "k0", done_by(9002, 200, "again")), IDEM_ACK);
    conn_close(&conn);
    free(block);
}
