/*
 * The contract of wake-ups: a waiter for a key is woken when its watch is in
 * force, then soon after each finish of that key by any owner, and never after
 * unwatch.
 */
#include "contract.h"

struct waiter {
    struct idem_watch watch;
    struct conn *conn;
    unsigned wakes;
    bool inside; /* watch() has not returned yet */
    void (*then)(struct waiter *waiter);
    void *data;
};

static void waiter_wake(struct idem_watch *watch) {
    struct waiter *waiter = (struct waiter *)watch;

    CHECK(!waiter->inside);
    CHECK(waiter->conn->store != NULL); /* not after close */
    waiter->wakes++;
    if (waiter->then != NULL)
        waiter->then(waiter);
}

static void waiter_start(struct waiter *waiter, struct conn *c, const char *key) {
    waiter->watch = (struct idem_watch){.key = key_of(key), .wake = waiter_wake};
    waiter->conn = c;
    waiter->wakes = 0;
    waiter->inside = true;
    CHECK_INT(c->store->driver->watch(c->store, &waiter->watch), 0);
    waiter->inside = false;
}

static void waiter_stop(struct waiter *waiter) {
    waiter->conn->store->driver->unwatch(waiter->conn->store, &waiter->watch);
}

/* Turns the loop until the waiter was woken `wakes` times, which must take less time than the
 * safety net. */
static void waiter_expect(struct waiter *waiter, unsigned wakes) {
    TURN_UNTIL_WITHIN(waiter->conn, contract_driver()->slow_poll_ms * 9 / 10,
                      waiter->wakes >= wakes);
}

/* The watch is in force once the first wake-up has come. */
static void waiter_begin(struct waiter *waiter, struct conn *c, const char *key) {
    *waiter = (struct waiter){0};
    waiter_start(waiter, c, key);
    waiter_expect(waiter, 1);
}

CONTRACT(a_watch_is_woken_once_when_it_is_in_force) {
    struct waiter waiter;

    waiter_begin(&waiter, c, "k");
    CHECK_INT(waiter.wakes, 1);
    waiter_stop(&waiter);
    /* sleep: only time shows that no wake-up comes later */
    conn_idle(c, 20);
    CHECK_INT(waiter.wakes, 1);
}

/* The six ways in which a claim ends, each on a key of its own. */
static const char endings[] = "dfrusg";

static void end_by(struct conn *c, char word) {
    const char key[] = {word, '\0'};

    switch (word) {
    case 'd':
        CHECK_INT(finish(c, key, done_by(1, 200, "r")), IDEM_ACK);
        break;
    case 'f':
        CHECK_INT(finish(c, key, fail_by(1, 500, "no", 0)), IDEM_ACK);
        break;
    case 'r':
        CHECK_INT(finish(c, key, release_by(1)), IDEM_ACK);
        break;
    case 'u':
        CHECK_INT(finish(c, key, unknown_by(1, 0)), IDEM_ACK);
        break;
    case 's':
        CHECK_INT(settle(c, key, (struct idem_settle_in){.to = IDEM_DONE, .force = true}), 0);
        break;
    default:
        CHECK_INT(forget(c, key, true), 0);
        break;
    }
}

/* Claims each key, waits for it, and has `end` end it: the waiter must be woken. */
static void each_ending(struct conn *c, void (*end)(char word, void *data), void *data) {
    for (const char *word = endings; *word != '\0'; word++) {
        const char key[] = {*word, '\0'};
        struct waiter waiter;
        unsigned wakes;

        CHECK_INT(claim(c, key, claim_by(1)).verdict, IDEM_RUN);
        waiter_begin(&waiter, c, key);
        /* sleep: a wake-up that is on its way comes by then; a later one is right, too */
        conn_idle(c, 5);
        wakes = waiter.wakes;
        end(*word, data);
        waiter_expect(&waiter, wakes + 1);
        waiter_stop(&waiter);
    }
}

static void end_by_conn(char word, void *data) {
    end_by(data, word);
}

CONTRACT(a_waiter_is_woken_at_every_ending_by_another_connection) {
    each_ending(c, end_by_conn, another(HOST_POLL));
}

CONTRACT(a_waiter_on_an_edge_triggered_host_is_woken_too) {
    each_ending(another(HOST_EDGE), end_by_conn, c);
}

CONTRACT(a_waiter_is_woken_by_its_own_connection) {
    each_ending(c, end_by_conn, c);
}

static void end_by_peer(char word, void *data) {
    peer_tell(data, word);
    peer_wait(data);
}

CONTRACT_BARE(a_waiter_is_woken_at_every_ending_by_another_process) {
    struct peer peer = peer_start(end_by);

    each_ending(another(HOST_POLL), end_by_peer, &peer);
    peer_stop(&peer);
}

CONTRACT_BARE(a_waiter_on_an_edge_triggered_host_is_woken_by_another_process) {
    struct peer peer = peer_start(end_by);

    each_ending(another(HOST_EDGE), end_by_peer, &peer);
    peer_stop(&peer);
}

#define ROUNDS 200
static unsigned round_n;

static void run_the_round(struct conn *c, char word) {
    char key[16];

    (void)word;
    snprintf(key, sizeof(key), "round%u", round_n++);
    run_done(c, key, 7, "r");
}

/* The other process may finish before, while or after the watch comes into force. If the lookup
 * after a wake-up comes too early, another wake-up must follow. Nothing is polled. */
CONTRACT_BARE(no_finish_falls_between_the_wish_and_the_wake_up) {
    struct peer peer = peer_start(run_the_round);
    struct conn *c = another(HOST_POLL);

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct waiter waiter = {.wakes = 0};
        unsigned seen = 0;
        char key[16];

        snprintf(key, sizeof(key), "round%u", i);
        peer_tell(&peer, 'x');
        if (i % 4 != 0)
            usleep(i * 7 % 40 * 10); /* sleep: any moment will do */
        waiter_start(&waiter, c, key);
        do {
            waiter_expect(&waiter, seen + 1);
            seen = waiter.wakes;
        } while (peek(c, key).state != IDEM_DONE);
        waiter_stop(&waiter);
        peer_wait(&peer);
        keep_reset();
    }
    peer_stop(&peer);
}

CONTRACT(all_waiters_for_one_key_are_woken) {
    struct conn *other = another(HOST_EDGE), *third = another(HOST_POLL);
    struct waiter waiters[6];

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    for (unsigned i = 0; i < 6; i++)
        waiter_begin(&waiters[i], i % 2 == 0 ? c : other, "k");
    CHECK_INT(finish(third, "k", done_by(1, 200, "r")), IDEM_ACK);
    for (unsigned i = 0; i < 6; i++) {
        waiter_expect(&waiters[i], 2);
        waiter_stop(&waiters[i]);
    }
}

/* The host sees one edge for all that happened while it was away. */
CONTRACT(a_host_that_was_away_is_told_of_all_that_ended_meanwhile) {
    struct conn *waiting[2] = {another(HOST_POLL), another(HOST_EDGE)};
    struct waiter waiters[2][8];

    for (unsigned k = 0; k < 8; k++) {
        const char key[] = {(char)('a' + k), '\0'};

        CHECK_INT(claim(c, key, claim_by(1)).verdict, IDEM_RUN);
        waiter_begin(&waiters[0][k], waiting[0], key);
        waiter_begin(&waiters[1][k], waiting[1], key);
    }
    for (unsigned k = 0; k < 8; k++) {
        const char key[] = {(char)('a' + k), '\0'};

        CHECK_INT(finish(c, key, done_by(1, 200, "r")), IDEM_ACK);
    }
    for (unsigned k = 0; k < 16; k++) {
        waiter_expect(&waiters[k % 2][k / 2], 2);
        waiter_stop(&waiters[k % 2][k / 2]);
    }
}

CONTRACT(a_waiter_is_woken_again_and_again) {
    struct conn *other = another(HOST_POLL);
    struct waiter waiter;

    waiter_begin(&waiter, c, "k");
    for (unsigned i = 1; i <= 20; i++) {
        unsigned before = waiter.wakes;

        CHECK_INT(claim(other, "k", lock_by(i)).verdict, IDEM_RUN);
        CHECK_INT(finish(other, "k", done_by(i, 0, NULL)), IDEM_ACK);
        waiter_expect(&waiter, before + 1);
    }
    waiter_stop(&waiter);
}

/* A waiter that ends must not take the others of its connection with it. */
CONTRACT(a_waiter_that_leaves_takes_nobody_along) {
    struct conn *other = another(HOST_POLL);
    struct waiter stays, leaves, same;
    unsigned before;

    CHECK_INT(claim(other, "k", claim_by(1)).verdict, IDEM_RUN);
    waiter_begin(&stays, c, "k");
    waiter_begin(&same, c, "k");
    waiter_begin(&leaves, c, "other");
    waiter_stop(&same);
    waiter_stop(&leaves);
    before = same.wakes;
    CHECK_INT(finish(other, "k", done_by(1, 200, "r")), IDEM_ACK);
    waiter_expect(&stays, 2);
    CHECK_INT(same.wakes, before);
    waiter_stop(&stays);
    waiter_begin(&same, c, "k");
    CHECK_INT(forget(other, "k", false), 0);
    waiter_expect(&same, 2);
    waiter_stop(&same);
}

static void leave_at_the_second(struct waiter *waiter) {
    if (waiter->wakes == 2)
        waiter_stop(waiter);
}

CONTRACT(a_waiter_may_leave_from_inside_its_wake_up) {
    struct conn *other = another(HOST_POLL);
    struct waiter waiters[3];

    for (unsigned i = 0; i < 3; i++) {
        waiter_begin(&waiters[i], c, "k");
        waiters[i].then = leave_at_the_second;
    }
    for (unsigned i = 1; i <= 3; i++) {
        CHECK_INT(claim(other, "k", lock_by(i)).verdict, IDEM_RUN);
        CHECK_INT(finish(other, "k", done_by(i, 0, NULL)), IDEM_ACK);
        for (unsigned k = 0; k < 3; k++)
            waiter_expect(&waiters[k], 2);
        /* sleep: only time shows that no second wake-up comes */
        conn_idle(c, 10);
    }
    for (unsigned i = 0; i < 3; i++)
        CHECK_INT(waiters[i].wakes, 2);
}

static unsigned wakes_when_stopped;

static void stop_the_other(struct waiter *waiter) {
    struct waiter *other = waiter->data;

    if (waiter->wakes == 2 && other->data != NULL) {
        other->data = NULL; /* only one of the two stops the other */
        wakes_when_stopped = (unsigned)other->wakes;
        waiter_stop(other);
    }
}

CONTRACT(a_waiter_may_stop_another_from_inside_its_wake_up) {
    struct conn *other = another(HOST_POLL);
    struct waiter a, b;

    waiter_begin(&a, c, "k");
    waiter_begin(&b, c, "k");
    a.then = b.then = stop_the_other;
    a.data = &b;
    b.data = &a;
    CHECK_INT(claim(other, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(other, "k", done_by(1, 200, "r")), IDEM_ACK);
    TURN_UNTIL(c, (conn_pass(c, 10), a.wakes + b.wakes >= 3));
    conn_pass(c, 30 + contract_driver()->poll_ms);
    CHECK(a.wakes + b.wakes >= 3);
    CHECK_INT((a.data == NULL ? &a : &b)->wakes, wakes_when_stopped);
    waiter_stop(a.data == NULL ? &b : &a);
}

static void wait_for_more(struct waiter *waiter) {
    struct waiter *next = waiter->data;

    if (waiter->wakes == 2)
        waiter_start(next, waiter->conn, "k");
}

CONTRACT(a_waiter_may_start_another_from_inside_its_wake_up) {
    struct waiter waiter, next = {.wakes = 0};

    waiter_begin(&waiter, c, "k");
    waiter.then = wait_for_more;
    waiter.data = &next;
    run_done(another(HOST_POLL), "k", 1, "r");
    waiter_expect(&waiter, 2);
    waiter_expect(&next, 1);
    waiter_stop(&waiter);
    waiter_stop(&next);
}

static void close_from_wake(struct waiter *waiter) {
    conn_close_store(waiter->conn);
}

CONTRACT(closing_from_inside_a_wake_up_is_safe) {
    for (unsigned i = 0; i < 2; i++) {
        struct conn *other = another(i == 0 ? HOST_POLL : HOST_EDGE);
        struct waiter closer = {.then = close_from_wake}, second = {.then = close_from_wake};

        waiter_start(&closer, other, "k");
        waiter_start(&second, other, "k");
        while (other->store != NULL)
            conn_turn(other, 1000);
        /* sleep: only time shows that no wake-up comes later */
        conn_idle(other, 5);
        CHECK_INT(closer.wakes + second.wakes, 1);
        conn_close(other);
    }
    run_done(c, "k", 1, "r");
}

CONTRACT(closing_with_waiters_calls_nothing) {
    struct conn *other = another(HOST_POLL);
    struct waiter *waiter = calloc(1, sizeof(*waiter));

    CHECK(waiter != NULL);
    waiter_begin(waiter, other, "k");
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", done_by(1, 200, "r")), IDEM_ACK);
    conn_close(other);
    CHECK_INT(waiter->wakes, 1);
    free(waiter);
    CHECK_INT(forget(c, "k", false), 0);
}

/* More finishes than any buffer between the two could hold, while the waiter's loop stands
 * still. */
CONTRACT(a_waiter_that_was_away_is_woken_after_any_number_of_finishes) {
    struct conn *other = another(HOST_POLL);
    struct idem_record_key key = key_of("busy");
    struct call *calls = calloc(3000, sizeof(*calls));
    struct waiter busy, late;

    CHECK(calls != NULL);
    CHECK_INT(claim(other, "busy", claim_by(1)).verdict, IDEM_RUN);
    CHECK_INT(claim(other, "late", claim_by(1)).verdict, IDEM_RUN);
    waiter_begin(&busy, c, "busy");
    waiter_begin(&late, c, "late");
    for (unsigned i = 0; i < 3000; i++) {
        call_init(&calls[i], other, IDEM_OP_FINISH, &key);
        calls[i].op.in.finish = unknown_by(1, 0);
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < 3000; i++)
        CHECK_INT(call_wait(&calls[i]), 0);
    CHECK_INT(finish(other, "late", done_by(1, 200, "r")), IDEM_ACK);
    waiter_expect(&late, 2);
    waiter_expect(&busy, 2);
    waiter_stop(&busy);
    waiter_stop(&late);
    free(calls);
}
