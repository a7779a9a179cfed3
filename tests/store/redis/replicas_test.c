/*
 * replicas=N: the verdicts of claims if replicas do not have the changes, if
 * the server does not allow WAIT, or if the connection for WAIT cannot be made.
 */
#include "contract/conn.h"
#include "fake_server.h"
#include "loop_clock.h"
#include "server.h"
#include "store/driver_call.h"
#include "store/redis/redis_store.h"
#include "temp.h"
#include "wait.h"

#define TIMEOUT_MS 1000
#define OPTIONS "replicas=1&timeout=1s&connect_timeout=1s"

/* The requests that the fake got, and its replies. */
static _Atomic unsigned writes, waits;
static _Atomic long limit;                      /* of the last WAIT */
static _Atomic(const char *) published, waited; /* replies; NULL: none comes */

static bool say(const struct fake_command *command, char *out, size_t size) {
    const char *reply = "-ERR what\r\n";

    if (fake_is(command, "SET", NULL)) {
        writes++;
        reply = "$-1\r\n";
    } else if (fake_is(command, "HELLO", NULL)) {
        reply = "*2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n";
    } else if (fake_is(command, "PUBLISH", NULL)) {
        reply = published;
    } else if (fake_is(command, "WAIT", NULL)) {
        waits++;
        limit = strtol(command->word[2], NULL, 10);
        reply = waited;
    }
    snprintf(out, size, "%s", reply == NULL ? "" : reply);
    return true;
}

static void begin(struct conn *c) {
    char url[200];

    loop_clock_stop();
    published = ":0\r\n";
    waited = ":1\r\n";
    fakes_start(1, say);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?" OPTIONS, fakes.port[0]);
    conn_open(c, url, HOST_EDGE, NULL);
    fakes_settle(c);
}

static void end(struct conn *c) {
    conn_close(c);
    fakes_stop();
}

static unsigned owner;

/* Claims a new key, while time stands still. */
static struct call claim_try(struct conn *c) {
    static struct call call;
    char key[16];

    snprintf(key, sizeof(key), "k%u", ++owner);
    claim_fill(&call, c, key, owner);
    CHECK_INT(call_submit(&call), 0);
    fakes_settle(c);
    return call;
}

static void check_granted(struct conn *c) {
    struct call call = claim_try(c);

    CHECK_INT(call.completed, 1);
    CHECK_INT(call.rc, 0);
    CHECK_INT(call.op.out.claim.verdict, IDEM_RUN);
}

/* The change was written: its outcome is unknown. */
static void check_unknown(struct conn *c, const char *why) {
    unsigned before = writes;
    struct call call = claim_try(c);

    CHECK_INT(call.completed, 1);
    CHECK_INT(call.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(call.op.error.text, why);
    CHECK_INT(writes, before + 1);
}

/* Nothing was written, and the store did not wait. */
static void check_refused(struct conn *c, const char *why) {
    unsigned before = writes, waits_before = waits;
    struct call call = claim_try(c);

    CHECK_INT(call.completed, 1);
    CHECK_INT(call.rc, IDEM_E_REFUSED);
    CHECK_HAS(call.op.error.text, why);
    CHECK_INT(writes, before);
    CHECK_INT(waits, waits_before);
}

TEST(too_few_replicas_cost_one_claim_the_wait_and_the_others_nothing) {
    unsigned before;
    struct conn c;

    begin(&c);
    check_granted(&c);
    waited = ":0\r\n";
    check_unknown(&c, "0 of 1 replicas");
    check_refused(&c, "0 of 1 replicas");
    before = waits;
    fakes_pass(&c, 600); /* a probe */
    CHECK_INT(waits, before + 1);
    check_refused(&c, "0 of 1 replicas");
    waited = ":1\r\n";
    fakes_pass(&c, 600);
    check_granted(&c);
    end(&c);
}

/* The command took a part of the operation's timeout, and the connection counts as silent after
 * it. */
TEST(wait_is_over_before_the_operation_and_the_connection_are) {
    struct conn c;

    begin(&c);
    check_granted(&c);
    CHECK_INT(limit, TIMEOUT_MS / 2);
    waited = ":0\r\n";
    check_unknown(&c, "0 of 1 replicas");
    fakes_pass(&c, 600);
    CHECK(limit <= TIMEOUT_MS / 2);
    end(&c);
}

TEST(a_wait_that_is_never_answered_costs_the_timeout_once) {
    struct call call;
    struct conn c;

    begin(&c);
    check_granted(&c);
    waited = NULL;
    claim_fill(&call, &c, "hangs", 1000);
    CHECK_INT(call_submit(&call), 0);
    fakes_pass(&c, TIMEOUT_MS + 50);
    CHECK_INT(call.rc, IDEM_E_UNKNOWN);
    check_refused(&c, "the connection for WAIT");
    waited = ":1\r\n";
    fakes_pass(&c, 600);
    check_granted(&c);
    end(&c);
}

TEST(a_server_that_refuses_publish_grants_nothing_and_is_asked_again) {
    char notices[1000];
    struct conn c;

    begin(&c);
    notices_keep(&c, notices, sizeof(notices));
    published = "-NOPERM this user has no permissions to access one of the channels\r\n";
    check_unknown(&c, "PUBLISH on the channel idem:replicas");
    check_refused(&c, "PUBLISH on the channel idem:replicas");
    CHECK_HAS(notices, "PUBLISH on the channel idem:replicas");
    fakes_pass(&c, 600);
    check_refused(&c, "&idem:replicas");
    published = ":0\r\n";
    fakes_pass(&c, 600);
    check_granted(&c);
    end(&c);
}

TEST(a_server_that_refuses_wait_grants_nothing) {
    struct conn c;

    begin(&c);
    waited = "-NOPERM this user has no permissions to run the 'wait' command\r\n";
    check_unknown(&c, "+wait");
    check_refused(&c, "+wait");
    end(&c);
}

/* A name was moved, or a server was restarted: its replicas prove nothing about a change that
 * the earlier server accepted. */
TEST(replicas_of_another_server_than_the_one_that_was_written_to_do_not_count) {
    struct call call;
    struct conn c;

    begin(&c);
    fakes.run_id = "another";
    claim_fill(&call, &c, "k", 1000);
    CHECK_INT(call_submit(&call), 0);
    fakes_settle(&c);
    CHECK_INT(writes, 1);
    for (int i = 0; i < 10 && call.completed == 0; i++)
        fakes_pass(&c, 50);
    CHECK_INT(call.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(call.op.error.text, "another server");
    CHECK_INT(waits, 0);
    check_refused(&c, "another server");
    fakes.run_id = NULL;
    fakes_pass(&c, 600);
    check_granted(&c);
    end(&c);
}

/* Servers that are Redis. */

static struct server server;
static const char *const none[] = {NULL};
static const char *const in_cluster_mode[] = {"--cluster-enabled", "yes", NULL};

static void server_begin(struct conn *c, const char *const *args) {
    char url[400], folder[300];

    snprintf(folder, sizeof(folder), "%s/server", temp_folder());
    server_start(&server, folder, "redis-server", true, args, -1);
    snprintf(url, sizeof(url), "redis:%s?replicas=1&timeout=100s&connect_timeout=100s",
             server.socket);
    conn_open(c, url, HOST_EDGE, NULL);
}

static void server_end(struct conn *c) {
    conn_close(c);
    server_stop(&server);
}

TEST(a_server_in_cluster_mode_is_refused_because_publish_is_not_replicated_there) {
    struct answer a;
    struct conn c;

    server_begin(&c, in_cluster_mode);
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "cluster-enabled");
    server_end(&c);
}

TEST(a_user_without_the_channel_is_refused_in_redis_own_words) {
    struct answer a;
    struct conn c;
    char reply[64];

    server_begin(&c, none);
    server_ask(&server, reply, sizeof(reply), "ACL", "SETUSER", "default", "resetchannels", "&t:*",
               NULL);
    CHECK_HAS(reply, "+OK");
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text,
              "refuses PUBLISH on the channel idem:replicas, which replicas= needs (NOPERM");
    a = claim(&c, "l", 2);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    server_end(&c);
}

static void store_close(struct call *call) {
    conn_close_store(call->conn);
}

/* The socket is gone: the connection for WAIT fails while the store reads the reply to the
 * change. */
TEST(a_callback_may_close_the_store_where_the_connection_for_wait_fails_at_once) {
    struct call call;
    struct conn c;

    server_begin(&c, none);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    CHECK_INT(unlink(server.socket), 0);
    once_fill(&call, &c, "n");
    call.then = store_close;
    CHECK_INT(call_submit(&call), 0);
    TURN_UNTIL(&c, call.completed == 1);
    CHECK_INT(call.rc, IDEM_E_UNKNOWN);
    server_end(&c);
}

TEST(a_connection_for_wait_that_cannot_be_made_is_a_known_condition) {
    struct answer a;
    struct conn c;

    server_begin(&c, none);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    CHECK_INT(unlink(server.socket), 0);
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text, "the connection for WAIT");
    a = claim(&c, "l", 2);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    server_end(&c);
}

TEST_MAIN
