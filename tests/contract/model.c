/*
 * The model and its random questions. Pure except for the pool of byte strings,
 * which is made once before the first question.
 */
#include "model.h"

#include <inttypes.h>

#include "contract.h"
#include "protocol/record_key.h"

#define OWNERS 5

uint64_t rng_next(struct rng *rng) {
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

unsigned rng_below(struct rng *rng, unsigned n) {
    return (unsigned)(rng_next(rng) % n);
}

static bool chance(struct rng *rng, unsigned percent) {
    return rng_below(rng, 100) < percent;
}

static int64_t pick(struct rng *rng, const int64_t *from, unsigned n) {
    return from[rng_below(rng, n)];
}
#define PICK(rng, ...)                                                                             \
    pick(rng, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / 8)

static unsigned char pool[20000];

void model_pool_init(void) {
    struct rng rng = {42};

    for (size_t i = 0; i < sizeof(pool); i++)
        pool[i] = (unsigned char)rng_next(&rng);
}

static struct idem_bytes pool_bytes(struct rng *rng, int64_t len) {
    return (struct idem_bytes){pool + rng_below(rng, 16), (size_t)len};
}

static void question_claim(struct rng *rng, unsigned owner, struct idem_claim_in *in) {
    *in = claim_by(owner);
    in->mode = (enum idem_mode)PICK(rng, IDEM_MODE_LOCK, IDEM_MODE_REJECT, IDEM_MODE_REPLAY,
                                    IDEM_MODE_REPLAY);
    in->recover = (enum idem_recover)PICK(rng, IDEM_RECOVER_HOLD, IDEM_RECOVER_RERUN);
    in->on_failure = (enum idem_on_failure)PICK(rng, IDEM_ON_FAILURE_RELEASE, IDEM_ON_FAILURE_RETRY,
                                                IDEM_ON_FAILURE_KEEP);
    in->attempts = (uint32_t)PICK(rng, 0, 0, 1, 3);
    in->probe = chance(rng, 20);
    in->token = chance(rng, 15);
    if (chance(rng, 15)) {
        in->has_bind = true;
        memset(in->bind, (int)PICK(rng, 7, 7, 8), IDEM_HASH_LEN);
    }
    in->fingerprint = fingerprint_of((uint32_t)PICK(rng, 0, 0, 1, 1, 2),
                                     (unsigned char)PICK(rng, 'a', 'a', 'a', 'b'));
    in->lease_ms = PICK(rng, 1000, 5000);
    in->hold_ttl_ms = PICK(rng, 10000, 60000);
    in->ttl_ms = PICK(rng, 5000, 20000);
    if (chance(rng, 30))
        in->label = pool_bytes(rng, PICK(rng, 1, 30, IDEM_LABEL_MAX));
}

static void question_finish(struct rng *rng, unsigned owner, struct idem_finish_in *in) {
    *in = release_by(owner);
    in->action = (enum idem_owner_action)PICK(rng, IDEM_OWNER_DONE, IDEM_OWNER_DONE,
                                              IDEM_OWNER_FAIL, IDEM_OWNER_FAIL, IDEM_OWNER_RELEASE,
                                              IDEM_OWNER_UNKNOWN, IDEM_OWNER_RENEW);
    in->attempt = (uint32_t)PICK(rng, 0, 0, 0, 1, 2);
    in->status = (int32_t)PICK(rng, 200, 200, 500);
    in->keep_result = chance(rng, 60);
    if (in->keep_result)
        in->result = pool_bytes(rng, PICK(rng, 0, 1, 1, 200, 3000, 15000));
    in->final = in->action == IDEM_OWNER_FAIL && chance(rng, 15);
    if (chance(rng, 50) && in->action != IDEM_OWNER_DONE)
        in->reason = pool_bytes(rng, PICK(rng, 1, 20, IDEM_REASON_MAX));
    in->delay_ms = PICK(rng, 0, 0, 500, 3000);
    in->lease_ms = PICK(rng, 1000, 5000);
    in->ttl_ms = PICK(rng, 5000, 20000, 60000);
    in->hold_ttl_ms = PICK(rng, 10000, 60000);
}

static void question_issue(struct rng *rng, unsigned owner, struct idem_issue_in *in) {
    *in = (struct idem_issue_in){.ttl_ms = PICK(rng, 1000, 5000, 20000)};
    owner_set(in->owner, owner);
    if (chance(rng, 50)) {
        in->has_bind = true;
        memset(in->bind, (int)PICK(rng, 7, 8), IDEM_HASH_LEN);
    }
    if (chance(rng, 30))
        in->label = pool_bytes(rng, 10);
}

static void question_settle(struct rng *rng, struct idem_settle_in *in) {
    *in = (struct idem_settle_in){
        .to = (enum idem_state)PICK(rng, IDEM_DONE, IDEM_FAILED),
        .status = (int32_t)rng_below(rng, 3),
        .force = chance(rng, 30),
        .attempt = (uint32_t)PICK(rng, 0, 0, 0, 1, 2),
        .ttl_ms = PICK(rng, 1000, 20000),
        .from = (enum idem_state)PICK(rng, IDEM_ABSENT, IDEM_ABSENT, IDEM_RUNNING, IDEM_FAILED),
    };
    if (chance(rng, 50))
        in->reason = pool_bytes(rng, 12);
}

/* Never 0: if two operations add nothing, their order cannot be found. */
static void question_count(struct rng *rng, struct idem_count_in *in) {
    *in = (struct idem_count_in){
        .how = (enum idem_count_how)PICK(rng, IDEM_COUNT_ADD, IDEM_COUNT_RAISE, IDEM_COUNT_NEXT),
        .value = PICK(rng, -1, 1, 1, 2, 3, 5),
        .ttl_ms = PICK(rng, 1000, 20000),
    };
}

unsigned question_owner(struct rng *rng) {
    return 1 + rng_below(rng, OWNERS);
}

static enum idem_op_kind question_kind(struct rng *rng) {
    unsigned n = rng_below(rng, 100);

    return n < 40   ? IDEM_OP_CLAIM
           : n < 72 ? IDEM_OP_FINISH
           : n < 78 ? IDEM_OP_ISSUE
           : n < 82 ? IDEM_OP_ONCE
           : n < 87 ? IDEM_OP_COUNT
           : n < 92 ? IDEM_OP_SETTLE
           : n < 95 ? IDEM_OP_FORGET
                    : IDEM_OP_LOOKUP;
}

struct question question_make(struct rng *rng, unsigned owner) {
    struct question q = {.kind = question_kind(rng), .key = rng_below(rng, MODEL_KEYS)};

    if (owner == 0 || chance(rng, 30))
        owner = question_owner(rng);
    switch (q.kind) {
    case IDEM_OP_CLAIM:
        question_claim(rng, owner, &q.in.claim);
        break;
    case IDEM_OP_FINISH:
        question_finish(rng, owner, &q.in.finish);
        break;
    case IDEM_OP_ISSUE:
        question_issue(rng, owner, &q.in.issue);
        break;
    case IDEM_OP_ONCE:
        q.in.once.ttl_ms = PICK(rng, 500, 5000);
        break;
    case IDEM_OP_COUNT:
        question_count(rng, &q.in.count);
        break;
    case IDEM_OP_SETTLE:
        question_settle(rng, &q.in.settle);
        break;
    case IDEM_OP_FORGET:
        q.in.forget.force = chance(rng, 50);
        break;
    default:
        break;
    }
    return q;
}

struct question question_lookup(unsigned key) {
    return (struct question){.kind = IDEM_OP_LOOKUP, .key = key};
}

static const char *kind_name(enum idem_op_kind kind) {
    static const char *const names[IDEM_OP__COUNT] = {
        "claim",  "finish", "issue", "once",  "count", "lookup", "list",
        "settle", "forget", "sweep", "stats", "time",  "tx"};

    return names[kind];
}

void question_say(const struct question *q, char *buf, size_t size) {
    int n = snprintf(buf, size, "%s key %u", kind_name(q->kind), q->key);

    if (n < 0 || (size_t)n >= size)
        return;
    if (q->kind == IDEM_OP_CLAIM)
        snprintf(buf + n, size - (size_t)n,
                 " owner %u mode %d recover %d on_failure %d attempts %u%s%s", q->in.claim.owner[1],
                 q->in.claim.mode, q->in.claim.recover, q->in.claim.on_failure,
                 q->in.claim.attempts, q->in.claim.token ? " token" : "",
                 q->in.claim.probe ? " probe" : "");
    if (q->kind == IDEM_OP_FINISH)
        snprintf(buf + n, size - (size_t)n, " owner %u %s status %d delay %" PRId64,
                 q->in.finish.owner[1], idem_owner_action_name(q->in.finish.action),
                 q->in.finish.status, q->in.finish.delay_ms);
    if (q->kind == IDEM_OP_SETTLE)
        snprintf(buf + n, size - (size_t)n, " from %s to %s attempt %u%s",
                 idem_state_name(q->in.settle.from), idem_state_name(q->in.settle.to),
                 q->in.settle.attempt, q->in.settle.force ? " force" : "");
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t len) {
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t mix_number(uint64_t hash, int64_t number) {
    return mix(hash, &number, sizeof(number));
}

static uint64_t mix_bytes(uint64_t hash, struct idem_bytes bytes) {
    return mix(mix_number(hash, (int64_t)bytes.len), bytes.at, bytes.len);
}

static uint64_t mix_fingerprint(uint64_t hash, const struct idem_fingerprint *fp) {
    hash = mix_number(hash, fp->definition);
    return fp->definition == 0 ? hash : mix(hash, fp->hash, IDEM_HASH_LEN);
}

enum model_times model_times;

/* Clears the times that such a store does not return. */
static void times_clear(struct idem_record *r, bool all, bool live) {
    if (model_times == MODEL_EXACT)
        return;
    if (all || model_times == MODEL_RELATIVE)
        r->prior.due = 0;
    if (all || (!live && model_times == MODEL_RELATIVE))
        r->lease_end = 0;
    if (all)
        r->expires = r->created = r->changed = r->prior.expires = 0;
}

/* A digest of the fields that judge_equal() compares. */
static uint64_t record_digest(const struct idem_record *r) {
    const int64_t numbers[] = {
        r->state, r->lock,      r->kept,    r->final,   r->released, r->bound,  r->attempt,
        r->tries, r->lease_end, r->expires, r->created, r->changed,  r->status,
    };
    uint64_t hash = 0xcbf29ce484222325u;

    if (r->state == IDEM_ABSENT)
        return 0;
    hash = mix(hash, numbers, sizeof(numbers));
    hash = mix(hash, r->owner, IDEM_OWNER_LEN);
    hash = mix_fingerprint(hash, &r->fingerprint);
    hash = r->bound ? mix(hash, r->bind, IDEM_HASH_LEN) : hash;
    hash = mix_bytes(mix_bytes(mix_bytes(hash, r->result), r->reason), r->label);
    if (r->state != IDEM_RUNNING || r->prior.state == IDEM_ABSENT)
        return hash;
    hash = mix_number(mix_number(hash, r->prior.state), r->prior.tries);
    hash = mix_number(mix_number(hash, r->prior.due), r->prior.expires);
    return mix_fingerprint(hash, &r->prior.fingerprint);
}

/* A refused token reveals nothing; a result comes only with the verdicts that hand it out. */
static uint64_t claim_digest(enum idem_verdict verdict, const struct idem_record *record) {
    struct idem_record copy = *record;

    if (verdict == IDEM_NO_TOKEN)
        return 0;
    if (verdict != IDEM_REPLAY && verdict != IDEM_DEAD)
        copy.result = (struct idem_bytes){0};
    times_clear(&copy, true, false);
    return record_digest(&copy);
}

static uint64_t lookup_digest(const struct idem_record *record, bool live) {
    struct idem_record copy = *record;

    times_clear(&copy, false, live);
    return record_digest(&copy);
}

static struct brief answer_claim(struct slot *slot, const struct idem_claim_in *in,
                                 struct idem_time now_) {
    struct idem_record *r = &slot->record, fresh = {.state = IDEM_ABSENT};
    bool absent = r->state == IDEM_ABSENT, write;
    struct brief brief = {0};
    enum idem_verdict verdict = idem_protocol_claim(absent ? NULL : r, absent ? &fresh : NULL, in,
                                                    now_, &write, &brief.number);

    if (absent && write)
        *r = fresh;
    brief.what = verdict;
    brief.digest = claim_digest(verdict, r);
    return brief;
}

static struct brief answer_finish(struct slot *slot, const struct idem_finish_in *in,
                                  struct idem_time now_) {
    struct idem_record *r = &slot->record;
    enum idem_store_write write;
    struct brief brief = {0};

    brief.what = idem_protocol_finish(r->state == IDEM_ABSENT ? NULL : r, in, now_, &write);
    if (write == IDEM_WRITE_DELETE)
        r->state = IDEM_ABSENT;
    return brief;
}

static struct brief answer_issue(struct slot *slot, const struct idem_issue_in *in,
                                 struct idem_time now_) {
    struct idem_record *r = &slot->record, fresh;
    struct brief brief = {0};
    bool write;

    brief.what = idem_protocol_issue(r->state == IDEM_ABSENT ? NULL : r, &fresh, in, now_, &write);
    if (write)
        *r = fresh;
    return brief;
}

static struct brief answer_count(struct slot *slot, const struct idem_count_in *in,
                                 struct idem_time now_) {
    int64_t value = slot->counter_expires > now_.wall ? slot->counter : 0;
    bool changed = in->how == IDEM_COUNT_ADD ||
                   (in->how == IDEM_COUNT_RAISE && in->value > value) ||
                   (in->how == IDEM_COUNT_NEXT && in->value == value + 1);

    if (changed) {
        value = in->how == IDEM_COUNT_ADD ? value + in->value : in->value;
        slot->counter = value;
        slot->counter_expires = now_.wall + in->ttl_ms;
    }
    return (struct brief){.what = changed, .number = value};
}

struct brief slot_brief(const struct slot *slot, struct idem_time now_) {
    const struct idem_record *r = &slot->record;
    bool live = r->lease_end > now_.lease;

    if (!judge_present(r, now_))
        return (struct brief){.rc = IDEM_E_ABSENT};
    return (struct brief){
        .what = live,
        .number = live ? r->lease_end - now_.lease : 0,
        .digest = lookup_digest(r, live),
    };
}

struct brief model_answer(struct slot *slot, const struct question *q, struct idem_time now_) {
    struct idem_record *r = slot->record.state == IDEM_ABSENT ? NULL : &slot->record;
    struct brief brief = {0};

    switch (q->kind) {
    case IDEM_OP_CLAIM:
        return answer_claim(slot, &q->in.claim, now_);
    case IDEM_OP_FINISH:
        return answer_finish(slot, &q->in.finish, now_);
    case IDEM_OP_ISSUE:
        return answer_issue(slot, &q->in.issue, now_);
    case IDEM_OP_ONCE:
        brief.what = slot->nonce_expires <= now_.wall;
        if (brief.what)
            slot->nonce_expires = now_.wall + q->in.once.ttl_ms;
        return brief;
    case IDEM_OP_COUNT:
        return answer_count(slot, &q->in.count, now_);
    case IDEM_OP_SETTLE:
        brief.rc = idem_protocol_settle(r, &q->in.settle, now_);
        return brief;
    case IDEM_OP_FORGET:
        brief.rc = idem_protocol_forget(r, q->in.forget.force, now_);
        if (brief.rc == 0)
            slot->record.state = IDEM_ABSENT;
        return brief;
    default:
        return slot_brief(slot, now_);
    }
}

void question_ask(const struct question *q, struct conn *conn, struct call *call) {
    const unsigned char name = (unsigned char)('a' + q->key);
    enum idem_name_kind kind = q->kind == IDEM_OP_ONCE    ? IDEM_NAME_NONCE
                               : q->kind == IDEM_OP_COUNT ? IDEM_NAME_COUNTER
                                                          : IDEM_NAME_RECORD;
    struct idem_record_key key;

    CHECK(idem_record_key_make(&key, kind, bytes_of("p:"), (struct idem_bytes){0},
                               (struct idem_bytes){&name, 1}) == 0);
    call_init(call, conn, q->kind, &key);
    memcpy(&call->op.in, &q->in, sizeof(call->op.in));
}

struct brief call_brief(const struct call *call) {
    const struct idem_op *op = &call->op;
    struct brief brief = {.rc = call->rc};

    if (call->rc != 0)
        return brief;
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        brief.what = op->out.claim.verdict;
        brief.number = op->out.claim.left_ms;
        brief.digest = claim_digest(op->out.claim.verdict, &call->record);
        break;
    case IDEM_OP_FINISH:
        brief.what = op->out.finish.ack;
        break;
    case IDEM_OP_ISSUE:
        brief.what = op->out.issue.issued;
        break;
    case IDEM_OP_ONCE:
        brief.what = op->out.once.first;
        break;
    case IDEM_OP_COUNT:
        brief.what = op->out.count.changed;
        brief.number = op->out.count.value;
        break;
    case IDEM_OP_LOOKUP:
        brief.what = op->out.lookup.live;
        brief.number = op->out.lookup.left_ms;
        brief.digest = lookup_digest(&call->record, op->out.lookup.live);
        break;
    default:
        break;
    }
    return brief;
}

bool brief_equal(const struct brief *a, const struct brief *b) {
    return a->rc == b->rc && a->what == b->what && a->number == b->number && a->digest == b->digest;
}

uint64_t seed_from(uint64_t otherwise) {
    const char *text = getenv("IDEM_SEED");
    uint64_t seed = text == NULL ? otherwise : strtoull(text, NULL, 0);

    printf("# IDEM_SEED=%" PRIu64 " replays this\n", seed);
    return seed;
}

bool long_form(void) {
    const char *text = getenv("IDEM_LONG");

    return text != NULL && strcmp(text, "1") == 0;
}
