/*
 * Verbs over many records: lists page by page, sweeps step by step, and claims
 * and finishes of a whole family of keys at once. The judge does not check
 * those claims and finishes: they only fill a store.
 */
#include "contract.h"

#define BULK_MAX 4000
#define PAGES_MAX 5000

static void list_page(struct conn *c, const char *prefix, const struct idem_list_in *in,
                      struct call *call) {
    call_init(call, c, IDEM_OP_LIST, NULL);
    call->op.in.list = *in;
    call->op.in.list.prefix = bytes_of(prefix);
    CHECK_INT(call_run(call), 0);
    CHECK(call->op.out.list.n <= in->max);
}

struct listed list_all(struct conn *c, const char *prefix, struct idem_list_in in, size_t page) {
    struct idem_entry *entries = NULL;
    struct listed all = {NULL, 0};
    struct call call;

    in.cursor = (struct idem_cursor){0};
    in.max = page;
    for (unsigned pages = 0; !in.cursor.end; pages++) {
        size_t n;

        CHECK(pages < PAGES_MAX);
        list_page(c, prefix, &in, &call);
        n = call.op.out.list.n;
        entries = reallocarray(entries, all.n + n + 1, sizeof(*entries));
        CHECK(entries != NULL);
        memcpy(entries + all.n, call.entries, n * sizeof(*entries));
        all.n += n;
        in.cursor = call.op.out.list.cursor;
    }
    all.entries = keep(entries, all.n * sizeof(*entries));
    free(entries);
    return all;
}

size_t sweep_all(struct conn *c, size_t step) {
    unsigned steps = 0;
    size_t removed = 0;
    struct call call;

    do {
        call_init(&call, c, IDEM_OP_SWEEP, NULL);
        call.op.in.sweep.max = step;
        CHECK_INT(call_run(&call), 0);
        CHECK(call.op.out.sweep.removed <= step);
        CHECK(steps++ < PAGES_MAX);
        removed += call.op.out.sweep.removed;
    } while (call.op.out.sweep.more);
    return removed;
}

struct idem_stats stats(struct conn *c) {
    struct call call;

    call_init(&call, c, IDEM_OP_STATS, NULL);
    CHECK_INT(call_run(&call), 0);
    return call.op.out.stats;
}

static struct call *bulk_new(unsigned n) {
    struct call *calls = calloc(n, sizeof(*calls));

    CHECK(n > 0 && n <= BULK_MAX && calls != NULL);
    return calls;
}

static void bulk_init(struct call *call, struct conn *c, enum idem_op_kind kind, const char *stem,
                      unsigned i) {
    struct idem_record_key key;
    char name[64];

    snprintf(name, sizeof(name), "%s%u", stem, i);
    key = key_of(name);
    call_init(call, c, kind, &key);
}

void claim_many(struct conn *c, const char *stem, unsigned n, const struct idem_claim_in *in) {
    struct call *calls = bulk_new(n);

    for (unsigned i = 0; i < n; i++) {
        bulk_init(&calls[i], c, IDEM_OP_CLAIM, stem, i);
        calls[i].op.in.claim = *in;
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < n; i++) {
        CHECK_INT(call_wait(&calls[i]), 0);
        CHECK_INT(calls[i].op.out.claim.verdict, IDEM_RUN);
    }
    free(calls);
}

void finish_many(struct conn *c, const char *stem, unsigned n, const struct idem_finish_in *in) {
    struct call *calls = bulk_new(n);

    for (unsigned i = 0; i < n; i++) {
        bulk_init(&calls[i], c, IDEM_OP_FINISH, stem, i);
        calls[i].op.in.finish = *in;
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < n; i++) {
        CHECK_INT(call_wait(&calls[i]), 0);
        CHECK_INT(calls[i].op.out.finish.ack, IDEM_ACK);
    }
    free(calls);
}

void run_done(struct conn *c, const char *key, unsigned owner, const char *result) {
    CHECK_INT(claim(c, key, claim_by(owner)).verdict, IDEM_RUN);
    CHECK_INT(finish(c, key, done_by(owner, 200, result)), IDEM_ACK);
}
