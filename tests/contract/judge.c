/* The judge. Pure, except that it prints the difference. */
#include "judge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool judge_present(const struct idem_record *record, struct idem_time now) {
    return record->state != IDEM_ABSENT && record->expires > now.wall;
}

static bool same_bytes(struct idem_bytes a, struct idem_bytes b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static bool same_fingerprint(const struct idem_fingerprint *a, const struct idem_fingerprint *b) {
    return a->definition == b->definition &&
           (a->definition == 0 || memcmp(a->hash, b->hash, IDEM_HASH_LEN) == 0);
}

static bool same_owner(const struct idem_record *record, const unsigned char *owner) {
    return memcmp(record->owner, owner, IDEM_OWNER_LEN) == 0;
}

/* A token that was issued without a binding does not match a caller that has one. */
static bool binding_fits(const struct idem_record *record, const struct idem_claim_in *in) {
    if (!record->bound || !in->has_bind)
        return record->bound == in->has_bind;
    return memcmp(record->bind, in->bind, IDEM_HASH_LEN) == 0;
}

const struct idem_claim_rule *judge_claim(const struct idem_record *record,
                                          const struct idem_claim_in *in, struct idem_time now) {
    unsigned facts = 0;

    facts |= in->token ? IDEM_FACT_TOKEN : 0;
    facts |= in->probe ? IDEM_FACT_PROBE : 0;
    facts |= in->mode == IDEM_MODE_REPLAY ? IDEM_FACT_REPLAY : 0;
    facts |= in->recover == IDEM_RECOVER_RERUN ? IDEM_FACT_RERUN : 0;
    if (!judge_present(record, now))
        return idem_claim_rule_find(IDEM_ABSENT, facts);
    facts |= binding_fits(record, in) ? IDEM_FACT_BOUND : 0;
    facts |= same_owner(record, in->owner) && !record->released ? IDEM_FACT_MINE : 0;
    if (record->fingerprint.definition != 0 &&
        record->fingerprint.definition == in->fingerprint.definition &&
        !same_fingerprint(&record->fingerprint, &in->fingerprint))
        facts |= IDEM_FACT_DIFFERS;
    facts |= record->lease_end > now.lease ? IDEM_FACT_LIVE : 0;
    facts |= in->attempts == 0 || in->attempts > record->tries ? IDEM_FACT_ATTEMPTS_LEFT : 0;
    facts |= record->lock ? IDEM_FACT_LOCK : 0;
    facts |= record->kept ? IDEM_FACT_KEPT : 0;
    facts |= record->final || in->on_failure == IDEM_ON_FAILURE_KEEP ? IDEM_FACT_FINAL : 0;
    return idem_claim_rule_find(record->state, facts);
}

static bool says_the_same(const struct idem_record *record, const struct idem_finish_in *in) {
    if (in->action == IDEM_OWNER_RELEASE || record->released)
        return in->action == IDEM_OWNER_RELEASE && record->released;
    if (record->status != in->status || record->final != in->final)
        return false;
    if (in->action == IDEM_OWNER_FAIL && !same_bytes(record->reason, in->reason))
        return false;
    return !record->kept || same_bytes(record->result, in->result);
}

const struct idem_finish_rule *judge_finish(const struct idem_record *record,
                                            const struct idem_finish_in *in, struct idem_time now) {
    unsigned facts = 0;

    if (!judge_present(record, now))
        return idem_finish_rule_find(in->action, IDEM_ABSENT, 0);
    if (same_owner(record, in->owner) && (in->attempt == 0 || in->attempt == record->attempt) &&
        (!record->released || in->action == IDEM_OWNER_RELEASE))
        facts |= IDEM_FACT_MINE;
    facts |=
        record->lock && (record->prior.state == IDEM_ABSENT || record->prior.state == IDEM_DONE)
            ? IDEM_FACT_LOCK
            : 0;
    facts |= says_the_same(record, in) ? IDEM_FACT_SAME : 0;
    return idem_finish_rule_find(in->action, record->state, facts);
}

static bool number(const char *name, int64_t got, int64_t want) {
    if (got != want)
        fprintf(stderr, "# record.%s is %" PRId64 ", not %" PRId64 "\n", name, got, want);
    return got == want;
}

static bool held(const char *name, bool same) {
    if (!same)
        fprintf(stderr, "# record.%s differs\n", name);
    return same;
}

#define NUMBER(field) number(#field, (int64_t)got->field, (int64_t)want->field)
#define BYTES(field)                                                                               \
    (number(#field ".len", (int64_t)got->field.len, (int64_t)want->field.len) &&                   \
     held(#field, same_bytes(got->field, want->field)))

/* Compares two ends of a lease or a back-off. Once both are over, their times do not matter. */
static bool ends(const char *name, int64_t got, int64_t want, struct idem_time now) {
    return (got <= now.lease && want <= now.lease) || number(name, got, want);
}

static bool equal_prior(const struct idem_record *got, const struct idem_record *want,
                        struct idem_time now) {
    if (want->state != IDEM_RUNNING)
        return true;
    if (!NUMBER(prior.state) || want->prior.state == IDEM_ABSENT)
        return got->prior.state == want->prior.state;
    return NUMBER(prior.tries) && ends("prior.due", got->prior.due, want->prior.due, now) &&
           NUMBER(prior.expires) &&
           held("prior.fingerprint",
                same_fingerprint(&got->prior.fingerprint, &want->prior.fingerprint));
}

bool judge_equal(const struct idem_record *got, const struct idem_record *want,
                 struct idem_time now) {
    if (!NUMBER(state) || want->state == IDEM_ABSENT)
        return got->state == want->state;
    return NUMBER(lock) && NUMBER(kept) && NUMBER(final) && NUMBER(released) && NUMBER(bound) &&
           NUMBER(attempt) && NUMBER(tries) && held("owner", same_owner(got, want->owner)) &&
           held("fingerprint", same_fingerprint(&got->fingerprint, &want->fingerprint)) &&
           (!want->bound || held("bind", memcmp(got->bind, want->bind, IDEM_HASH_LEN) == 0)) &&
           ends("lease_end", got->lease_end, want->lease_end, now) && NUMBER(expires) &&
           NUMBER(created) && NUMBER(changed) && NUMBER(status) && BYTES(result) && BYTES(reason) &&
           BYTES(label) && equal_prior(got, want, now);
}
