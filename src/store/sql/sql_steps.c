/*
 * Operations as steps of statements. The core's tables make every decision. A change names the
 * revision on which it was decided; if the record has another revision by now, the decision is
 * made again.
 */
#include <string.h>

#include "base/error.h"
#include "protocol/owner.h"
#include "store/sql/sql_engine.h"
#include "store/sql/sql_store.h"

/*
 * The values that each statement takes and returns, the same for every engine. Values are in the
 * order of MySQL's placeholders (?), so a value that occurs twice in its text is passed twice.
 * PostgreSQL numbers its placeholders ($1).
 */

/* revision, format, state, flags, attempt, tries, owner, definition, fingerprint, bind, lease_end,
   expires, created, changed, status, prior: state, tries, due, expires, definition, fingerprint;
   label, reason, result, its length, now */
#define RECORD "iiiiiibibbttttiiittibbbbit"
/* revision, state, flags, attempt, tries, owner, definition, fingerprint, bind, lease_end,
   expires, created, changed, status, prior (six values), label, reason */
#define WRITTEN "ihhiibibbttttnhittibbb"

/* prefix, hash; SQL_REMOVE_MAX times */
#define KEYS_16 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define KEYS KEYS_16 KEYS_16 KEYS_16 KEYS_16
_Static_assert(sizeof(KEYS) == 2 * SQL_REMOVE_MAX + 1, "a letter for each value");

const struct sql_shape sql_shapes[SQL_STATEMENT__COUNT] = {
    /* prefix, hash, revision, state, flags, attempt, tries, owner, definition, fingerprint, bind,
       lease, life, label */
    [SQL_INSERT] = {"bbihhiibibbddb", ""},
    [SQL_READ] = {"ibb", RECORD}, /* 1 to read the result, prefix, hash */
    /* revision, state, flags, due, life, status, reason, result; prefix, hash, owner, attempt.
       If the engine notifies, the statement itself does so. */
    [SQL_FINISH] = {"ihhddnbbbbbi", ""},
    /* values; prefix, hash, the revision to replace, 1 to notify waiting claims */
    [SQL_WRITE] = {WRITTEN "bbii", ""},
    [SQL_WRITE_RESULT] = {WRITTEN "bbbii", ""},
    [SQL_DELETE] = {"bbi", ""},
    [SQL_COUNTER_INSERT] = {"bbiid", ""}, /* prefix, hash, revision, value, life */
    [SQL_COUNTER_READ] = {"bb", "iii"},   /* revision, value, 1 if not expired */
    [SQL_COUNTER_WRITE] = {"iidbbi", ""}, /* revision, value, life; prefix, hash, old revision */
    /* behind this prefix, this prefix and hash; prefixes from, to; states from, to; 1 for
       uncertain records only; changed since; limit */
    [SQL_LIST] = {"bbbbbiiiti", "bb" RECORD},
    [SQL_STATS] = {"", "iii"},           /* state, live, count */
    [SQL_EVENTS] = {"", "bi"},           /* name, count */
    [SQL_EVENT_ADD] = {"bi", ""},        /* name, count */
    [SQL_TIME] = {"", "t"},              /* now */
    [SQL_TX] = {"bb", "ib"},             /* prefix, hash: status, result */
    [SQL_ELECT] = {"bdb", ""},           /* candidate, term, candidate */
    [SQL_ELECTED] = {"b", "ibb"},        /* candidate; table, prefix, hash */
    [SQL_SAVE] = {"hbbdb", ""},          /* table, prefix, hash, term, candidate */
    [SQL_BOUND_RECORD] = {"bbbi", "bb"}, /* behind this name; offset: prefix, hash */
    [SQL_BOUND_COUNTER] = {"bbbi", "bb"},
    [SQL_BOUND_TX] = {"bbbi", "bb"},
    [SQL_SWEEP_RECORD] = {"bbbbbbi", ""}, /* behind this name; up to this name; limit */
    [SQL_SWEEP_COUNTER] = {"bbbbbbi", ""},
    [SQL_SWEEP_TX] = {"bbbbbbi", ""},
    [SQL_EXPIRED_RECORD] = {"bbbbbbi", "bb"}, /* the same: prefix, hash */
    [SQL_EXPIRED_COUNTER] = {"bbbbbbi", "bb"},
    [SQL_EXPIRED_TX] = {"bbbbbbi", "bb"},
    [SQL_REMOVE_RECORD] = {KEYS, ""}, /* prefix, hash; the last pair fills up the rest */
    [SQL_REMOVE_COUNTER] = {KEYS, ""},
    [SQL_REMOVE_TX] = {KEYS, ""},
    [SQL_MARK] = {"bb", "i"}, /* prefix, hash: revision */
    [SQL_LOOK] = {"bb", "i"},
    [SQL_LISTEN] = {"", ""},
};

static const struct sql_step step_insert, step_read, step_finish, step_write, step_write_result,
    step_delete, step_counter_insert, step_counter_read, step_counter_write, step_tx;

/* Errors. */

void sql_job_take_answer(struct sql_job *job) {
    job->store->engine->answer_free(job->read);
    job->read = sql_connection_take_answer(job->connection);
}

int sql_job_trouble(struct sql_job *job, const struct sql_answer *answer) {
    if (answer->trouble == SQL_FULL)
        return idem_error_set(&job->base.copy.error, IDEM_E_FULL, "the server has no room: %.200s",
                              answer->text);
    return idem_error_set(&job->base.copy.error, IDEM_E_REFUSED, "the server refuses: %.200s",
                          answer->text);
}

/* Each change gets a revision of its own. */
static int job_make_revision(struct sql_job *job) {
    unsigned char bits[IDEM_OWNER_LEN];

    if (idem_owner_make(bits) != 0)
        return idem_error_set(&job->base.copy.error, IDEM_E_REFUSED,
                              "the system gives no random bits");
    memcpy(&job->revision, bits, sizeof(job->revision));
    return 0;
}

/* Completion. */

static int job_claim_done(struct sql_job *job) {
    enum idem_verdict verdict = job->base.copy.out.claim.verdict;

    job->base.copy.out.claim.record = job->record;
    if (verdict != IDEM_REPLAY && verdict != IDEM_DEAD)
        job->base.copy.out.claim.record.result = (struct idem_bytes){0};
    return 0;
}

/* The decided change is in the store. */
static int job_written(struct sql_job *job) {
    switch (job->base.copy.kind) {
    case IDEM_OP_CLAIM:
        return job_claim_done(job);
    case IDEM_OP_FINISH:
        return remote_op_check_finish(&job->base);
    case IDEM_OP_ISSUE:
        job->base.copy.out.issue.issued = true;
        return 0;
    default:
        return 0;
    }
}

/* Decisions. */

/* The record was changed in memory: chooses the statement that writes the change. */
static int job_put(struct sql_job *job, struct idem_bytes before) {
    int rc = job_make_revision(job);

    if (rc != 0)
        return rc;
    if (job->record.result.at == before.at && job->record.result.len == before.len)
        return sql_job_continue(job, &step_write);
    return sql_job_continue(job, &step_write_result);
}

static int job_decide_claim(struct sql_job *job, bool there) {
    const struct idem_claim_in *in = &job->base.copy.in.claim;
    struct idem_time now = {job->now, job->now};
    struct idem_bytes before = job->record.result;
    struct idem_record fresh;
    bool write;

    job->base.copy.out.claim.verdict = idem_protocol_claim(
        there ? &job->record : NULL, &fresh, in, now, &write, &job->base.copy.out.claim.left_ms);
    if (there)
        return write ? job_put(job, before) : job_claim_done(job);
    job->record = fresh;
    return write ? sql_job_continue(job, &step_insert) : job_claim_done(job);
}

static int job_decide_finish(struct sql_job *job, bool there) {
    struct idem_time now = {job->now, job->now};
    struct idem_bytes before = job->record.result;
    enum idem_store_write write;

    job->base.copy.out.finish.ack =
        idem_protocol_finish(there ? &job->record : NULL, &job->base.copy.in.finish, now, &write);
    if (write == IDEM_WRITE_NONE)
        return remote_op_check_finish(&job->base);
    return write == IDEM_WRITE_PUT ? job_put(job, before) : sql_job_continue(job, &step_delete);
}

static int job_decide_issue(struct sql_job *job, bool there) {
    struct idem_time now = {job->now, job->now};
    struct idem_record fresh;
    bool write;

    if (!there)
        return sql_job_continue(job, &step_insert);
    job->base.copy.out.issue.issued =
        idem_protocol_issue(&job->record, &fresh, &job->base.copy.in.issue, now, &write);
    if (!write)
        return 0;
    job->record = fresh;
    return job_put(job, (struct idem_bytes){sql_unread, 0});
}

static int job_decide_lookup(struct sql_job *job, bool there) {
    struct idem_time now = {job->now, job->now};

    if (!there || idem_record_expired(&job->record, now))
        return idem_op_refuse(&job->base.copy, IDEM_E_ABSENT);
    idem_op_fill_lookup(&job->base.copy, &job->record, now);
    return 0;
}

static int job_decide_settle(struct sql_job *job, bool there) {
    struct idem_time now = {job->now, job->now};
    struct idem_bytes before = job->record.result;
    int rc = idem_protocol_settle(there ? &job->record : NULL, &job->base.copy.in.settle, now);

    return rc == 0 ? job_put(job, before) : idem_op_refuse(&job->base.copy, rc);
}

static int job_decide_forget(struct sql_job *job, bool there) {
    struct idem_time now = {job->now, job->now};
    int rc = idem_protocol_forget(there ? &job->record : NULL, job->base.copy.in.forget.force, now);

    return rc == 0 ? sql_job_continue(job, &step_delete) : idem_op_refuse(&job->base.copy, rc);
}

typedef int decide_fn(struct sql_job *job, bool there);

static decide_fn *const deciders[IDEM_OP__COUNT] = {
    [IDEM_OP_CLAIM] = job_decide_claim,   [IDEM_OP_FINISH] = job_decide_finish,
    [IDEM_OP_ISSUE] = job_decide_issue,   [IDEM_OP_LOOKUP] = job_decide_lookup,
    [IDEM_OP_SETTLE] = job_decide_settle, [IDEM_OP_FORGET] = job_decide_forget,
};

/* Steps on a record. */

static size_t job_write_insert(struct sql_job *job, struct sql_value *values) {
    const struct idem_claim_in *claim = &job->base.copy.in.claim;
    const struct idem_issue_in *issue = &job->base.copy.in.issue;
    struct idem_time zero = {0, 0};
    int64_t left;
    bool write;

    if (job->base.copy.kind == IDEM_OP_ISSUE) {
        (void)idem_protocol_issue(NULL, &job->record, issue, zero, &write);
        return sql_row_insert(&job->base.copy.key, &job->record, job->revision, 0, issue->ttl_ms,
                              values);
    }
    job->base.copy.out.claim.verdict =
        idem_protocol_claim(NULL, &job->record, claim, zero, &write, &left);
    return sql_row_insert(&job->base.copy.key, &job->record, job->revision, claim->lease_ms,
                          claim->lease_ms + claim->hold_ttl_ms, values);
}

static int job_take_insert(struct sql_job *job, struct sql_answer *answer) {
    if (answer->trouble == SQL_CONFLICT || answer->affected == 0)
        return sql_job_continue(job, &step_read);
    return job_written(job);
}

/* A lookup, a finish and a replay need the result; SQL_READ returns that of a failed record in
   any case. */
static bool job_wants_result(const struct sql_job *job) {
    return job->base.copy.kind == IDEM_OP_LOOKUP || job->base.copy.kind == IDEM_OP_FINISH ||
           (job->base.copy.kind == IDEM_OP_CLAIM &&
            job->base.copy.in.claim.mode == IDEM_MODE_REPLAY);
}

static size_t job_write_read(struct sql_job *job, struct sql_value *values) {
    values[0] = sql_int(job_wants_result(job));
    return 1 + sql_put_key(&job->base.copy.key, values + 1);
}

static int job_take_read(struct sql_job *job, struct sql_answer *answer) {
    int rc;

    if (answer->rows == 0)
        return deciders[job->base.copy.kind](job, false);
    sql_job_take_answer(job);
    job->was = sql_cell(answer, 0, SQL_COL_REVISION)->n;
    rc = sql_row_decode(answer->cells, &job->record, &job->now);
    /* A damaged record can still be forgotten: no other way removes it. */
    if (rc == IDEM_E_CORRUPT && job->base.copy.kind == IDEM_OP_FORGET &&
        job->base.copy.in.forget.force)
        return sql_job_continue(job, &step_delete);
    if (rc != 0)
        return idem_op_refuse(&job->base.copy, rc);
    return deciders[job->base.copy.kind](job, true);
}

/* Nearly every finish: done or failed, of a run that is not a lock and has this owner. The
   server decides these rows of the finish table; if its UPDATE finds no such row, the record is
   read and decided here. */
static size_t job_write_finish(struct sql_job *job, struct sql_value *values) {
    const struct idem_finish_in *in = &job->base.copy.in.finish;
    struct idem_time zero = {0, 0};
    enum idem_store_write write;
    size_t n = 0;

    job->record = (struct idem_record){
        .state = IDEM_RUNNING, .attempt = in->attempt, .lease_end = 1, .expires = 1};
    memcpy(job->record.owner, in->owner, IDEM_OWNER_LEN);
    job->base.copy.out.finish.ack = idem_protocol_finish(&job->record, in, zero, &write);
    values[n++] = sql_int(job->revision);
    values[n++] = sql_int(job->record.state);
    values[n++] = sql_int(sql_row_flags(&job->record));
    values[n++] = job->record.state == IDEM_FAILED ? sql_int(in->delay_ms) : sql_null();
    values[n++] = sql_int(in->ttl_ms);
    values[n++] = sql_int(in->status);
    values[n++] = in->reason.len == 0 ? sql_null() : sql_bytes(in->reason.at, in->reason.len);
    values[n++] = job->record.result.len == 0
                      ? sql_null()
                      : sql_bytes(job->record.result.at, job->record.result.len);
    n += sql_put_key(&job->base.copy.key, values + n);
    values[n++] = sql_bytes(in->owner, IDEM_OWNER_LEN);
    values[n++] = sql_int(in->attempt);
    return n;
}

/* Without such a row, the record is read and decided again. */
static int job_take_change(struct sql_job *job, struct sql_answer *answer) {
    return answer->affected == 1 ? job_written(job) : sql_job_continue(job, &step_read);
}

/* True if waiting claims must be notified of this change. */
static bool job_notifies(const struct sql_job *job) {
    switch (job->base.copy.kind) {
    case IDEM_OP_CLAIM:
        return job->base.copy.out.claim.verdict == IDEM_DEAD;
    case IDEM_OP_FINISH:
        return job->base.copy.in.finish.action != IDEM_OWNER_RENEW;
    default:
        return job->base.copy.kind != IDEM_OP_ISSUE;
    }
}

static size_t job_write_put(struct sql_job *job, struct sql_value *values) {
    size_t n = sql_row_encode(&job->base.copy.key, &job->record, job->was, job->revision,
                              job->step == &step_write_result, values);

    values[n++] = sql_int(job_notifies(job));
    return n;
}

static size_t job_write_delete(struct sql_job *job, struct sql_value *values) {
    size_t n = sql_put_key(&job->base.copy.key, values);

    values[n++] = sql_int(job->was);
    return n;
}

/* Steps on a counter. */

static int64_t job_counter_ttl(const struct sql_job *job) {
    return job->base.copy.kind == IDEM_OP_ONCE ? job->base.copy.in.once.ttl_ms
                                               : job->base.copy.in.count.ttl_ms;
}

static int job_counter_done(struct sql_job *job, bool changed) {
    if (job->base.copy.kind == IDEM_OP_ONCE)
        job->base.copy.out.once.first = changed;
    else
        job->base.copy.out.count.changed = changed;
    if (changed || job->base.copy.kind == IDEM_OP_ONCE ||
        job->base.copy.in.count.how != IDEM_COUNT_ADD)
        return 0;
    return idem_error_set(&job->base.copy.error, IDEM_E_INVALID, "the counter overflows");
}

static size_t job_write_counter_insert(struct sql_job *job, struct sql_value *values) {
    (void)sql_put_key(&job->base.copy.key, values);
    values[2] = sql_int(job->revision);
    values[3] = sql_int(job->base.copy.kind == IDEM_OP_ONCE ? 1 : job->base.copy.out.count.value);
    values[4] = sql_int(job_counter_ttl(job));
    return 5;
}

static int job_take_counter_change(struct sql_job *job, struct sql_answer *answer) {
    if (answer->trouble == SQL_CONFLICT || answer->affected == 0)
        return sql_job_continue(job, &step_counter_read);
    return job_counter_done(job, true);
}

static size_t job_write_name(struct sql_job *job, struct sql_value *values) {
    return sql_put_key(&job->base.copy.key, values);
}

static int job_take_counter_read(struct sql_job *job, struct sql_answer *answer) {
    bool there = answer->rows > 0, live = there && sql_cell(answer, 0, 2)->n != 0;
    bool changes = !live;
    int rc = job_make_revision(job);

    if (rc != 0)
        return rc;
    if (there)
        job->was = sql_cell(answer, 0, 0)->n;
    if (job->base.copy.kind == IDEM_OP_COUNT) {
        job->base.copy.out.count.value = live ? sql_cell(answer, 0, 1)->n : 0;
        changes = idem_count_apply(&job->base.copy.in.count, &job->base.copy.out.count.value);
    }
    if (!changes)
        return job_counter_done(job, false);
    return sql_job_continue(job, there ? &step_counter_write : &step_counter_insert);
}

static size_t job_write_counter_write(struct sql_job *job, struct sql_value *values) {
    values[0] = sql_int(job->revision);
    values[1] = sql_int(job->base.copy.kind == IDEM_OP_ONCE ? 1 : job->base.copy.out.count.value);
    values[2] = sql_int(job_counter_ttl(job));
    (void)sql_put_key(&job->base.copy.key, values + 3);
    values[5] = sql_int(job->was);
    return 6;
}

/* Returns the outcome of a guard in the caller's own SQL transaction. The result is borrowed
   from `answer`, which outlives the callback. */
static int job_take_tx(struct sql_job *job, struct sql_answer *answer) {
    job->base.copy.out.tx.there = answer->rows > 0;
    if (answer->rows > 0) {
        job->base.copy.out.tx.status = (int32_t)sql_cell(answer, 0, 0)->n;
        job->base.copy.out.tx.result = sql_cell(answer, 0, 1)->bytes;
    }
    return 0;
}

/* The table. */

static const struct sql_step step_insert = {SQL_INSERT, true, job_write_insert, job_take_insert};
static const struct sql_step step_read = {SQL_READ, false, job_write_read, job_take_read};
static const struct sql_step step_finish = {SQL_FINISH, true, job_write_finish, job_take_change};
static const struct sql_step step_write = {SQL_WRITE, true, job_write_put, job_take_change};
static const struct sql_step step_write_result = {SQL_WRITE_RESULT, true, job_write_put,
                                                  job_take_change};
static const struct sql_step step_delete = {SQL_DELETE, true, job_write_delete, job_take_change};
static const struct sql_step step_counter_insert = {
    SQL_COUNTER_INSERT, true, job_write_counter_insert, job_take_counter_change};
static const struct sql_step step_counter_read = {SQL_COUNTER_READ, false, job_write_name,
                                                  job_take_counter_read};
static const struct sql_step step_counter_write = {SQL_COUNTER_WRITE, true, job_write_counter_write,
                                                   job_take_counter_change};

static const struct sql_step step_tx = {SQL_TX, false, job_write_name, job_take_tx};

static const struct sql_step *job_first_step(const struct sql_job *job) {
    static const struct sql_step *const steps[IDEM_OP__COUNT] = {
        [IDEM_OP_CLAIM] = &step_insert,       [IDEM_OP_FINISH] = &step_read,
        [IDEM_OP_ISSUE] = &step_insert,       [IDEM_OP_ONCE] = &step_counter_insert,
        [IDEM_OP_COUNT] = &step_counter_read, [IDEM_OP_LOOKUP] = &step_read,
        [IDEM_OP_LIST] = &sql_step_list,      [IDEM_OP_SETTLE] = &step_read,
        [IDEM_OP_FORGET] = &step_read,        [IDEM_OP_STATS] = &sql_step_stats,
        [IDEM_OP_TIME] = &sql_step_time,      [IDEM_OP_TX] = &step_tx,
    };
    const struct idem_finish_in *finish = &job->base.copy.in.finish;

    /* A token or a prober needs an existing record: read first, so that none is created. */
    if (job->base.copy.kind == IDEM_OP_CLAIM &&
        (job->base.copy.in.claim.token || job->base.copy.in.claim.probe))
        return &step_read;
    if (job->base.copy.kind == IDEM_OP_FINISH && finish->attempt != 0 &&
        (finish->action == IDEM_OWNER_DONE || finish->action == IDEM_OWNER_FAIL))
        return &step_finish;
    return steps[job->base.copy.kind];
}

int sql_job_restart(struct sql_job *job) {
    job->step = job->base.copy.kind == IDEM_OP_SWEEP ? sql_sweep_begin(job) : job_first_step(job);
    return job_make_revision(job);
}
