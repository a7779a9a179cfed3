/*
 * The contract of operations over many records: list and sweep.
 */
#include "../wait.h"
#include "contract.h"
#include "protocol/record_key.h"

static const struct idem_list_in any = {0};

static size_t listed_n(struct conn *c, const char *prefix, struct idem_list_in in) {
    return list_all(c, prefix, in, 3).n;
}

/* One record in each state: t issued, r running, u uncertain, d done, f failed. */
static void one_of_each(struct conn *c) {
    CHECK_INT(claim(c, "u", claim_by(1)).verdict, IDEM_RUN);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "r", claim_by(1)).verdict, IDEM_RUN);
    CHECK(issue(c, "t", 9, 7, TTL_MS));
    run_done(c, "d", 1, "result");
    CHECK_INT(claim(c, "f", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "f", fail_by(1, 500, "no", 5000)), IDEM_ACK);
}

static const struct idem_entry *entry_of(struct listed all, const char *name) {
    struct idem_record_key key = key_of(name);
    char hex[IDEM_HEX_LEN + 1];

    idem_record_key_hex(&key, hex);
    for (size_t i = 0; i < all.n; i++)
        if (strcmp(all.entries[i].hash, hex) == 0)
            return &all.entries[i];
    return NULL;
}

CONTRACT(an_empty_store_lists_nothing_and_ends) {
    CHECK_INT(listed_n(c, "", any), 0);
    CHECK_INT(listed_n(c, "t:", any), 0);
}

CONTRACT(an_entry_tells_what_the_record_is) {
    struct idem_claim_in labelled = rerun_by(1, 0);
    struct idem_finish_in failed = fail_by(1, -7, "why", 5000);
    const struct idem_entry *e;
    int64_t begun = now().wall;
    struct listed all;

    labelled.label = bytes_of("order 4711");
    failed.final = true;
    failed.keep_result = true;
    failed.result = bytes_of("eight ch");
    CHECK_INT(claim(c, "k", labelled).verdict, IDEM_RUN);
    advance(1000);
    CHECK_INT(finish(c, "k", failed), IDEM_ACK);
    advance(1000);
    all = list_all(c, "t:", any, 10);
    CHECK_INT(all.n, 1);
    e = entry_of(all, "k");
    CHECK(e != NULL);
    CHECK_STR(e->prefix, "t:");
    CHECK_STR(e->label, "order 4711");
    CHECK_STR(e->reason, "why");
    CHECK_INT(e->state, IDEM_FAILED);
    CHECK(e->final && e->has_result && !e->uncertain && !e->locked);
    CHECK_INT(e->attempt, 1);
    CHECK_INT(e->status, -7);
    CHECK_INT(e->left_ms, 4000);
    CHECK_INT(e->created_ms, begun);
    CHECK_INT(e->changed_ms, begun + 1000);
    CHECK_INT(e->expires_ms, begun + 1000 + TTL_MS);
    CHECK_INT(e->result_len, 8);
    CHECK(e->result == NULL);
}

CONTRACT(an_entry_tells_a_lock_and_an_uncertain_run) {
    struct listed all;

    one_of_each(c);
    CHECK_INT(claim(c, "l", lock_by(1)).verdict, IDEM_RUN);
    all = list_all(c, "", any, 100);
    CHECK_INT(all.n, 6);
    CHECK(entry_of(all, "l")->locked && !entry_of(all, "r")->locked);
    CHECK(entry_of(all, "u")->uncertain && !entry_of(all, "r")->uncertain);
    CHECK_INT(entry_of(all, "u")->left_ms, 0);
    CHECK_INT(entry_of(all, "r")->left_ms, LEASE_MS);
}

CONTRACT(a_list_is_filtered_by_state) {
    for (int state = IDEM_ISSUED; state <= IDEM_FAILED; state++)
        CHECK_INT(listed_n(c, "", (struct idem_list_in){.state = (enum idem_state)state}), 0);
    one_of_each(c);
    CHECK_INT(listed_n(c, "", any), 5);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.state = IDEM_RUNNING}), 2);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.uncertain = true}), 1);
    CHECK(entry_of(list_all(c, "", (struct idem_list_in){.uncertain = true}, 9), "u") != NULL);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.state = IDEM_ISSUED}), 1);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.state = IDEM_DONE}), 1);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.state = IDEM_FAILED}), 1);
}

CONTRACT(a_list_is_filtered_by_the_time_of_change) {
    int64_t before = now().wall;

    run_done(c, "old", 1, "r");
    CHECK_INT(claim(c, "touched", claim_by(1)).verdict, IDEM_RUN);
    advance(1000);
    run_done(c, "new", 1, "r");
    CHECK_INT(finish(c, "touched", done_by(1, 200, "r")), IDEM_ACK);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.since_ms = before}), 3);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.since_ms = before + 1}), 2);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.since_ms = before + 1000}), 2);
    CHECK_INT(listed_n(c, "", (struct idem_list_in){.since_ms = before + 1001}), 0);
}

CONTRACT(what_has_expired_is_not_listed) {
    run_done(c, "a", 1, "r");
    advance(TTL_MS / 2);
    run_done(c, "b", 1, "r");
    advance(TTL_MS / 2);
    CHECK_INT(listed_n(c, "", any), 1);
}

static void run_in(struct conn *c, const char *prefix, const char *name) {
    struct idem_record_key key = key_in(prefix, name);

    CHECK_INT(claim_at(c, &key, claim_by(1)).verdict, IDEM_RUN);
}

CONTRACT(a_list_is_filtered_by_prefix) {
    run_in(c, "a:", "1");
    run_in(c, "a:", "2");
    run_in(c, "ab:", "1");
    run_in(c, "b:", "1");
    run_in(c, "\xff\xff", "1");
    CHECK_INT(listed_n(c, "", any), 5);
    CHECK_INT(listed_n(c, "a", any), 3);
    CHECK_INT(listed_n(c, "a:", any), 2);
    CHECK_INT(listed_n(c, "ab", any), 1);
    CHECK_INT(listed_n(c, "b", any), 1);
    CHECK_INT(listed_n(c, "c", any), 0);
    CHECK_INT(listed_n(c, "\xff", any), 1);
    CHECK_INT(listed_n(c, "a:x", any), 0);
}

/* A name is prefix + hash without a separator. */
CONTRACT(the_hash_of_a_record_is_not_taken_for_its_prefix) {
    struct idem_record_key key = key_in("a", "");
    struct listed all;

    memcpy(key.at + key.prefix_len, "b:", 2);
    CHECK_INT(claim_at(c, &key, claim_by(1)).verdict, IDEM_RUN);
    run_in(c, "ab:", "1");
    all = list_all(c, "ab:", any, 10);
    CHECK_INT(all.n, 1);
    CHECK_STR(all.entries[0].prefix, "ab:");
    CHECK_INT(listed_n(c, "ab", any), 1);
    CHECK_INT(listed_n(c, "a", any), 2);
}

static int order_of(const struct idem_entry *a, const struct idem_entry *b) {
    int rc = strcmp(a->prefix, b->prefix);

    return rc != 0 ? rc : strcmp(a->hash, b->hash);
}

/* Each page ends where the next begins, whatever its size. */
CONTRACT(a_thousand_records_are_listed_page_by_page_each_once) {
    const size_t pages[] = {1000, 999, 100, 7};
    struct idem_claim_in in = claim_by(1);

    claim_many(c, "k", 1000, &in);
    for (unsigned i = 0; i < 4; i++) {
        struct listed all = list_all(c, "t:", any, pages[i]);

        CHECK_INT(all.n, 1000);
        for (size_t k = 1; k < all.n; k++)
            CHECK(contract_driver()->unordered ||
                  order_of(&all.entries[k - 1], &all.entries[k]) < 0);
    }
    CHECK_INT(list_all(c, "", any, 64).n, 1000);
    CHECK_INT(list_all(c, "", (struct idem_list_in){.state = IDEM_DONE}, 64).n, 0);
}

CONTRACT(a_page_of_one_ends_too) {
    struct idem_claim_in in = claim_by(1);

    claim_many(c, "k", 20, &in);
    CHECK_INT(list_all(c, "", any, 1).n, 20);
}

CONTRACT(a_list_of_at_most_none_is_refused_or_empty) {
    struct call call;

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    call_init(&call, c, IDEM_OP_LIST, NULL);
    call.op.in.list = (struct idem_list_in){.max = 0};
    if (call_run(&call) == 0)
        CHECK_INT(call.op.out.list.n, 0);
    else
        CHECK_INT(call.rc, IDEM_E_INVALID);
}

/* Between two pages some records go and some come; those that stay are seen exactly once. */
CONTRACT(what_stays_is_listed_once_while_others_come_and_go) {
    struct conn *other = another(HOST_POLL);
    struct idem_claim_in in = claim_by(1);
    struct idem_list_in at = {.max = 10};
    unsigned char seen[200] = {0};
    unsigned page = 0;

    claim_many(c, "stays", 200, &in);
    claim_many(c, "goes", 200, &in);
    while (!at.cursor.end) {
        struct call call;
        char name[32];

        call_init(&call, c, IDEM_OP_LIST, NULL);
        call.op.in.list = at;
        CHECK_INT(call_run(&call), 0);
        for (unsigned i = 0; i < 200; i++) {
            struct listed got = {(struct idem_entry *)call.entries, call.op.out.list.n};

            snprintf(name, sizeof(name), "stays%u", i);
            seen[i] = (unsigned char)(seen[i] + (entry_of(got, name) != NULL));
        }
        at.cursor = call.op.out.list.cursor;
        for (unsigned i = 0; i < 4 && page < 50; i++) {
            snprintf(name, sizeof(name), "goes%u", page * 4 + i);
            CHECK_INT(forget(other, name, true), 0);
            snprintf(name, sizeof(name), "comes%u", page * 4 + i);
            CHECK_INT(claim(other, name, claim_by(2)).verdict, IDEM_RUN);
        }
        CHECK(++page < 100);
    }
    for (unsigned i = 0; i < 200; i++)
        CHECK(seen[i] == 1 || (contract_driver()->unordered && seen[i] > 0));
}

/* Checks the number of items in the closed store. A store that sweeps by itself gets time to do
 * so. */
static bool stored_is(size_t want) {
    const struct contract_driver *driver = contract_driver();

    WAIT_UNTIL(!driver->sweeps_itself || driver->stored(contract_folder()) == want);
    return driver->stored == NULL || driver->stored(contract_folder()) == want;
}

CONTRACT(a_sweep_removes_in_bounded_steps_all_that_has_expired_and_nothing_else) {
    struct idem_claim_in in = claim_by(1);
    struct idem_finish_in done = done_by(1, 200, "r");
    size_t removed;

    claim_many(c, "old", 300, &in);
    finish_many(c, "old", 300, &done);
    CHECK(once(c, "n", TTL_MS));
    CHECK_INT(count(c, "n", IDEM_COUNT_ADD, 1).value, 1);
    CHECK_INT(claim(c, "held", claim_by(1)).verdict, IDEM_RUN);
    advance(TTL_MS / 2);
    claim_many(c, "new", 100, &in);
    finish_many(c, "new", 100, &done);
    CHECK_INT(sweep_all(c, 50), 0);
    CHECK_INT(list_all(c, "", any, 1000).n, 401);
    /* An index may be as coarse as seconds. */
    advance(TTL_MS / 2 + 120000);
    removed = sweep_all(c, 50);
    CHECK(contract_driver()->sweeps_itself || (removed > 0 && removed <= 302));
    CHECK_INT(list_all(c, "", any, 1000).n, 101);
    CHECK_INT(peek(c, "held").state, IDEM_RUNNING);
    CHECK_INT(claim(c, "new7", claim_by(2)).verdict, IDEM_REPLAY);
    CHECK_INT(sweep_all(c, 50), 0);
    conn_close(c);
    CHECK(stored_is(101));
}

/* A finish moves the expiry; an index entry with the old expiry must not remove the record. */
CONTRACT(a_sweep_goes_by_the_last_expiry_of_a_record) {
    struct idem_claim_in brief = claim_by(1);
    struct idem_finish_in done = done_by(1, 200, "r");

    brief.hold_ttl_ms = 1000;
    brief.lease_ms = 1000;
    CHECK_INT(claim(c, "k", brief).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", renew_by(1, 10 * TTL_MS)), IDEM_ACK);
    advance(5 * TTL_MS);
    (void)sweep_all(c, 10);
    CHECK_INT(peek(c, "k").state, IDEM_RUNNING);
    done.ttl_ms = 20 * TTL_MS;
    CHECK_INT(finish(c, "k", done), IDEM_ACK);
    advance(19 * TTL_MS);
    (void)sweep_all(c, 10);
    CHECK_INT(peek(c, "k").state, IDEM_DONE);
    advance(TTL_MS);
    (void)sweep_all(c, 10);
    CHECK_INT(peek(c, "k").state, IDEM_ABSENT);
}

CONTRACT(a_record_made_anew_after_its_expiry_is_not_swept) {
    struct idem_finish_in brief = done_by(1, 200, "r");

    brief.ttl_ms = 1000;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", brief), IDEM_ACK);
    CHECK(once(c, "n", 1000));
    advance(1000);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_RUN);
    CHECK(once(c, "n", TTL_MS));
    advance(60000);
    (void)sweep_all(c, 10);
    CHECK_INT(peek(c, "k").state, IDEM_RUNNING);
    CHECK(!once(c, "n", 1000));
}

static void make_many_and_die(struct conn *c, char word) {
    struct idem_claim_in in = claim_by(1);
    struct idem_finish_in done = done_by(1, 200, "r");

    (void)word;
    claim_many(c, "old", 300, &in);
    finish_many(c, "old", 300, &done);
    kill(getpid(), SIGKILL);
}

/* A killed process leaves behind writes that it had deferred. The number of sweeps that they
 * take is not promised. */
CONTRACT_BARE(what_a_killed_process_made_is_swept_in_the_end) {
    struct peer peer = peer_start(make_many_and_die);
    struct conn *c = another(HOST_POLL);

    peer_tell(&peer, 'x');
    CHECK(waitpid(peer.pid, NULL, 0) == peer.pid);
    CHECK_INT(list_all(c, "", any, 1000).n, 300);
    advance(TTL_MS + 120000);
    for (unsigned i = 0; i < 100; i++) {
        (void)sweep_all(c, 50);
        advance(1000);
    }
    conn_close(c);
    CHECK(stored_is(0));
}

CONTRACT(what_was_released_or_forgotten_leaves_nothing_behind) {
    for (unsigned i = 0; i < 10; i++) {
        CHECK_INT(claim(c, "r", claim_by(1)).verdict, IDEM_RUN);
        CHECK_INT(finish(c, "r", release_by(1)), IDEM_ACK);
        run_done(c, "f", 1, "r");
        CHECK_INT(forget(c, "f", false), 0);
        advance(1000);
    }
    conn_close(c);
    CHECK(stored_is(0));
}

CONTRACT(an_uncertain_record_is_swept_after_hold_ttl_only) {
    CHECK_INT(claim(c, "h", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "r", rerun_by(1, 0)).verdict, IDEM_RUN);
    advance(LEASE_MS + HOLD_TTL_MS - 1);
    (void)sweep_all(c, 10);
    CHECK_INT(list_all(c, "", (struct idem_list_in){.uncertain = true}, 10).n, 2);
    advance(120000);
    (void)sweep_all(c, 10);
    CHECK_INT(list_all(c, "", any, 10).n, 0);
    conn_close(c);
    CHECK(stored_is(0));
}
