/*
 * COMMIT, and faults between it and its response: a connection that is cut
 * before or after it, or hangs on the way; a server that is killed.
 */
#include <libpq-fe.h>
#include <mysql.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "db.h"
#include "store/sql/process.h"
#include "temp.h"
#include "test.h"

static struct idem_error err;
static struct idem_guard *guard;

/* A proxy in front of the server that cuts the connection at COMMIT. */

enum cut {
    CUT_BEFORE, /* the server does not get it, and sees the connection end */
    CUT_BEHIND, /* the server gets it, and its response is dropped */
    CUT_HELD,   /* the server does not get it, and sees nothing until the test continues */
};

static int release_fds[2];

static void path_of(const char *folder, struct sockaddr_un *ret) {
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (db_kind == IDEM_SQL_POSTGRES)
        snprintf(ret->sun_path, sizeof(ret->sun_path), "%.90s/.s.PGSQL.5432", folder);
    else
        snprintf(ret->sun_path, sizeof(ret->sun_path), "%.100s", folder);
}

static bool pass(int from, int to, char *buf, size_t size, ssize_t *n) {
    *n = read(from, buf, size);
    return *n > 0 && (to < 0 || write(to, buf, (size_t)*n) == *n);
}

static bool has_commit(const char *buf, ssize_t n) {
    return n >= 6 && memmem(buf, (size_t)n, "COMMIT", 6) != NULL;
}

static void cut_now(int client, int server, enum cut how, const char *buf, size_t n) {
    struct pollfd behind = {.fd = server, .events = POLLIN};
    char c;

    if (how == CUT_BEHIND) {
        CHECK(write(server, buf, n) == (ssize_t)n);
        CHECK(poll(&behind, 1, 120000) == 1); /* the server has responded */
    }
    shutdown(client, SHUT_RDWR);
    close(client);
    if (how == CUT_HELD)
        CHECK(read(release_fds[0], &c, 1) == 1);
}

static void way_run(int listener, enum cut how) {
    int client = accept(listener, NULL, NULL), server = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address;
    char buf[16384];

    alarm(TEST_LIMIT_S);
    path_of(db_socket(), &address);
    CHECK(client >= 0 && connect(server, (struct sockaddr *)&address, sizeof(address)) == 0);
    for (;;) {
        struct pollfd fds[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        ssize_t n;

        CHECK(poll(fds, 2, -1) > 0);
        if (fds[1].revents != 0 && !pass(server, client, buf, sizeof(buf), &n))
            return;
        if (fds[0].revents == 0)
            continue;
        if (!pass(client, -1, buf, sizeof(buf), &n))
            return;
        if (has_commit(buf, n)) {
            cut_now(client, server, how, buf, (size_t)n);
            return;
        }
        CHECK(write(server, buf, (size_t)n) == n);
    }
}

static struct idem_sql way_open(enum cut how) {
    static int n;
    struct sockaddr_un address;
    char folder[300];
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(folder, sizeof(folder), "%s/way%d", temp_folder(), n++);
    if (db_kind == IDEM_SQL_POSTGRES)
        CHECK_INT(mkdir(folder, 0700), 0);
    path_of(folder, &address);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(listener, 1) == 0 && pipe(release_fds) == 0);
    fflush(NULL);
    if (fork() == 0) {
        way_run(listener, how);
        _exit(0);
    }
    close(listener);
    return db_open_by(folder);
}

static int work(struct idem_tx *tx, void *data) {
    char sql[64];
    int rc;

    snprintf(sql, sizeof(sql), "INSERT INTO work VALUES (%d, 1)", *(int *)data);
    rc = db_try(idem_tx_conn(tx), sql, &err);
    return rc != 0 ? rc : idem_tx_keep(tx, 201, "r", 1);
}

static void cut_once(enum cut how, int id, const char *key) {
    struct idem_sql conn = way_open(how), anew = db_open(NULL);
    struct idem_args args = db_key(key);
    struct idem_tx_answer answer = {.status = 77};
    bool happened = how == CUT_BEHIND;

    CHECK_INT(idem_tx_call(conn, guard, &args, NULL, work, &id, &answer, &err), IDEM_E_UNKNOWN);
    CHECK_HAS(err.text, "idem_tx_outcome");
    CHECK_INT(answer.status, 77);
    if (how == CUT_HELD) {
        CHECK_INT(idem_tx_outcome(anew, guard, &args, 200, &answer, &err), IDEM_E_UNKNOWN);
        CHECK(write(release_fds[1], "x", 1) == 1);
    }
    CHECK_INT(idem_tx_outcome(anew, guard, &args, 120000, &answer, &err), 0);
    CHECK_INT(answer.verdict, happened ? IDEM_TX_HAPPENED : IDEM_TX_NEVER);
    CHECK_INT(answer.status, happened ? 201 : 0);
    CHECK_INT(db_askf(anew, "SELECT count(*) FROM work WHERE id = %d", id), happened);
    idem_tx_answer_release(&answer);
    /* If the first transaction never happened, the work is done now; otherwise it is not done
     * again. */
    CHECK_INT(idem_tx_call(anew, guard, &args, NULL, work, &id, &answer, &err), 0);
    CHECK_INT(answer.verdict, happened ? IDEM_TX_DUPLICATE : IDEM_TX_FIRST);
    idem_tx_answer_release(&answer);
    CHECK_INT(db_askf(anew, "SELECT count(*) FROM work WHERE id = %d", id), 1);
    db_close(conn);
    db_close(anew);
    CHECK(wait(NULL) > 0);
}

TEST(a_commit_that_was_not_answered_is_asked_about) {
    guard = db_guard("cut:");
    cut_once(CUT_BEFORE, 1, "before");
    cut_once(CUT_BEHIND, 2, "behind");
    cut_once(CUT_HELD, 3, "held");
    idem_guard_free(guard);
}

static int commit_by_hand(struct idem_sql conn) {
    PGresult *result;
    int rc;

    if (db_kind == IDEM_SQL_MYSQL) {
        CHECK(mysql_query(conn.at.mysql, "COMMIT") != 0);
        return idem_sql_failure(conn, NULL, &err);
    }
    result = PQexec(conn.at.pg, "COMMIT");
    rc = idem_sql_failure(conn, PQresultErrorField(result, PG_DIAG_SQLSTATE), &err);
    PQclear(result);
    return rc;
}

/* The library does not report the failure of a caller's own COMMIT as `refused`. */
TEST(a_commit_by_hand_that_was_not_answered_is_unknown) {
    struct idem_sql conn, anew = db_open(NULL);
    struct idem_args args = db_key("by hand");
    struct idem_tx_answer answer;

    guard = db_guard("hand:");
    conn = way_open(CUT_BEHIND);
    db_begin(conn, NULL);
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
    CHECK_INT(commit_by_hand(conn), IDEM_E_UNKNOWN);
    CHECK_INT(idem_tx_outcome(anew, guard, &args, 120000, &answer, &err), 0);
    CHECK_INT(answer.verdict, IDEM_TX_HAPPENED);
    db_close(conn);
    db_close(anew);
    CHECK(wait(NULL) > 0);
    idem_guard_free(guard);
}

/* A server that is killed, at any moment. */

#define ROUNDS 3

struct told {
    int id, rc;
};

/* Runs one transaction after the other until one fails, and reports each to the test. */
static void worker(int fd, int first) {
    struct idem_sql conn = db_open(NULL);

    for (struct told told = {.id = first}; told.rc == 0 && told.id < first + 100000; told.id++) {
        struct idem_tx_answer answer = {0};
        char key[32];
        struct idem_args args;

        snprintf(key, sizeof(key), "%d", told.id);
        args = db_key(key);
        told.rc = idem_tx_call(conn, guard, &args, NULL, work, &told.id, &answer, &err);
        idem_tx_answer_release(&answer);
        CHECK(write(fd, &told, sizeof(told)) == sizeof(told));
    }
    _exit(0);
}

static void judge(struct idem_sql conn, const struct told *told) {
    struct idem_tx_answer answer;
    struct idem_args args;
    char key[32];

    snprintf(key, sizeof(key), "%d", told->id);
    args = db_key(key);
    CHECK_INT(idem_tx_outcome(conn, guard, &args, 120000, &answer, &err), 0);
    idem_tx_answer_release(&answer);
    CHECK(answer.verdict == IDEM_TX_HAPPENED || answer.verdict == IDEM_TX_NEVER);
    CHECK_INT(db_askf(conn, "SELECT count(*) FROM work WHERE id = %d", told->id),
              answer.verdict == IDEM_TX_HAPPENED);
    if (told->rc == 0)
        CHECK_INT(answer.verdict, IDEM_TX_HAPPENED);
    else if (told->rc != IDEM_E_UNKNOWN)
        CHECK_INT(answer.verdict, IDEM_TX_NEVER);
}

static void kill_round(int round) {
    struct idem_sql conn;
    struct told told[4];
    int fds[2], n, status;
    pid_t pid;

    CHECK(pipe(fds) == 0);
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        worker(fds[1], (round + 1) * 100000);
    close(fds[1]);
    for (n = 0; n < 8; n++)
        CHECK(read(fds[0], &told[n % 4], sizeof(told[0])) == sizeof(told[0]));
    usleep(1000 * (1 + 7 * (useconds_t)round)); /* sleep: any moment will do */
    db_server_kill();
    /* The last few transactions. */
    while (read(fds[0], &told[n % 4], sizeof(told[0])) == sizeof(told[0]))
        n++;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fds[0]);
    db_server_restart();
    conn = db_open(NULL);
    for (int i = 0; i < 4; i++)
        judge(conn, &told[i]);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM work") -
                  db_ask(conn, "SELECT count(*) FROM idem_tx"),
              0);
    db_close(conn);
}

TEST(a_server_that_is_killed_keeps_both_or_neither) {
    guard = db_guard("kill:");
    db_server_own(NULL);
    for (int round = 0; round < ROUNDS; round++)
        kill_round(round);
    db_server_end();
    idem_guard_free(guard);
}

/* A server that ends the transaction because of a lock timeout; and with PostgreSQL, a savepoint
 * that saves it. */
TEST(what_a_time_out_takes_away_is_told) {
    static const char *const settings[] = {"innodb_rollback_on_timeout=ON", NULL};
    bool mysql = db_kind == IDEM_SQL_MYSQL;
    struct idem_sql first, second;
    struct idem_args args = db_key("k"), other = db_key("other");
    struct idem_tx_answer answer;

    guard = db_guard("timeout:");
    if (mysql)
        db_server_own(settings);
    first = db_open(NULL);
    second = db_open(NULL);
    db_hurry(second);
    db_begin(first, NULL);
    CHECK_INT(idem_tx_once(first, guard, &args, &answer, &err), 0);
    db_begin(second, NULL);
    CHECK_INT(idem_tx_once(second, guard, &other, &answer, &err), 0);
    db_do(second, "SAVEPOINT mine");
    CHECK_INT(idem_tx_once(second, guard, &args, &answer, &err),
              mysql ? IDEM_E_TX_LOST : IDEM_E_RETRY_TX);
    if (!mysql)
        db_do(second, "ROLLBACK TO SAVEPOINT mine");
    CHECK_INT(idem_tx_once(second, guard, &other, &answer, &err), mysql ? IDEM_E_INVALID : 0);
    if (!mysql)
        CHECK_INT(answer.verdict, IDEM_TX_DUPLICATE);
    db_rollback(second);
    db_rollback(first);
    db_close(first);
    db_close(second);
    if (mysql)
        db_server_end();
    idem_guard_free(guard);
}

DB_MAIN
