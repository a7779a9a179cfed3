/*
 * Replies that are garbage, servers that are not Redis, and stores that are
 * closed in the middle of that.
 */
#include <malloc.h>

#include "loop_clock.h"
#include "proxied_server.h"
#include "store/driver_call.h"
#include "temp.h"

/* Garbage, or replies that do not fit the request; each twice, because a claim expects two. */
static const char *const garbage[] = {
    "garbage\r\ngarbage\r\n",
    "$-7\r\n$-7\r\n",
    "$99999999999999999999\r\n",
    "*-3\r\n",
    "*2000000\r\n:1\r\n:1\r\n",
    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    ":99999999999999999999999\r\n",
    "\r\n",
    ":77\r\n:77\r\n",
    ":-77\r\n:-77\r\n",
    "+FINE\r\n+FINE\r\n",
    "$3\r\nabc\r\n$3\r\nabc\r\n",
    "$-1\r\n:-5\r\n",
    "*0\r\n*0\r\n",
    "*-1\r\n*-1\r\n",
    "*4\r\n:99\r\n:0\r\n$0\r\n\r\n:0\r\n*4\r\n:99\r\n:0\r\n$0\r\n\r\n:0\r\n",
    "*4\r\n$1\r\nx\r\n$1\r\nx\r\n:3\r\n*0\r\n*4\r\n$1\r\nx\r\n$1\r\nx\r\n:3\r\n*0\r\n",
    "*4\r\n:1\r\n:-9223372036854775808\r\n$3\r\nabc\r\n:9223372036854775807\r\n:3\r\n",
    "*2\r\n$20\r\n99999999999999999999\r\n$3\r\nabc\r\n:1\r\n",
    "*2\r\n$1\r\n0\r\n*1\r\n:5\r\n*2\r\n$1\r\n0\r\n*1\r\n:5\r\n",
    "-\r\n-\r\n",
    "-ERR what\r\n-ERR what\r\n",
    "-MOVED 1 127.0.0.1:1\r\n-MOVED 1 127.0.0.1:1\r\n",
    "-ASK\r\n-ASK\r\n",
    "-IDEM\r\n-IDEM\r\n",
    "-CLUSTERDOWN Hash slot not served\r\n-CLUSTERDOWN Hash slot not served\r\n",
};

static void is_sane(const struct call *call) {
    const struct idem_op *op = &call->op;

    CHECK(call->rc <= 0 && call->rc >= IDEM_E_SETTLED);
    if (call->rc != 0)
        return;
    if (op->kind == IDEM_OP_CLAIM)
        CHECK(op->out.claim.verdict >= IDEM_RUN && op->out.claim.verdict <= IDEM_PROBE &&
              op->out.claim.left_ms >= 0);
    if (op->kind == IDEM_OP_FINISH)
        CHECK(op->out.finish.ack == IDEM_ACK || op->out.finish.ack == IDEM_LOST);
    if (op->kind == IDEM_OP_TIME)
        CHECK(op->out.time.ms > 1600000000000);
}

static void any_fill(struct call *call, struct conn *c, enum idem_op_kind kind, unsigned n) {
    const char *key = numbered("g", n);

    kind_fill(call, c, kind, key);
    if (kind == IDEM_OP_CLAIM)
        claim_fill(call, c, key, n + 1);
    if (kind == IDEM_OP_FINISH)
        done_fill(call, c, key, n + 1, "r");
    if (kind == IDEM_OP_ONCE)
        once_fill(call, c, key);
    if (kind == IDEM_OP_COUNT)
        count_fill(call, c, key, 1);
    if (kind == IDEM_OP_SETTLE)
        settle_fill(call, c, key);
}

/* As call_run(), while the loop's clock runs faster: there is a pause before each new
 * connection. */
static int run_passing(struct call *call) {
    if (call_submit(call) < 0)
        return call->rc;
    while (call->completed == 0)
        conn_pass(call->conn, 10);
    return call->rc;
}

TEST(an_answer_that_is_garbage_is_never_taken_for_one) {
    struct conn c;
    struct call call;

    proxied(&c, HOST_POLL, "timeout=1000s&connect_timeout=100s");
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        for (unsigned kind = 0; kind < IDEM_OP__COMMON; kind++) {
            kind_fill(&call, &c, IDEM_OP_LOOKUP, "nothing");
            CHECK_INT(run_passing(&call), IDEM_E_ABSENT); /* the store is connected */
            any_fill(&call, &c, (enum idem_op_kind)kind, (unsigned)i);
            proxy.say = garbage[i];
            (void)run_passing(&call);
            is_sane(&call);
            proxy.say = NULL;
            keep_reset();
        }
    run_done(&c, "it still works", 1, "r");
    conn_close(&c);
}

TEST(what_is_no_redis_at_all_is_told) {
    struct answer a;
    struct conn c;
    char url[512];

    proxy_start(&proxy, temp_folder(), "proxy", NULL);
    proxy.say = "HTTP/1.1 400 Bad Request\r\n\r\n";
    snprintf(url, sizeof(url), "redis:%s", proxy.path);
    conn_open(&c, url, HOST_POLL, NULL);
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "not in its protocol");
    conn_close(&c);
}

TEST(a_server_that_takes_connections_and_says_nothing_is_given_up) {
    struct answer a;
    struct conn c;
    char url[512];

    proxy_start(&proxy, temp_folder(), "proxy", NULL);
    snprintf(url, sizeof(url), "redis:%s?connect_timeout=300ms&timeout=100s", proxy.path);
    conn_open(&c, url, HOST_POLL, NULL);
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "no response within 300 ms");
    conn_close(&c);
}

/* Each part is empty, and they have no end. */
TEST(a_server_that_answers_without_an_end_is_given_up) {
    static const char head[] = "*1000000\r\n", part[] = "*2\r\n*0\r\n$-1\r\n";
    size_t n = 500000, len = sizeof(part) - 1;
    char *answer = malloc(sizeof(head) + n * len), *at = answer, url[512];
    struct answer a;
    struct conn c;

    at = stpcpy(at, head);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, part);
    proxy_start(&proxy, temp_folder(), "proxy", NULL);
    proxy.say = answer;
    snprintf(url, sizeof(url), "redis:%s?connect_timeout=100s&timeout=100s", proxy.path);
    conn_open(&c, url, HOST_POLL, NULL);
    a = claim(&c, "k", 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "it has too many parts");
    conn_close(&c);
    proxy_stop(&proxy);
    free(answer);
}

/* Memory. */

static size_t memory_used(void) {
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

#define BIG ((size_t)4 << 20)

static char *big_text(void) {
    char *big = malloc(BIG + 1);

    memset(big, 'b', BIG);
    big[BIG] = '\0';
    return big;
}

/* The connection still expects replies for both the cancelled operation and the one whose
 * deadline is over. */
TEST(what_was_given_up_while_its_answer_is_due_goes_with_the_store) {
    char *big = big_text();
    struct conn c;
    struct call given_up, late;
    size_t before;

    proxied(&c, HOST_POLL, "timeout=100s");
    conn_close(&c);
    before = memory_used();
    for (int i = 0; i < 3; i++) {
        char url[512];

        proxy.swallow = false;
        snprintf(url, sizeof(url), "redis:%s?timeout=100s", proxy.path);
        conn_open(&c, url, HOST_POLL, NULL);
        CHECK_INT(lookup(&c, "nothing").rc, IDEM_E_ABSENT);
        proxy.swallow = true;
        done_fill(&given_up, &c, "k", 1, big);
        submit_asked(&c, &given_up);
        idem_store_cancel(c.store, &given_up.op);
        if (i > 0) {
            done_fill(&late, &c, "k", 1, big);
            CHECK_INT(call_submit(&late), 0);
            /* Only the deadline passes; the descriptor has no event. */
            loop_clock_forward(100000);
            while (late.completed == 0)
                idem_loop_timeout(&c.loop);
        }
        conn_close(&c);
        keep_reset();
    }
    CHECK(memory_used() < before + BIG);
    proxy_stop(&proxy);
    free(big);
}

/* Replies that come while the callback of another operation runs. */

static struct call inner;

static void claim_within(struct call *call) {
    claim_fill(&inner, call->conn, "new", 7);
    CHECK_INT(call_submit(&inner), 0);
    while (inner.completed == 0) {
        idem_loop_timeout(&call->conn->loop);
        conn_turn(call->conn, 10);
    }
    CHECK_INT(answer_of(&inner).verdict, IDEM_RUN);
}

TEST(a_loop_that_is_turned_inside_a_call_back_costs_no_reply) {
    char *big = big_text();
    struct conn c;
    struct call outer;
    size_t before;

    proxied(&c, HOST_POLL, "timeout=100s");
    run_done(&c, "k", 1, big);
    CHECK_INT(claim(&c, "k", 2).verdict, IDEM_REPLAY);
    keep_reset();
    before = memory_used();
    for (int i = 0; i < 4; i++) {
        claim_fill(&outer, &c, "k", 3);
        outer.then = claim_within;
        CHECK_INT(call_run(&outer), 0);
        CHECK_INT(outer.op.out.claim.verdict, IDEM_REPLAY);
        keep_reset();
        CHECK_INT(forget(&c, "new", true).rc, 0);
    }
    CHECK(memory_used() < before + BIG);
    conn_close(&c);
    free(big);
}

/* A store that is closed at the worst moment. */

static void close_it(struct call *call) {
    conn_close_store(call->conn);
}

static void closed_inside(enum host_kind kind, bool away) {
    struct conn c;
    struct call settled, waiting;

    proxied(&c, kind, "timeout=100s");
    (void)claim(&c, "k", 1);
    proxy.swallow = true;
    settle_fill(&settled, &c, "k");
    settled.then = close_it;
    submit_asked(&c, &settled);
    claim_fill(&waiting, &c, "k", 2);
    CHECK_INT(call_submit(&waiting), 0);
    server_stop(&server);
    if (away) /* the host does not turn the loop until all deadlines are over */
        loop_clock_forward(100000);
    while (settled.completed == 0)
        conn_turn(&c, 100);
    CHECK_INT(settled.rc, IDEM_E_UNKNOWN);
    CHECK_INT(waiting.completed, 0);
    c.open = false;
    idem_loop_stop(&c.loop);
    host_release(&c.host);
    proxy_stop(&proxy);
}

TEST(a_store_may_be_closed_from_inside_the_call_back_that_tells_of_a_lost_connection) {
    closed_inside(HOST_POLL, false);
    closed_inside(HOST_EDGE, false);
}

TEST(a_store_may_be_closed_from_inside_a_call_back_whose_deadline_went_by_unseen) {
    closed_inside(HOST_POLL, true);
    closed_inside(HOST_EDGE, true);
}

/* Only the timer fires; the descriptor has no event. */
TEST(a_store_may_be_closed_while_a_deadline_looks_at_its_connections) {
    struct conn c;
    struct call settled;

    proxied(&c, HOST_POLL, "timeout=100s");
    run_done(&c, "k", 1, "r");
    proxy.swallow = true;
    settle_fill(&settled, &c, "k");
    settled.then = close_it;
    submit_asked(&c, &settled);
    server_stop(&server);
    loop_clock_forward(100000);
    while (settled.completed == 0)
        idem_loop_timeout(&c.loop);
    CHECK_INT(settled.rc, IDEM_E_UNKNOWN);
    c.open = false;
    idem_loop_stop(&c.loop);
    host_release(&c.host);
}

/* The same, but a write finds the fault. */
TEST(a_store_may_be_closed_while_its_operations_are_written) {
    struct conn c;
    struct call settled, more;

    proxied(&c, HOST_POLL, "timeout=100s");
    run_done(&c, "k", 1, "r");
    proxy.swallow = true;
    settle_fill(&settled, &c, "k");
    settled.then = close_it;
    submit_asked(&c, &settled);
    proxy_stop(&proxy);
    claim_fill(&more, &c, "other", 1);
    CHECK_INT(call_submit(&more), 0);
    while (settled.completed == 0)
        idem_loop_timeout(&c.loop);
    CHECK_INT(settled.rc, IDEM_E_UNKNOWN);
    c.open = false;
    idem_loop_stop(&c.loop);
    host_release(&c.host);
}

/* The kernel reports both at once: room to write, and bytes to read. Freed memory is filled, so
 * that a read of it fails without a sanitizer, too. */
TEST(a_store_may_be_closed_by_a_write_while_there_is_something_to_read) {
    char *big = big_text();
    struct conn c;
    struct call settled, more;

    (void)mallopt(M_PERTURB, 0x5a); /* without effect under a sanitizer */
    server_begin();
    open_plain(&c, "timeout=100s");
    run_done(&c, "k", 1, "r");
    server_pause(&server);
    settle_fill(&settled, &c, "k");
    settled.then = close_it;
    CHECK_INT(call_submit(&settled), 0);
    done_fill(&more, &c, "k", 1, big);
    CHECK_INT(call_submit(&more), 0);
    for (int i = 0; i < 10; i++)
        conn_turn(&c, 0); /* as many bytes as the kernel takes */
    server_stop(&server);
    while (settled.completed == 0)
        conn_turn(&c, 100);
    CHECK_INT(settled.rc, IDEM_E_UNKNOWN);
    c.open = false;
    idem_loop_stop(&c.loop);
    host_release(&c.host);
    free(big);
}

static unsigned tried;

static void try_again(struct call *call) {
    CHECK_INT(call->rc, IDEM_E_REFUSED);
    if (++tried > 100000)
        return; /* so that the test ends */
    once_fill(call, call->conn, "k");
    call->then = try_again;
    CHECK_INT(call_submit(call), 0);
}

TEST(one_who_tries_again_from_inside_a_refusal_does_not_keep_the_loop) {
    struct conn c;
    struct call calls[2];
    char url[512];

    snprintf(url, sizeof(url), "redis:%s/nobody", temp_folder());
    conn_open(&c, url, HOST_POLL, NULL);
    for (int i = 0; i < 2; i++) {
        once_fill(&calls[i], &c, "k");
        calls[i].then = try_again;
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    while (tried == 0)
        conn_turn(&c, 100);
    CHECK(tried < 10);
    conn_close(&c);
}

TEST_MAIN
