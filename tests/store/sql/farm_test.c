/*
 * The servers that other tests rely on: each arrangement starts, responds, dies
 * and comes back; SQL reads the test's time, and the servers' timers do not;
 * the pooler pools.
 */
#include "farm.h"

#include <libpq-fe.h>
#include <sys/mman.h>
#include <time.h>

#include "client.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

static struct farm farm;

static bool says(const char *error, const char *part) {
    if (error != NULL && strstr(error, part) != NULL)
        return true;
    fprintf(stderr, "# the error: %s\n", error == NULL ? "nothing" : error);
    return false;
}

/* Without TLS, or without a certificate, no client gets in on the port. */
static void demands_certificates(void) {
    struct client client = {.engine = farm.server.engine,
                            .port = farm.server.port,
                            .user = CLIENT_APP,
                            .password = CLIENT_APP_PASSWORD,
                            .db = SERVER_DB};

    CHECK(client_try(&client, "SELECT 1", NULL, 0) != NULL);
    client.tls = farm.folder;
    CHECK(client_try(&client, "SELECT 1", NULL, 0) == NULL);
    client.nameless = true;
    CHECK(client_try(&client, "SELECT 1", NULL, 0) != NULL);
    client.nameless = false;
    client.password = "wrong";
    CHECK(client_try(&client, "SELECT 1", NULL, 0) != NULL);
}

/* The life of a server of each kind. */
static void lives(enum farm_kind kind) {
    farm_start(&farm, kind, temp_folder(), -1);
    farm_sql(&farm, "CREATE TABLE t (a int)");
    CHECK(farm_try(&farm, FARM_APP, "INSERT INTO t VALUES (3)") == NULL);
    CHECK(farm_try(&farm, FARM_ODD, "UPDATE t SET a = a + 1; SELECT a FROM t") == NULL);
    CHECK_STR(farm.answer, "4");
    CHECK(says(farm_try(&farm, FARM_APP, "CREATE TABLE u (a int)"), "denied"));
    CHECK(says(farm_try(&farm, FARM_APP, "DROP TABLE t"),
               farm.server.engine == SERVER_POSTGRES ? "must be owner" : "denied"));
    CHECK(farm_try(&farm, FARM_OWNER, "CREATE TABLE u (a int)") == NULL);
    CHECK(farm_try(&farm, FARM_APP, "INSERT INTO u VALUES (7)") == NULL);
    if (kind == FARM_PG_TLS || kind == FARM_MY_TLS)
        demands_certificates();
    farm_kill(&farm);
    if (kind != FARM_PG_POOLED) /* a pooler lets its clients wait for a server */
        CHECK(farm_try(&farm, FARM_APP, "SELECT 1") != NULL);
    farm_restart(&farm);
    CHECK(farm_try(&farm, FARM_APP, "DELETE FROM t; SELECT a FROM u") == NULL);
    CHECK_STR(farm.answer, "7"); /* the committed row is there */
    farm_stop(&farm);
    CHECK(farm_try(&farm, FARM_APP, "SELECT 1") != NULL);
}

TEST(postgres_on_a_socket_lives) {
    lives(FARM_PG_SOCKET);
}

TEST(postgres_on_a_port_lives) {
    lives(FARM_PG_TCP);
}

TEST(postgres_with_tls_lives) {
    lives(FARM_PG_TLS);
}

TEST(postgres_behind_a_pooler_lives) {
    lives(FARM_PG_POOLED);
}

TEST(mariadb_on_a_socket_lives) {
    lives(FARM_MY_SOCKET);
}

TEST(mariadb_on_a_port_lives) {
    lives(FARM_MY_TCP);
}

TEST(mariadb_with_tls_lives) {
    lives(FARM_MY_TLS);
}

/* Idem's tables. */

static void flushes(enum farm_kind kind) {
    char insert[100];

    farm_start(&farm, kind, temp_folder(), -1);
    farm_flush(&farm); /* nothing to empty */
    farm_sql(&farm, "CREATE TABLE idem_record (a int); CREATE TABLE idem_counter (a int);"
                    "CREATE TABLE idem_meta (sweeper char(4), sweep_until int, sweep_table int,"
                    " sweep_prefix int, sweep_hash int);"
                    "INSERT INTO idem_meta VALUES ('a', 1, 2, 3, 4)");
    for (int i = 0; i < 3; i++) {
        farm_sql(&farm, "INSERT INTO idem_counter VALUES (7)");
        for (int n = 0; n < i * 6;
             n++) { /* many rows in the end: these are removed in another way */
            snprintf(insert, sizeof(insert), "INSERT INTO idem_record %s",
                     n == 0 ? "VALUES (1)" : "SELECT a FROM idem_record");
            farm_sql(&farm, insert);
        }
        CHECK_INT(farm_keys(&farm), 1 + (i == 0 ? 0 : 1 << (i * 6 - 1)));
        farm_flush(&farm);
        CHECK_INT(farm_keys(&farm), 0);
        CHECK_STR(farm_ask(&farm, "SELECT count(sweeper) + count(sweep_hash) FROM idem_meta"), "0");
    }
    farm_stop(&farm);
}

TEST(the_tables_of_postgres_are_emptied) {
    flushes(FARM_PG_SOCKET);
}

TEST(the_tables_of_mariadb_are_emptied) {
    flushes(FARM_MY_SOCKET);
}

/* Time. */

static int64_t *clock_start(enum farm_kind kind) {
    int64_t *clock;
    int fd = memfd_create("clock", MFD_CLOEXEC);

    CHECK(fd >= 0 && ftruncate(fd, 16) == 0);
    clock = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(clock != MAP_FAILED);
    clock[1] = 1700000000123;
    farm_start(&farm, kind, temp_folder(), fd);
    return clock;
}

static double seconds(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The server's SQL reads the test's time, through each function. */
static void clock_is_ours(enum farm_kind kind, const char *sql) {
    static const int64_t moves[] = {0, 86400000, -86400000, 1};
    int64_t *clock = clock_start(kind);
    char want[32];

    for (int i = 0; i < 4; i++) {
        clock[1] += moves[i];
        snprintf(want, sizeof(want), "%lld", (long long)clock[1]);
        CHECK(farm_try(&farm, FARM_APP, sql) == NULL);
        CHECK_STR(farm.answer, want);
    }
    farm_kill(&farm);
    farm_restart(&farm);
    CHECK_STR(farm_ask(&farm, sql), want);
}

TEST(the_time_of_postgres_is_the_tests) {
    clock_is_ours(FARM_PG_SOCKET, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    farm_stop(&farm);
}

#define MS_OF(time) "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " time ") DIV 1000"

TEST(the_time_of_mariadb_is_the_tests) {
    clock_is_ours(FARM_MY_SOCKET, "SET time_zone = '+00:00';" MS_OF("SYSDATE(6)"));
    /* Its microseconds count a connection's statements while the clock stands. */
    CHECK_STR(farm_ask(&farm, "SELECT UTC_TIMESTAMP(3) + INTERVAL 330 MINUTE = SYSDATE(6)"), "1");
    farm_stop(&farm);
}

TEST(the_time_of_mariadb_with_tls_is_the_tests) {
    clock_is_ours(FARM_MY_TLS, MS_OF("UTC_TIMESTAMP(6)"));
    farm_stop(&farm);
}

/* Such a statement fails after its timeout, by the real clock. */
static void ends_in_time(const char *sql, const char *error, double least) {
    double began = seconds(), took;

    CHECK(says(farm_try(&farm, FARM_OWNER, sql), error));
    took = seconds() - began;
    CHECK(took >= least);
}

/* Checks without reaping the process. */
static bool has_ended(pid_t pid) {
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Another process that runs the statement, and waits; if the sleep is short, it may have ended
 * already. */
static pid_t meanwhile(const char *sql) {
    const char *asleep =
        farm.server.engine == SERVER_POSTGRES
            ? "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            : "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'";
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)farm_try(&farm, FARM_OWNER, sql);
        _exit(0);
    }
    CHECK(pid > 0);
    WAIT_UNTIL(strcmp(farm_ask(&farm, asleep), "1") == 0 || has_ended(pid));
    return pid;
}

static void meanwhile_end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST(the_timers_of_postgres_go_on) {
    int64_t *clock = clock_start(FARM_PG_SOCKET);
    pid_t pid;

    farm_sql(&farm, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    pid = meanwhile("BEGIN; UPDATE t SET a = 2; SELECT pg_sleep(600); COMMIT");
    ends_in_time("SET lock_timeout = 300; UPDATE t SET a = 3", "lock timeout", 0.25);
    clock[1] -= 86400000;
    ends_in_time("SET statement_timeout = 300; UPDATE t SET a = 3", "statement timeout", 0.25);
    meanwhile_end(pid);
    farm_stop(&farm);
}

TEST(the_timers_of_mariadb_go_on) {
    static const char slow[] = "SET max_statement_time = 0.3; UPDATE t SET a = 3";
    int64_t *clock = clock_start(FARM_MY_SOCKET);
    pid_t pid;

    farm_sql(&farm, "CREATE TABLE t (a int) ENGINE=InnoDB; INSERT INTO t VALUES (1)");
    pid = meanwhile("BEGIN; UPDATE t SET a = 2; SELECT SLEEP(600); COMMIT");
    ends_in_time(slow, "max_statement_time", 0.25);
    clock[1] -= 86400000;
    ends_in_time(slow, "max_statement_time", 0.25);
    ends_in_time("SET innodb_lock_wait_timeout = 1; UPDATE t SET a = 3", "Lock wait timeout", 0.95);
    meanwhile_end(pid);
    farm_stop(&farm);
}

/* A server that stands still, and continues. */

static double date(void) {
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* After one second of sleep the server writes the time when it was awake: before the pause, if
 * stopping it took long, or after. */
static void pauses(enum farm_kind kind, const char *sleep) {
    double stood, went_on;
    char sql[200];
    pid_t pid;

    farm_start(&farm, kind, temp_folder(), -1);
    farm_sql(&farm, "CREATE TABLE t (a double precision)");
    pid = meanwhile(sleep);
    server_pause(&farm.server);
    stood = date();
    usleep(1300000); /* sleep: longer than the server's own; nothing may happen meanwhile */
    went_on = date();
    server_go_on(&farm.server);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK_STR(farm_ask(&farm, "SELECT count(*) FROM t"), "1");
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM t WHERE a > %.6f AND a < %.6f", stood,
             went_on);
    CHECK_STR(farm_ask(&farm, sql), "0");
    farm_stop(&farm);
}

TEST(postgres_pauses) {
    pauses(FARM_PG_SOCKET,
           "SELECT pg_sleep(1); INSERT INTO t VALUES (extract(epoch FROM clock_timestamp()))");
}

TEST(mariadb_pauses) {
    pauses(FARM_MY_SOCKET, "SELECT SLEEP(1); INSERT INTO t VALUES (UNIX_TIMESTAMP(SYSDATE(6)))");
}

/* The pooler. */

#define CLIENTS (POOLER_SIZE * 2)

static int backend_of(PGconn *conn) {
    PGresult *result = PQexec(conn, "SELECT pg_backend_pid()");
    int pid;

    CHECK_INT(PQresultStatus(result), PGRES_TUPLES_OK);
    pid = (int)strtol(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return pid;
}

static void run(PGconn *conn, const char *sql) {
    PGresult *result = PQexec(conn, sql);

    CHECK_INT(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
}

TEST(the_pooler_shares_connections_by_transaction) {
    PGconn *conns[CLIENTS];
    char url[200];
    int mine, seen = 0;

    farm_start(&farm, FARM_PG_POOLED, temp_folder(), -1);
    snprintf(url, sizeof(url), "postgres://idem_app:app-secret@localhost:%d/idem",
             farm.pooler.port);
    for (int i = 0; i < CLIENTS; i++) {
        conns[i] = PQconnectdb(url);
        CHECK_INT(PQstatus(conns[i]), CONNECTION_OK);
    }
    run(conns[0], "BEGIN");
    mine = backend_of(conns[0]);
    for (int i = 1; i < CLIENTS; i++)
        CHECK(backend_of(conns[i]) != mine);
    CHECK_INT(backend_of(conns[0]), mine);
    run(conns[0], "COMMIT");
    for (int i = 1; i < CLIENTS; i++)
        seen += backend_of(conns[i]) == mine;
    CHECK(seen > 0);
    for (int i = 0; i < CLIENTS; i++)
        PQfinish(conns[i]);
    farm_stop(&farm);
}

TEST_MAIN
