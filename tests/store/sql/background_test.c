/*
 * Work beside a SQL store's operations, on connections that these fill: waiters
 * are woken, the sweeper skips locked rows, and a forked child sends nothing on
 * them.
 */
#include "client.h"
#include "proxied_server.h"
#include "store/driver_call.h"
#include "store/sql/sql_store.h"
#include "temp.h"
#include <mysql.h>

static void run_on(struct idem_sql conn, const char *sql) {
    if (is_postgres()) {
        PGresult *res = PQexec(conn.at.pg, sql);

        CHECK_INT(PQresultStatus(res), PGRES_COMMAND_OK);
        PQclear(res);
    } else {
        CHECK_INT(mysql_query(conn.at.mysql, sql), 0);
    }
}

/* Waiters. */

#define CHAINS 200 /* more operations than an engine accepts at once */

static bool chains_end;
static unsigned chained, wakes;

static void chain_next(struct call *call) {
    CHECK_INT(call->rc, IDEM_E_ABSENT);
    chained++;
    if (chains_end)
        return;
    kind_fill(call, call->conn, IDEM_OP_LOOKUP, "nobody has it");
    call->then = chain_next;
    CHECK_INT(call_submit(call), 0);
}

static void woken(struct idem_watch *watch) {
    (void)watch;
    wakes++;
}

/* The waiters are woken within five seconds, by far. */
static void wake_await(struct conn *c, unsigned n) {
    TURN_UNTIL_WITHIN(c, 5000, wakes >= n);
}

TEST(a_waiter_is_woken_on_a_connection_that_is_never_idle) {
    struct call *calls = calloc(CHAINS, sizeof(*calls));
    struct idem_watch watch = {.wake = woken, .key = key_in("t:", "w")};
    struct conn c, other;

    server_begin(NULL);
    open_plain(&c, "&connections=1&timeout=100s");
    open_plain(&other, "");
    CHECK_INT(claim(&other, "w", 1).verdict, IDEM_RUN);
    for (int i = 0; i < CHAINS; i++) {
        kind_fill(&calls[i], &c, IDEM_OP_LOOKUP, "nobody has it");
        calls[i].then = chain_next;
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    while (chained < CHAINS)
        conn_turn(&c, 10);
    CHECK_INT(c.store->driver->watch(c.store, &watch), 0);
    wake_await(&c, 1);
    CHECK_INT(done(&other, "w", 1, "r").ack, IDEM_ACK);
    wake_await(&c, 2);
    c.store->driver->unwatch(c.store, &watch);
    chains_end = true;
    for (int i = 0; i < CHAINS; i++)
        (void)call_wait(&calls[i]);
    conn_close(&other);
    conn_close(&c);
    free(calls);
    farm_stop(&farm);
}

/* The loop must not spin while a connection is full: a host that runs posted work before it
 * polls its sockets would never poll them. */
TEST(a_connection_that_is_full_is_waited_for) {
    struct call *calls = calloc(CHAINS, sizeof(*calls));
    int64_t end;
    struct conn c;
    int turns = 0;

    server_begin(NULL);
    open_plain(&c, "&connections=1&timeout=100s");
    CHECK_INT(lookup(&c, "nobody has it").rc, IDEM_E_ABSENT);
    server_pause(&farm.server);
    for (int i = 0; i < CHAINS; i++) {
        kind_fill(&calls[i], &c, IDEM_OP_LOOKUP, "nobody has it");
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (end = idem_loop_now() + 200; idem_loop_now() < end; turns++)
        conn_turn(&c, 50);
    CHECK(turns < 50);
    server_go_on(&farm.server);
    for (int i = 0; i < CHAINS; i++)
        CHECK_INT(call_wait(&calls[i]), IDEM_E_ABSENT);
    conn_close(&c);
    free(calls);
    farm_stop(&farm);
}

#define CROWD 3000

/* A connection with one statement at a time must not look up the waiters' keys one at a time. */
TEST(a_crowd_of_waiters_shares_a_connection) {
    struct idem_watch *watches = calloc(CROWD, sizeof(*watches));
    struct conn c, other;
    char key[16];

    server_begin(NULL);
    open_plain(&c, "&connections=1");
    open_plain(&other, "");
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    for (unsigned i = 0; i < CROWD; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        if (i % 100 == 0)
            CHECK_INT(claim(&other, key, 1).verdict, IDEM_RUN);
        watches[i] = (struct idem_watch){.wake = woken, .key = key_in("t:", key)};
        CHECK_INT(c.store->driver->watch(c.store, &watches[i]), 0);
    }
    wake_await(&c, CROWD);
    CHECK_INT(wakes, CROWD);
    for (int i = 0; i < 10; i++) /* operations are not held up either */
        CHECK_INT(lookup(&c, "nobody has it").rc, IDEM_E_ABSENT);
    for (unsigned i = 0; i < CROWD; i += 100) {
        snprintf(key, sizeof(key), "k%u", i);
        CHECK_INT(done(&other, key, 1, "r").ack, IDEM_ACK);
    }
    wake_await(&c, CROWD + CROWD / 100);
    for (unsigned i = 0; i < CROWD; i++)
        c.store->driver->unwatch(c.store, &watches[i]);
    conn_close(&other);
    conn_close(&c);
    free(watches);
    farm_stop(&farm);
}

/* Operations that change the same record, one after the other. */

static struct call in_line[3];

static void second_cancel(struct call *call) {
    idem_store_cancel(call->conn->store, &in_line[1].op);
}

TEST(one_that_was_given_up_does_not_keep_the_next_from_a_record) {
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&connections=1");
    run_done(&c, "k", 1, "r");
    loop_clock_stop(); /* the test needs no time to pass */
    for (unsigned i = 0; i < 3; i++) {
        claim_fill(&in_line[i], &c, "k", 2 + i);
        in_line[i].then = i == 0 ? second_cancel : NULL;
        CHECK_INT(call_submit(&in_line[i]), 0);
    }
    CHECK_INT(call_wait(&in_line[0]), 0);
    CHECK_INT(call_wait(&in_line[2]), 0);
    loop_clock_go_on();
    conn_close(&c);
    farm_stop(&farm);
}

/* A transaction holds the row of a key until the other keys are served. */

static void others_go_on(struct conn *c) {
    char key[16];

    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof(key), "o%d", i);
        CHECK_INT(claim(c, key, 1).verdict, IDEM_RUN);
    }
}

TEST(other_keys_are_served_while_a_row_is_held_that_somebody_waits_for) {
    struct idem_watch watch = {.wake = woken, .key = key_in("t:", "w")};
    struct idem_sql held;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&connections=1");
    CHECK_INT(claim(&c, "w", 1).verdict, IDEM_RUN);
    held = row_hold("w");
    CHECK_INT(c.store->driver->watch(c.store, &watch), 0);
    /* sleep: until the watch waits for the row; any moment will do */
    conn_idle(&c, 50);
    others_go_on(&c);
    idem_sql_close(held);
    CHECK_INT(done(&c, "w", 1, "r").ack, IDEM_ACK);
    wake_await(&c, 2);
    c.store->driver->unwatch(c.store, &watch);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(other_keys_are_served_while_a_row_is_held_that_is_to_be_finished) {
    struct idem_sql held;
    struct call call;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&connections=1&timeout=100s");
    CHECK_INT(claim(&c, "w", 1).verdict, IDEM_RUN);
    held = row_hold("w");
    done_fill(&call, &c, "w", 1, "r");
    CHECK_INT(call_submit(&call), 0);
    /* sleep: until the claim waits for the row; any moment will do */
    conn_idle(&c, 50);
    others_go_on(&c);
    idem_sql_close(held);
    CHECK_INT(call_wait(&call), 0);
    CHECK_INT(call.op.out.finish.ack, IDEM_ACK);
    conn_close(&c);
    farm_stop(&farm);
}

/* A decision on a record holds for that version of the record only. */
TEST(a_record_that_was_changed_after_it_was_read_is_not_forgotten_for_what_it_was) {
    struct idem_sql held;
    struct call call;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s");
    run_done(&c, "k", 1, "r");
    held = row_hold("k");
    run_on(held, is_postgres() ? "UPDATE idem_record SET revision = 1, state = 2, "
                                 "lease_end = now() + interval '1 h'"
                               : "UPDATE idem_record SET revision = 1, state = 2, "
                                 "lease_end = UTC_TIMESTAMP() + INTERVAL 1 HOUR");
    forget_fill(&call, &c, "k", false);
    CHECK_INT(call_submit(&call), 0);
    /* sleep: until the forget waits for the row, which nothing shows; earlier is right, too */
    conn_idle(&c, 100); /* the forget has read the record, and waits for its row */
    run_on(held, "COMMIT");
    CHECK_INT(call_wait(&call), IDEM_E_LIVE);
    CHECK_INT(ask_number("SELECT COUNT(*) FROM idem_record"), 1);
    idem_sql_close(held);
    conn_close(&c);
    farm_stop(&farm);
}

/* Counts. */

TEST(events_of_a_short_life_are_counted_whichever_connection_it_used) {
    enum { LIVES = 8 };
    struct conn c;
    char key[16];

    server_begin(NULL);
    for (int i = 0; i < LIVES; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        open_plain(&c, "");
        run_done(&c, key, 1, "r");
        c.store->driver->tally(c.store, IDEM_EVENT_RUN, 1);
        loop_clock_stop(); /* the store waits for the server for any time */
        conn_close(&c);
        loop_clock_go_on();
    }
    CHECK_INT(ask_number("SELECT SUM(n) FROM idem_event"), LIVES);
    farm_stop(&farm);
}

/* The sweeper. */

#define TX_COLUMNS "INSERT INTO idem_tx (prefix, hash, definition, status, created, expires) "

static void expired_make(void) {
    farm_sql(&farm, is_postgres()
                        ? TX_COLUMNS "SELECT 'x:', sha256(i::text::bytea), 0, 0, now(), "
                                     "now() - interval '1 s' FROM generate_series(1, 500) i"
                        : TX_COLUMNS "SELECT 'x:', UNHEX(SHA2(seq, 256)), 0, 0, UTC_TIMESTAMP(), "
                                     "UTC_TIMESTAMP() - INTERVAL 1 SECOND FROM seq_1_to_500");
}

/* The transaction reuses an expired row and adds a new one, and commits neither. */
static struct idem_sql transaction_begin(void) {
    struct idem_error error;
    struct idem_sql conn;
    char url[1024];

    farm_url_as(&farm, FARM_OWNER, FARM_PATIENT, url, sizeof(url));
    CHECK_INT(idem_sql_open(url, &conn, &error), 0);
    run_on(conn, "BEGIN");
    run_on(conn, is_postgres() ? "UPDATE idem_tx SET expires = now() + interval '1 h' "
                                 "WHERE prefix = 'x:' AND hash = sha256('7')"
                               : "UPDATE idem_tx SET expires = UTC_TIMESTAMP() + INTERVAL 1 HOUR "
                                 "WHERE prefix = 'x:' AND hash = UNHEX(SHA2(7, 256))");
    run_on(conn, is_postgres() ? TX_COLUMNS "VALUES ('x:', sha256('n'), 0, 0, now(), now())"
                               : TX_COLUMNS "VALUES ('x:', UNHEX(SHA2('n', 256)), 0, 0, "
                                            "UTC_TIMESTAMP(), UTC_TIMESTAMP())");
    return conn;
}

/* A whole sweep through all tables. */
static void sweep(struct conn *c) {
    struct call call;

    do {
        call_init(&call, c, IDEM_OP_SWEEP, NULL);
        call.op.in.sweep.max = 200;
        CHECK_INT(call_submit(&call), 0);
        CHECK_STR(answer_wait(&call).text, "");
        CHECK_INT(call.rc, 0);
    } while (call.op.out.sweep.more);
}

TEST(rows_that_a_transaction_holds_are_left_and_the_others_are_swept) {
    struct idem_sql transaction;
    struct conn c;
    long left;

    server_begin(NULL);
    open_plain(&c, "");
    expired_make();
    transaction = transaction_begin();
    sweep(&c);
    left = ask_number("SELECT COUNT(*) FROM idem_tx");
    CHECK(left >= 1 && left <= 64);
    run_on(transaction, "COMMIT");
    sweep(&c);
    CHECK_INT(ask_number("SELECT COUNT(*) FROM idem_tx"), 1); /* the row that is reused */
    idem_sql_close(transaction);
    conn_close(&c);
    farm_stop(&farm);
}

/* A fork. */

static void sessions(char *out, size_t size) {
    struct client client = client_root(&farm.server);
    const char *error = client_try(
        &client,
        is_postgres() ? "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity "
                        "WHERE usename = 'idem_app'"
                      : "SELECT GROUP_CONCAT(ID ORDER BY ID) FROM information_schema.PROCESSLIST "
                        "WHERE USER = 'idem_app'",
        out, size);

    CHECK_STR(error == NULL ? "" : error, "");
}

static void lanes_use(struct conn *c, unsigned owner) {
    char key[16];

    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "k%u-%d", owner, i);
        run_done(c, key, owner, "r");
    }
}

static bool all_ready(const struct conn *c) {
    const struct sql_store *store = idem_container_of(c->store, struct sql_store, remote.base);
    bool ready = true;

    for (size_t i = 0; i < store->config.connections_n; i++)
        ready &= store->connections[i].state == SQL_CONNECTION_READY;
    return ready;
}

static void fork_beside(enum farm_kind kind) {
    char before[100], after[100], url[2000];
    struct conn c;
    int status;
    pid_t pid;

    farm_start(&farm, kind, temp_folder(), -1);
    tables_make(&farm);
    farm_url(&farm, "&sweep=no&connections=2", url, sizeof(url));
    conn_open(&c, url, HOST_POLL, NULL);
    lanes_use(&c, 1);
    TURN_UNTIL(&c, all_ready(&c)); /* one session may have served all */
    sessions(before, sizeof(before));
    CHECK(strchr(before, ',') != NULL);
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        idem_store_close(c.store);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    lanes_use(&c, 2);
    sessions(after, sizeof(after));
    CHECK_STR(after, before);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(a_child_that_closes_an_inherited_store_leaves_its_parents_sessions_alone) {
    fork_beside(is_postgres() ? FARM_PG_SOCKET : FARM_MY_SOCKET);
}

TEST(a_child_that_closes_an_inherited_store_leaves_its_parents_sessions_alone_by_tls) {
    fork_beside(is_postgres() ? FARM_PG_TLS : FARM_MY_TLS);
}

TEST_MAIN
