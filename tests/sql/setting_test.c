/*
 * Settings of a server's that are not the default, or that change while a store uses it: none
 * changes what an answer means.
 */
#include "../store/ask.h"
#include "behind.h"
#include "temp.h"

/* What a session begins with. */

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

#define WAITING "FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"

/* By another level it would hold gaps between rows, and be in the way of others. */
TEST(a_statement_reads_what_is_committed_and_may_write_whatever_is_the_servers_default) {
    struct idem_sql held;
    struct call call;
    struct conn c;

    if (is_postgres())
        return;
    server_begin(NULL);
    root_do("SET GLOBAL tx_isolation = 'SERIALIZABLE', GLOBAL tx_read_only = 1");
    open_plain(&c, "");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    held = row_hold("k");
    done_fill(&call, &c, "k", 1, "r");
    CHECK_INT(call_submit(&call), 0);
    while (root_number("SELECT COUNT(*) " WAITING) != 1)
        conn_idle(&c, 150); /* the table shows what it was until nobody has looked for 100 ms */
    CHECK_INT(root_number("SELECT trx_isolation_level = 'READ COMMITTED' " WAITING), 1);
    idem_sql_close(held);
    CHECK_INT(call_wait(&call), 0);
    conn_close(&c);
    farm_stop(&farm);
}

TEST_MAIN
