/*
 * Removing what has expired. Nothing is indexed by its expiry, since that would have to be written
 * with every change: instead the tables are walked through in the order of names, a part at a time,
 * and what has expired in that part is deleted, so many at a time.
 *
 * One process does it for all: it is elected in idem_meta for a while, stays elected as long as it
 * comes back in time, and leaves there where it stood.
 */
#include <stdlib.h>
#include <string.h>

#include "core/owner.h"
#include "store/sql/store.h"
#include "store/sql/sweep.h"

#define PART 1000          /* rows that are looked at in one statement */
#define BATCH 200          /* that are deleted in one */
#define FIRST_MS 10000     /* after the store's first use */
#define STEP_MS 100        /* between two parts */
#define ROUND_MS 60000     /* between two walks */
#define ELECTED_MS 60000   /* how long nobody else is */
#define SAVE_MS 10000      /* how often it says that it is still there */
#define CANDIDATE_MS 30000 /* how often others ask */

#define TABLES_N 3 /* records, counters, transactions */

/* Steps of the operation: the end of the next part, then what has expired up to there. Where a
   DELETE would wait for every row that somebody holds in that part, what has expired is seen first,
   by a SELECT that waits for nobody, and then those rows alone are deleted, a few at a time. */

static const struct sql_step bounds[TABLES_N], sweeps[TABLES_N], expireds[TABLES_N],
    removes[TABLES_N];

static void key_set(struct idem_record_key *ret, struct idem_bytes prefix, struct idem_bytes hash) {
    ret->prefix_len = 0;
    if (prefix.len == 0 || prefix.len > IDEM_PREFIX_MAX || hash.len != IDEM_HASH_LEN)
        return;
    ret->prefix_len = prefix.len;
    memcpy(ret->at, prefix.at, prefix.len);
    memcpy(ret->at + prefix.len, hash.at, hash.len);
}

static size_t put_at(const struct idem_record_key *at, struct sql_value *values) {
    values[0] = sql_prefix(at);
    values[1] = values[0];
    values[2] = at->prefix_len == 0 ? sql_bytes("", 0) : sql_hash(at);
    return 3;
}

static size_t write_bound(struct sql_job *job, struct sql_value *values) {
    size_t n = put_at(&job->walk->at, values);

    values[n++] = sql_int(PART - 1);
    return n;
}

static enum sql_next take_bound(struct sql_job *job, struct sql_answer *answer, int *ret_rc) {
    struct sql_walk *walk = job->walk;

    (void)ret_rc;
    job->copy.out.sweep.removed = 0;
    walk->bound.prefix_len = 0;
    if (answer->rows > 0)
        key_set(&walk->bound, sql_cell(answer, 0, 0)->bytes, sql_cell(answer, 0, 1)->bytes);
    job->step = job->store->engine->skips ? &sweeps[walk->table] : &expireds[walk->table];
    return SQL_NEXT_SEND;
}

static size_t put_part(const struct sql_walk *walk, struct sql_value *values) {
    static const unsigned char last[IDEM_PREFIX_MAX + 1] = {[0 ... IDEM_PREFIX_MAX] = 0xff};
    size_t n = put_at(&walk->at, values);

    if (walk->bound.prefix_len != 0)
        return n + put_at(&walk->bound, values + n);
    values[n++] = sql_bytes(last, sizeof(last));
    values[n++] = sql_bytes(last, sizeof(last));
    values[n++] = sql_bytes(last, IDEM_HASH_LEN);
    return n;
}

/* What has expired up to the bound is gone. */
static enum sql_next part_done(struct sql_job *job) {
    struct sql_walk *walk = job->walk;

    walk->at = walk->bound;
    if (walk->bound.prefix_len != 0)
        return SQL_NEXT_DONE;
    walk->table = (walk->table + 1) % TABLES_N;
    job->copy.out.sweep.more = walk->table != 0;
    return SQL_NEXT_DONE;
}

static size_t write_sweep(struct sql_job *job, struct sql_value *values) {
    size_t n = put_part(job->walk, values);

    values[n++] = sql_int((int64_t)job->copy.in.sweep.max);
    return n;
}

static enum sql_next take_sweep(struct sql_job *job, struct sql_answer *answer, int *ret_rc) {
    size_t removed = answer->affected > 0 ? (size_t)answer->affected : 0;

    *ret_rc = 0;
    job->copy.out.sweep.removed = removed;
    job->copy.out.sweep.more = true;
    if (removed >= job->copy.in.sweep.max) /* there may be more in this part */
        return SQL_NEXT_DONE;
    return part_done(job);
}

/* As many as may still be removed, and as one statement removes. */
static size_t few(const struct sql_job *job) {
    size_t left = job->copy.in.sweep.max - job->copy.out.sweep.removed;

    return left < SQL_REMOVE_MAX ? left : SQL_REMOVE_MAX;
}

static size_t write_expired(struct sql_job *job, struct sql_value *values) {
    size_t n = put_part(job->walk, values);

    values[n++] = sql_int((int64_t)few(job));
    return n;
}

static enum sql_next take_expired(struct sql_job *job, struct sql_answer *answer, int *ret_rc) {
    *ret_rc = 0;
    job->copy.out.sweep.more = true;
    if (answer->rows == 0)
        return part_done(job);
    if (job->read != NULL)
        job->store->engine->answer_free(job->read);
    job->read = sql_lane_keep(job->lane);
    job->step = &removes[job->walk->table];
    return SQL_NEXT_SEND;
}

static size_t write_remove(struct sql_job *job, struct sql_value *values) {
    size_t last = job->read->rows - 1;

    for (size_t i = 0; i < SQL_REMOVE_MAX; i++) {
        values[2 * i] = *sql_cell(job->read, i < last ? i : last, 0);
        values[2 * i + 1] = *sql_cell(job->read, i < last ? i : last, 1);
    }
    return 2 * SQL_REMOVE_MAX;
}

/* Those that somebody held too long are left to the next walk. */
static enum sql_next take_remove(struct sql_job *job, struct sql_answer *answer, int *ret_rc) {
    const struct sql_answer *read = job->read;
    bool full = read->rows >= few(job);

    *ret_rc = 0;
    if (answer->trouble == SQL_FINE && answer->affected > 0)
        job->copy.out.sweep.removed += (size_t)answer->affected;
    if (!full)
        return part_done(job);
    key_set(&job->walk->at, sql_cell(read, read->rows - 1, 0)->bytes,
            sql_cell(read, read->rows - 1, 1)->bytes);
    if (job->copy.out.sweep.removed >= job->copy.in.sweep.max)
        return SQL_NEXT_DONE;
    job->step = &expireds[job->walk->table];
    return SQL_NEXT_SEND;
}

static const struct sql_step bounds[TABLES_N] = {
    {SQL_BOUND_RECORD, false, write_bound, take_bound},
    {SQL_BOUND_COUNTER, false, write_bound, take_bound},
    {SQL_BOUND_TX, false, write_bound, take_bound},
};
static const struct sql_step sweeps[TABLES_N] = {
    {SQL_SWEEP_RECORD, true, write_sweep, take_sweep},
    {SQL_SWEEP_COUNTER, true, write_sweep, take_sweep},
    {SQL_SWEEP_TX, true, write_sweep, take_sweep},
};
static const struct sql_step expireds[TABLES_N] = {
    {SQL_EXPIRED_RECORD, false, write_expired, take_expired},
    {SQL_EXPIRED_COUNTER, false, write_expired, take_expired},
    {SQL_EXPIRED_TX, false, write_expired, take_expired},
};
static const struct sql_step removes[TABLES_N] = {
    {SQL_REMOVE_RECORD, true, write_remove, take_remove, true},
    {SQL_REMOVE_COUNTER, true, write_remove, take_remove, true},
    {SQL_REMOVE_TX, true, write_remove, take_remove, true},
};

const struct sql_step *sql_sweep_begin(struct sql_job *job) {
    struct sql_store *store = job->store;

    job->walk = job->op == &store->sweeper.op ? &store->sweeper.walk : &store->walk;
    return &bounds[job->walk->table];
}

/* The sweeper. */

unsigned sql_sweep_hurry = 1;

static void sweeper_next(struct sql_store *store, int64_t ms) {
    ms /= sql_sweep_hurry;
    idem_timer_set(store->base.loop, &store->sweeper.timer, ms / 2 + rand() % (ms / 2 + 1));
}

static void sweep_done(struct idem_op *op, int rc) {
    struct sql_store *store = op->data;

    if (rc != 0 || !op->out.sweep.more)
        sweeper_next(store, ROUND_MS);
    else
        sweeper_next(store, op->out.sweep.removed >= op->in.sweep.max ? 1 : STEP_MS);
}

static void sweep_submit(struct sql_store *store) {
    struct sql_sweeper *sweeper = &store->sweeper;

    sweeper->op = (struct idem_op){
        .kind = IDEM_OP_SWEEP, .in.sweep.max = BATCH, .complete = sweep_done, .data = store};
    if (sql_submit(&store->base, &sweeper->op) != 0)
        sweeper_next(store, ROUND_MS);
}

static void take_saved(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    struct sql_store *store = data;

    (void)lane;
    store->sweeper.flying = false;
    if (answer == NULL || answer->trouble != SQL_FINE || answer->affected == 0) {
        store->sweeper.elected = false;
        sweeper_next(store, CANDIDATE_MS);
        return;
    }
    store->sweeper.save_at = idem_loop_now() + SAVE_MS / sql_sweep_hurry;
    sweep_submit(store);
}

static bool save(struct sql_store *store) {
    struct sql_sweeper *sweeper = &store->sweeper;
    struct sql_value values[5], at[3];

    (void)put_at(&sweeper->walk.at, at);
    values[0] = sql_int(sweeper->walk.table);
    values[1] = at[0];
    values[2] = at[2];
    values[3] = sql_int(ELECTED_MS);
    values[4] = sql_bytes(sweeper->id, sizeof(sweeper->id));
    return sql_lane_send(&store->lanes[0], SQL_SAVE, values, 5, take_saved, store);
}

static void take_elected(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    struct sql_store *store = data;
    struct sql_walk *walk = &store->sweeper.walk;

    (void)lane;
    store->sweeper.flying = false;
    if (answer == NULL || answer->trouble != SQL_FINE || answer->rows == 0) {
        sweeper_next(store, CANDIDATE_MS);
        return;
    }
    *walk = (struct sql_walk){0};
    if (sql_cell(answer, 0, 0)->type == SQL_INT && sql_cell(answer, 0, 0)->n >= 0 &&
        sql_cell(answer, 0, 0)->n < (int64_t)TABLES_N) {
        walk->table = (unsigned)sql_cell(answer, 0, 0)->n;
        key_set(&walk->at, sql_cell(answer, 0, 1)->bytes, sql_cell(answer, 0, 2)->bytes);
    }
    store->sweeper.elected = true;
    store->sweeper.save_at = idem_loop_now() + SAVE_MS / sql_sweep_hurry;
    sweep_submit(store);
}

static void take_vote(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    struct sql_store *store = data;
    struct sql_value id = sql_bytes(store->sweeper.id, sizeof(store->sweeper.id));

    if (answer == NULL || answer->trouble != SQL_FINE || answer->affected == 0 ||
        !sql_lane_send(lane, SQL_ELECTED, &id, 1, take_elected, store)) {
        store->sweeper.flying = false;
        sweeper_next(store, CANDIDATE_MS);
    }
}

static bool stand(struct sql_store *store) {
    struct sql_value id = sql_bytes(store->sweeper.id, sizeof(store->sweeper.id));
    struct sql_value values[3] = {id, sql_int(ELECTED_MS), id};

    return sql_lane_send(&store->lanes[0], SQL_ELECT, values, 3, take_vote, store);
}

static void sweeper_fire(struct idem_timer *timer) {
    struct sql_sweeper *sweeper = idem_container_of(timer, struct sql_sweeper, timer);
    struct sql_store *store = idem_container_of(sweeper, struct sql_store, sweeper);

    sql_store_enter(store);
    if (sweeper->elected && idem_loop_now() < sweeper->save_at) {
        sweep_submit(store);
    } else {
        sql_lane_open(&store->lanes[0]);
        sweeper->flying = sweeper->elected ? save(store) : stand(store);
        if (!sweeper->flying)
            sweeper_next(store, CANDIDATE_MS);
        idem_task_post(store->base.loop, &store->lanes[0].flush);
    }
    (void)sql_store_leave(store);
}

void sql_sweeper_init(struct sql_store *store) {
    store->sweeper.timer.fire = sweeper_fire;
}

void sql_sweeper_arm(struct sql_store *store) {
    struct sql_sweeper *sweeper = &store->sweeper;

    if (!store->config.sweep || sweeper->named || idem_owner_make(sweeper->id) != 0)
        return;
    sweeper->named = true;
    sweeper_next(store, FIRST_MS);
}

void sql_sweeper_stop(struct sql_store *store) {
    idem_timer_clear(store->base.loop, &store->sweeper.timer);
}
