/*
 * Server settings that are not the default, or that change while a store uses
 * the server: none changes the meaning of a response.
 */
#include "proxied_server.h"
#include "store/driver_call.h"
#include "store/sql/sql_store.h"
#include "temp.h"

/* Settings with which a session begins. */

static long records(int state) {
    char sql[100];

    snprintf(sql, sizeof(sql), "SELECT COUNT(*) FROM idem.idem_record WHERE state = %d", state);
    return root_number(sql);
}

TEST(what_is_acknowledged_is_committed_whatever_a_session_begins_with) {
    static const char *const begins[] = {
        "init_connect = 'START TRANSACTION'",
        "init_connect = 'SET autocommit = 0; SELECT 1 FROM idem.idem_meta'",
        "completion_type = 'CHAIN'",
        "init_connect = ''",
        "autocommit = 0",
    };
    struct conn c;
    char sql[200], key[16];
    int n = (int)(sizeof(begins) / sizeof(begins[0]));

    if (is_postgres())
        return;
    server_begin(NULL);
    for (int i = 0; i < n; i++) {
        snprintf(sql, sizeof(sql), "SET GLOBAL %s", begins[i]);
        root_do(sql);
        snprintf(key, sizeof(key), "k%d", i);
        open_plain(&c, "");
        run_done(&c, key, 1, "r");
        CHECK_INT(records(IDEM_DONE), i + 1);
        conn_close(&c);
    }
    farm_stop(&farm);
}

TEST(a_limit_of_the_servers_cuts_off_no_answer) {
    struct call call;
    struct conn c;

    if (is_postgres())
        return;
    server_begin(NULL);
    root_do("SET GLOBAL sql_select_limit = 1");
    open_plain(&c, "");
    run_done(&c, "k", 1, "r");
    CHECK_INT(claim(&c, "l", 1).verdict, IDEM_RUN);
    kind_fill(&call, &c, IDEM_OP_STATS, "x");
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.stats.done, 1);
    CHECK_INT(call.op.out.stats.running, 1);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(a_value_that_does_not_fit_is_refused_and_not_cut) {
    struct call call;
    struct conn c;

    if (is_postgres())
        return;
    server_begin(NULL);
    root_do("SET GLOBAL sql_mode = ''");
    farm_sql(&farm, "ALTER TABLE idem_record MODIFY result VARBINARY(2)");
    open_plain(&c, "");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    done_fill(&call, &c, "k", 1, "long");
    CHECK_INT(call_run(&call), IDEM_E_REFUSED);
    CHECK_INT(done(&c, "k", 1, "ok").ack, IDEM_ACK);
    conn_close(&c);
    farm_stop(&farm);
}

/* 0: no transaction waits for a row; 1: one does, at another isolation level; 2: at the right
 * one. */
#define WAITING                                                                                    \
    "SELECT 1 + MAX(trx_isolation_level = 'READ COMMITTED') FROM information_schema.INNODB_TRX "   \
    "WHERE trx_state = 'LOCK WAIT'"

/* At another level the transaction would lock gaps between rows, and block others. */
TEST(a_statement_reads_what_is_committed_and_may_write_whatever_is_the_servers_default) {
    struct idem_sql held;
    struct call call;
    struct conn c;
    long level;

    if (is_postgres())
        return;
    server_begin(NULL);
    root_do("SET GLOBAL tx_isolation = 'SERIALIZABLE', GLOBAL tx_read_only = 1");
    open_plain(&c, "");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    held = row_hold("k");
    done_fill(&call, &c, "k", 1, "r");
    CHECK_INT(call_submit(&call), 0);
    while ((level = root_number(WAITING)) == 0)
        /* sleep: the server refreshes this table only if it was not read for 100 ms */
        conn_idle(&c, 150);
    CHECK_INT(level, 2);
    idem_sql_close(held);
    CHECK_INT(call_wait(&call), 0);
    conn_close(&c);
    farm_stop(&farm);
}

/* A server that changes meanwhile. */

static void read_only_set(bool on) {
    if (is_postgres()) {
        root_do(on ? "ALTER SYSTEM SET default_transaction_read_only = on"
                   : "ALTER SYSTEM RESET default_transaction_read_only");
        root_do("SELECT pg_reload_conf()");
        /* Once a new session has the setting, the server has changed the existing sessions. */
        WAIT_UNTIL(root_number("SELECT (current_setting('default_transaction_read_only') = "
                               "'on')::int") == on);
    } else {
        root_do(on ? "SET GLOBAL read_only = 1" : "SET GLOBAL read_only = 0");
    }
}

/* True if `n` operations were refused and wait for a retry. */
static bool all_wait(const struct sql_store *store, int n) {
    for (const struct remote_op *op = store->remote.paused.first; op != NULL; op = op->queue_next)
        n--;
    return n == 0;
}

/* Passes the deadline while no operation is under way, because such an operation would be
 * unknown. */
static void deadline_pass(struct conn *c, int n) {
    struct sql_store *store = idem_container_of(c->store, struct sql_store, remote.base);

    loop_clock_stop();
    TURN_UNTIL(c, all_wait(store, n));
    idem_timer_set(&c->loop, &store->remote.again, 1000000);
    loop_clock_forward(100000);
}

TEST(a_server_that_refuses_to_write_is_no_unknown_outcome) {
    enum { NONCES = 5 };
    struct call nonces[NONCES];
    struct answer a;
    struct conn c;
    char key[16];

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=1");
    run_done(&c, "k", 1, "r");
    read_only_set(true);
    for (int i = 0; i < NONCES; i++) {
        snprintf(key, sizeof(key), "n%d", i);
        once_fill(&nonces[i], &c, key);
        CHECK_INT(call_submit(&nonces[i]), 0);
    }
    deadline_pass(&c, NONCES);
    for (int i = 0; i < NONCES; i++) {
        a = answer_wait(&nonces[i]);
        CHECK_INT(a.rc, IDEM_E_REFUSED);
        CHECK(strstr(a.text, "read-only") != NULL || strstr(a.text, "read only") != NULL);
    }
    conn_close(&c);
    farm_stop(&farm);
}

/* True if the nonce is new to the server. */
static bool nonce_is_taken(struct conn *c) {
    struct call call;
    struct answer a;

    once_fill(&call, c, "n");
    CHECK_INT(call_submit(&call), 0);
    a = answer_wait(&call);
    CHECK(a.rc == IDEM_E_REFUSED || (a.rc == 0 && call.op.out.once.first));
    return a.rc == 0;
}

TEST(a_server_that_is_read_only_refuses_at_once_and_takes_a_nonce_when_it_writes_again) {
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "&timeout=100s&connections=1");
    run_done(&c, "k", 1, "r");
    read_only_set(true);
    CHECK(!nonce_is_taken(&c));
    read_only_set(false);
    WAIT_UNTIL(nonce_is_taken(&c));
    conn_close(&c);
    farm_stop(&farm);
}

/* Cancels a statement that waits for a lock; true if there was one. */
static bool waiting_cancel(void) {
    char sql[60];
    long id;

    if (is_postgres())
        return root_number("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity "
                           "WHERE usename = 'idem_app' AND wait_event_type = 'Lock'") == 1;
    id = root_number("SELECT MAX(ID) FROM information_schema.PROCESSLIST "
                     "WHERE USER = 'idem_app' AND INFO LIKE 'UPDATE%'");
    snprintf(sql, sizeof(sql), "KILL QUERY %ld", id);
    if (id != 0)
        root_do(sql);
    return id != 0;
}

TEST(a_statement_that_an_operator_cancels_is_said_again) {
    struct idem_sql held;
    struct call call;
    struct conn c;

    server_begin(NULL);
    open_plain(&c, "");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    held = row_hold("k");
    done_fill(&call, &c, "k", 1, "r");
    CHECK_INT(call_submit(&call), 0);
    turn_until(&c, waiting_cancel);
    conn_pass(&c, 50);
    CHECK_INT(call.completed, 0);
    idem_sql_close(held);
    CHECK_STR(answer_wait(&call).text, "");
    CHECK_INT(call.op.out.finish.ack, IDEM_ACK);
    conn_close(&c);
    farm_stop(&farm);
}

#define SESSION "SELECT pid FROM pg_stat_activity WHERE usename = 'idem_app'"

TEST(a_statement_that_could_not_be_prepared_is_prepared_again_on_the_same_connection) {
    enum { NONCES = 5 };
    long session;
    struct call nonces[NONCES];
    struct idem_error error;
    struct idem_sql lock;
    struct conn c;
    char url[1024], key[16];

    if (!is_postgres())
        return;
    server_begin(NULL);
    open_plain(&c, "&connections=1");
    run_done(&c, "k", 1, "r");
    farm_url_as(&farm, FARM_OWNER, FARM_PATIENT, url, sizeof(url));
    CHECK_INT(idem_sql_open(url, &lock, &error), 0);
    session = root_number(SESSION);
    PQclear(PQexec(lock.at.pg, "BEGIN; LOCK TABLE idem_counter IN ACCESS EXCLUSIVE MODE"));
    for (int i = 0; i < NONCES; i++) {
        snprintf(key, sizeof(key), "n%d", i);
        once_fill(&nonces[i], &c, key);
        CHECK_INT(call_submit(&nonces[i]), 0);
    }
    /* sleep: longer than it waits for a lock */
    conn_idle(&c, 600); /* longer than the timeout for a lock */
    idem_sql_close(lock);
    for (int i = 0; i < NONCES; i++) {
        CHECK_STR(answer_wait(&nonces[i]).text, "");
        CHECK(nonces[i].op.out.once.first);
    }
    CHECK_INT(root_number(SESSION), session);
    conn_close(&c);
    farm_stop(&farm);
}

TEST(a_function_makes_the_same_names_whatever_a_backslash_means) {
    struct call call;
    struct conn c;

    if (!is_postgres())
        return;
    server_begin(NULL);
    farm_sql(&farm, "SET standard_conforming_strings = off; "
                    "SELECT idem_once('t:', NULL, 'k', NULL); "
                    "SELECT idem_result('t:', NULL, 'k', 201, NULL)");
    open_plain(&c, "");
    kind_fill(&call, &c, IDEM_OP_TX, "k");
    CHECK_INT(call_run(&call), 0);
    CHECK(call.op.out.tx.there);
    CHECK_INT(call.op.out.tx.status, 201);
    conn_close(&c);
    farm_stop(&farm);
}

/* A proxy that is not named in the URL. */

TEST(a_pooler_is_found_out_by_the_numbers_that_it_tells) {
    char url[1024], key[16], *yes;
    struct conn c;

    if (!is_postgres())
        return;
    farm_start(&farm, FARM_PG_POOLED, temp_folder(), -1);
    tables_make(&farm);
    farm_url(&farm, "&sweep=no", url, sizeof(url));
    yes = strstr(url, "&pooled=yes");
    CHECK(yes != NULL);
    memmove(yes, yes + strlen("&pooled=yes"), strlen(yes + strlen("&pooled=yes")) + 1);
    conn_open(&c, url, HOST_POLL, NULL);
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        run_done(&c, key, 1, "r");
    }
    CHECK(idem_container_of(c.store, struct sql_store, remote.base)->pooled);
    conn_close(&c);
    farm_stop(&farm);
}

/* The environment variables that libpq reads by itself. */

TEST(the_environment_leads_to_no_other_server) {
    char url[600];
    struct conn c;

    if (!is_postgres())
        return;
    server_begin(NULL);
    setenv("PGPORT", "1", 1);
    open_plain(&c, "");
    run_done(&c, "k", 1, "r");
    conn_close(&c);
    snprintf(url, sizeof(url), "postgres:%s/.s.PGSQL.5432?user=idem_app&db=idem",
             farm.server.socket);
    conn_open(&c, url, HOST_POLL, NULL);
    run_done(&c, "l", 1, "r");
    conn_close(&c);
    setenv("PGHOSTADDR", "127.0.0.1", 1);
    open_plain(&c, "");
    CHECK_HAS(claim(&c, "m", 1).text, "PGHOSTADDR");
    conn_close(&c);
    unsetenv("PGHOSTADDR");
    unsetenv("PGPORT");
    farm_stop(&farm);
}

TEST_MAIN
