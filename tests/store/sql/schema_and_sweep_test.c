/*
 * The features of a SQL store alone: its tables, its users, its notifications,
 * its sweeper.
 */
#include "proxied_server.h"
#include "store/driver_call.h"
#include "store/sql/sql_store.h"
#include "temp.h"

/* Tables. */

TEST(without_its_tables_it_says_how_to_make_them) {
    struct answer a;
    struct conn c;

    farm_start(&farm, is_postgres() ? FARM_PG_SOCKET : FARM_MY_SOCKET, temp_folder(), -1);
    open_plain(&c, "");
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "idem migrate");
    conn_close(&c);
    tables_make(&farm);
    open_plain(&c, "");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(tables_that_are_too_new_for_this_program_are_refused) {
    struct answer a;
    struct conn c;

    server_begin(NULL);
    farm_sql(&farm, "UPDATE idem_meta SET version = 99, oldest = 2");
    open_plain(&c, "");
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "upgrade");
    CHECK_INT(ask_number("SELECT count(*) FROM idem_record"), 0);
    conn_close(&c);
    farm_stop(&farm);
}

/* A user who upgrades one program after the other migrates first. */
TEST(newer_tables_that_let_older_programs_use_them_are_used) {
    struct conn c;

    server_begin(NULL);
    farm_sql(&farm, "UPDATE idem_meta SET version = 99");
    open_plain(&c, "");
    run_done(&c, "k", 1, "r");
    conn_close(&c);
    farm_stop(&farm);
}

TEST(without_their_version_tables_are_refused) {
    struct answer a;
    struct conn c;

    server_begin(NULL);
    farm_sql(&farm, "DELETE FROM idem_meta");
    open_plain(&c, "");
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "idem_meta has no row");
    conn_close(&c);
    farm_stop(&farm);
}

TEST(a_row_of_a_newer_version_is_refused_and_listed_as_that) {
    struct answer a;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "");
    run_done(&c, "k", 1, "r");
    farm_sql(&farm, "UPDATE idem_record SET format = 9");
    a = claim(&c, "k", 2);
    CHECK_INT(a.rc, IDEM_E_VERSION);
    CHECK_INT(forget(&c, "k", true).rc, IDEM_E_VERSION);
    CHECK_INT(list_count(&c), 1);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(a_row_that_nobody_can_have_written_is_damaged_and_can_be_forgotten_by_force) {
    static const char *const damages[] = {
        "state = 7",      "flags = 99", "attempt = -1",
        "definition = 5", "tries = -1", "status = 1, prior_state = 9",
    };
    struct answer a;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "");
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        char sql[200];

        CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
        snprintf(sql, sizeof(sql), "UPDATE idem_record SET %s", damages[i]);
        farm_sql(&farm, sql);
        a = claim(&c, "k", 2);
        CHECK_INT(a.rc, IDEM_E_CORRUPT);
        CHECK_HAS(a.text, "damaged");
        CHECK_INT(forget(&c, "k", false).rc, IDEM_E_CORRUPT);
        CHECK_INT(forget(&c, "k", true).rc, 0);
    }
    CHECK_INT(ask_number("SELECT count(*) FROM idem_record"), 0);
    conn_close(&c);
    farm_stop(&farm);
}

/* Column types that only PostgreSQL lets differ in this way. */
TEST(walks_come_to_their_end_whatever_rows_are_called) {
    struct idem_cursor cursor = {0};
    struct call call;
    struct conn c;
    size_t listed = 0;

    if (!is_postgres())
        return;
    server_begin(NULL);
    open_plain(&c, "");
    farm_sql(&farm,
             "INSERT INTO idem_record (prefix, hash, revision, format, state, flags, attempt, "
             "tries, owner, definition, expires, created, changed, status) "
             "SELECT convert_to(name, 'UTF8'), sha256(i::text::bytea), i, 1, 3, 0, 1, 1, "
             "'\\x00000000000000000000000000000000', 0, now() + interval '1 h', now(), now(), 0 "
             "FROM generate_series(1, 1100) i, (VALUES (''), (repeat('x', 129))) n (name)");
    run_done(&c, "k", 1, "r");
    for (int page = 0; !cursor.end; page++) {
        CHECK(page < 3);
        call_init(&call, &c, IDEM_OP_LIST, NULL);
        call.op.in.list.max = 100;
        call.op.in.list.cursor = cursor;
        CHECK_INT(call_run(&call), 0);
        cursor = call.op.out.list.cursor;
        listed += call.op.out.list.n;
    }
    CHECK_INT(listed, 1);
    farm_sql(&farm, "UPDATE idem_record SET expires = now() WHERE prefix = 't:'");
    do {
        call_init(&call, &c, IDEM_OP_SWEEP, NULL);
        call.op.in.sweep.max = 200;
        CHECK_INT(call_run(&call), 0);
    } while (call.op.out.sweep.more);
    CHECK_INT(ask_number("SELECT count(*) FROM idem_record WHERE prefix = 't:'"), 0);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(a_row_of_the_beginning_of_time_is_damaged) {
    struct conn c;

    if (!is_postgres())
        return;
    server_begin(NULL);
    open_plain(&c, "");
    run_done(&c, "k", 1, "r");
    farm_sql(&farm, "UPDATE idem_record SET changed = '-infinity'");
    CHECK_INT(claim(&c, "k", 2).rc, IDEM_E_CORRUPT);
    CHECK_INT(forget(&c, "k", true).rc, 0);
    conn_close(&c);
    farm_stop(&farm);
}

/* Settings of the server or of the role that are not the default. */

TEST(a_server_whose_transactions_are_serializable_by_default_is_used_like_any_other) {
    static const char *const pg[] = {"default_transaction_isolation=serializable", NULL};
    static const char *const my[] = {"transaction_isolation=SERIALIZABLE", NULL};
    enum { KEYS = 50 };
    struct conn a, b;
    struct call calls[2 * KEYS];
    char key[32];

    server_begin(is_postgres() ? pg : my);
    open_plain(&a, "");
    open_plain(&b, "");
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        claim_fill(&calls[2 * i], &a, key, 1);
        claim_fill(&calls[2 * i + 1], &b, key, 2);
        CHECK_INT(call_submit(&calls[2 * i]), 0);
        CHECK_INT(call_submit(&calls[2 * i + 1]), 0);
    }
    for (int i = 0; i < KEYS; i++) {
        struct answer one = answer_wait(&calls[2 * i]), two = answer_wait(&calls[2 * i + 1]);

        CHECK_INT(one.rc, 0);
        CHECK_INT(two.rc, 0);
        CHECK((one.verdict == IDEM_RUN) != (two.verdict == IDEM_RUN));
    }
    conn_close(&a);
    conn_close(&b);
    farm_stop(&farm);
}

TEST(a_server_that_takes_no_writes_is_refused) {
    static const char *const pg[] = {"default_transaction_read_only=on", NULL};
    static const char *const my[] = {"read_only=1", NULL};
    struct answer a;
    struct conn c;

    server_begin(NULL);
    farm_stop(&farm);
    farm.server.options.settings = is_postgres() ? pg : my;
    farm_restart(&farm);
    open_plain(&c, "");
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK(strstr(a.text, "read-only") != NULL || strstr(a.text, "read only") != NULL);
    conn_close(&c);
    farm_stop(&farm);
}

/* Notifications. */

static long notified_since;

static void listener_open(struct idem_sql *listener) {
    struct idem_error error;
    char url[1024];

    farm_url_as(&farm, FARM_OWNER, FARM_PATIENT, url, sizeof(url));
    CHECK_INT(idem_sql_open(url, listener, &error), 0);
    PQclear(PQexec(listener->at.pg, "LISTEN idem"));
    notified_since = 0;
}

static long notified(struct idem_sql *listener) {
    PGnotify *notify;

    PQclear(PQexec(listener->at.pg, "SELECT 1"));
    while ((notify = PQnotifies(listener->at.pg)) != NULL) {
        notified_since++;
        PQfreemem(notify);
    }
    return notified_since;
}

static unsigned wakes;

static void woken(struct idem_watch *watch) {
    (void)watch;
    wakes++;
}

static bool is_in_force(void) {
    return wakes > 0;
}

/* Rows that guards in a user's own transaction leave, in the same database. */

/* A function of PostgreSQL, a procedure of MySQL. */
static void sql_call(const char *name, const char *args) {
    char sql[300];

    snprintf(sql, sizeof(sql), "%s %s(%s)", is_postgres() ? "SELECT" : "CALL", name, args);
    farm_sql(&farm, sql);
}

static void tx_look(struct conn *c, struct call *call, const char *key) {
    kind_fill(call, c, IDEM_OP_TX, key);
    CHECK_INT(call_run(call), 0);
}

TEST(the_row_of_a_transaction_is_told_until_it_expires) {
    struct call call;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "");
    tx_look(&c, &call, "k");
    CHECK(!call.op.out.tx.there);
    sql_call("idem_once", "'t:', NULL, 'k', NULL");
    tx_look(&c, &call, "k");
    CHECK(call.op.out.tx.there);
    CHECK_INT(call.op.out.tx.status, 0);
    CHECK_INT(call.op.out.tx.result.len, 0);
    sql_call("idem_result", is_postgres() ? "'t:', NULL, 'k', 201, '\\x00ff00'::bytea"
                                          : "'t:', NULL, 'k', 201, x'00ff00'");
    tx_look(&c, &call, "k");
    CHECK_INT(call.op.out.tx.status, 201);
    CHECK_INT(call.op.out.tx.result.len, 3);
    CHECK(memcmp(call.op.out.tx.result.at, "\0\xff", 3) == 0);
    tx_look(&c, &call, "K");
    CHECK(!call.op.out.tx.there);
    sql_call("idem_once", "'t:', 'somebody', 'other', NULL"); /* a row of another scope */
    tx_look(&c, &call, "other");
    CHECK(!call.op.out.tx.there);
    farm_sql(&farm, "UPDATE idem_tx SET expires = created");
    tx_look(&c, &call, "k");
    CHECK(!call.op.out.tx.there);
    conn_close(&c);
    farm_stop(&farm);
}

/* The loop. */

/* Counts how often the loop turns in this time, if nothing happens. */
static unsigned turns_in(struct conn *c, int64_t ms) {
    int64_t end = idem_loop_now() + ms, left;
    unsigned turns = 0;

    for (; (left = end - idem_loop_now()) > 0; turns++)
        conn_turn(c, left);
    return turns;
}

TEST(operations_that_wait_for_room_leave_the_loop_alone) {
    enum { MANY = 200, IDLE_MS = 400 }; /* more than a connection accepts at a time */
    static struct call calls[MANY];
    struct conn c;
    unsigned turns;

    server_begin(NULL);
    open_plain(&c, "&connections=1");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    server_pause(&farm.server);
    for (int i = 0; i < MANY; i++) {
        kind_fill(&calls[i], &c, IDEM_OP_LOOKUP, "k");
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    /* sleep: until all are sent; any moment will do */
    conn_idle(&c, 20);
    turns = turns_in(&c, IDLE_MS);
    server_go_on(&farm.server);
    fprintf(stderr, "# %u turns\n", turns);
    CHECK(turns < 20); /* a loop that never sleeps makes thousands */
    for (int i = 0; i < MANY; i++)
        CHECK_INT(call_wait(&calls[i]), 0);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(the_server_notifies_only_where_somebody_waits) {
    struct idem_watch watch = {.wake = woken};
    struct idem_sql listener;
    struct conn c;

    if (!is_postgres())
        return;
    server_begin(NULL);
    listener_open(&listener);
    open_plain(&c, "");
    for (int i = 0; i < 20; i++) {
        char key[16];

        snprintf(key, sizeof(key), "k%d", i);
        run_done(&c, key, 1, "r");
    }
    CHECK_INT(notified(&listener), 0);
    CHECK_INT(claim(&c, "w", 1).verdict, IDEM_RUN);
    watch.key = key_in("t:", "w");
    CHECK_INT(c.store->driver->watch(c.store, &watch), 0);
    turn_until(&c, is_in_force);
    CHECK_INT(done(&c, "w", 1, "r").ack, IDEM_ACK);
    TURN_UNTIL(&c, wakes >= 2);
    WAIT_UNTIL(notified(&listener) > 0); /* the server notifies its listeners one after the other */
    CHECK_INT(notified(&listener), 1);
    c.store->driver->unwatch(c.store, &watch);
    conn_close(&c);
    idem_sql_close(listener);
    farm_stop(&farm);
}

/* The sweeper. */

static bool is_swept(void) {
    return ask_number("SELECT count(*) FROM idem_record") == 100 &&
           ask_number("SELECT count(*) FROM idem_tx") == 0;
}

static void expired_make(int n) {
    char sql[600];

    if (is_postgres())
        snprintf(
            sql, sizeof(sql),
            "INSERT INTO idem_record (prefix, hash, revision, format, state, flags, attempt, "
            "tries, owner, definition, expires, created, changed, status) "
            "SELECT 'x:', sha256(i::text::bytea), i, 1, 3, 0, 1, 1, "
            "'\\x00000000000000000000000000000000', 0, now() - interval '1 s', now(), now(), 0 "
            "FROM generate_series(1, %d) i",
            n);
    else
        snprintf(sql, sizeof(sql),
                 "INSERT INTO idem_record (prefix, hash, revision, format, state, flags, attempt, "
                 "tries, owner, definition, expires, created, changed, status) "
                 "SELECT 'x:', UNHEX(SHA2(seq, 256)), seq, 1, 3, 0, 1, 1, REPEAT('0', 16), 0, "
                 "UTC_TIMESTAMP() - INTERVAL 1 SECOND, UTC_TIMESTAMP(), UTC_TIMESTAMP(), 0 "
                 "FROM seq_1_to_%d",
                 n);
    farm_sql(&farm, sql);
}

TEST(one_process_sweeps_for_all_and_another_takes_over) {
    struct conn a, b;
    char url[1024], who[100];

    sql_sweep_hurry = 100;
    server_begin(NULL);
    expired_make(5000);
    farm_url(&farm, "&sweep=yes", url, sizeof(url));
    conn_open(&a, url, HOST_POLL, NULL);
    conn_open(&b, url, HOST_POLL, NULL);
    for (int i = 0; i < 100; i++) {
        char key[16];

        snprintf(key, sizeof(key), "k%d", i);
        run_done(i % 2 == 0 ? &a : &b, key, 1, "r");
    }
    while (!is_swept()) {
        conn_turn(&a, 5);
        conn_turn(&b, 5);
    }
    snprintf(who, sizeof(who), "%s",
             farm_ask(&farm, is_postgres() ? "SELECT encode(sweeper, 'hex') FROM idem_meta"
                                           : "SELECT HEX(sweeper) FROM idem_meta"));
    CHECK(who[0] != '\0');
    /* Both remain candidates; the elected sweeper stays elected. */
    for (int i = 0; i < 40; i++) {
        conn_turn(&a, 5);
        conn_turn(&b, 5);
    }
    CHECK_STR(farm_ask(&farm, is_postgres() ? "SELECT encode(sweeper, 'hex') FROM idem_meta"
                                            : "SELECT HEX(sweeper) FROM idem_meta"),
              who);
    /* The sweeper has disappeared. */
    farm_sql(&farm, is_postgres()
                        ? "UPDATE idem_meta SET sweeper = 'nobody', sweep_until = now()"
                        : "UPDATE idem_meta SET sweeper = 'nobody', sweep_until = UTC_TIMESTAMP()");
    conn_close(&a);
    expired_make(3000);
    while (!is_swept())
        conn_turn(&b, 5);
    conn_close(&b);
    farm_stop(&farm);
}

TEST(one_who_was_not_elected_again_sweeps_no_more) {
    const struct sql_store *store;
    char url[1024];
    struct conn c;

    sql_sweep_hurry = 1000;
    server_begin(NULL);
    expired_make(100);
    farm_url(&farm, "&sweep=yes", url, sizeof(url));
    conn_open(&c, url, HOST_POLL, NULL);
    run_done(&c, "k", 1, "r");
    while (ask_number("SELECT count(*) FROM idem_record") > 1)
        conn_turn(&c, 5);
    farm_sql(&farm, is_postgres() ? "UPDATE idem_meta SET sweeper = 'another', "
                                    "sweep_until = now() + interval '1 h'"
                                  : "UPDATE idem_meta SET sweeper = 'another', "
                                    "sweep_until = UTC_TIMESTAMP() + INTERVAL 1 HOUR");
    store = idem_container_of(c.store, struct sql_store, remote.base);
    TURN_UNTIL(&c, !store->sweeper.elected); /* a sweep that was under way is over */
    expired_make(100);
    /* sleep: several sweeps; only time shows that the rows stay */
    conn_idle(&c, 300);
    CHECK_INT(ask_number("SELECT count(*) FROM idem_record"), 101);
    conn_close(&c);
    farm_stop(&farm);
}

#define LOAD 12000

struct load {
    struct call call;
    struct load_run *run;
    bool finishing;
    unsigned n;
};

struct load_run {
    struct conn *conns[2];
    unsigned begun, ended;
};

static void load_begin(struct load *load);

/* A claim, its finish with a ttl of 30 ms, and the next; now and then one is left running. */
static void load_next(struct call *call) {
    struct load *load = idem_container_of(call, struct load, call);
    char key[32];

    CHECK_INT(call->rc, 0);
    if (!load->finishing && load->n % 10 != 0) {
        snprintf(key, sizeof(key), "k%u", load->n);
        done_fill(&load->call, load->run->conns[load->n % 2], key, load->n + 1, "result");
        load->call.op.in.finish.ttl_ms = 30;
        load->call.then = load_next;
        load->finishing = true;
        CHECK_INT(call_submit(&load->call), 0);
        return;
    }
    load->run->ended++;
    if (load->run->begun < LOAD)
        load_begin(load);
}

static void load_begin(struct load *load) {
    char key[32];

    load->n = load->run->begun++;
    load->finishing = false;
    snprintf(key, sizeof(key), "k%u", load->n);
    claim_fill(&load->call, load->run->conns[load->n % 2], key, load->n + 1);
    load->call.op.in.claim.lease_ms = 20;
    load->call.op.in.claim.hold_ttl_ms = 10;
    load->call.then = load_next;
    CHECK_INT(call_submit(&load->call), 0);
}

static long deadlocks(void) {
    return ask_number(is_postgres()
                          ? "SELECT deadlocks FROM pg_stat_database WHERE datname = 'idem'"
                          : "SELECT variable_value FROM information_schema.global_status WHERE "
                            "variable_name = 'INNODB_DEADLOCKS'");
}

/* Thousands of records a second with a ttl of some ms, and two sweepers that follow them. */
TEST(nothing_deadlocks_while_what_expires_is_swept_under_load) {
    enum { CALLERS = 64 };
    struct load *loads = calloc(CALLERS, sizeof(*loads));
    struct load_run run = {0};
    struct conn conns[2];
    char url[1024];

    sql_sweep_hurry = 1000;
    server_begin(NULL);
    farm_url(&farm, "&sweep=yes", url, sizeof(url));
    for (int i = 0; i < 2; i++) {
        conn_open(&conns[i], url, HOST_POLL, NULL);
        run.conns[i] = &conns[i];
        run_done(&conns[i], i == 0 ? "first" : "second", 1, "r");
    }
    for (int i = 0; i < CALLERS; i++) {
        loads[i].run = &run;
        load_begin(&loads[i]);
    }
    while (run.ended < LOAD)
        for (int i = 0; i < 2; i++)
            conn_turn(&conns[i], 1);
    while (ask_number("SELECT count(*) FROM idem_record") > 2)
        for (int i = 0; i < 2; i++)
            conn_turn(&conns[i], 5);
    CHECK_INT(deadlocks(), 0);
    for (int i = 0; i < 2; i++)
        conn_close(&conns[i]);
    free(loads);
    farm_stop(&farm);
}

TEST_MAIN
