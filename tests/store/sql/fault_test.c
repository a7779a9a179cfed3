/*
 * Faults of a SQL store's connection and its server during operations: pauses,
 * deaths, cuts at every byte, sessions that are ended, responses that never
 * come.
 */
#include "proxied_server.h"
#include "store/driver_call.h"
#include "store/sql/sql_store.h"
#include "temp.h"
#include <mysql.h>

/* The store tries a server that was down again at intervals; until it responds, claims are
 * refused. */
static struct answer claim_when_back(struct conn *c, const char *key, unsigned owner) {
    struct answer a;

    WAIT_UNTIL((a = claim(c, key, owner)).rc != IDEM_E_REFUSED);
    return a;
}

TEST(an_operation_waits_for_a_server_that_is_paused) {
    struct conn c;
    struct call call;
    struct answer a;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s");
    run_done(&c, "a", 1, "before");
    server_pause(&farm.server);
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(call_submit(&call), 0);
    conn_pass(&c, 400);
    CHECK_INT(call.completed, 0);
    server_go_on(&farm.server);
    a = answer_wait(&call);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(done(&c, "k", 1, "after").ack, IDEM_ACK);
    conn_close(&c);
    farm_stop(&farm);
}

/* Sends the operation to a paused server, and lets its deadline pass. */
static struct answer answer_too_late(struct call *call) {
    CHECK_INT(call_submit(call), 0);
    for (int i = 0; i < 10; i++)
        conn_turn(call->conn, 1);
    CHECK_INT(call->completed, 0);
    loop_clock_forward(100000);
    return answer_wait(call);
}

TEST(a_server_that_is_paused_for_too_long_makes_a_claim_unknown_and_is_used_again_later) {
    struct conn c;
    struct call call;
    struct answer a;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=1");
    run_done(&c, "a", 1, "before");
    server_pause(&farm.server);
    claim_fill(&call, &c, "k", 1);
    a = answer_too_late(&call);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text, "it may have happened");
    /* The pause costs the timeout once: the store now knows that the server hangs, and no time
     * passes. */
    loop_clock_stop();
    CHECK_INT(claim(&c, "k", 1).rc, IDEM_E_REFUSED);
    loop_clock_go_on();
    server_go_on(&farm.server);
    a = claim_when_back(&c, "k", 1);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(a.attempt, 1);
    conn_close(&c);
    farm_stop(&farm);
}

/* With many connections, too: one of them is silent, the others have sent nothing. */
TEST(a_server_that_hangs_costs_the_timeout_once) {
    struct conn c;
    struct call call;
    char key[16];

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=8");
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof(key), "a%u", i);
        run_done(&c, key, 1, "before");
    }
    server_pause(&farm.server);
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(answer_too_late(&call).rc, IDEM_E_UNKNOWN);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof(key), "b%u", i);
        CHECK_INT(claim(&c, key, 1).rc, IDEM_E_REFUSED);
    }
    server_go_on(&farm.server);
    CHECK_INT(claim_when_back(&c, "k", 1).verdict, IDEM_RUN);
    conn_close(&c);
    farm_stop(&farm);
}

/* The store does not try unopened connections one by one, each for its timeout. */
TEST(a_server_that_hangs_costs_no_connection_that_was_not_made_its_timeout) {
    struct conn c;
    struct call call;
    char key[16];

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=8");
    run_done(&c, "k", 1, "before");
    loop_clock_stop();
    server_pause(&farm.server);
    claim_fill(&call, &c, "k", 2);
    CHECK_INT(answer_too_late(&call).rc, IDEM_E_UNKNOWN);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof(key), "b%u", i);
        CHECK_INT(claim(&c, key, 1).rc, IDEM_E_REFUSED);
    }
    loop_clock_go_on();
    server_go_on(&farm.server);
    CHECK_INT(claim_when_back(&c, "b0", 1).verdict, IDEM_RUN);
    conn_close(&c);
    farm_stop(&farm);
}

/* A key that is served by another connection. */
static const char *key_elsewhere(const struct conn *c, const char *key) {
    struct sql_store *store = idem_container_of(c->store, struct sql_store, remote.base);
    struct idem_record_key here = key_in("t:", key), there;
    static char name[16];

    for (unsigned i = 0;; i++) {
        snprintf(name, sizeof(name), "e%u", i);
        there = key_in("t:", name);
        if (sql_connection_of(store, &there) != sql_connection_of(store, &here))
            return name;
    }
}

/* One connection waits for a lock. The other has its response and is idle from then on, and the
 * server hangs. That response is no sign of life a whole timeout later. */
TEST(a_server_that_hangs_while_a_lock_is_waited_for_costs_the_timeout_once) {
    struct idem_sql transaction;
    struct call call, next;
    const char *other;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=2");
    other = key_elsewhere(&c, "k");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    run_done(&c, other, 1, "before");
    transaction = row_hold("k");
    loop_clock_stop();
    done_fill(&call, &c, "k", 1, "r");
    CHECK_INT(call_submit(&call), 0);
    for (int i = 0; i < 10; i++)
        conn_turn(&c, 1);
    CHECK_INT(call.completed, 0);
    loop_clock_forward(1);
    CHECK_INT(lookup(&c, other).rc, 0);
    server_pause(&farm.server);
    loop_clock_forward(100000);
    CHECK_INT(call_wait(&call), IDEM_E_UNKNOWN);
    claim_fill(&next, &c, other, 2);
    CHECK_INT(call_submit(&next), 0);
    for (int i = 0; i < 10; i++)
        conn_turn(&c, 1);
    CHECK_INT(next.completed, 1);
    CHECK_INT(next.rc, IDEM_E_REFUSED);
    server_go_on(&farm.server);
    loop_clock_go_on();
    idem_sql_close(transaction);
    conn_close(&c);
    farm_stop(&farm);
}

/* The other connection got an operation later, and MySQL accepts no second one until the first
 * is answered. Operations that wait for it are refused when the first connection shows that the
 * server hangs, and so are later ones. */
TEST(a_server_that_hangs_keeps_nothing_waiting_for_room_on_another_connection) {
    struct call first, second, waits, later;
    const char *other;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=2");
    other = key_elsewhere(&c, "k");
    run_done(&c, "k", 1, "before");
    run_done(&c, other, 1, "before");
    loop_clock_stop();
    server_pause(&farm.server);
    claim_fill(&first, &c, "k", 2);
    CHECK_INT(call_submit(&first), 0);
    conn_turn(&c, 1);
    loop_clock_forward(60000);
    claim_fill(&second, &c, other, 2);
    CHECK_INT(call_submit(&second), 0);
    conn_turn(&c, 1);
    claim_fill(&waits, &c, other, 3);
    CHECK_INT(call_submit(&waits), 0);
    conn_turn(&c, 1);
    loop_clock_forward(40000);
    CHECK_INT(call_wait(&first), IDEM_E_UNKNOWN);
    for (int i = 0; i < 10; i++)
        conn_turn(&c, 1);
    if (farm.kind >= FARM_MY_SOCKET) { /* PostgreSQL accepts several */
        CHECK_INT(waits.completed, 1);
        CHECK_INT(waits.rc, IDEM_E_REFUSED);
    }
    claim_fill(&later, &c, other, 4);
    CHECK_INT(call_submit(&later), 0);
    for (int i = 0; i < 10; i++)
        conn_turn(&c, 1);
    CHECK_INT(later.completed, 1);
    CHECK_INT(later.rc, IDEM_E_REFUSED);
    loop_clock_go_on();
    server_go_on(&farm.server);
    conn_close(&c);
    farm_stop(&farm);
}

/* The other connection has a response in the later half of the timeout: so a lock holds the
 * first one, and no other operation is refused. */
TEST(a_lock_that_holds_one_connection_for_its_timeout_does_not_refuse_the_others) {
    struct idem_sql transaction;
    struct call call;
    const char *other;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=2");
    other = key_elsewhere(&c, "k");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    run_done(&c, other, 1, "before");
    transaction = row_hold("k");
    loop_clock_stop();
    done_fill(&call, &c, "k", 1, "r");
    CHECK_INT(call_submit(&call), 0);
    for (int i = 0; i < 10; i++)
        conn_turn(&c, 1);
    CHECK_INT(call.completed, 0);
    loop_clock_forward(60000);
    CHECK_INT(lookup(&c, other).rc, 0);
    loop_clock_forward(40000);
    CHECK_INT(call_wait(&call), IDEM_E_UNKNOWN);
    CHECK_STR(claim(&c, other, 2).result, "before");
    loop_clock_go_on();
    idem_sql_close(transaction);
    conn_close(&c);
    farm_stop(&farm);
}

static bool is_any(const struct conn *c, enum sql_connection_state state) {
    const struct sql_store *store = idem_container_of(c->store, struct sql_store, remote.base);

    for (size_t i = 0; i < store->config.connections_n; i++)
        if (store->connections[i].state == state)
            return true;
    return false;
}

/* The clock stands still: attempts happen only in the time that passes here. */
TEST(a_server_that_died_refuses_at_once_and_has_what_it_acknowledged_when_it_is_back) {
    struct conn c;
    struct call call;
    struct answer a;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=1");
    run_done(&c, "a", 1, "before");
    farm_kill(&farm);
    loop_clock_stop();
    claim_fill(&call, &c, "a", 2);
    CHECK_INT(call_submit(&call), 0);
    WAIT_UNTIL((conn_turn(&c, 1), !is_any(&c, SQL_CONNECTION_READY)));
    for (int i = 0; i < 10; i++) { /* two attempts fail within these 50 ms */
        loop_clock_forward(5);
        WAIT_UNTIL((conn_turn(&c, 1), !is_any(&c, SQL_CONNECTION_DIALLING)));
    }
    CHECK_INT(call.completed, 1);
    CHECK_INT(call.rc, IDEM_E_REFUSED);
    CHECK_INT(claim(&c, "a", 2).rc, IDEM_E_REFUSED); /* no time passes */
    conn_pass(&c, 20000); /* the pauses between two attempts have reached their maximum */
    farm_restart(&farm);
    conn_pass(&c, 1000); /* the store tries at least once in a second */
    a = claim_when_back(&c, "a", 2);
    loop_clock_go_on();
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_REPLAY);
    CHECK_STR(a.result, "before");
    conn_close(&c);
    farm_stop(&farm);
}

TEST(what_was_never_sent_is_refused_where_there_is_no_server) {
    struct conn c;
    struct answer a;
    char text[512];

    server_begin(NULL);
    farm_stop(&farm);
    open_plain(&c, ""); /* only now: the store connects at once */
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    snprintf(text, sizeof(text), "%s", a.text);
    CHECK(strstr(text, "it may have happened") == NULL);
    conn_close(&c);
}

/* Each operation, with the connection cut after this many bytes of its response: the operation
 * happens once, and its caller learns that, or that the outcome is unknown. */
TEST(a_connection_may_be_cut_after_any_byte_of_an_answer) {
    struct conn c;
    struct answer a;
    char key[32];

    proxied(&c, HOST_EDGE, "&timeout=100s");
    for (long bytes = 0; bytes < 120; bytes += bytes < 12 ? 1 : 7) {
        snprintf(key, sizeof(key), "k%ld", bytes);
        proxy.cut_after = bytes;
        a = claim(&c, key, 7);
        CHECK_INT(a.rc, 0);
        CHECK_INT(a.verdict, IDEM_RUN);
        CHECK_INT(a.attempt, 1);
        proxy.cut_after = bytes;
        a = done(&c, key, 7, "result");
        CHECK_INT(a.rc, 0);
        CHECK_INT(a.ack, IDEM_ACK);
        proxy.cut_after = bytes;
        a = claim(&c, key, 8);
        CHECK_INT(a.rc, 0);
        CHECK_INT(a.verdict, IDEM_REPLAY);
        CHECK_STR(a.result, "result");
        proxy.cut_after = bytes;
        a = forget(&c, key, false); /* a retry finds no record */
        CHECK(a.rc == 0 || a.rc == IDEM_E_UNKNOWN || a.rc == IDEM_E_ABSENT);
        proxy.cut_after = -1;
        CHECK(lookup(&c, key).rc == IDEM_E_ABSENT || a.rc == IDEM_E_UNKNOWN);
    }
    CHECK(proxy.cuts > 20);
    conn_close(&c);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

/* Cuts between the stores. */
static void sessions_end(void) {
    if (is_postgres())
        CHECK(farm_try(&farm, FARM_APP,
                       "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = "
                       "'idem_app' AND pid <> pg_backend_pid()") == NULL);
    else
        (void)farm_try(&farm, FARM_APP,
                       "KILL CONNECTION USER idem_app"); /* this ends its own connection, too */
}

static bool claim_is_there(void) {
    return ask_number("SELECT count(*) FROM idem_record") == 2;
}

TEST(a_claim_whose_answer_never_came_gets_it_from_the_next_connection) {
    struct conn c, other;
    struct call call;
    struct answer a;

    proxied(&c, HOST_POLL, "&timeout=100s");
    open_plain(&other, "");
    run_done(&c, "before", 7, "r"); /* so that the statement is prepared */
    proxy.swallow = true;
    claim_fill(&call, &c, "k", 7);
    submit_asked(&c, &call);
    turn_until(&c, claim_is_there);
    proxy.cut_after = 0;
    proxy.swallow = false;
    CHECK_INT(claim(&other, "k", 8).verdict, IDEM_BUSY);
    /* No more bytes will come on this connection: the server ends it, or the next byte cuts it. */
    sessions_end();
    a = answer_wait(&call);
    CHECK_STR(a.text, "");
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(a.attempt, 1);
    conn_close(&c);
    conn_close(&other);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

/* Submits an operation that the server executes, but whose response is lost. */
static void submit_unheard(struct conn *c, struct call *call, bool (*is_done)(void)) {
    proxy.swallow = true;
    submit_asked(c, call);
    turn_until(c, is_done);
    proxy.cut_after = 0;
    proxy.swallow = false;
}

static bool is_finished(void) {
    return ask_number("SELECT count(*) FROM idem_record WHERE state = 3") == 2;
}

TEST(a_finish_whose_answer_was_lost_is_unknown_when_the_record_is_somebody_elses_by_then) {
    struct conn c, other;
    struct call call;
    struct answer a;

    proxied(&c, HOST_POLL, "&timeout=100s");
    open_plain(&other, "");
    run_done(&c, "before", 7, "r"); /* so that the statement is prepared */
    CHECK_INT(claim(&c, "k", 7).verdict, IDEM_RUN);
    done_fill(&call, &c, "k", 7, "r");
    submit_unheard(&c, &call, is_finished);
    CHECK_INT(forget(&other, "k", false).rc, 0);
    CHECK_INT(claim(&other, "k", 8).verdict, IDEM_RUN);
    sessions_end();
    a = answer_wait(&call);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text, "it may have been stored before");
    conn_close(&c);
    conn_close(&other);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

TEST(a_claim_whose_answer_was_lost_is_unknown_when_its_repetition_is_refused) {
    struct conn c;
    struct call call;
    struct answer a;

    proxied(&c, HOST_POLL, "&timeout=100s");
    run_done(&c, "before", 7, "r"); /* so that the statement is prepared */
    claim_fill(&call, &c, "k", 7);
    submit_unheard(&c, &call, claim_is_there);
    farm_sql(&farm, "ALTER TABLE idem_record RENAME COLUMN label TO other");
    sessions_end();
    a = answer_wait(&call);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text, "may have happened");
    conn_close(&c);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

/* Take-overs, renewals, failures, releases and locks, under a policy that reruns. */

static struct answer claim_cut(struct conn *c, const char *key, unsigned owner, enum idem_mode mode,
                               int64_t lease_ms, long bytes) {
    struct call call;

    claim_fill(&call, c, key, owner);
    call.op.in.claim.recover = IDEM_RECOVER_RERUN;
    call.op.in.claim.on_failure = IDEM_ON_FAILURE_RETRY;
    call.op.in.claim.attempts = 9;
    call.op.in.claim.mode = mode;
    call.op.in.claim.lease_ms = lease_ms;
    proxy.cut_after = bytes;
    CHECK_INT(call_submit(&call), 0);
    return answer_wait(&call);
}

static struct answer finish_cut(struct conn *c, const char *key, unsigned owner,
                                enum idem_owner_action action, uint32_t attempt, long bytes) {
    struct call call;

    done_fill(&call, c, key, owner, "r");
    call.op.in.finish.action = action;
    call.op.in.finish.attempt = attempt;
    call.op.in.finish.lease_ms = LEASE_MS;
    proxy.cut_after = bytes;
    CHECK_INT(call_submit(&call), 0);
    return answer_wait(&call);
}

static void runs(struct answer a, uint32_t attempt) {
    CHECK_STR(a.text, "");
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(a.attempt, attempt);
}

static void is_acknowledged(struct answer a) {
    CHECK_STR(a.text, "");
    CHECK_INT(a.ack, IDEM_ACK);
}

/* Judged by the server's clock; leases that go on last a minute. */
static bool lease_is_over(void) {
    return ask_number(is_postgres()
                          ? "SELECT count(*) FROM idem_record WHERE lease_end BETWEEN "
                            "clock_timestamp() AND clock_timestamp() + interval '1 s'"
                          : "SELECT count(*) FROM idem_record WHERE lease_end BETWEEN "
                            "UTC_TIMESTAMP(6) AND UTC_TIMESTAMP(6) + INTERVAL 1 SECOND") == 0;
}

TEST(what_tries_again_may_be_cut_after_any_byte_of_an_answer) {
    const enum idem_mode replay = IDEM_MODE_REPLAY, lock = IDEM_MODE_LOCK;
    struct answer a;
    struct conn c;
    char key[32];

    proxied(&c, HOST_EDGE, "&timeout=100s");
    for (long bytes = 0; bytes < 40; bytes += 13) {
        snprintf(key, sizeof(key), "k%ld", bytes);
        runs(claim_cut(&c, key, 1, replay, 10, -1), 1);
        WAIT_UNTIL(lease_is_over());
        runs(claim_cut(&c, key, 2, replay, LEASE_MS, bytes), 2);
        is_acknowledged(finish_cut(&c, key, 2, IDEM_OWNER_RENEW, 2, bytes));
        a = finish_cut(&c, key, 1, IDEM_OWNER_DONE, 1, bytes); /* too late */
        CHECK(a.rc == IDEM_E_UNKNOWN || (a.rc == 0 && a.ack == IDEM_LOST));
        is_acknowledged(finish_cut(&c, key, 2, IDEM_OWNER_FAIL, 2, bytes));
        runs(claim_cut(&c, key, 3, replay, LEASE_MS, bytes), 3);
        is_acknowledged(finish_cut(&c, key, 3, IDEM_OWNER_RELEASE, 3, bytes));
        runs(claim_cut(&c, key, 4, replay, LEASE_MS, bytes), 4);
        snprintf(key, sizeof(key), "l%ld", bytes);
        for (unsigned i = 1; i < 3; i++) {
            runs(claim_cut(&c, key, i, lock, LEASE_MS, bytes), i);
            is_acknowledged(finish_cut(&c, key, i, IDEM_OWNER_DONE, i, bytes));
        }
        proxy.cut_after = -1;
    }
    CHECK(proxy.cuts > 20);
    conn_close(&c);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

/* The count happens once and is returned, or it is unknown whether it happened: never twice. */
TEST(a_counter_and_a_nonce_may_be_cut_after_any_byte_of_an_answer) {
    struct conn c;
    struct call call;
    int64_t counted = 0, value;
    char key[32];

    proxied(&c, HOST_EDGE, "&timeout=100s");
    for (long bytes = 0; bytes < 60; bytes += bytes < 12 ? 3 : 9) {
        count_fill(&call, &c, "counter", 1);
        proxy.cut_after = bytes;
        (void)call_run(&call);
        proxy.cut_after = -1;
        CHECK(call.rc == 0 || call.rc == IDEM_E_UNKNOWN);
        counted += call.rc == 0;
        count_fill(&call, &c, "counter", 0);
        CHECK_INT(call_run(&call), 0);
        value = call.op.out.count.value;
        CHECK(value == counted || value == counted + 1);
        counted = value;
        snprintf(key, sizeof(key), "n%ld", bytes);
        once_fill(&call, &c, key);
        proxy.cut_after = bytes;
        (void)call_run(&call);
        proxy.cut_after = -1;
        CHECK(call.rc == IDEM_E_UNKNOWN || (call.rc == 0 && call.op.out.once.first));
    }
    CHECK(proxy.cuts > 8);
    conn_close(&c);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

/* A lock that blocks every operation. */
static struct idem_sql lock_take(void) {
    struct idem_error error;
    struct idem_sql lock;
    char url[1024];
    PGresult *res;

    farm_url_as(&farm, FARM_OWNER, FARM_PATIENT, url, sizeof(url));
    CHECK_INT(idem_sql_open(url, &lock, &error), 0);
    if (!is_postgres()) {
        CHECK_INT(mysql_query(lock.at.mysql, "LOCK TABLES idem_record WRITE"), 0);
        return lock;
    }
    res = PQexec(lock.at.pg, "BEGIN; LOCK TABLE idem_record IN EXCLUSIVE MODE");
    CHECK_INT(PQresultStatus(res), PGRES_COMMAND_OK);
    PQclear(res);
    return lock;
}

static long sessions(void) {
    return root_number(is_postgres()
                           ? "SELECT count(*) FROM pg_stat_activity WHERE usename = 'idem_app'"
                           : "SELECT COUNT(*) FROM information_schema.PROCESSLIST "
                             "WHERE USER = 'idem_app'");
}

static long session_number(void) {
    return root_number(is_postgres() ? "SELECT pid FROM pg_stat_activity WHERE usename = 'idem_app'"
                                     : "SELECT ID FROM information_schema.PROCESSLIST "
                                       "WHERE USER = 'idem_app'");
}

static long session_before;

/* True if a claim waits for the lock in the first session, or with false in another. A session that
   is only active may still read the rest of its statement, and would notice a lost connection. */
static bool claim_waits_in(bool first) {
    char sql[300];

    snprintf(sql, sizeof(sql),
             is_postgres() ? "SELECT count(*) FROM pg_stat_activity WHERE usename = 'idem_app' "
                             "AND pid %s %ld AND wait_event_type = 'Lock'"
                           : "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE "
                             "USER = 'idem_app' AND ID %s %ld AND STATE LIKE 'Waiting for table%%'",
             first ? "=" : "<>", session_before);
    return root_number(sql) == 1;
}

static bool waits_in_first(void) {
    return claim_waits_in(true);
}

static bool waits_in_another(void) {
    return claim_waits_in(false);
}

/* A command of a lost connection must not run after its retry: so the store ends that session
 * first. Here the session waits behind a lock. */
TEST(a_session_that_was_lost_is_ended_before_anything_is_said_again) {
    struct idem_sql lock;
    struct conn c;
    struct call call;
    struct answer a;

    proxied(&c, HOST_POLL, "&timeout=100s");
    session_before = session_number();
    CHECK(session_before > 0);
    run_done(&c, "before", 7, "r"); /* so that the statement is prepared */
    lock = lock_take();
    claim_fill(&call, &c, "k", 7);
    submit_asked(&c, &call);
    turn_until(&c, waits_in_first);
    CHECK_INT(call.completed, 0);
    proxy_stop(&proxy); /* both ends are closed, and the session still waits */
    CHECK_INT(session_number(), session_before);
    proxy_begin();
    turn_until(&c, waits_in_another);
    CHECK_INT(sessions(), 1);
    idem_sql_close(lock);
    a = answer_wait(&call);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(ask_number("SELECT count(*) FROM idem_record"), 2);
    conn_close(&c);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

static bool is_there(struct idem_sql conn) {
    PGresult *res;
    bool there;

    if (!is_postgres())
        return mysql_query(conn.at.mysql, "DO 1") == 0;
    res = PQexec(conn.at.pg, "SELECT 1");
    there = PQresultStatus(res) == PGRES_TUPLES_OK;
    PQclear(res);
    return there;
}

/* A server numbers its sessions anew when it starts: the session that has the old number now
 * belongs to another client. The second in which a server started distinguishes its lives. */
TEST(a_server_that_died_has_no_session_to_be_ended_and_others_are_left_alone) {
    enum { OTHERS = 40 };
    struct idem_sql others[OTHERS];
    struct idem_error error;
    struct call call;
    struct conn c;
    struct answer a;
    char url[1024];
    time_t began;

    server_begin(NULL);
    began = time(NULL);
    open_plain(&c, "&timeout=100s&connections=1");
    run_done(&c, "k", 1, "r");
    server_pause(&farm.server); /* the server hangs, and an operator restarts it */
    claim_fill(&call, &c, "k2", 1);
    CHECK_INT(answer_too_late(&call).rc, IDEM_E_UNKNOWN);
    conn_pass(&c, 400);
    farm_kill(&farm);
    WAIT_UNTIL(time(NULL) > began);
    farm_restart(&farm);
    farm_url(&farm, FARM_PATIENT, url, sizeof(url));
    for (int i = 0; i < OTHERS; i++)
        CHECK_INT(idem_sql_open(url, &others[i], &error), 0);
    a = claim_when_back(&c, "k2", 1);
    CHECK_INT(a.rc, 0);
    for (int i = 0; i < OTHERS; i++) {
        CHECK(is_there(others[i]));
        idem_sql_close(others[i]);
    }
    conn_close(&c);
    farm_stop(&farm);
}

/* Waiters. */

static unsigned wakes;

static void woken(struct idem_watch *watch) {
    (void)watch;
    wakes++;
}

/* Long before the waiter's own poll. */
static void wake_await(struct conn *c, unsigned n) {
    TURN_UNTIL_WITHIN(c, 5000, wakes >= n);
}

TEST(a_waiter_is_woken_by_a_finish_whose_answer_was_lost) {
    struct idem_watch watch = {.wake = woken, .key = key_in("t:", "w")};
    struct conn c, other;

    proxied(&c, HOST_POLL, "&timeout=100s");
    open_plain(&other, "");
    CHECK_INT(claim(&c, "w", 1).verdict, IDEM_RUN);
    CHECK_INT(other.store->driver->watch(other.store, &watch), 0);
    wake_await(&other, 1);
    proxy.cut_after = 0;
    CHECK_INT(done(&c, "w", 1, "r").ack, IDEM_ACK);
    wake_await(&other, 2);
    other.store->driver->unwatch(other.store, &watch);
    conn_close(&other);
    conn_close(&c);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

TEST(a_waiter_whose_own_connection_was_lost_looks_what_it_missed) {
    struct idem_watch watch = {.wake = woken, .key = key_in("t:", "w")};
    struct conn c, other;

    proxied(&c, HOST_POLL, "&timeout=100s");
    open_plain(&other, "");
    CHECK_INT(claim(&other, "w", 1).verdict, IDEM_RUN);
    CHECK_INT(c.store->driver->watch(c.store, &watch), 0);
    wake_await(&c, 1);
    conn_pass(&c, 50);
    proxy_stop(&proxy);
    CHECK_INT(done(&other, "w", 1, "r").ack, IDEM_ACK);
    proxy_begin();
    wake_await(&c, 2);
    c.store->driver->unwatch(c.store, &watch);
    conn_close(&other);
    conn_close(&c);
    proxy_stop(&proxy);
    farm_stop(&farm);
}

/* A wave of claims by two stores, while all sessions are ended in the middle of it, again and
 * again: each key runs once. */
TEST(sessions_that_an_operator_ends_cost_nothing) {
    enum { WAVES = 6, KEYS = 100 };
    struct conn stores[2];
    struct call *calls = calloc(2 * KEYS, sizeof(*calls));
    char key[32];

    server_begin(NULL);
    for (int s = 0; s < 2; s++) {
        open_plain(&stores[s], "&timeout=100s");
        CHECK_INT(lookup(&stores[s], "k").rc, IDEM_E_ABSENT); /* the store has had a connection */
    }
    for (int wave = 0; wave < WAVES; wave++) {
        for (int i = 0; i < KEYS; i++)
            for (unsigned s = 0; s < 2; s++) {
                snprintf(key, sizeof(key), "w%d-%d", wave, i);
                claim_fill(&calls[2 * i + (int)s], &stores[s], key, s + 1);
                CHECK_INT(call_submit(&calls[2 * i + (int)s]), 0);
            }
        for (int turn = 0; turn < 1 + wave; turn++)
            for (int s = 0; s < 2; s++)
                conn_turn(&stores[s], 1);
        sessions_end();
        for (int i = 0; i < KEYS; i++) {
            int ran = 0;

            for (int s = 0; s < 2; s++) {
                struct answer a = answer_wait(&calls[2 * i + s]);

                CHECK_STR(a.text, "");
                CHECK(a.verdict == IDEM_RUN || a.verdict == IDEM_BUSY);
                ran += a.verdict == IDEM_RUN;
            }
            CHECK_INT(ran, 1);
        }
    }
    for (int s = 0; s < 2; s++)
        conn_close(&stores[s]);
    free(calls);
    farm_stop(&farm);
}

TEST_MAIN
