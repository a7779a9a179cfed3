/*
 * The handshake with a server, and the reasons for which a store refuses it:
 * users, certificates, roles, policies, memory, and values that are not
 * records.
 */
#include <stdarg.h>

#include "farm.h"
#include "loop_clock.h"
#include "store/driver_call.h"
#include "store/proxy.h"
#include "temp.h"
#include "wait.h"

static struct server server;

static void server_begin(const char *const *args, bool port) {
    char folder[300];

    snprintf(folder, sizeof(folder), "%s/server", temp_folder());
    server_start(&server, folder, "redis-server", port, args, -1);
}

static void say(const char *first, const char *second, const char *third, const char *fourth) {
    char reply[256];

    server_ask(&server, reply, sizeof(reply), first, second, third, fourth, NULL);
    CHECK(reply[0] != '-');
}

static struct answer claim_at(const char *url) {
    struct answer a;
    struct conn c;

    conn_open(&c, url, HOST_POLL, NULL);
    a = claim(&c, "k", 1);
    conn_close(&c);
    return a;
}

static void refused(const char *url, const char *why) {
    struct answer a = claim_at(url);

    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, why);
    CHECK(strstr(a.text, "secret") == NULL);
}

static void runs(const char *url) {
    struct answer a = claim_at(url);

    if (a.rc != 0)
        fprintf(stderr, "# %s: %s\n", url, a.text);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
}

/* Prints into one of a few buffers. */
static const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *text(const char *format, ...) {
    static char texts[16][1500];
    static unsigned turn;
    char *at = texts[turn++ % 16];
    va_list args;

    va_start(args, format);
    vsnprintf(at, sizeof(texts[0]), format, args);
    va_end(args);
    return at;
}

/* Users. */

static void file_write(const char *path, const char *content) {
    FILE *file = fopen(path, "w");

    CHECK(file != NULL && fputs(content, file) >= 0 && fclose(file) == 0);
}

TEST(a_wrong_password_or_user_is_told_and_the_password_is_not) {
    static const char *const args[] = {"--requirepass", "secret-right", "--user", "clerk", "on",
                                       ">secret-clerk", "~*",           "&*",     "+@all", NULL};

    server_begin(args, true);
    refused(text("redis://:secret-wrong@127.0.0.1:%d", server.port),
            "refuses the user or the password");
    refused(text("redis://nobody:secret-right@127.0.0.1:%d", server.port),
            "refuses the user or the password");
    refused(text("redis://clerk:secret-right@127.0.0.1:%d", server.port),
            "refuses the user or the password");
    refused(text("redis://127.0.0.1:%d", server.port), "wants a password");
    runs(text("redis://clerk:secret-clerk@127.0.0.1:%d", server.port));
    CHECK_INT(claim_at(text("redis://:secret-right@127.0.0.1:%d", server.port)).rc, 0);
}

TEST(a_password_may_be_in_a_file_or_in_the_environment) {
    static const char *const args[] = {"--requirepass", "secret-right", NULL};
    const char *file = text("%s/password", temp_folder());

    server_begin(args, true);
    file_write(file, "secret-right\n");
    runs(text("redis://127.0.0.1:%d?password_file=%s", server.port, file));
    file_write(file, "secret-wrong\n");
    refused(text("redis://127.0.0.1:%d?password_file=%s", server.port, file), "the password");
    setenv("IDEM_REDIS_PASSWORD", "secret-right", 1);
    CHECK_INT(claim_at(text("redis://127.0.0.1:%d", server.port)).rc, 0);
}

TEST(a_user_and_a_password_of_any_bytes_are_taken_from_a_url) {
    static const char *const args[] = {"--user", "a:b@c", "on",    ">p?@/%:&#",
                                       "~*",     "&*",    "+@all", NULL};
    const char *file = text("%s/password", temp_folder());

    server_begin(args, true);
    runs(text("redis://a%%3Ab%%40c:p%%3F%%40%%2F%%25%%3A%%26%%23@127.0.0.1:%d", server.port));
    runs(text("redis://a%%3Ab%%40c:p%%3F@/%%25:&#@127.0.0.1:%d/1", server.port));
    file_write(file, "p?@/%:&#\n");
    runs(text("redis:%s?user=a%%3Ab%%40c&password_file=%s&db=2", server.socket, file));
    setenv("IDEM_REDIS_PASSWORD", "p?@/%:&#", 1);
    runs(text("redis://a%%3Ab%%40c@127.0.0.1:%d/3", server.port));
}

static int open_at(const char *url, char *why, size_t size) {
    struct idem_error err = {0};
    struct conn c;
    int rc = conn_try(&c, url, HOST_POLL, NULL, &err);

    snprintf(why, size, "%s", err.text);
    if (rc == 0)
        conn_close(&c);
    return rc;
}

/* Such a URL would use the default user, who may be allowed everything. */
TEST(a_user_without_a_password_is_refused_when_it_is_opened) {
    static const char *const args[] = {NULL};
    char why[512];

    unsetenv("IDEM_REDIS_PASSWORD");
    server_begin(args, true);
    CHECK_INT(open_at(text("redis://clerk@127.0.0.1:%d", server.port), why, sizeof(why)),
              IDEM_E_INVALID);
    CHECK_HAS(why, "a user needs a password");
    CHECK_INT(open_at(text("redis:%s?user=clerk", server.socket), why, sizeof(why)),
              IDEM_E_INVALID);
    CHECK_HAS(why, "a user needs a password");
}

TEST(a_user_who_has_no_password_says_an_empty_one) {
    static const char *const args[] = {"--user", "free", "on", "nopass", "~*", "&*", "+@all", NULL};

    server_begin(args, true);
    runs(text("redis://free:@127.0.0.1:%d", server.port));
}

TEST(tls_on_a_socket_is_refused_when_it_is_opened) {
    static const char *const args[] = {NULL};
    char why[512];

    server_begin(args, false);
    CHECK_INT(open_at(text("rediss:%s?tls_verify=no", server.socket), why, sizeof(why)),
              IDEM_E_INVALID);
    CHECK_HAS(why, "a socket is without TLS");
}

TEST(a_password_for_a_server_that_has_none_is_told) {
    static const char *const args[] = {NULL};

    server_begin(args, true);
    refused(text("redis://:secret@127.0.0.1:%d", server.port), "the server has none");
}

TEST(a_database_that_there_is_not_is_told) {
    static const char *const args[] = {"--databases", "2", NULL};

    server_begin(args, true);
    runs(text("redis://127.0.0.1:%d/1", server.port));
    refused(text("redis://127.0.0.1:%d/2", server.port), "the server has no such database");
}

/* Otherwise records would go to another database, and mix with the records there. */
TEST(a_user_who_may_not_select_its_database_is_refused) {
    static const char *const args[] = {"--user", "clerk", "on",      ">secret", "~*",
                                       "&*",     "+@all", "-select", NULL};

    server_begin(args, true);
    refused(text("redis://clerk:secret@127.0.0.1:%d/3", server.port), "+select");
    runs(text("redis://clerk:secret@127.0.0.1:%d", server.port));
}

/* Such a server repeats the arguments in its error. */
TEST(a_server_that_does_not_know_auth_tells_no_password) {
    static const char *const args[] = {"--rename-command", "AUTH", "", NULL};
    struct answer a;
    struct conn c;

    server_begin(args, true);
    conn_open(&c, text("redis://bob:hunter2@127.0.0.1:%d", server.port), HOST_POLL, NULL);
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "does not take AUTH");
    CHECK(strstr(a.text, "hunter2") == NULL && strstr(a.text, "bob") == NULL);
    conn_close(&c);
}

/* A stored finish is acknowledged, whether or not the user may publish it. */
TEST(a_user_without_channels_can_do_everything_but_wake) {
    static const char *const args[] = {"--user", "clerk",         "on", ">secret", "~*",
                                       "+@all",  "resetchannels", NULL};
    struct answer a;
    struct conn c;

    server_begin(args, true);
    conn_open(&c, text("redis://clerk:secret@127.0.0.1:%d", server.port), HOST_POLL, NULL);
    run_done(&c, "a", 1, "r");
    CHECK_INT(claim(&c, "b", 1).verdict, IDEM_RUN);
    a = settle(&c, "b");
    CHECK_INT(a.rc, 0);
    a = forget(&c, "b", true);
    CHECK_INT(a.rc, 0);
    CHECK_INT(lookup(&c, "b").rc, IDEM_E_ABSENT);
    conn_close(&c);
}

/* Certificates. */

static const char *tls_url(const struct farm *farm, const char *options) {
    return text("rediss://localhost:%d?connect_timeout=100s%s", farm->servers[0].port, options);
}

TEST(a_certificate_must_be_by_a_known_authority_and_for_the_host) {
    static struct farm farm;
    const char *mine, *ca;

    farm_start(&farm, FARM_TLS, temp_folder(), -1);
    mine = text("&tls_cert=%s/client.crt&tls_key=%s/client.key", farm.folder, farm.folder);
    ca = text("%s&tls_ca=%s/ca.crt", mine, farm.folder);
    runs(tls_url(&farm, ca));
    refused(tls_url(&farm, text("%s&tls_name=elsewhere.example", ca)), "hostname mismatch");
    refused(tls_url(&farm, text("%s&tls_name=192.0.2.1", ca)), "IP address mismatch");
    refused(tls_url(&farm, mine),
            "certificate"); /* the system's authorities do not know this one */
    CHECK_INT(claim_at(tls_url(&farm, text("%s&tls_verify=no", mine))).rc, 0);
    CHECK_INT(
        claim_at(text("rediss://127.0.0.1:%d?connect_timeout=100s%s", farm.servers[0].port, ca)).rc,
        0);
    farm_stop(&farm);
}

TEST(a_client_without_a_certificate_is_told_that_one_is_wanted) {
    static struct farm farm;

    farm_start(&farm, FARM_TLS, temp_folder(), -1);
    refused(tls_url(&farm, text("&tls_ca=%s/ca.crt", farm.folder)), "certificate required");
    farm_stop(&farm);
}

TEST(tls_where_there_is_none_and_none_where_there_is_are_told) {
    static const char *const args[] = {NULL};
    static struct farm farm;

    server_begin(args, true);
    refused(text("rediss://127.0.0.1:%d?tls_verify=no&connect_timeout=2s", server.port),
            "does the server speak TLS?");
    farm_start(&farm, FARM_TLS, temp_folder(), -1);
    refused(text("redis://127.0.0.1:%d?connect_timeout=2s", farm.servers[0].port), "");
    farm_stop(&farm);
}

/* Kinds of servers. */

static char lost[300]; /* the reason why the store last lost a server */

static void lost_note(void *data, const char *where, const char *name, const char *value) {
    (void)data;
    (void)where;
    if (strcmp(name, "lost") == 0)
        snprintf(lost, sizeof(lost), "%s", value);
}

TEST(a_replica_is_told_and_used_once_it_is_the_master) {
    const char *const args[] = {"--replicaof", "127.0.0.1 1", NULL};
    struct answer a = {0};
    struct call call;
    struct conn c;

    server_begin(args, true);
    conn_open(&c, text("redis://127.0.0.1:%d?timeout=100s", server.port), HOST_POLL, NULL);
    c.store->fact = lost_note;
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "is a replica");
    say("REPLICAOF", "NO", "ONE", NULL);
    WAIT_UNTIL((a = claim(&c, "k", 1)).rc == 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    /* And when the server is no master again. */
    lost[0] = '\0';
    say("REPLICAOF", "127.0.0.1", "1", NULL);
    claim_fill(&call, &c, "k2", 1);
    CHECK_INT(call_submit(&call), 0);
    TURN_UNTIL(&c, strstr(lost, "is a replica") != NULL);
    loop_clock_forward(100000);
    a = answer_wait(&call);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "is a replica");
    say("REPLICAOF", "NO", "ONE", NULL);
    WAIT_UNTIL((a = claim(&c, "k2", 1)).rc == 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    conn_close(&c);
}

TEST(a_server_that_evicts_is_refused_unless_that_is_wished) {
    static const char *const args[] = {"--maxmemory-policy", "allkeys-lru", "--save", "", NULL};
    char notices[2000];
    struct conn c;

    server_begin(args, false);
    refused(text("redis:%s", server.socket), "maxmemory-policy evicts");
    conn_open(&c, text("redis:%s?unsafe=yes", server.socket), HOST_POLL, NULL);
    notices_keep(&c, notices, sizeof(notices));
    run_done(&c, "k", 1, "r");
    CHECK_HAS(notices, "maxmemory-policy is allkeys-lru");
    conn_close(&c);
}

TEST(a_server_that_keeps_nothing_over_a_restart_is_told_once) {
    static const char *const nothing[] = {"--save", "", "--appendonly", "no", NULL};
    static const char *const something[] = {"--save", "60 1", "--appendonly", "no", NULL};
    char notices[2000];
    struct conn c;

    server_begin(nothing, false);
    conn_open(&c, text("redis:%s", server.socket), HOST_POLL, NULL);
    notices_keep(&c, notices, sizeof(notices));
    run_done(&c, "a", 1, "r");
    CHECK_HAS(notices, "neither appendonly nor save is set");
    notices[0] = '\0';
    server_stop(&server);
    server_begin(nothing, false);
    run_done(&c, "b", 1, "r");
    CHECK_STR(notices, "");
    conn_close(&c);
    server_stop(&server);
    server_begin(something, false);
    conn_open(&c, text("redis:%s", server.socket), HOST_POLL, NULL);
    notices_keep(&c, notices, sizeof(notices));
    run_done(&c, "c", 1, "r");
    CHECK(strstr(notices, "neither") == NULL);
    conn_close(&c);
}

TEST(a_server_that_lets_nobody_look_is_told_and_accepted) {
    static struct farm farm;
    char notices[2000], url[600];
    struct conn c;

    farm_start(&farm, FARM_LIMITED, temp_folder(), -1);
    farm_url(&farm, "", url, sizeof(url));
    conn_open(&c, url, HOST_POLL, NULL);
    notices_keep(&c, notices, sizeof(notices));
    run_done(&c, "k", 1, "r");
    CHECK_HAS(notices, "INFO is not allowed");
    CHECK_HAS(notices, "CONFIG is not allowed");
    conn_close(&c);
    farm_stop(&farm);
}

TEST(a_server_that_is_too_old_is_refused) {
    static const char *const args[] = {NULL};
    static struct proxy proxy;
    char reply[8000], *version;

    server_begin(args, false);
    server_ask(&server, reply, sizeof(reply), "INFO", "server", NULL);
    version = strstr(reply, "redis_version:");
    CHECK(version != NULL);
    version[strcspn(version, "\r")] = '\0';
    proxy_start(&proxy, temp_folder(), "proxy", server.socket);
    proxy.from = version;
    proxy.to = text("redis_version:%-*s", (int)strlen(version) - 14, "6.0.9");
    refused(text("redis:%s", proxy.path), "older than Redis 6.2");
    proxy.to = NULL;
    runs(text("redis:%s", proxy.path));
    proxy_stop(&proxy);
}

/* Without SET NX GET, which came with 7.0, every claim uses the script. */
TEST(a_server_of_the_oldest_version_is_asked_by_scripts_only) {
    static const char *const args[] = {NULL};
    static struct proxy proxy;
    char reply[8000], *version;
    struct conn c;

    server_begin(args, false);
    server_ask(&server, reply, sizeof(reply), "INFO", "server", NULL);
    version = strstr(reply, "redis_version:");
    CHECK(version != NULL);
    version[strcspn(version, "\r")] = '\0';
    proxy_start(&proxy, temp_folder(), "proxy", server.socket);
    proxy.from = version;
    proxy.to = text("redis_version:%-*s", (int)strlen(version) - 14, "6.2.0");
    conn_open(&c, text("redis:%s", proxy.path), HOST_POLL, NULL);
    say("CONFIG", "RESETSTAT", NULL, NULL);
    run_done(&c, "k", 1, "r");
    CHECK_STR(claim(&c, "k", 2).result, "r");
    server_ask(&server, reply, sizeof(reply), "INFO", "commandstats", NULL);
    CHECK_HAS(reply, "cmdstat_evalsha:calls=3");
    conn_close(&c);
    proxy_stop(&proxy);
}

/* Addresses. */

TEST(where_nobody_listens_the_first_operation_fails_at_once) {
    loop_clock_stop(); /* no time passes */
    refused(text("redis://127.0.0.1:%d?timeout=100s", port_free()), "cannot be reached");
    refused(text("redis:%s/nobody?timeout=100s", temp_folder()), "cannot be reached");
    refused(text("redis+sentinel://127.0.0.1:%d/shop?timeout=100s", port_free()),
            "cannot be reached");
    refused(text("redis+cluster://127.0.0.1:%d?timeout=100s", port_free()), "cannot be reached");
}

/* Such a long label is invalid, so no name server is asked. */
TEST(a_name_that_cannot_be_looked_up_is_told) {
    char name[80];

    memset(name, 'x', 70);
    snprintf(name + 70, sizeof(name) - 70, ".test");
    refused(text("redis://%s:6379", name), "cannot be looked up");
}

/* Memory. */

static struct answer renew(struct conn *c, const char *key, unsigned owner) {
    struct call call;

    done_fill(&call, c, key, owner, "");
    call.op.in.finish.action = IDEM_OWNER_RENEW;
    call.op.in.finish.lease_ms = 60 * 1000;
    (void)call_run(&call);
    return answer_of(&call);
}

TEST(a_server_without_memory_takes_nothing_new_and_lets_what_runs_finish) {
    static const char *const args[] = {"--save", "", NULL};
    struct conn c;
    struct call call;

    server_begin(args, false);
    conn_open(&c, text("redis:%s", server.socket), HOST_POLL, NULL);
    run_done(&c, "done", 1, "r");
    CHECK_INT(claim(&c, "running", 1).verdict, IDEM_RUN);
    CHECK_INT(claim(&c, "other", 1).verdict, IDEM_RUN);
    CHECK_INT(claim(&c, "settled", 1).verdict, IDEM_RUN);
    say("CONFIG", "SET", "maxmemory", "1");
    CHECK_INT(claim(&c, "new", 1).rc, IDEM_E_FULL);
    CHECK_INT(renew(&c, "running", 1).ack, IDEM_ACK);
    once_fill(&call, &c, "nonce");
    CHECK_INT(call_run(&call), IDEM_E_FULL);
    count_fill(&call, &c, "counter", 1);
    CHECK_INT(call_run(&call), IDEM_E_FULL);
    kind_fill(&call, &c, IDEM_OP_ISSUE, "token");
    CHECK_INT(call_run(&call), IDEM_E_FULL);
    CHECK_INT(settle(&c, "settled").rc, 0);
    CHECK_STR(claim(&c, "done", 2).result, "r");
    CHECK_INT(claim(&c, "running", 2).verdict, IDEM_BUSY);
    CHECK_INT(claim(&c, "running", 1).verdict, IDEM_RUN); /* the owner's own */
    CHECK_STR(lookup(&c, "done").result, "r");
    CHECK_INT(list_count(&c), 4);
    CHECK_INT(forget(&c, "other", true).rc, 0); /* the operator's way out */
    CHECK_INT(done(&c, "running", 1, "r").ack, IDEM_ACK);
    CHECK_STR(claim(&c, "running", 2).result, "r");
    say("CONFIG", "SET", "maxmemory", "0");
    CHECK_INT(claim(&c, "new", 1).verdict, IDEM_RUN);
    conn_close(&c);
}

/* Records. */

static void is_bad(struct conn *c, const char *key, int code) {
    CHECK_INT(claim(c, key, 5).rc, code);
    CHECK_INT(done(c, key, 5, "r").rc, code);
    CHECK_INT(lookup(c, key).rc, code);
    CHECK_INT(settle(c, key).rc, code);
    CHECK_INT(forget(c, key, false).rc, code);
}

TEST(a_record_that_is_damaged_is_told_and_can_be_forgotten_by_force) {
    static const char *const args[] = {"--save", "", NULL};
    struct conn c;
    char name[100], reply[64];
    static const char *const bad[] = {"", "x",
                                      "a text of somebody else's, as long as a record "
                                      "and even longer than that, so that it could be one "
                                      "by its length"};

    server_begin(args, false);
    conn_open(&c, text("redis:%s", server.socket), HOST_POLL, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        name_of("k", name, sizeof(name));
        server_ask(&server, reply, sizeof(reply), "SET", name, bad[i], "PX", "3600000", NULL);
        is_bad(&c, "k", IDEM_E_CORRUPT);
        CHECK_HAS(claim(&c, "k", 1).text, "forget --force");
        CHECK_INT(forget(&c, "k", true).rc, 0);
        CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
        CHECK_INT(forget(&c, "k", true).rc, 0);
    }
    conn_close(&c);
}

TEST(what_is_no_string_is_a_damaged_record) {
    static const char *const args[] = {"--save", "", NULL};
    struct conn c;
    char name[100], reply[64];

    server_begin(args, false);
    conn_open(&c, text("redis:%s", server.socket), HOST_POLL, NULL);
    name_of("k", name, sizeof(name));
    server_ask(&server, reply, sizeof(reply), "RPUSH", name, "a", "b", NULL);
    is_bad(&c, "k", IDEM_E_CORRUPT);
    CHECK_INT(forget(&c, "k", true).rc, 0);
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    conn_close(&c);
}

TEST(a_record_without_an_end_and_one_cut_short_are_damaged) {
    static const char *const args[] = {"--save", "", NULL};
    struct conn c;
    char name[100], reply[64];
    int64_t n;

    server_begin(args, false);
    conn_open(&c, text("redis:%s", server.socket), HOST_POLL, NULL);
    name_of("k", name, sizeof(name));
    run_done(&c, "k", 1, "r");
    server_ask(&server, reply, sizeof(reply), "PERSIST", name, NULL);
    CHECK_INT(done(&c, "k", 5, "r").rc, IDEM_E_CORRUPT);
    CHECK_INT(forget(&c, "k", true).rc, 0);
    /* A record cut to any length gives an error, never a crash; a cut inside the result cannot be
     * seen. */
    for (n = 0; n < 150; n += 7) {
        CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
        server_ask(&server, reply, sizeof(reply), "EVAL",
                   "local t = redis.call('PTTL', KEYS[1]) redis.call('SET', KEYS[1], "
                   "string.sub(redis.call('GET', KEYS[1]), 1, ARGV[1]), 'PX', t) return 1",
                   "1", name, text("%d", (int)n), NULL);
        CHECK_INT(claim(&c, "k", 2).rc, n < 148 ? IDEM_E_CORRUPT : 0);
        CHECK_INT(lookup(&c, "k").rc, n < 148 ? IDEM_E_CORRUPT : 0);
        CHECK_INT(forget(&c, "k", true).rc, 0);
    }
    conn_close(&c);
}

TEST(a_record_of_a_newer_version_is_told_and_left_alone) {
    static const char *const args[] = {"--save", "", NULL};
    struct conn c;
    char name[100], reply[64];

    server_begin(args, false);
    conn_open(&c, text("redis:%s", server.socket), HOST_POLL, NULL);
    name_of("k", name, sizeof(name));
    run_done(&c, "k", 1, "r");
    server_ask(&server, reply, sizeof(reply), "SETRANGE", name, "0", "\xe2", NULL);
    is_bad(&c, "k", IDEM_E_VERSION);
    CHECK_HAS(claim(&c, "k", 1).text, "newer version");
    server_ask(&server, reply, sizeof(reply), "SETRANGE", name, "0", "\xe1", NULL);
    CHECK_STR(claim(&c, "k", 2).result, "r");
    conn_close(&c);
}

TEST_MAIN
