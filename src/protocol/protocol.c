/*
 * Applies the tables to one record. Pure: the caller passes the record and the store's time, and
 * stores the outcome. Nothing here can fail.
 */
#include "protocol/protocol.h"

#include <openssl/crypto.h>
#include <string.h>

#include "base/bytes.h"

static bool record_owner_is(const struct idem_record *record, const unsigned char *owner) {
    return memcmp(record->owner, owner, IDEM_OWNER_LEN) == 0;
}

static uint32_t protocol_definition_normalize(uint32_t definition) {
    return definition >= IDEM_DEFINITION_COMPUTED ? definition & ~IDEM_DEFINITION_RAW : definition;
}

bool idem_fingerprint_differs(const struct idem_fingerprint *a, const struct idem_fingerprint *b) {
    return a->definition != 0 &&
           protocol_definition_normalize(a->definition) ==
               protocol_definition_normalize(b->definition) &&
           CRYPTO_memcmp(a->hash, b->hash, IDEM_HASH_LEN) != 0;
}

/* A record without a binding matches only callers without one: on a route that requires a
   binding, a token that was issued without a binding is refused. */
static bool record_bind_matches(const struct idem_record *record, const struct idem_claim_in *in) {
    return record->bound == in->has_bind &&
           (!record->bound || CRYPTO_memcmp(record->bind, in->bind, IDEM_HASH_LEN) == 0);
}

static unsigned protocol_fact_if(bool holds, unsigned fact) {
    return holds ? fact : 0;
}

static unsigned record_claim_facts(const struct idem_record *record, const struct idem_claim_in *in,
                                   struct idem_time now) {
    unsigned facts = protocol_fact_if(in->token, IDEM_FACT_TOKEN) |
                     protocol_fact_if(in->recover == IDEM_RECOVER_RERUN, IDEM_FACT_RERUN) |
                     protocol_fact_if(in->mode == IDEM_MODE_REPLAY, IDEM_FACT_REPLAY) |
                     protocol_fact_if(in->probe, IDEM_FACT_PROBE);

    if (record == NULL)
        return facts;
    return facts | protocol_fact_if(record_bind_matches(record, in), IDEM_FACT_BOUND) |
           protocol_fact_if(record_owner_is(record, in->owner) && !record->released,
                            IDEM_FACT_MINE) |
           protocol_fact_if(idem_fingerprint_differs(&record->fingerprint, &in->fingerprint),
                            IDEM_FACT_DIFFERS) |
           protocol_fact_if(idem_record_live(record, now), IDEM_FACT_LIVE) |
           protocol_fact_if(in->attempts == 0 || record->tries < in->attempts,
                            IDEM_FACT_ATTEMPTS_LEFT) |
           protocol_fact_if(record->lock, IDEM_FACT_LOCK) |
           protocol_fact_if(record->kept, IDEM_FACT_KEPT) |
           protocol_fact_if(record->final || in->on_failure == IDEM_ON_FAILURE_KEEP,
                            IDEM_FACT_FINAL);
}

/* Saves the state before the claim, for a release. */
static void record_prior_save(struct idem_record *record) {
    record->prior.state = record->state;
    record->prior.tries = record->tries;
    record->prior.due = record->lease_end;
    record->prior.expires = record->expires;
    record->prior.fingerprint = record->fingerprint;
}

static void record_run_begin(struct idem_record *record, const struct idem_claim_in *in,
                             struct idem_time now) {
    record->state = IDEM_RUNNING;
    record->released = false;
    record->lock = in->mode == IDEM_MODE_LOCK;
    record->attempt++;
    memcpy(record->owner, in->owner, IDEM_OWNER_LEN);
    record->lease_end = now.lease + in->lease_ms;
    record->expires = now.wall + in->lease_ms + in->hold_ttl_ms;
    record->changed = now.wall;
}

static void record_move_start(struct idem_record *record, const struct idem_claim_in *in,
                              struct idem_time now) {
    bool counted = record->state == IDEM_RUNNING || record->state == IDEM_FAILED;

    record_prior_save(record);
    record_run_begin(record, in, now);
    record->tries = counted ? record->tries + 1 : 1;
    record->fingerprint = in->fingerprint;
    if (in->label.len != 0)
        record->label = in->label;
}

static void record_move_bury(struct idem_record *record, const struct idem_claim_in *in,
                             struct idem_time now) {
    static const char reason[] = "the last attempt vanished";

    record->state = IDEM_FAILED;
    record->final = true;
    record->kept = false;
    record->result = (struct idem_bytes){0};
    record->reason = (struct idem_bytes){(const unsigned char *)reason, sizeof(reason) - 1};
    memset(record->owner, 0, IDEM_OWNER_LEN);
    record->lease_end = 0;
    record->expires = now.wall + in->ttl_ms;
    record->changed = now.wall;
}

enum idem_verdict idem_protocol_claim(struct idem_record *record, struct idem_record *fresh,
                                      const struct idem_claim_in *in, struct idem_time now,
                                      bool *ret_write, int64_t *ret_left) {
    bool absent = record == NULL || idem_record_expired(record, now);
    const struct idem_claim_rule *rule = idem_claim_rule_find(
        absent ? IDEM_ABSENT : record->state, record_claim_facts(absent ? NULL : record, in, now));

    if (absent) {
        if (record == NULL)
            record = fresh;
        *record = (struct idem_record){.state = IDEM_ABSENT, .created = now.wall};
    }
    *ret_left = rule->verdict == IDEM_BUSY ? record->lease_end - now.lease : 0;
    *ret_write = rule->move != IDEM_MOVE_NONE;
    if (rule->move == IDEM_MOVE_START)
        record_move_start(record, in, now);
    else if (rule->move == IDEM_MOVE_BURY)
        record_move_bury(record, in, now);
    else if (rule->move == IDEM_MOVE_TAKE) {
        record_prior_save(record);
        record_run_begin(record, in, now);
    }
    return rule->verdict;
}

static bool record_finish_repeats(const struct idem_record *record,
                                  const struct idem_finish_in *in) {
    if (in->action == IDEM_OWNER_RELEASE)
        return record->released;
    return !record->released && record->status == in->status && record->final == in->final &&
           (in->action != IDEM_OWNER_FAIL || idem_bytes_equal(record->reason, in->reason)) &&
           (!record->kept || idem_bytes_equal(record->result, in->result));
}

static unsigned record_finish_facts(const struct idem_record *record,
                                    const struct idem_finish_in *in) {
    bool mine, lock;

    if (record == NULL)
        return 0;
    /* After a release the owner is no longer the owner, except to repeat the release. The
       attempt is compared too: a delayed copy of a claim may have made its sender the owner of a
       later attempt, and an outcome of the earlier attempt must not change the later one. */
    mine = record_owner_is(record, in->owner) &&
           (in->attempt == 0 || in->attempt == record->attempt) &&
           (!record->released || in->action == IDEM_OWNER_RELEASE);
    /* A lock that was claimed in any state but absent or free is restored to that state. */
    lock = record->lock && (record->prior.state == IDEM_ABSENT || record->prior.state == IDEM_DONE);
    return protocol_fact_if(mine, IDEM_FACT_MINE) | protocol_fact_if(lock, IDEM_FACT_LOCK) |
           protocol_fact_if(record_finish_repeats(record, in), IDEM_FACT_SAME);
}

/* Sets the fields that done and fail share. The owner stays, so that it can repeat its finish. */
static void record_move_finish(struct idem_record *record, const struct idem_finish_in *in,
                               struct idem_time now, enum idem_state state) {
    record->state = state;
    record->final = state == IDEM_FAILED && in->final;
    record->kept = in->keep_result && !record->lock;
    record->result = record->kept ? in->result : (struct idem_bytes){0};
    record->reason = in->reason;
    record->status = in->status;
    record->lease_end = state == IDEM_FAILED ? now.lease + in->delay_ms : 0;
    record->expires = now.wall + in->ttl_ms;
    record->changed = now.wall;
}

static void record_move_free(struct idem_record *record, const struct idem_finish_in *in,
                             struct idem_time now) {
    record->state = IDEM_DONE;
    record->released = true;
    record->lease_end = 0;
    record->expires = now.wall + in->ttl_ms;
    record->changed = now.wall;
}

/* Keeps the attempt: a fencing number is never issued twice. */
static void record_move_restore(struct idem_record *record, struct idem_time now) {
    record->state = record->prior.state;
    record->tries = record->prior.tries;
    record->lease_end = record->prior.state == IDEM_RUNNING ? now.lease : record->prior.due;
    record->expires = record->prior.expires;
    record->fingerprint = record->prior.fingerprint;
    record->lock = record->prior.state == IDEM_DONE; /* only a lock can be claimed when done */
    record->released = true;
    record->changed = now.wall;
}

enum idem_ack idem_protocol_finish(struct idem_record *record, const struct idem_finish_in *in,
                                   struct idem_time now, enum idem_store_write *ret_write) {
    bool absent = record == NULL || idem_record_expired(record, now);
    const struct idem_finish_rule *rule =
        idem_finish_rule_find(in->action, absent ? IDEM_ABSENT : record->state,
                              record_finish_facts(absent ? NULL : record, in));

    *ret_write = IDEM_WRITE_NONE;
    if (absent || rule->move == IDEM_MOVE_NONE)
        return rule->ack;
    *ret_write = IDEM_WRITE_PUT;
    switch (rule->move) {
    case IDEM_MOVE_DONE:
        record_move_finish(record, in, now, IDEM_DONE);
        break;
    case IDEM_MOVE_FAIL:
        record_move_finish(record, in, now, IDEM_FAILED);
        break;
    case IDEM_MOVE_FREE:
        record_move_free(record, in, now);
        break;
    case IDEM_MOVE_RESTORE:
        if (record->prior.state == IDEM_ABSENT)
            *ret_write = IDEM_WRITE_DELETE;
        else
            record_move_restore(record, now);
        break;
    case IDEM_MOVE_END:
        record->lease_end = now.lease + in->delay_ms;
        record->expires = now.wall + in->delay_ms + in->hold_ttl_ms;
        record->reason = in->reason;
        record->changed = now.wall;
        break;
    case IDEM_MOVE_EXTEND:
        record->lease_end = now.lease + in->lease_ms;
        record->expires = now.wall + in->lease_ms + in->hold_ttl_ms;
        break;
    default:
        break;
    }
    return rule->ack;
}

static bool record_lease_is_held(const struct idem_record *record, struct idem_time now) {
    return record->state == IDEM_RUNNING && idem_record_live(record, now);
}

int idem_protocol_settle(struct idem_record *record, const struct idem_settle_in *in,
                         struct idem_time now) {
    if (record == NULL || idem_record_expired(record, now))
        return IDEM_E_ABSENT;
    if (in->attempt != 0 && in->attempt != record->attempt)
        return IDEM_E_LIVE;
    if (record_lease_is_held(record, now) && !in->force)
        return IDEM_E_LIVE;
    /* A free lock cannot be settled either. If the state is no longer `from`, another operator
       has settled the record at the same attempt. */
    if (record->state == IDEM_DONE || (in->from != IDEM_ABSENT && in->from != record->state))
        return IDEM_E_SETTLED;
    record->state = in->to;
    record->final = false;
    record->kept = false;
    record->released = false;
    record->result = (struct idem_bytes){0};
    record->reason = in->reason;
    record->status = in->status;
    memset(record->owner, 0, IDEM_OWNER_LEN);
    record->lease_end = in->to == IDEM_FAILED ? now.lease : 0;
    record->expires = now.wall + in->ttl_ms;
    record->changed = now.wall;
    return 0;
}

int idem_protocol_forget(const struct idem_record *record, bool force, struct idem_time now) {
    if (record == NULL || idem_record_expired(record, now))
        return IDEM_E_ABSENT;
    return record_lease_is_held(record, now) && !force ? IDEM_E_LIVE : 0;
}

bool idem_protocol_issue(const struct idem_record *record, struct idem_record *fresh,
                         const struct idem_issue_in *in, struct idem_time now, bool *ret_write) {
    *ret_write = false;
    if (record != NULL && !idem_record_expired(record, now))
        return record->state == IDEM_ISSUED && record_owner_is(record, in->owner);
    *fresh = (struct idem_record){
        .state = IDEM_ISSUED,
        .bound = in->has_bind,
        .created = now.wall,
        .changed = now.wall,
        .expires = now.wall + in->ttl_ms,
        .label = in->label,
    };
    memcpy(fresh->bind, in->bind, IDEM_HASH_LEN);
    memcpy(fresh->owner, in->owner, IDEM_OWNER_LEN);
    *ret_write = true;
    return true;
}
