/*
 * The features of the MySQL engine alone: its times, its kind of TLS,
 * statements that the server does not accept, connections that end in the
 * middle of one, and the library's effects on the process.
 */
#include <openssl/err.h>
#include <poll.h>
#include <time.h>

#include "certificates.h"
#include "client.h"
#include "process.h"
#include "proxied_server.h"
#include "store/driver_call.h"
#include "store/sql/mysql/mysql.h"
#include "temp.h"

/* Values. */

TEST(times_go_both_ways_to_the_millisecond) {
    static const int64_t last = 253402300799999;
    MYSQL_TIME time;

    for (int64_t ms = 0; ms < last; ms += 86399999 * 7) {
        time_t seconds = (time_t)(ms / 1000);
        struct tm tm;

        gmtime_r(&seconds, &tm);
        maria_time_set(&time, ms);
        CHECK_INT(time.year, tm.tm_year + 1900);
        CHECK_INT(time.month, tm.tm_mon + 1);
        CHECK_INT(time.day, tm.tm_mday);
        CHECK_INT(time.hour, tm.tm_hour);
        CHECK_INT(time.minute, tm.tm_min);
        CHECK_INT(time.second, tm.tm_sec);
        CHECK_INT(time.second_part, ms % 1000 * 1000);
        CHECK_INT(maria_time_get(&time), ms);
    }
    maria_time_set(&time, INT64_MAX);
    CHECK_INT(maria_time_get(&time), last);
    CHECK_INT(maria_time_get(&(MYSQL_TIME){.year = 0}), -1);
}

TEST(what_the_server_says_is_taken_for_what_it_is) {
    CHECK_INT(mysql_failure_find(1062)->trouble, SQL_CONFLICT);
    CHECK_INT(mysql_failure_find(1213)->trouble, SQL_AGAIN);
    CHECK_INT(mysql_failure_find(1205)->trouble, SQL_AGAIN);
    CHECK_INT(mysql_failure_find(1114)->trouble, SQL_FULL);
    CHECK_INT(mysql_failure_find(1927)->trouble, SQL_BROKEN);
    CHECK_INT(mysql_failure_find(2013)->trouble, SQL_BROKEN);
    CHECK_INT(mysql_failure_find(5014)->trouble, SQL_BROKEN);
    CHECK_INT(mysql_failure_find(1142)->trouble, SQL_REFUSED);
    CHECK_INT(mysql_failure_find(1290)->trouble, SQL_ELSEWHERE);
}

/* Links. */

static struct sql_engine_connection *dial(const char *url_text, const struct sql_session *past,
                                          struct sql_dialled *ret) {
    static const struct sql_session none;
    struct idem_error err;
    struct idem_url url;
    struct sql_config config;

    CHECK_INT(idem_url_parse(url_text, &url, &err), 0);
    CHECK_INT(sql_config_read(&sql_engine_mysql, &url, &config, &err), 0);
    maria_dial(&config, past == NULL ? &none : past, ret);
    sql_config_release(&config);
    idem_url_release(&url);
    return ret->connection;
}

static struct sql_engine_connection *dial_plain(struct sql_dialled *ret) {
    char url[1024];

    farm_url(&farm, FARM_PATIENT, url, sizeof(url));
    CHECK(dial(url, NULL, ret) != NULL);
    return ret->connection;
}

static struct sql_answer *answer_get(struct sql_engine_connection *connection) {
    struct sql_answer *answer;
    const char *why;
    int events = 0;

    while ((answer = maria_next(connection)) == NULL) {
        struct pollfd fd = {.fd = maria_fd(connection)};

        events = maria_pump(connection, 0, &why);
        fd.events = (events & IDEM_WRITE) != 0 ? POLLOUT : POLLIN;
        CHECK(events > 0 && poll(&fd, 1, WAIT_LIMIT_S * 1000) == 1);
        CHECK(maria_pump(connection, IDEM_READ | IDEM_WRITE, &why) > 0);
    }
    return answer;
}

static void answer_is_time(struct sql_engine_connection *connection) {
    struct sql_answer *answer = answer_get(connection);

    CHECK_INT(answer->trouble, SQL_FINE);
    CHECK_INT(answer->rows, 1);
    CHECK_INT(sql_cell(answer, 0, 0)->type, SQL_MS);
    CHECK(llabs(sql_cell(answer, 0, 0)->n / 1000 - (int64_t)time(NULL)) < 60);
    maria_answer_free(answer);
}

TEST(a_link_takes_more_than_it_can_do_at_once_and_answers_in_order) {
    struct sql_value key[2] = {sql_bytes("p:", 2), sql_bytes("none", 4)};
    struct sql_dialled dialled;
    struct sql_answer *answer;
    struct sql_engine_connection *connection;

    farm_start(&farm, FARM_MY_SOCKET, temp_folder(), -1);
    tables_make(&farm);
    connection = dial_plain(&dialled);
    for (int round = 0; round < 3; round++) {
        CHECK(maria_send(connection, SQL_TIME, NULL, 0));
        CHECK(maria_send(connection, SQL_LOOK, key, 2));
        CHECK(maria_send(connection, SQL_TIME, NULL, 0));
        answer_is_time(connection);
        answer = answer_get(connection);
        CHECK_INT(answer->rows, 0);
        CHECK_INT(answer->columns, 1);
        maria_answer_free(answer);
        answer_is_time(connection);
        CHECK(maria_next(connection) == NULL);
    }
    maria_hang_up(connection);
    farm_stop(&farm);
}

#define SESSIONS "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'idem_app'"

static void sessions_await(long n) {
    WAIT_UNTIL(root_number(SESSIONS) == n);
}

static void hang_up_at_once(struct sql_engine_connection *connection) {
    maria_hang_up(connection);
}

/* A statement that waits for its response, and one that the server does not read: with or
 * without TLS. */
static void hang_up_in_the_middle(enum farm_kind kind) {
    size_t len = (size_t)12 << 20;
    unsigned char *bytes = calloc(1, len);
    struct sql_value values[2] = {sql_bytes(bytes, len), sql_bytes("h", 1)};
    struct sql_dialled dialled;
    struct sql_engine_connection *connection;
    const char *why;

    farm_start(&farm, kind, temp_folder(), -1);
    tables_make(&farm);
    connection = dial_plain(&dialled); /* the statement is prepared */
    CHECK(maria_send(connection, SQL_LOOK, values, 2));
    CHECK(maria_pump(connection, 0, &why) > 0);
    hang_up_at_once(connection);
    connection = dial_plain(&dialled);
    values[0].bytes.len = 1;
    CHECK(maria_send(connection, SQL_LOOK, values, 2));
    maria_answer_free(answer_get(connection));
    values[0].bytes.len = len;
    server_pause(&farm.server);
    CHECK(maria_send(connection, SQL_LOOK, values, 2));
    CHECK_INT(maria_pump(connection, IDEM_READ | IDEM_WRITE, &why), IDEM_WRITE);
    CHECK(maria_send(connection, SQL_TIME, NULL, 0));
    hang_up_at_once(connection);
    server_go_on(&farm.server);
    sessions_await(0);
    free(bytes);
    farm_stop(&farm);
}

TEST(hanging_up_in_the_middle_of_a_statement_takes_no_time) {
    hang_up_in_the_middle(FARM_MY_SOCKET);
}

TEST(hanging_up_in_the_middle_of_a_statement_takes_no_time_by_tls_either) {
    hang_up_in_the_middle(FARM_MY_TLS);
}

TEST(a_server_that_ends_an_idle_session_is_noticed) {
    struct sql_dialled dialled;
    struct sql_engine_connection *connection;
    struct pollfd fd = {.events = POLLIN};
    const char *why = "";
    char sql[60];

    farm_start(&farm, FARM_MY_SOCKET, temp_folder(), -1);
    tables_make(&farm);
    connection = dial_plain(&dialled);
    CHECK_INT(maria_pump(connection, IDEM_READ | IDEM_WRITE, &why), IDEM_READ);
    snprintf(sql, sizeof(sql), "KILL %lld", (long long)dialled.session.id);
    (void)root_number(sql);
    fd.fd = maria_fd(connection);
    CHECK_INT(poll(&fd, 1, WAIT_LIMIT_S * 1000), 1);
    CHECK_INT(maria_pump(connection, IDEM_READ, &why), -1);
    CHECK_STR(why, "the server has ended it");
    CHECK(!maria_send(connection, SQL_TIME, NULL, 0));
    maria_hang_up(connection);
    farm_stop(&farm);
}

TEST(a_session_that_was_lost_with_a_statement_under_way_is_ended_first) {
    struct sql_value key[2] = {sql_bytes("p:", 2), sql_bytes("none", 4)};
    struct client client;
    struct sql_dialled lost, next;
    struct sql_engine_connection *connection;
    MYSQL *lock = mysql_init(NULL);
    char url[1024];

    farm_start(&farm, FARM_MY_SOCKET, temp_folder(), -1);
    tables_make(&farm);
    client = client_root(&farm.server);
    CHECK(mysql_real_connect(lock, NULL, client.user, NULL, SERVER_DB, 0, client.socket, 0) !=
          NULL);
    CHECK_INT(mysql_query(lock, "LOCK TABLES idem_record WRITE"), 0);
    connection = dial_plain(&lost);
    CHECK(maria_send(connection, SQL_LOOK, key, 2));
    sessions_await(1);
    farm_url(&farm, FARM_PATIENT, url, sizeof(url));
    CHECK(dial(url, &lost.session, &next) != NULL);
    CHECK(next.session.id != lost.session.id);
    CHECK_INT(root_number(SESSIONS), 1);
    /* There is no need to wait for a session that has already ended. */
    maria_hang_up(next.connection);
    CHECK(dial(url, &lost.session, &next) != NULL);
    maria_hang_up(next.connection);
    maria_hang_up(connection);
    mysql_close(lock);
    farm_stop(&farm);
}

/* Statements that are too long. */

static void result_is_refused(struct conn *c, const char *key, size_t len) {
    unsigned char *bytes = calloc(1, len);
    struct call call;
    struct answer a;

    CHECK_INT(claim(c, key, 1).verdict, IDEM_RUN);
    done_fill(&call, c, key, 1, "");
    call.op.in.finish.result = (struct idem_bytes){bytes, len};
    CHECK_INT(call_submit(&call), 0);
    a = answer_wait(&call);
    CHECK_INT(a.rc, IDEM_E_FULL);
    CHECK_HAS(a.text, "max_allowed_packet, which is 1048576");
    free(bytes);
}

TEST(a_result_that_the_server_would_not_take_is_refused_and_nothing_is_lost) {
    static const char *const settings[] = {"max-allowed-packet=1M", NULL};
    long before;
    struct conn c;

    farm_start_with(&farm, FARM_MY_SOCKET, temp_folder(), -1, settings, false);
    tables_make(&farm);
    open_plain(&c, "&connections=1");
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    before = root_number("SELECT MAX(ID) FROM information_schema.PROCESSLIST WHERE USER = "
                         "'idem_app'");
    result_is_refused(&c, "k", 2 << 20);
    result_is_refused(&c, "l", 1 << 20);
    CHECK_INT(done(&c, "k", 1, "short").ack, IDEM_ACK);
    CHECK_STR(claim(&c, "k", 2).result, "short");
    CHECK_INT(root_number("SELECT MAX(ID) FROM information_schema.PROCESSLIST WHERE USER = "
                          "'idem_app'"),
              before);
    conn_close(&c);
    farm_stop(&farm);
}

/* The process. */

static void sigpipe_is(void (*handler)(int)) {
    struct sigaction now;

    CHECK(sigaction(SIGPIPE, NULL, &now) == 0);
    CHECK(now.sa_handler == handler);
}

static void sigpipe_own(int number) {
    (void)number;
    exit(1);
}

TEST(sigpipe_stays_what_the_program_made_it_and_never_comes) {
    struct sql_dialled dialled;
    struct sql_answer *answer;
    struct sql_engine_connection *connection;

    signal(SIGPIPE, sigpipe_own);
    maria_library_init();
    sigpipe_is(sigpipe_own);
    farm_start(&farm, FARM_MY_TLS, temp_folder(), -1);
    tables_make(&farm);
    connection = dial_plain(&dialled);
    CHECK(maria_send(connection, SQL_TIME, NULL, 0));
    answer_is_time(connection);
    farm_kill(&farm);
    CHECK(maria_send(connection, SQL_TIME, NULL, 0));
    while ((answer = maria_next(connection)) == NULL) {
        const char *why;

        CHECK(maria_pump(connection, IDEM_READ | IDEM_WRITE, &why) > 0);
        wait_step();
    }
    CHECK_INT(answer->trouble, SQL_BROKEN);
    maria_answer_free(answer);
    maria_hang_up(connection);
    sigpipe_is(sigpipe_own);
    farm_stop(&farm);
}

TEST(errors_that_the_host_left_in_openssls_queue_are_not_ours_nor_ours_the_hosts) {
    struct sql_dialled dialled;
    struct sql_engine_connection *connection;

    farm_start(&farm, FARM_MY_TLS, temp_folder(), -1);
    tables_make(&farm);
    connection = dial_plain(&dialled);
    for (int i = 0; i < 3; i++) {
        ERR_raise(ERR_LIB_USER, 1);
        CHECK(maria_send(connection, SQL_TIME, NULL, 0));
        answer_is_time(connection);
    }
    farm_kill(&farm);
    (void)maria_send(connection, SQL_TIME, NULL, 0);
    maria_hang_up(connection);
    CHECK_INT(ERR_peek_error(), 0);
    farm_stop(&farm);
}

/* TLS. */

/* Returns "" if it connects, with or without TLS as `tls` requires; otherwise the reason. */
static const char *reach(const char *url, bool tls) {
    static char text[300];
    struct sql_dialled dialled;
    struct idem_error err;
    struct idem_url parsed;
    struct sql_config config;
    MYSQL *conn;

    CHECK_INT(idem_url_parse(url, &parsed, &err), 0);
    CHECK_INT(sql_config_read(&sql_engine_mysql, &parsed, &config, &err), 0);
    dialled = (struct sql_dialled){0};
    conn = maria_connect(&config, &dialled);
    sql_config_release(&config);
    idem_url_release(&parsed);
    snprintf(text, sizeof(text), "%s", conn != NULL ? "" : dialled.text);
    if (conn != NULL) {
        CHECK_INT(mysql_get_ssl_cipher(conn) != NULL, tls);
        mysql_close(conn);
    }
    CHECK(strstr(text, "secret") == NULL);
    return text;
}

static const char *url_of(const char *host, const char *options) {
    static char url[2000];

    snprintf(url, sizeof(url),
             "mysql://idem_app:app-secret@%s:%d/idem?tls_cert=%s/client.crt&tls_key=%s/"
             "client.key%s" FARM_PATIENT,
             host, farm.server.port, farm.folder, farm.folder, options);
    return url;
}

static const char *url_verified(const char *host) {
    static char options[400];

    snprintf(options, sizeof(options), "&tls=verify&tls_ca=%s/ca.crt", farm.folder);
    return url_of(host, options);
}

TEST(tls_is_as_the_url_says_where_the_server_has_it) {
    char url[200];

    farm_start(&farm, FARM_MY_TLS, temp_folder(), -1);
    CHECK_STR(reach(url_verified("localhost"), true), "");
    CHECK_STR(reach(url_verified("127.0.0.1"), true), "");
    CHECK_STR(reach(url_of("localhost", "&tls=require"), true), "");
    CHECK_STR(reach(url_of("localhost", "&tls=prefer"), true), "");
    CHECK_STR(reach(url_of("localhost", ""), true), "");
    CHECK(reach(url_of("localhost", "&tls=off"), false)[0] != '\0');
    /* Without a client certificate. */
    (void)root_number("ALTER USER idem_app@127.0.0.1 REQUIRE NONE");
    snprintf(url, sizeof(url), "mysql://idem_app:app-secret@localhost:%d/idem?connect_timeout=100s",
             farm.server.port);
    CHECK_STR(reach(url, true), "");
    snprintf(url + strlen(url), sizeof(url) - strlen(url), "&tls=require");
    CHECK_STR(reach(url, true), "");
    /* An authority that the system does not know. */
    CHECK_HAS(reach(url_of("localhost", "&tls=verify"), true), "certificate");
    farm_stop(&farm);
}

TEST(tls_refuses_a_server_of_another_name) {
    char cert[400], key[400], made[300];
    const char *const settings[] = {cert, key, NULL};

    /* The farm makes its own certificates anew: these stay. */
    snprintf(made, sizeof(made), "%s/other", temp_folder());
    CHECK(mkdir(made, 0711) == 0);
    certificates_make(made, -1);
    snprintf(cert, sizeof(cert), "ssl-cert=%s/elsewhere.crt", made);
    snprintf(key, sizeof(key), "ssl-key=%s/elsewhere.key", made);
    CHECK(chmod(temp_folder(), 0711) == 0);
    process_give(key + strlen("ssl-key="), "mysql");
    farm_start_with(&farm, FARM_MY_TLS, temp_folder(), -1, settings, false);
    snprintf(farm.folder, sizeof(farm.folder), "%.250s", made);
    CHECK_HAS(reach(url_verified("localhost"), true), "certificate");
    CHECK_HAS(reach(url_verified("127.0.0.1"), true), "certificate");
    farm_stop(&farm);
}

TEST(without_tls_at_the_server_only_who_needs_it_is_refused) {
    char url[1000];

    farm_start(&farm, FARM_MY_TCP, temp_folder(), -1);
    certificates_make(farm.folder, -1);
    CHECK_STR(reach(url_of("localhost", "&tls=prefer"), false), "");
    CHECK_STR(reach(url_of("localhost", "&tls=off"), false), "");
    CHECK_STR(reach(url_of("127.0.0.1", ""), false), "");
    CHECK_HAS(reach(url_of("localhost", "&tls=require"), true), "has no TLS");
    CHECK_HAS(reach(url_verified("localhost"), true), "SSL is required");
    /* The password from the environment, and a wrong one. */
    snprintf(url, sizeof(url), "mariadb://idem_app@localhost:%d/idem?connect_timeout=100s",
             farm.server.port);
    CHECK_HAS(reach(url, false), "denied");
    setenv("IDEM_MYSQL_PASSWORD", "wrong-secret", 1);
    CHECK_HAS(reach(url, false), "denied");
    setenv("IDEM_MYSQL_PASSWORD", "app-secret", 1);
    CHECK_STR(reach(url, false), "");
    farm_stop(&farm);
}

TEST_MAIN
