/*
 * The contract on the embedded store, with both ways to sync, and the features
 * of this driver alone: options of its URL, and a clock that never goes back.
 */
#include "contract.h"

#include <lmdb.h>

#include "store/lmdb/lmdb_store.h"

static void url_sync_off(const char *folder, char *url, size_t size) {
    snprintf(url, size, "lmdb:%s/store?sync=off", folder);
}

static void url_sync_always(const char *folder, char *url, size_t size) {
    snprintf(url, size, "lmdb:%s/store?sync=always", folder);
}

static void small_sync_off(const char *folder, char *url, size_t size) {
    snprintf(url, size, "lmdb:%s/small?sync=off&size=4M", folder);
}

static void small_sync_always(const char *folder, char *url, size_t size) {
    snprintf(url, size, "lmdb:%s/small?sync=always&size=4M", folder);
}

static size_t entries_of(MDB_txn *txn, const char *table) {
    MDB_stat stat;
    MDB_dbi dbi;

    CHECK(mdb_dbi_open(txn, table, 0, &dbi) == 0);
    CHECK(mdb_stat(txn, dbi, &stat) == 0);
    return stat.ms_entries;
}

/* Reads the database without the driver. Every record and every nonce has exactly one entry in
 * the index. */
static size_t lmdb_stored(const char *folder) {
    char path[512];
    size_t records, aux;
    MDB_env *env;
    MDB_txn *txn;

    snprintf(path, sizeof(path), "%s/store", folder);
    CHECK(mdb_env_create(&env) == 0);
    CHECK(mdb_env_set_maxdbs(env, 8) == 0);
    CHECK(mdb_env_open(env, path, MDB_RDONLY | MDB_NOLOCK, 0) == 0);
    CHECK(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) == 0);
    records = entries_of(txn, "records");
    aux = entries_of(txn, "aux");
    CHECK_INT(entries_of(txn, "expiry"), records + aux);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return records + aux;
}

static const struct contract_driver drivers[] = {
    {"sync=off", url_sync_off, small_sync_off, lmdb_stored, 2000},
    {"sync=always", url_sync_always, small_sync_always, lmdb_stored, 2000},
};

/* The clock of one machine, which the test moves while the other keeps running. */
static void turn_wall(int64_t ms) {
    struct shared_clock *clock = contract_clock()->data;

    clock->wall += ms;
}

static int64_t time_of(struct conn *c) {
    struct call call;

    call_init(&call, c, IDEM_OP_TIME, NULL);
    CHECK_INT(call_run(&call), 0);
    return call.op.out.time.ms;
}

#define HOUR_MS ((int64_t)3600 * 1000)

CONTRACT(time_does_not_go_back_with_the_machines_clock) {
    int64_t before = time_of(c);

    run_done(c, "k", 1, "r");
    turn_wall(-HOUR_MS);
    CHECK_INT(time_of(c), before);
    turn_wall(HOUR_MS / 2);
    CHECK_INT(time_of(c), before);
    turn_wall(HOUR_MS);
    CHECK_INT(time_of(c), before + HOUR_MS / 2);
}

CONTRACT(time_does_not_go_back_over_a_closing_either) {
    int64_t before = time_of(c);

    run_done(c, "k", 1, "r");
    conn_close(c);
    turn_wall(-HOUR_MS);
    CHECK_INT(time_of(another(HOST_POLL)), before);
}

/* Schedules follow the date. If the clock was ahead for a moment, the driver must not treat
 * every step until then as the same one. */
CONTRACT(the_date_follows_the_machines_clock_back) {
    struct call call;
    int64_t before = time_of(c);

    turn_wall(2 * HOUR_MS);
    run_done(c, "k", 1, "r");
    turn_wall(-2 * HOUR_MS);
    call_init(&call, c, IDEM_OP_TIME, NULL);
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.time.date, before);
    CHECK_INT(call.op.out.time.ms, before + 2 * HOUR_MS);
}

static int try_claim(struct conn *c, const char *name) {
    struct idem_record_key key = key_of(name);
    struct call call;

    call_init(&call, c, IDEM_OP_CLAIM, &key);
    call.op.in.claim = claim_by(2);
    return call_run(&call);
}

/* By such a clock every record would be expired, or none ever. */
CONTRACT(a_clock_that_jumped_by_more_than_a_day_is_refused_until_it_is_right) {
    for (int sign = -1; sign <= 1; sign += 2) {
        run_done(c, sign < 0 ? "back" : "forward", 1, "r");
        turn_wall(sign * 25 * HOUR_MS);
        CHECK_INT(try_claim(c, "new"), IDEM_E_CLOCK);
        turn_wall(-sign * 25 * HOUR_MS);
        CHECK_INT(claim(c, sign < 0 ? "back" : "forward", claim_by(2)).verdict, IDEM_REPLAY);
        CHECK_INT(peek(c, "new").state, IDEM_ABSENT);
    }
}

CONTRACT(a_day_that_both_clocks_saw_is_no_jump) {
    struct idem_finish_in done = done_by(1, 200, "r");

    done.ttl_ms = 100 * HOUR_MS;
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", done), IDEM_ACK);
    advance(99 * HOUR_MS);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_REPLAY);
    conn_close(c);
    advance(HOUR_MS);
    CHECK_INT(claim(another(HOST_POLL), "k", claim_by(2)).verdict, IDEM_RUN);
}

static void try_other_sync(struct conn *c, char word) {
    struct idem_error err;
    struct conn other;
    char url[512];

    (void)c;
    (void)word;
    if (strcmp(contract_driver()->name, "sync=off") == 0)
        url_sync_always(contract_folder(), url, sizeof(url));
    else
        url_sync_off(contract_folder(), url, sizeof(url));
    CHECK_INT(conn_try(&other, url, HOST_POLL, contract_clock(), &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "sync");
}

static void try_other_sync_alone(struct conn *c, char word) {
    conn_close(c);
    try_other_sync(c, word);
}

CONTRACT_BARE(mixed_ways_to_sync_are_refused_in_one_process_and_over_two) {
    struct peer peer = peer_start(try_other_sync_alone);

    try_other_sync(another(HOST_POLL), 'x');
    peer_tell(&peer, 'x');
    peer_wait(&peer);
    peer_stop(&peer);
}

static void claim_and_die(struct conn *c, char word) {
    (void)word;
    CHECK_INT(claim(c, "k", rerun_by(1, 0)).verdict, IDEM_RUN);
    kill(getpid(), SIGKILL);
}

/* A process that died leaves nothing in the way of the living but its lease. */
CONTRACT_BARE(a_process_that_was_killed_leaves_its_lease_and_nothing_else) {
    struct peer peer = peer_start(claim_and_die);
    struct conn *c = another(HOST_POLL);

    peer_tell(&peer, 'x');
    CHECK(waitpid(peer.pid, NULL, 0) == peer.pid);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).verdict, IDEM_BUSY);
    advance(LEASE_MS);
    CHECK_INT(claim(c, "k", rerun_by(2, 0)).record.attempt, 2);
}

int main(int argc, char **argv) {
    /* The store waits for a process that is slow while it opens, closes or grows it. */
    lmdb_patience = (struct lmdb_patience){.door = 120, .stop = 120, .busy = 120, .length = 120};
    return contract_main(argc, argv, drivers, sizeof(drivers) / sizeof(drivers[0]));
}
