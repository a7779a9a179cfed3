/*
 * The contract of callbacks: once, from the loop, never after cancel or close;
 * on level- and edge-triggered hosts alike.
 */
#include "contract.h"

#define QUIET_MS 40

/* The number of kinds of operations that the store has. */
static unsigned kinds_n;

static void kinds_count(const struct conn *c) {
    kinds_n = c->store->driver->transactions ? IDEM_OP__COUNT : IDEM_OP__COMMON;
}

/* One operation of each, on keys of their own. */
static void kinds_init(struct conn *c, struct call calls[IDEM_OP__COUNT]) {
    kinds_count(c);
    for (unsigned kind = 0; kind < kinds_n; kind++) {
        struct idem_record_key key;
        char name[16];

        snprintf(name, sizeof(name), "kind%u", kind);
        key = key_of(name);
        call_init(&calls[kind], c, (enum idem_op_kind)kind, &key);
    }
    calls[IDEM_OP_CLAIM].op.in.claim = claim_by(1);
    calls[IDEM_OP_FINISH].op.in.finish = done_by(1, 200, "r");
    calls[IDEM_OP_ISSUE].op.in.issue.ttl_ms = TTL_MS;
    calls[IDEM_OP_ONCE].op.in.once.ttl_ms = TTL_MS;
    calls[IDEM_OP_COUNT].op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, TTL_MS};
    calls[IDEM_OP_LIST].op.in.list = (struct idem_list_in){.max = 10};
    calls[IDEM_OP_SETTLE].op.in.settle = (struct idem_settle_in){.to = IDEM_DONE, .ttl_ms = 1};
    calls[IDEM_OP_SWEEP].op.in.sweep.max = 10;
}

static void kinds_submit(struct call calls[IDEM_OP__COUNT]) {
    for (unsigned kind = 0; kind < kinds_n; kind++)
        CHECK_INT(call_submit(&calls[kind]), 0);
}

CONTRACT(every_operation_is_answered_once_and_from_the_loop) {
    struct call calls[IDEM_OP__COUNT];

    kinds_init(c, calls);
    kinds_submit(calls);
    for (unsigned kind = 0; kind < kinds_n; kind++)
        (void)call_wait(&calls[kind]);
    /* sleep: only time shows that no second callback comes */
    conn_idle(c, QUIET_MS);
    for (unsigned kind = 0; kind < kinds_n; kind++)
        CHECK_INT(calls[kind].completed, 1);
}

CONTRACT(what_only_sql_has_is_refused_by_the_others) {
    struct idem_record_key key = key_of("k");
    struct call call;

    call_init(&call, c, IDEM_OP_TX, &key);
    if (c->store->driver->transactions) {
        CHECK_INT(call_run(&call), 0);
        CHECK(!call.op.out.tx.there);
        return;
    }
    CHECK_INT(call_submit(&call), IDEM_E_INVALID);
    /* sleep: only time shows that no callback comes */
    conn_idle(c, QUIET_MS);
    CHECK_INT(call.completed, 0);
    CHECK(call.op.driver == NULL && call.op.error.code == IDEM_E_INVALID);
}

CONTRACT(nothing_is_called_after_cancel) {
    struct call calls[IDEM_OP__COUNT];
    unsigned before[IDEM_OP__COUNT];

    for (unsigned turns = 0; turns < 4; turns++) {
        kinds_init(c, calls);
        kinds_submit(calls);
        for (unsigned i = 0; i < turns; i++)
            conn_turn(c, i);
        for (unsigned kind = 0; kind < kinds_n; kind++) {
            idem_store_cancel(c->store, &calls[kind].op);
            CHECK(calls[kind].op.driver == NULL);
            before[kind] = calls[kind].completed;
        }
        /* sleep: only time shows that no callback comes later */
        conn_idle(c, QUIET_MS);
        for (unsigned kind = 0; kind < kinds_n; kind++)
            CHECK_INT(calls[kind].completed, before[kind]);
    }
}

static void cancel_the_rest(struct call *call) {
    struct call *calls = call->data;

    for (unsigned kind = 0; kind < kinds_n; kind++)
        idem_store_cancel(call->conn->store, &calls[kind].op);
}

static unsigned kinds_completed(const struct call calls[IDEM_OP__COUNT]) {
    unsigned completed = 0;

    for (unsigned kind = 0; kind < kinds_n; kind++)
        completed += calls[kind].completed;
    return completed;
}

CONTRACT(others_may_be_cancelled_from_inside_a_call_back) {
    struct call calls[IDEM_OP__COUNT];

    kinds_init(c, calls);
    for (unsigned kind = 0; kind < kinds_n; kind++) {
        calls[kind].then = cancel_the_rest;
        calls[kind].data = calls;
    }
    kinds_submit(calls);
    TURN_UNTIL(c, kinds_completed(calls) > 0);
    /* sleep: a second callback would come now; only time shows that none does */
    conn_idle(c, QUIET_MS);
    CHECK_INT(kinds_completed(calls), 1);
}

CONTRACT(cancelling_what_is_not_under_way_does_nothing) {
    struct idem_record_key key = key_of("k");
    struct call call;

    call_init(&call, c, IDEM_OP_LOOKUP, &key);
    idem_store_cancel(c->store, &call.op);
    CHECK_INT(call_run(&call), IDEM_E_ABSENT);
    idem_store_cancel(c->store, &call.op);
    idem_store_cancel(c->store, &call.op);
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
}

static void submit_again(struct call *call) {
    unsigned *left = call->data;
    struct idem_record_key key = key_of("chain");

    if (--*left == 0)
        return;
    call->op.key = key;
    call->op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, TTL_MS};
    CHECK_INT(call_submit(call), 0);
}

CONTRACT(an_operation_may_be_submitted_again_from_inside_its_call_back) {
    struct idem_record_key key = key_of("chain");
    unsigned left = 50;
    struct call call;

    call_init(&call, c, IDEM_OP_COUNT, &key);
    call.op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, TTL_MS};
    call.then = submit_again;
    call.data = &left;
    CHECK_INT(call_submit(&call), 0);
    while (left > 0)
        conn_turn(c, 1000);
    CHECK_INT(call.op.out.count.value, 50);
}

/* The operations are freed right after close: a sanitizer sees a store that still touches them. */
CONTRACT(closing_with_operations_under_way_calls_nothing) {
    for (unsigned turns = 0; turns < 3; turns++) {
        struct conn *other = another(HOST_POLL);
        struct call *calls = calloc(IDEM_OP__COUNT, sizeof(*calls));
        unsigned before = 0, after = 0;

        CHECK(calls != NULL);
        kinds_init(other, calls);
        kinds_submit(calls);
        for (unsigned i = 0; i < turns; i++)
            conn_turn(other, i);
        for (unsigned kind = 0; kind < kinds_n; kind++)
            before += calls[kind].completed;
        conn_close(other);
        for (unsigned kind = 0; kind < kinds_n; kind++)
            after += calls[kind].completed;
        CHECK_INT(after, before);
        free(calls);
        /* sleep: only time shows that no callback comes later */
        conn_idle(c, QUIET_MS);
        CHECK_INT(peek(c, "not there").state, IDEM_ABSENT);
    }
}

#define WAVES 5
#define WAVE 30

/* At close some operations wait for the loop, some for their turn, and some are being written. */
CONTRACT(closing_in_the_middle_of_waves_of_operations_calls_nothing) {
    for (unsigned round = 0; round < 5; round++) {
        struct conn *other = another(round % 2 == 0 ? HOST_POLL : HOST_EDGE);
        struct call *calls = calloc((size_t)WAVES * WAVE, sizeof(*calls));
        unsigned n = 0, before = 0, after = 0;

        CHECK(calls != NULL);
        for (unsigned wave = 0; wave < WAVES; wave++) {
            for (unsigned i = 0; i < WAVE; i++, n++) {
                struct idem_record_key key = key_of("wave");

                call_init(&calls[n], other, IDEM_OP_COUNT, &key);
                calls[n].op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, TTL_MS};
                CHECK_INT(call_submit(&calls[n]), 0);
            }
            if (wave < WAVES - 1)
                conn_turn(other, 0);
        }
        for (unsigned i = 0; i < n; i++)
            before += calls[i].completed;
        conn_close(other);
        for (unsigned i = 0; i < n; i++)
            after += calls[i].completed;
        CHECK_INT(after, before);
        free(calls);
        CHECK_INT(claim(c, "k", lock_by(round + 1)).verdict, IDEM_RUN);
        CHECK_INT(finish(c, "k", done_by(round + 1, 0, NULL)), IDEM_ACK);
    }
}

static void close_here(struct call *call) {
    conn_close_store(call->conn);
}

CONTRACT(closing_from_inside_a_call_back_is_safe) {
    kinds_count(c);
    for (unsigned first = 0; first < kinds_n; first++) {
        struct conn *other = another(first % 2 == 0 ? HOST_POLL : HOST_EDGE);
        struct call *calls = calloc(IDEM_OP__COUNT, sizeof(*calls));
        unsigned completed = 0;

        CHECK(calls != NULL);
        kinds_init(other, calls);
        calls[first].then = close_here;
        CHECK_INT(call_submit(&calls[first]), 0);
        for (unsigned kind = 0; kind < kinds_n; kind++)
            if (kind != first)
                CHECK_INT(call_submit(&calls[kind]), 0);
        while (other->store != NULL)
            conn_turn(other, 1000);
        CHECK_INT(calls[first].completed, 1);
        for (unsigned kind = 0; kind < kinds_n; kind++)
            completed += calls[kind].completed;
        /* sleep: only time shows that no callback comes later */
        conn_idle(other, 5);
        for (unsigned kind = 0; kind < kinds_n; kind++)
            completed -= calls[kind].completed;
        CHECK_INT(completed, 0);
        conn_close(other);
        free(calls);
    }
    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
}

/* Closes the only connection, which may be the last of the process. */
CONTRACT(the_last_connection_may_close_from_inside_a_call_back) {
    struct idem_record_key key = key_of("k");
    struct call call;

    call_init(&call, c, IDEM_OP_CLAIM, &key);
    call.op.in.claim = claim_by(1);
    call.then = close_here;
    CHECK_INT(call_submit(&call), 0);
    while (c->store != NULL)
        conn_turn(c, 1000);
    CHECK_INT(call.op.out.claim.verdict, IDEM_RUN);
    c = another(HOST_POLL);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_BUSY);
}

static void many_at_once(struct conn *c, const char *stem) {
    struct idem_claim_in in = claim_by(1);
    struct idem_finish_in done = done_by(1, 200, "r");
    struct idem_finish_in renew = renew_by(1, LEASE_MS);

    claim_many(c, stem, 700, &in);
    finish_many(c, stem, 700, &renew);
    finish_many(c, stem, 700, &done);
    CHECK_INT(list_all(c, "t:", (struct idem_list_in){.state = IDEM_DONE}, 100).n, 700);
}

CONTRACT(many_operations_at_once_are_all_answered_on_a_level_triggered_host) {
    many_at_once(c, "level");
}

CONTRACT(many_operations_at_once_are_all_answered_on_an_edge_triggered_host) {
    (void)c;
    many_at_once(another(HOST_EDGE), "edge");
}

/* Each response brings the next operation, so that edges come while others are handled. */
static void chains_run(struct conn *c) {
    unsigned left[8];
    struct call calls[8];

    for (unsigned i = 0; i < 8; i++) {
        struct idem_record_key key = key_of("chain");

        left[i] = 20 + i;
        call_init(&calls[i], c, IDEM_OP_COUNT, &key);
        calls[i].op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, TTL_MS};
        calls[i].then = submit_again;
        calls[i].data = &left[i];
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++)
        while (left[i] > 0)
            conn_turn(c, 1000);
}

CONTRACT(chains_of_operations_go_on_on_both_kinds_of_host) {
    chains_run(c);
    chains_run(another(HOST_EDGE));
}

CONTRACT(a_connection_inherited_over_a_fork_refuses_and_harms_nobody) {
    int status;
    pid_t pid;

    CHECK_INT(claim(c, "k", claim_by(1)).verdict, IDEM_RUN);
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct idem_record_key key = key_of("k");
        struct call call;

        call_init(&call, c, IDEM_OP_FINISH, &key);
        call.op.in.finish = done_by(1, 200, "by the child");
        CHECK_INT(call_submit(&call), IDEM_E_FORK);
        idem_store_close(c->store);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_INT(peek(c, "k").state, IDEM_RUNNING);
    CHECK_INT(finish(c, "k", done_by(1, 200, "by the parent")), IDEM_ACK);
}
