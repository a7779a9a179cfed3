/*
 * Faults of a connection and its server during operations: pauses, deaths, cuts
 * at every byte, replies that are garbage or never come.
 */
#include "loop_clock.h"
#include "proxied_server.h"
#include "store/driver_call.h"
#include "store/redis/redis_connection.h"
#include "temp.h"
#include "wait.h"

#define TIMEOUT "timeout=100s"

/* Moves the clock past the deadline of the submitted operations. */
static void deadline_pass(void) {
    loop_clock_forward(100000);
}

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

    server_begin();
    open_plain(&c, "timeout=100s");
    run_done(&c, "a", 1, "before");
    server_pause(&server);
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(call_submit(&call), 0);
    conn_pass(&c, 400);
    CHECK_INT(call.completed, 0);
    server_go_on(&server);
    a = answer_wait(&call);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(done(&c, "k", 1, "after").ack, IDEM_ACK);
    conn_close(&c);
}

TEST(a_server_that_is_paused_for_too_long_makes_a_claim_unknown_and_is_used_again_later) {
    struct conn c;
    struct call call;
    struct answer a;

    server_begin();
    open_plain(&c, TIMEOUT);
    run_done(&c, "a", 1, "before");
    server_pause(&server);
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(call_submit(&call), 0);
    conn_turn(&c, 0); /* sends the request */
    deadline_pass();
    a = answer_wait(&call);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text, "it may have happened");
    /* The pause costs the timeout once: the store now knows that the server hangs, and no time
     * passes. */
    loop_clock_stop();
    CHECK_INT(claim(&c, "k", 1).rc, IDEM_E_REFUSED);
    loop_clock_go_on();
    server_go_on(&server);
    a = claim_when_back(&c, "k", 1);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(a.attempt, 1);
    conn_close(&c);
}

static bool has_claims(void) {
    char name[100], answer[64];

    name_of("k", name, sizeof(name));
    server_ask(&server, answer, sizeof(answer), "EXISTS", name, NULL);
    return strncmp(answer, ":1", 2) == 0;
}

static bool is_deaf(void) {
    return proxy.deaf_at == NULL;
}

static unsigned swallowed_before;

static bool was_swallowed(void) {
    return proxy.swallowed > swallowed_before;
}

static unsigned met_before;

static bool was_met(void) {
    return proxy.met > met_before;
}

TEST(a_claim_whose_server_died_is_unknown_and_gets_its_first_answer_from_the_next) {
    struct conn c, other;
    struct call call;
    struct answer a;

    proxied(&c, HOST_EDGE, "timeout=100s");
    proxy.swallow = true;
    claim_fill(&call, &c, "k", 7);
    submit_asked(&c, &call);
    turn_until(&c, has_claims);
    server_stop(&server);
    CHECK_INT(answer_wait(&call).rc, IDEM_E_UNKNOWN);
    proxy.swallow = false;
    server_begin();
    open_plain(&other, TIMEOUT);
    CHECK_INT(claim(&other, "k", 8).verdict, IDEM_BUSY);
    a = claim_when_back(&c, "k", 7);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(a.attempt, 1);
    CHECK_INT(done(&c, "k", 7, "r").ack, IDEM_ACK);
    CHECK_STR(claim(&other, "k", 9).result, "r");
    conn_close(&other);
    conn_close(&c);
}

TEST(what_may_have_happened_and_cannot_be_asked_again_is_unknown) {
    struct conn c;
    struct call calls[4];

    proxied(&c, HOST_POLL, "timeout=100s");
    run_done(&c, "settle", 1, "r");
    proxy.swallow = true;
    settle_fill(&calls[0], &c, "settle");
    forget_fill(&calls[1], &c, "settle", true);
    once_fill(&calls[2], &c, "once");
    count_fill(&calls[3], &c, "count", 1);
    for (int i = 0; i < 4; i++)
        submit_asked(&c, &calls[i]);
    server_stop(&server);
    for (int i = 0; i < 4; i++) {
        struct answer a = answer_wait(&calls[i]);

        CHECK_INT(a.rc, IDEM_E_UNKNOWN);
        CHECK_HAS(a.text, "it may have happened");
    }
    conn_close(&c);
}

/* The clock stands still: no operation is refused because of its deadline. */
TEST(a_server_that_is_down_refuses_at_once_and_is_found_again) {
    struct conn c;
    struct call calls[5];

    server_begin();
    open_plain(&c, TIMEOUT);
    run_done(&c, "a", 1, "r");
    loop_clock_stop();
    server_stop(&server);
    conn_pass(&c, 50); /* the store notices the end of the connection, and two attempts fail */
    settle_fill(&calls[0], &c, "a");
    once_fill(&calls[1], &c, "once");
    count_fill(&calls[2], &c, "count", 1);
    claim_fill(&calls[3], &c, "k", 1);
    done_fill(&calls[4], &c, "k", 1, "r");
    for (int i = 0; i < 5; i++)
        CHECK_INT(call_submit(&calls[i]), 0);
    for (int i = 0; i < 5; i++) {
        struct answer a = answer_wait(&calls[i]);

        CHECK_INT(a.rc, IDEM_E_REFUSED);
        CHECK_HAS(a.text, "cannot be reached");
    }
    conn_pass(&c, 20000); /* the pauses between two attempts have reached their maximum */
    server_begin();
    conn_pass(&c, 1000); /* the store tries at least once in a second */
    WAIT_UNTIL(claim(&c, "k", 1).verdict == IDEM_RUN);
    CHECK_STR(claim(&c, "a", 2).result, "r");
    conn_close(&c);
}

/* One operation after the other, each with its reply cut one byte later, until none is cut. */
static unsigned cuts_at_every_byte(struct conn *c, struct answer (*ask)(struct conn *c, unsigned n),
                                   void (*judge)(const struct answer *a), unsigned step) {
    unsigned n = 0;

    for (unsigned at = 0; at < 600; at += step) {
        struct answer a;
        unsigned before = proxy.cuts;

        proxy.cut_after = at;
        a = ask(c, n++);
        if (a.rc != 0)
            fprintf(stderr, "# cut after %u bytes: %s\n", at, a.text);
        CHECK_INT(a.rc, 0);
        judge(&a);
        if (proxy.cuts == before) {
            proxy.cut_after = -1;
            return n;
        }
    }
    fprintf(stderr, "# %s\n", "an answer of that many bytes");
    CHECK(false);
    return 0;
}

static struct answer claim_fresh(struct conn *c, unsigned n) {
    return claim(c, numbered("cut", n), n + 1);
}

static struct answer done_it(struct conn *c, unsigned n) {
    return done(c, numbered("cut", n), n + 1, "result");
}

static struct answer claim_done(struct conn *c, unsigned n) {
    (void)n;
    return claim(c, "cut0", 500);
}

static struct answer claim_lock_as(struct conn *c, unsigned n, unsigned owner) {
    struct call call;

    claim_fill(&call, c, numbered("lock", n), owner);
    call.op.in.claim.mode = IDEM_MODE_LOCK;
    call.op.in.claim.recover = IDEM_RECOVER_RERUN;
    (void)call_run(&call);
    return answer_of(&call);
}

static struct answer claim_lock(struct conn *c, unsigned n) {
    return claim_lock_as(c, n, n + 1);
}

static void is_first_run(const struct answer *a) {
    CHECK_INT(a->verdict, IDEM_RUN);
    CHECK_INT(a->attempt, 1);
}

static void is_acknowledged(const struct answer *a) {
    CHECK_INT(a->ack, IDEM_ACK);
}

static void is_replay(const struct answer *a) {
    CHECK_INT(a->verdict, IDEM_REPLAY);
    CHECK_STR(a->result, "result");
}

TEST(a_connection_cut_at_any_byte_of_an_answer_costs_nobody_anything) {
    struct conn c;
    unsigned n;

    proxied(&c, HOST_EDGE, "timeout=100s");
    n = cuts_at_every_byte(&c, claim_fresh, is_first_run, 1);
    CHECK(n > 5);
    for (unsigned i = n; i < 20; i++)
        CHECK_INT(claim_fresh(&c, i).verdict, IDEM_RUN);
    CHECK(cuts_at_every_byte(&c, done_it, is_acknowledged, 1) >= 4);
    CHECK(cuts_at_every_byte(&c, claim_done, is_replay, 9) > 10);
    CHECK(cuts_at_every_byte(&c, claim_lock, is_first_run, 7) > 10);
    conn_close(&c);
}

static bool was_cut(void) {
    return proxy.cuts > 0;
}

/* A lock is released, the reply is lost, and another owner takes the lock before the store
 * retries. */
TEST(a_finish_that_was_perhaps_stored_is_unknown_when_another_owner_has_come) {
    struct conn c, other;
    struct call call;

    proxied(&c, HOST_POLL, "timeout=100s");
    open_plain(&other, "timeout=100s");
    CHECK_INT(claim_lock_as(&c, 0, 1).verdict, IDEM_RUN);
    done_fill(&call, &c, numbered("lock", 0), 1, "");
    call.op.in.finish.keep_result = false;
    proxy.cut_after = 0;
    CHECK_INT(call_submit(&call), 0);
    turn_until(&c, was_cut);
    proxy.cut_after = -1;
    CHECK_INT(claim_lock_as(&other, 0, 2).verdict, IDEM_RUN);
    CHECK_INT(answer_wait(&call).rc, IDEM_E_UNKNOWN);
    CHECK_INT(claim_lock_as(&other, 0, 3).verdict, IDEM_BUSY);
    conn_close(&other);
    conn_close(&c);
}

/* Each finish has its number as its status. */
static void numbers_make(struct conn *c, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        struct call call;

        CHECK_INT(claim(c, numbered("n", i), 1).verdict, IDEM_RUN);
        done_fill(&call, c, numbered("n", i), 1, "some result");
        call.op.in.finish.status = (int32_t)i;
        CHECK_INT(call_run(&call), 0);
    }
}

static void numbers_check(const struct idem_entry *entries, size_t n) {
    char name[100];

    for (size_t i = 0; i < n; i++) {
        name_of(numbered("n", (unsigned)entries[i].status), name, sizeof(name));
        CHECK_STR(entries[i].hash, strchr(name, ':') + 1);
    }
}

TEST(a_list_whose_connection_is_cut_is_whole) {
    struct conn c;

    proxied(&c, HOST_POLL, "timeout=100s");
    numbers_make(&c, 150);
    for (long at = 0; at < 40000; at += 1777) {
        struct call call;

        proxy.cut_after = at;
        CHECK_INT(list_each(&c, numbers_check), 150);
        proxy.cut_after = at / 2;
        kind_fill(&call, &c, IDEM_OP_STATS, "");
        CHECK_INT(call_run(&call), 0);
        CHECK_INT(call.op.out.stats.done, 150);
        proxy.cut_after = -1;
    }
    CHECK(proxy.cuts > 20);
    conn_close(&c);
}

TEST(a_reply_that_never_comes_is_unknown_at_the_deadline) {
    struct conn c;
    struct call calls[3];
    struct answer a;

    proxied(&c, HOST_POLL, TIMEOUT);
    proxy.swallow = true;
    claim_fill(&calls[0], &c, "k", 1);
    once_fill(&calls[1], &c, "once");
    kind_fill(&calls[2], &c, IDEM_OP_LOOKUP, "k");
    for (int i = 0; i < 3; i++)
        CHECK_INT(call_submit(&calls[i]), 0);
    turn_until(&c, was_swallowed);
    deadline_pass();
    CHECK_INT(answer_wait(&calls[0]).rc, IDEM_E_UNKNOWN);
    CHECK_INT(answer_wait(&calls[1]).rc, IDEM_E_UNKNOWN);
    CHECK_INT(answer_wait(&calls[2]).rc, IDEM_E_REFUSED); /* a lookup changes nothing */
    proxy.swallow = false;
    a = claim_when_back(&c, "k", 1);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(a.attempt, 1);
    conn_close(&c);
}

static struct answer release(struct conn *c, const char *key, unsigned owner) {
    struct call call;

    done_fill(&call, c, key, owner, "");
    call.op.in.finish.action = IDEM_OWNER_RELEASE;
    call.op.in.finish.attempt = 0;
    (void)call_run(&call);
    return answer_of(&call);
}

static bool was_met_again(void) {
    return proxy.met > 1;
}

/* The command was on its way, or in the server's socket, when the store gave its connection up. */
TEST(a_claim_that_was_given_up_and_released_does_not_come_late) {
    struct conn c;
    struct call call;
    struct answer a;

    proxied(&c, HOST_POLL, TIMEOUT);
    proxy.hold = true;
    claim_fill(&call, &c, "k", 1);
    submit_asked(&c, &call);
    deadline_pass();
    CHECK_INT(answer_wait(&call).rc, IDEM_E_UNKNOWN);
    proxy.hold = false;
    turn_until(&c, was_met_again);
    WAIT_UNTIL((a = release(&c, "k", 1)).rc != IDEM_E_REFUSED);
    CHECK_INT(a.rc, 0);
    CHECK(!proxy_let_go(&proxy));
    a = claim(&c, "k", 2);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_INT(a.attempt, 1);
    conn_close(&c);
}

TEST(scripts_that_were_flushed_are_loaded_again_and_nobody_sees_it) {
    char reply[64];
    struct conn c;
    struct call call;

    server_begin();
    open_plain(&c, "timeout=100s");
    run_done(&c, "a", 1, "r");
    for (int i = 0; i < 5; i++) {
        server_ask(&server, reply, sizeof(reply), "SCRIPT", "FLUSH", NULL);
        CHECK_INT(claim(&c, numbered("k", (unsigned)i), 1).verdict, IDEM_RUN);
        CHECK_INT(done(&c, numbered("k", (unsigned)i), 1, "r").ack, IDEM_ACK);
        server_ask(&server, reply, sizeof(reply), "SCRIPT", "FLUSH", NULL);
        CHECK_STR(lookup(&c, "a").result, "r");
    }
    server_ask(&server, reply, sizeof(reply), "SCRIPT", "FLUSH", NULL);
    CHECK_INT(list_count(&c), 6);
    server_ask(&server, reply, sizeof(reply), "SCRIPT", "FLUSH", NULL);
    kind_fill(&call, &c, IDEM_OP_STATS, "");
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.stats.done, 6);
    server_ask(&server, reply, sizeof(reply), "SCRIPT", "FLUSH", NULL);
    count_fill(&call, &c, "n", 5);
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.count.value, 5);
    conn_close(&c);
}

/* If each connection loaded all scripts, that would be megabytes for some hundred operations. */
TEST(scripts_that_were_flushed_are_loaded_once_for_all_that_miss_them) {
    static struct call calls[500];
    char reply[8000], *loads;
    struct conn c;

    server_begin();
    open_plain(&c, "timeout=100s");
    run_done(&c, "a", 1, "r");
    server_ask(&server, reply, sizeof(reply), "CONFIG", "RESETSTAT", NULL);
    server_ask(&server, reply, sizeof(reply), "SCRIPT", "FLUSH", NULL);
    for (size_t i = 0; i < 500; i++) {
        kind_fill(&calls[i], &c, IDEM_OP_LOOKUP, "a");
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (size_t i = 0; i < 500; i++)
        CHECK_INT(call_wait(&calls[i]), 0);
    server_ask(&server, reply, sizeof(reply), "INFO", "commandstats", NULL);
    loads = strstr(reply, "script|load:calls=");
    CHECK(loads != NULL);
    fprintf(stderr, "# %.30s\n", loads);
    CHECK(strtoul(loads + strlen("script|load:calls="), NULL, 10) <= 20 * REDIS_SCRIPT__COUNT);
    conn_close(&c);
}

TEST(scripts_that_are_flushed_again_and_again_under_load_cost_nobody_anything) {
    static struct call calls[2000];
    char reply[64];
    struct conn c;

    server_begin();
    open_plain(&c, "timeout=100s");
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 2000; i++) {
            count_fill(&calls[i], &c, "n", 1);
            CHECK_INT(call_submit(&calls[i]), 0);
            if (i % 200 != 0)
                continue;
            conn_turn(&c, 0);
            server_ask(&server, reply, sizeof(reply), "SCRIPT", "FLUSH", NULL);
        }
        for (unsigned i = 0; i < 2000; i++)
            CHECK_INT(call_wait(&calls[i]), 0);
    }
    count_fill(&calls[0], &c, "n", 0);
    CHECK_INT(call_run(&calls[0]), 0);
    CHECK_INT(calls[0].op.out.count.value, 10000);
    conn_close(&c);
}

/* Wake-ups. */

static unsigned wakes;

static void on_wake(struct idem_watch *watch) {
    (void)watch;
    wakes++;
}

static bool is_woken(void) {
    return wakes > 0;
}

TEST(a_waiter_is_woken_though_the_connection_for_it_was_lost_before) {
    struct idem_watch watch = {.key = key_in("t:", "k"), .wake = on_wake};
    char reply[64];
    struct conn c;

    server_begin();
    open_plain(&c, "timeout=100s");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    CHECK_INT(c.store->driver->watch(c.store, &watch), 0);
    turn_until(&c, is_woken); /* the watch is in force */
    wakes = 0;
    server_ask(&server, reply, sizeof(reply), "CLIENT", "KILL", "TYPE", "pubsub", NULL);
    turn_until(&c, is_woken); /* the watch is in force again */
    wakes = 0;
    CHECK_INT(done(&c, "k", 1, "r").ack, IDEM_ACK);
    turn_until(&c, is_woken);
    c.store->driver->unwatch(c.store, &watch);
    conn_close(&c);
}

/* Counts. */

static long long counted(enum idem_event event) {
    char reply[64];
    long long n = 0;

    server_ask(&server, reply, sizeof(reply), "HGET", "idem:events", idem_event_name(event), NULL);
    (void)sscanf(reply, "$%*d\r\n%lld", &n);
    return n;
}

static void count(struct conn *c, enum idem_event event, uint64_t n) {
    c->store->driver->tally(c->store, event, n);
}

static bool is_refused(void) {
    char reply[8192];

    server_ask(&server, reply, sizeof(reply), "INFO", "errorstats", NULL);
    return strstr(reply, "errorstat_NOPERM:") != NULL;
}

static bool is_counted(void) {
    return counted(IDEM_EVENT_SUPERSEDED) == 3;
}

TEST(counts_that_a_server_refuses_are_told_again) {
    char reply[64];
    struct conn c;

    server_begin();
    open_plain(&c, "timeout=100s");
    run_done(&c, "a", 1, "r");
    server_ask(&server, reply, sizeof(reply), "ACL", "SETUSER", "default", "-hincrby", NULL);
    count(&c, IDEM_EVENT_SUPERSEDED, 2);
    pass_until(&c, is_refused);
    count(&c, IDEM_EVENT_SUPERSEDED, 1);
    count(&c, IDEM_EVENT_REPLAY, 5);
    CHECK_INT(counted(IDEM_EVENT_SUPERSEDED), 0);
    server_ask(&server, reply, sizeof(reply), "ACL", "SETUSER", "default", "+hincrby", NULL);
    pass_until(&c, is_counted);
    CHECK_INT(counted(IDEM_EVENT_REPLAY), 5);
    conn_close(&c);
    CHECK_INT(counted(IDEM_EVENT_SUPERSEDED), 3);
}

TEST(counts_whose_connection_is_lost_are_told_again) {
    struct conn c;

    proxied(&c, HOST_EDGE, TIMEOUT);
    proxy.deaf_at = "HINCRBY";
    count(&c, IDEM_EVENT_SUPERSEDED, 3);
    pass_until(&c, is_deaf);
    deadline_pass();
    pass_until(&c, is_counted);
    conn_close(&c);
    CHECK_INT(counted(IDEM_EVENT_SUPERSEDED), 3);
}

TEST(counts_of_before_and_after_the_last_that_were_sent_go_out_when_it_is_closed) {
    struct conn c;

    server_begin();
    open_plain(&c, "timeout=100s");
    run_done(&c, "a", 1, "r");
    server_pause(&server);
    count(&c, IDEM_EVENT_SUPERSEDED, 2);
    conn_pass(&c, 1200);
    count(&c, IDEM_EVENT_SUPERSEDED, 1);
    server_go_on(&server);
    WAIT_UNTIL(counted(IDEM_EVENT_SUPERSEDED) == 2);
    CHECK_INT(counted(IDEM_EVENT_SUPERSEDED),
              2); /* by now the server has answered the store, too */
    conn_close(&c);
    WAIT_UNTIL(is_counted()); /* the store sends its counts when it closes, and that waits for up to
                                 half a second */
}

/* Refusals of operations that may have happened. */

/* The first reply is lost with its connection; the server does not allow the retry. */
static struct answer refused_again(struct conn *c, struct call *call) {
    char reply[64];

    server_ask(&server, reply, sizeof(reply), "ACL", "SETUSER", "default", "+set", "+evalsha",
               NULL);
    swallowed_before = proxy.swallowed;
    proxy.swallow = true;
    CHECK_INT(call_submit(call), 0);
    turn_until(c, was_swallowed);
    server_ask(&server, reply, sizeof(reply), "ACL", "SETUSER", "default", "-set", "-evalsha",
               NULL);
    proxy.swallow = false;
    server_ask(&server, reply, sizeof(reply), "CLIENT", "KILL", "TYPE", "normal", NULL);
    CHECK(reply[0] == ':' && reply[1] != '0');
    return answer_wait(call);
}

TEST(what_may_have_happened_and_is_refused_when_it_is_said_again_is_unknown) {
    struct call call;
    struct answer a;
    struct conn c;

    proxied(&c, HOST_POLL, "timeout=100s");
    claim_fill(&call, &c, "k", 1);
    a = refused_again(&c, &call);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text, "may have happened");
    CHECK(has_claims());
    done_fill(&call, &c, "k", 1, "r");
    a = refused_again(&c, &call);
    CHECK_INT(a.rc, IDEM_E_UNKNOWN);
    CHECK_HAS(a.text, "may have happened");
    /* An operation that was not sent before may be refused as such. */
    a = claim(&c, "other", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    conn_close(&c);
}

/* Silence. */

static unsigned readies;

static void ready_count(void *data, const char *where, const char *name, const char *value) {
    (void)data;
    (void)where;
    (void)value;
    readies += strcmp(name, "ready") == 0;
}

static bool is_ready(void) {
    return readies > 0;
}

/* When the connection is ready, the store still waits for the reply to CLIENT KILL of the
 * earlier one: that reply's timeout runs already. */
TEST(a_server_that_falls_silent_while_it_is_greeted_again_is_given_up) {
    char reply[64];
    struct conn c;
    struct call call;
    struct answer a;

    proxied(&c, HOST_POLL, TIMEOUT);
    proxy.deaf_at = "KILL";
    c.store->fact = ready_count;
    met_before = proxy.met;
    server_ask(&server, reply, sizeof(reply), "CLIENT", "KILL", "TYPE", "normal", NULL);
    turn_until(&c, was_met);
    turn_until(&c, is_deaf);
    /* The rest of the greeting is still answered: a reply that comes after the clock has moved is a
     * sign of life, and its timeout would begin anew. */
    turn_until(&c, is_ready);
    met_before = proxy.met;
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(call_submit(&call), 0);
    deadline_pass();
    a = answer_wait(&call);
    CHECK(a.rc == IDEM_E_UNKNOWN || a.rc == IDEM_E_REFUSED);
    turn_until(&c, was_met); /* the store gave the connection up, and makes another */
    a = claim_when_back(&c, "k", 1);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    conn_close(&c);
}

/* The server's clock. */

static void left_is_within(struct conn *c, int64_t most) {
    struct call call;

    /* Twice: the second claim within a second asks for the time left in the same request. */
    for (int i = 0; i < 2; i++) {
        claim_fill(&call, c, "k", 2);
        CHECK_INT(call_run(&call), 0);
        CHECK_INT(call.op.out.claim.verdict, IDEM_BUSY);
        CHECK(call.op.out.claim.left_ms > 0 && call.op.out.claim.left_ms <= most);
    }
    /* Through the script, too. */
    claim_fill(&call, c, "k", 2);
    call.op.in.claim.mode = IDEM_MODE_LOCK;
    call.op.in.claim.recover = IDEM_RECOVER_RERUN;
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.claim.verdict, IDEM_BUSY);
    CHECK(call.op.out.claim.left_ms > 0 && call.op.out.claim.left_ms <= most);
}

static int64_t lease_left(struct conn *c, const struct shared_clock *clock) {
    struct call call;

    kind_fill(&call, c, IDEM_OP_LOOKUP, "k");
    CHECK_INT(call_run(&call), 0);
    return call.record.lease_end - clock->wall;
}

TEST(a_lease_is_never_said_to_be_longer_than_it_was_though_the_clock_was_set_back) {
    static const char *const args[] = {"--save", "", NULL};
    struct shared_clock *clock;
    char folder[300];
    struct conn c;
    int fd;

    clock = clock_share(&fd);
    snprintf(folder, sizeof(folder), "%s/clocked", temp_folder());
    server_start(&server, folder, "redis-server", false, args, fd);
    close(fd);
    open_plain(&c, "timeout=100s");
    CHECK_INT(claim(&c, "k", 1).verdict, IDEM_RUN);
    left_is_within(&c, LEASE_MS);
    CHECK(lease_left(&c, clock) == LEASE_MS); /* the test's clock is in use */
    clock->wall -= 3600000;
    left_is_within(&c, LEASE_MS);
    CHECK(lease_left(&c, clock) > 0 && lease_left(&c, clock) <= LEASE_MS);
    /* The owner itself is not hindered. */
    CHECK_INT(done(&c, "k", 1, "r").ack, IDEM_ACK);
    CHECK_STR(claim(&c, "k", 2).result, "r");
    conn_close(&c);
}

TEST_MAIN
