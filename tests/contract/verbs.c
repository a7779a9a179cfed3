/*
 * The verbs of the contract's tests. Each operation is predicted from the
 * record before it: the judge finds the row that decides, and the pure protocol
 * computes the record after it. The driver must agree with both.
 */
#include "contract.h"
#include "coverage.h"
#include "protocol/record_key.h"

struct idem_record_key key_of(const char *name) {
    return key_in("t:", name);
}

void owner_set(unsigned char owner[IDEM_OWNER_LEN], unsigned n) {
    memset(owner, (int)(n & 0xff), IDEM_OWNER_LEN);
    owner[0] = (unsigned char)(n >> 8);
}

struct idem_fingerprint fingerprint_of(uint32_t definition, unsigned char fill) {
    struct idem_fingerprint fingerprint = {.definition = definition};

    memset(fingerprint.hash, fill, IDEM_HASH_LEN);
    return fingerprint;
}

struct idem_claim_in claim_by(unsigned owner) {
    struct idem_claim_in in = {
        .mode = IDEM_MODE_REPLAY,
        .recover = IDEM_RECOVER_HOLD,
        .on_failure = IDEM_ON_FAILURE_RELEASE,
        .lease_ms = LEASE_MS,
        .hold_ttl_ms = HOLD_TTL_MS,
        .ttl_ms = TTL_MS,
    };

    owner_set(in.owner, owner);
    return in;
}

struct idem_claim_in rerun_by(unsigned owner, uint32_t attempts) {
    struct idem_claim_in in = claim_by(owner);

    in.recover = IDEM_RECOVER_RERUN;
    in.on_failure = IDEM_ON_FAILURE_RETRY;
    in.attempts = attempts;
    return in;
}

struct idem_claim_in lock_by(unsigned owner) {
    struct idem_claim_in in = rerun_by(owner, 0);

    in.mode = IDEM_MODE_LOCK;
    return in;
}

struct idem_claim_in token_by(unsigned owner, unsigned char bind) {
    struct idem_claim_in in = claim_by(owner);

    in.token = true;
    in.has_bind = bind != 0;
    memset(in.bind, bind, IDEM_HASH_LEN);
    return in;
}

static struct idem_finish_in finish_by(unsigned owner, enum idem_owner_action action) {
    struct idem_finish_in in = {.action = action, .ttl_ms = TTL_MS, .hold_ttl_ms = HOLD_TTL_MS};

    owner_set(in.owner, owner);
    return in;
}

struct idem_finish_in done_by(unsigned owner, int32_t status, const char *result) {
    struct idem_finish_in in = finish_by(owner, IDEM_OWNER_DONE);

    in.status = status;
    in.keep_result = result != NULL;
    in.result = bytes_of(result);
    return in;
}

struct idem_finish_in fail_by(unsigned owner, int32_t status, const char *reason, int64_t delay) {
    struct idem_finish_in in = finish_by(owner, IDEM_OWNER_FAIL);

    in.status = status;
    in.reason = bytes_of(reason);
    in.delay_ms = delay;
    return in;
}

struct idem_finish_in release_by(unsigned owner) {
    return finish_by(owner, IDEM_OWNER_RELEASE);
}

struct idem_finish_in unknown_by(unsigned owner, int64_t delay) {
    struct idem_finish_in in = finish_by(owner, IDEM_OWNER_UNKNOWN);

    in.delay_ms = delay;
    return in;
}

struct idem_finish_in renew_by(unsigned owner, int64_t lease) {
    struct idem_finish_in in = finish_by(owner, IDEM_OWNER_RENEW);

    in.lease_ms = lease;
    return in;
}

struct idem_record peek_at(struct conn *c, const struct idem_record_key *key) {
    struct call call;
    int64_t left;
    int rc;

    call_init(&call, c, IDEM_OP_LOOKUP, key);
    rc = call_run(&call);
    if (rc == IDEM_E_ABSENT)
        return (struct idem_record){.state = IDEM_ABSENT};
    if (rc != 0)
        fprintf(stderr, "# %s\n", call.op.error.text);
    CHECK_INT(rc, 0);
    CHECK(judge_present(&call.record, now()));
    left = call.record.lease_end - now().lease;
    CHECK_INT(call.op.out.lookup.live, left > 0);
    CHECK_INT(call.op.out.lookup.left_ms, left > 0 ? left : 0);
    return call.record;
}

struct idem_record peek(struct conn *c, const char *key) {
    struct idem_record_key at = key_of(key);

    return peek_at(c, &at);
}

/* The response that the pure protocol computes for a claim. */
static struct told claim_expected(const struct idem_record *before,
                                  const struct idem_claim_in *in) {
    struct idem_record record = *before, fresh = {.state = IDEM_ABSENT};
    bool absent = before->state == IDEM_ABSENT, write;
    struct told told;

    told.verdict =
        idem_protocol_claim(absent ? NULL : &record, &fresh, in, now(), &write, &told.left_ms);
    told.record = *before;
    if (write)
        told.record = absent ? fresh : record;
    return told;
}

/* Copies the times that the response to a claim lacks. */
static void times_copy(struct idem_record *to, const struct idem_record *from) {
    to->lease_end = from->lease_end;
    to->expires = from->expires;
    to->created = from->created;
    to->changed = from->changed;
    to->prior.due = from->prior.due;
    to->prior.expires = from->prior.expires;
}

/* Compares the response to a claim. Another caller's token looks like none, so the record that
 * comes with that refusal is ignored. A result is sent with the verdicts that hand it out; with
 * the others it may be left out. */
static bool claim_tells(const struct told *got, const struct told *want) {
    struct idem_record record = got->record;

    if (got->verdict == IDEM_NO_TOKEN)
        return true;
    if (got->verdict != IDEM_REPLAY && got->verdict != IDEM_DEAD && record.result.len == 0)
        record.result = want->record.result;
    times_copy(&record, &want->record);
    return judge_equal(&record, &want->record, now());
}

struct told claim_at(struct conn *c, const struct idem_record_key *key, struct idem_claim_in in) {
    struct idem_record before = peek_at(c, key), after;
    const struct idem_claim_rule *row = judge_claim(&before, &in, now());
    struct told want = claim_expected(&before, &in), got;
    struct call call;

    call_init(&call, c, IDEM_OP_CLAIM, key);
    call.op.in.claim = in;
    CHECK_INT(call_run(&call), 0);
    got.verdict = call.op.out.claim.verdict;
    got.left_ms = call.op.out.claim.left_ms;
    got.record = call.record;
    CHECK_STR(idem_verdict_name(got.verdict), idem_verdict_name(row->verdict));
    CHECK_STR(idem_verdict_name(got.verdict), idem_verdict_name(want.verdict));
    CHECK_INT(got.left_ms, want.left_ms);
    CHECK(claim_tells(&got, &want));
    after = peek_at(c, key);
    CHECK(judge_equal(&after, &want.record, now()));
    coverage_claim(row);
    return got;
}

struct told claim(struct conn *c, const char *key, struct idem_claim_in in) {
    struct idem_record_key at = key_of(key);

    return claim_at(c, &at, in);
}

static enum idem_ack finish_expected(const struct idem_record *before,
                                     const struct idem_finish_in *in, struct idem_record *ret) {
    bool absent = before->state == IDEM_ABSENT;
    enum idem_store_write write;
    enum idem_ack ack;

    *ret = *before;
    ack = idem_protocol_finish(absent ? NULL : ret, in, now(), &write);
    if (write == IDEM_WRITE_NONE)
        *ret = *before;
    if (write == IDEM_WRITE_DELETE || !judge_present(ret, now()))
        *ret = (struct idem_record){.state = IDEM_ABSENT};
    return ack;
}

enum idem_ack finish_at(struct conn *c, const struct idem_record_key *key,
                        struct idem_finish_in in) {
    struct idem_record before = peek_at(c, key), want, after;
    const struct idem_finish_rule *row = judge_finish(&before, &in, now());
    enum idem_ack ack = finish_expected(&before, &in, &want);
    struct call call;

    call_init(&call, c, IDEM_OP_FINISH, key);
    call.op.in.finish = in;
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.finish.ack, row->ack);
    CHECK_INT(call.op.out.finish.ack, ack);
    after = peek_at(c, key);
    CHECK(judge_equal(&after, &want, now()));
    coverage_finish(row);
    return call.op.out.finish.ack;
}

enum idem_ack finish(struct conn *c, const char *key, struct idem_finish_in in) {
    struct idem_record_key at = key_of(key);

    return finish_at(c, &at, in);
}

bool issue(struct conn *c, const char *key, unsigned owner, unsigned char bind, int64_t ttl_ms) {
    struct idem_record_key at = key_of(key);
    struct idem_record before = peek(c, key), want = before, after;
    struct call call;
    bool issued, write;

    call_init(&call, c, IDEM_OP_ISSUE, &at);
    call.op.in.issue = (struct idem_issue_in){.has_bind = bind != 0, .ttl_ms = ttl_ms};
    memset(call.op.in.issue.bind, bind, IDEM_HASH_LEN);
    owner_set(call.op.in.issue.owner, owner);
    issued = idem_protocol_issue(before.state == IDEM_ABSENT ? NULL : &before, &want,
                                 &call.op.in.issue, now(), &write);
    CHECK_INT(call_run(&call), 0);
    CHECK_INT(call.op.out.issue.issued, issued);
    after = peek(c, key);
    CHECK(judge_equal(&after, write ? &want : &before, now()));
    return call.op.out.issue.issued;
}

int settle(struct conn *c, const char *key, struct idem_settle_in in) {
    struct idem_record_key at = key_of(key);
    struct idem_record before = peek(c, key), want = before, after;
    struct call call;
    int rc;

    call_init(&call, c, IDEM_OP_SETTLE, &at);
    if (in.ttl_ms == 0)
        in.ttl_ms = TTL_MS;
    call.op.in.settle = in;
    rc = idem_protocol_settle(before.state == IDEM_ABSENT ? NULL : &want, &in, now());
    CHECK_INT(call_run(&call), rc);
    after = peek(c, key);
    CHECK(judge_equal(&after, rc == 0 ? &want : &before, now()));
    return rc;
}

int forget(struct conn *c, const char *key, bool force) {
    struct idem_record_key at = key_of(key);
    struct idem_record before = peek(c, key), want = before, after;
    struct call call;
    int rc;

    call_init(&call, c, IDEM_OP_FORGET, &at);
    call.op.in.forget.force = force;
    rc = idem_protocol_forget(before.state == IDEM_ABSENT ? NULL : &before, force, now());
    CHECK_INT(call_run(&call), rc);
    if (rc == 0)
        want.state = IDEM_ABSENT;
    after = peek(c, key);
    CHECK(judge_equal(&after, &want, now()));
    return rc;
}

bool once(struct conn *c, const char *key, int64_t ttl_ms) {
    struct idem_record_key at;
    struct call call;

    CHECK(idem_record_key_make(&at, IDEM_NAME_NONCE, bytes_of("t:"), (struct idem_bytes){0},
                               bytes_of(key)) == 0);
    call_init(&call, c, IDEM_OP_ONCE, &at);
    call.op.in.once.ttl_ms = ttl_ms;
    CHECK_INT(call_run(&call), 0);
    return call.op.out.once.first;
}

struct counted count(struct conn *c, const char *key, enum idem_count_how how, int64_t value) {
    struct idem_record_key at;
    struct call call;

    CHECK(idem_record_key_make(&at, IDEM_NAME_COUNTER, bytes_of("t:"), (struct idem_bytes){0},
                               bytes_of(key)) == 0);
    call_init(&call, c, IDEM_OP_COUNT, &at);
    call.op.in.count = (struct idem_count_in){.how = how, .value = value, .ttl_ms = TTL_MS};
    CHECK_INT(call_run(&call), 0);
    return (struct counted){call.op.out.count.changed, call.op.out.count.value};
}
