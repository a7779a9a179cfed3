/* Operations and their responses, for the tests of stores with a server. */
#include "driver_call.h"

#include "protocol/record_key.h"

#define PREFIX "t:"

static void owner_fill(unsigned char owner[IDEM_OWNER_LEN], unsigned n) {
    memset(owner, (int)(n & 0xff), IDEM_OWNER_LEN);
    owner[0] = (unsigned char)(n >> 8);
    owner[1] = (unsigned char)(n >> 16);
}

void kind_fill(struct call *call, struct conn *c, enum idem_op_kind kind, const char *key) {
    struct idem_record_key at = key_in(PREFIX, key);

    call_init(call, c, kind, &at);
    if (kind == IDEM_OP_LIST)
        call->op.in.list.max = 100;
    if (kind == IDEM_OP_SWEEP)
        call->op.in.sweep.max = 100;
    if (kind == IDEM_OP_ISSUE) {
        call->op.in.issue.ttl_ms = TTL_MS;
        owner_fill(call->op.in.issue.owner, 1);
    }
}

void claim_fill(struct call *call, struct conn *c, const char *key, unsigned owner) {
    kind_fill(call, c, IDEM_OP_CLAIM, key);
    call->op.in.claim = (struct idem_claim_in){
        .mode = IDEM_MODE_REPLAY,
        .recover = IDEM_RECOVER_HOLD,
        .on_failure = IDEM_ON_FAILURE_RELEASE,
        .lease_ms = LEASE_MS,
        .hold_ttl_ms = TTL_MS,
        .ttl_ms = TTL_MS,
    };
    owner_fill(call->op.in.claim.owner, owner);
}

void done_fill(struct call *call, struct conn *c, const char *key, unsigned owner,
               const char *result) {
    kind_fill(call, c, IDEM_OP_FINISH, key);
    call->op.in.finish = (struct idem_finish_in){
        .action = IDEM_OWNER_DONE,
        .attempt = 1,
        .status = 200,
        .keep_result = true,
        .result = bytes_of(result),
        .ttl_ms = TTL_MS,
        .hold_ttl_ms = TTL_MS,
    };
    owner_fill(call->op.in.finish.owner, owner);
}

void settle_fill(struct call *call, struct conn *c, const char *key) {
    kind_fill(call, c, IDEM_OP_SETTLE, key);
    call->op.in.settle =
        (struct idem_settle_in){.to = IDEM_DONE, .status = 1, .force = true, .ttl_ms = TTL_MS};
}

void forget_fill(struct call *call, struct conn *c, const char *key, bool force) {
    kind_fill(call, c, IDEM_OP_FORGET, key);
    call->op.in.forget.force = force;
}

void once_fill(struct call *call, struct conn *c, const char *key) {
    kind_fill(call, c, IDEM_OP_ONCE, key);
    call->op.in.once.ttl_ms = TTL_MS;
}

void count_fill(struct call *call, struct conn *c, const char *key, int64_t add) {
    kind_fill(call, c, IDEM_OP_COUNT, key);
    call->op.in.count =
        (struct idem_count_in){.how = IDEM_COUNT_ADD, .value = add, .ttl_ms = TTL_MS};
}

struct answer answer_of(const struct call *call) {
    struct answer answer = {.rc = call->rc};

    if (call->rc != 0) {
        snprintf(answer.text, sizeof(answer.text), "%s", call->op.error.text);
        return answer;
    }
    if (call->op.kind == IDEM_OP_CLAIM)
        answer.verdict = call->op.out.claim.verdict;
    if (call->op.kind == IDEM_OP_FINISH)
        answer.ack = call->op.out.finish.ack;
    if (call->op.kind == IDEM_OP_CLAIM || call->op.kind == IDEM_OP_LOOKUP) {
        answer.attempt = call->record.attempt;
        snprintf(answer.result, sizeof(answer.result), "%.*s", (int)call->record.result.len,
                 (const char *)call->record.result.at);
    }
    return answer;
}

struct answer answer_wait(struct call *call) {
    (void)call_wait(call);
    return answer_of(call);
}

static struct answer run(struct call *call) {
    (void)call_run(call);
    return answer_of(call);
}

struct answer claim(struct conn *c, const char *key, unsigned owner) {
    struct call call;

    claim_fill(&call, c, key, owner);
    return run(&call);
}

struct answer done(struct conn *c, const char *key, unsigned owner, const char *result) {
    struct call call;

    done_fill(&call, c, key, owner, result);
    return run(&call);
}

struct answer settle(struct conn *c, const char *key) {
    struct call call;

    settle_fill(&call, c, key);
    return run(&call);
}

struct answer forget(struct conn *c, const char *key, bool force) {
    struct call call;

    forget_fill(&call, c, key, force);
    return run(&call);
}

struct answer lookup(struct conn *c, const char *key) {
    struct call call;

    kind_fill(&call, c, IDEM_OP_LOOKUP, key);
    return run(&call);
}

void run_done(struct conn *c, const char *key, unsigned owner, const char *result) {
    struct answer a = claim(c, key, owner);

    if (a.rc != 0)
        fprintf(stderr, "# claim of %s: %s\n", key, a.text);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    a = done(c, key, owner, result);
    if (a.rc != 0)
        fprintf(stderr, "# done of %s: %s\n", key, a.text);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.ack, IDEM_ACK);
}

size_t list_each(struct conn *c, void (*look)(const struct idem_entry *entries, size_t n)) {
    struct idem_cursor cursor = {0};
    size_t n = 0;

    for (unsigned page = 0; !cursor.end; page++) {
        struct call call;

        CHECK(page < 1000);
        kind_fill(&call, c, IDEM_OP_LIST, "");
        call.op.in.list.prefix = bytes_of(PREFIX);
        call.op.in.list.cursor = cursor;
        CHECK_INT(call_run(&call), 0);
        if (look != NULL)
            look(call.entries, call.op.out.list.n);
        n += call.op.out.list.n;
        cursor = call.op.out.list.cursor;
    }
    return n;
}

size_t list_count(struct conn *c) {
    return list_each(c, NULL);
}

void name_of(const char *key, char *out, size_t size) {
    struct idem_record_key at = key_in(PREFIX, key);
    char hex[IDEM_HEX_LEN + 1];

    idem_record_key_hex(&at, hex);
    snprintf(out, size, PREFIX "%s", hex);
}

static char *notices_at;
static size_t notices_size;

static void notice_keep(void *data, const char *text) {
    size_t len = strlen(notices_at);

    (void)data;
    snprintf(notices_at + len, notices_size - len, "%s\n", text);
}

void notices_keep(struct conn *c, char *out, size_t size) {
    out[0] = '\0';
    notices_at = out;
    notices_size = size;
    c->store->notice = notice_keep;
}
