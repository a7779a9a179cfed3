/*
 * How often the store writes to the server: all operations of one turn of the
 * loop go out in one write, and a claim and a finish are one round trip each.
 */
#include <sys/socket.h>
#include <sys/syscall.h>

#include "server.h"
#include "store/driver_call.h"
#include "temp.h"

static _Atomic unsigned writes;

/* Replaces libc's function: it only counts. */
ssize_t send(int fd, const void *bytes, size_t len, int flags) {
    writes++;
    return syscall(SYS_sendto, fd, bytes, len, flags, NULL, 0);
}

static struct server server;

static void begin(struct conn *c, enum host_kind kind) {
    static const char *const args[] = {"--save", "", NULL};
    char folder[300], url[512];

    snprintf(folder, sizeof(folder), "%s/server", temp_folder());
    if (server.pid == 0)
        server_start(&server, folder, "redis-server", false, args, -1);
    snprintf(url, sizeof(url), "redis:%s", server.socket);
    loop_clock_stop(); /* everything that depends on time (busy waits, deadlines) stays as it is */
    conn_open(c, url, kind, NULL);
    run_done(c, kind == HOST_POLL ? "warm" : "warmer", 1, "r");
}

static const char *numbered(unsigned n) {
    static char text[32];

    snprintf(text, sizeof(text), "k%u", n);
    return text;
}

#define MANY 200

static void in_one_write(enum host_kind kind) {
    static struct call calls[2 * MANY + 4];
    struct conn c;
    unsigned n = 0;

    begin(&c, kind);
    for (unsigned i = 0; i < MANY; i++)
        claim_fill(&calls[n++], &c, numbered(i), 1 + (unsigned)kind);
    for (unsigned i = 0; i < MANY; i++)
        done_fill(&calls[n++], &c, numbered(i), 1 + (unsigned)kind, "result");
    once_fill(&calls[n++], &c, "once");
    count_fill(&calls[n++], &c, "count", 1);
    kind_fill(&calls[n++], &c, IDEM_OP_LOOKUP, "k0");
    kind_fill(&calls[n++], &c, IDEM_OP_TIME, "");
    writes = 0;
    for (unsigned i = 0; i < n; i++)
        CHECK_INT(call_submit(&calls[i]), 0);
    for (unsigned i = 0; i < n; i++)
        CHECK_INT(call_wait(&calls[i]), 0);
    CHECK_INT(writes, 1);
    conn_close(&c);
    keep_reset();
}

TEST(everything_asked_in_one_turn_goes_out_in_one_write) {
    in_one_write(HOST_POLL);
    in_one_write(HOST_EDGE);
}

/* Operations that are submitted inside one turn's callbacks go out together, too. */
static struct call followers[MANY];
static unsigned followed;

static void follow(struct call *call) {
    struct call *next = &followers[followed];

    done_fill(next, call->conn, numbered(followed++), 1, "result");
    CHECK_INT(call_submit(next), 0);
}

TEST(what_call_backs_of_one_turn_ask_goes_out_in_one_write) {
    static struct call calls[MANY];
    struct conn c;

    begin(&c, HOST_POLL);
    for (unsigned i = 0; i < MANY; i++) {
        claim_fill(&calls[i], &c, numbered(i), 1);
        calls[i].then = follow;
    }
    writes = 0;
    for (unsigned i = 0; i < MANY; i++)
        CHECK_INT(call_submit(&calls[i]), 0);
    for (unsigned i = 0; i < MANY; i++)
        (void)call_wait(&calls[i]);
    for (unsigned i = 0; i < MANY; i++)
        CHECK_INT(answer_wait(&followers[i]).ack, IDEM_ACK);
    /* The replies may come in several reads, but not in one each. */
    CHECK(writes >= 2 && writes < MANY / 4);
    conn_close(&c);
}

static void one_trip(struct answer a) {
    CHECK_INT(a.rc, 0);
    CHECK_INT(writes, 1);
    writes = 0;
}

TEST(a_claim_and_a_finish_are_one_round_trip_each) {
    struct conn c;
    struct call call;

    begin(&c, HOST_POLL);
    writes = 0;
    one_trip(claim(&c, "new", 1)); /* RUN */
    /* The first `busy` claim sends a second request, for the time left; those after it do not. */
    CHECK_INT(claim(&c, "new", 2).verdict, IDEM_BUSY);
    CHECK(writes <= 2);
    writes = 0;
    one_trip(claim(&c, "new", 2));
    one_trip(done(&c, "new", 1, "r"));
    one_trip(claim(&c, "new", 3)); /* REPLAY */
    one_trip(done(&c, "new", 9, "r"));
    claim_fill(&call, &c, "lock", 1);
    call.op.in.claim.mode = IDEM_MODE_LOCK;
    call.op.in.claim.recover = IDEM_RECOVER_RERUN;
    (void)call_run(&call);
    one_trip(answer_of(&call));
    conn_close(&c);
}

TEST_MAIN
