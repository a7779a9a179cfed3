/*
 * Removes expired rows. No index orders rows by their expiry, because every change would have to
 * update it. Instead the sweeper walks through the tables in the order of names, a part at a
 * time, and deletes a limited number of expired rows of that part per statement.
 *
 * One process sweeps for all: it is elected in idem_meta for a term, renews the term in time, and
 * stores its position there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/owner.h"
#include "store/sql/sql_engine.h"
#include "store/sql/sql_store.h"

/*
 * Checks whether this program knows the version of the tables.
 */

const char sql_schema_missing[] =
    "the tables are not there: `idem migrate --store URL` makes them, as a user who may";

bool sql_schema_fits(int64_t version, int64_t oldest, char *text, size_t size) {
    if (version >= SQL_SCHEMA && oldest <= SQL_SCHEMA)
        return true;
    if (version >= SQL_SCHEMA)
        snprintf(text, size,
                 "the tables are of version %lld, for programs that know %lld, and this one knows "
                 "%d: upgrade it",
                 (long long)version, (long long)oldest, SQL_SCHEMA);
    else if (version == 0)
        snprintf(text, size,
                 "idem_meta has no row: the tables were not finished (`idem migrate --store URL` "
                 "does), or it was deleted (put version and oldest back)");
    else
        snprintf(text, size,
                 "the tables are of version %lld, and this program needs %d: `idem migrate --store "
                 "URL` upgrades them",
                 (long long)version, SQL_SCHEMA);
    return false;
}

#define PART 1000           /* rows examined in one statement */
#define BATCH 200           /* rows deleted in one operation */
#define FIRST_MS 10000      /* after the store's first use */
#define PART_PAUSE_MS 100   /* between two parts */
#define WALK_PAUSE_MS 60000 /* between two walks */
#define ELECTED_MS 60000    /* the length of a term */
#define SAVE_MS 10000       /* how often the elected process renews its term */
#define CANDIDATE_MS 30000  /* how often other processes try to be elected */

#define TABLES_N 3 /* records, counters, transactions */

/* Steps of the operation: find the end of the next part, then delete the expired rows up to
   there. If a DELETE would wait for each locked row of the part, a SELECT without locks first
   lists the expired rows, and then only those are deleted, a few at a time. */

static const struct sql_step bounds[TABLES_N], sweeps[TABLES_N], expireds[TABLES_N],
    removes[TABLES_N];

static void sweep_set_key(struct idem_record_key *ret, struct idem_bytes prefix,
                          struct idem_bytes hash) {
    ret->prefix_len = 0;
    if (prefix.len == 0 || prefix.len > IDEM_PREFIX_MAX || hash.len != IDEM_HASH_LEN)
        return;
    ret->prefix_len = prefix.len;
    memcpy(ret->at, prefix.at, prefix.len);
    memcpy(ret->at + prefix.len, hash.at, hash.len);
}

static size_t sweep_put_position(const struct idem_record_key *at, struct sql_value *values) {
    values[0] = sql_prefix(at);
    values[1] = values[0];
    values[2] = at->prefix_len == 0 ? sql_bytes("", 0) : sql_hash(at);
    return 3;
}

static size_t job_write_bound(struct sql_job *job, struct sql_value *values) {
    size_t n = sweep_put_position(&job->walk->at, values);

    values[n++] = sql_int(PART - 1);
    return n;
}

static int job_take_bound(struct sql_job *job, struct sql_answer *answer) {
    struct sql_walk *walk = job->walk;

    job->base.copy.out.sweep.removed = 0;
    walk->bound.prefix_len = 0;
    if (answer->rows > 0)
        sweep_set_key(&walk->bound, sql_cell(answer, 0, 0)->bytes, sql_cell(answer, 0, 1)->bytes);
    return sql_job_continue(job, job->store->engine->skips ? &sweeps[walk->table]
                                                           : &expireds[walk->table]);
}

static size_t sweep_put_part(const struct sql_walk *walk, struct sql_value *values) {
    static const unsigned char last[IDEM_PREFIX_MAX + 1] = {[0 ... IDEM_PREFIX_MAX] = 0xff};
    size_t n = sweep_put_position(&walk->at, values);

    if (walk->bound.prefix_len != 0)
        return n + sweep_put_position(&walk->bound, values + n);
    values[n++] = sql_bytes(last, sizeof(last));
    values[n++] = sql_bytes(last, sizeof(last));
    values[n++] = sql_bytes(last, IDEM_HASH_LEN);
    return n;
}

/* All expired rows up to the bound are removed. */
static int job_end_part(struct sql_job *job) {
    struct sql_walk *walk = job->walk;

    walk->at = walk->bound;
    if (walk->bound.prefix_len == 0) {
        walk->table = (walk->table + 1) % TABLES_N;
        job->base.copy.out.sweep.more = walk->table != 0;
    }
    return 0;
}

static size_t job_write_sweep(struct sql_job *job, struct sql_value *values) {
    size_t n = sweep_put_part(job->walk, values);

    values[n++] = sql_int((int64_t)job->base.copy.in.sweep.max);
    return n;
}

static int job_take_sweep(struct sql_job *job, struct sql_answer *answer) {
    size_t removed = answer->affected > 0 ? (size_t)answer->affected : 0;

    job->base.copy.out.sweep.removed = removed;
    job->base.copy.out.sweep.more = true;
    if (removed >= job->base.copy.in.sweep.max) /* the part may contain more */
        return 0;
    return job_end_part(job);
}

/* The number of rows for the next statement, within the operation's limit. */
static size_t job_batch_size(const struct sql_job *job) {
    size_t left = job->base.copy.in.sweep.max - job->base.copy.out.sweep.removed;

    return left < SQL_REMOVE_MAX ? left : SQL_REMOVE_MAX;
}

static size_t job_write_expired(struct sql_job *job, struct sql_value *values) {
    size_t n = sweep_put_part(job->walk, values);

    values[n++] = sql_int((int64_t)job_batch_size(job));
    return n;
}

static int job_take_expired(struct sql_job *job, struct sql_answer *answer) {
    job->base.copy.out.sweep.more = true;
    if (answer->rows == 0)
        return job_end_part(job);
    sql_job_take_answer(job);
    return sql_job_continue(job, &removes[job->walk->table]);
}

static size_t job_write_remove(struct sql_job *job, struct sql_value *values) {
    size_t last = job->read->rows - 1;

    for (size_t i = 0; i < SQL_REMOVE_MAX; i++) {
        values[2 * i] = *sql_cell(job->read, i < last ? i : last, 0);
        values[2 * i + 1] = *sql_cell(job->read, i < last ? i : last, 1);
    }
    return 2 * SQL_REMOVE_MAX;
}

/* Rows that stay locked too long are left to the next walk. */
static int job_take_remove(struct sql_job *job, struct sql_answer *answer) {
    const struct sql_answer *read = job->read;
    bool full = read->rows >= job_batch_size(job);

    if (answer->trouble == SQL_FINE && answer->affected > 0)
        job->base.copy.out.sweep.removed += (size_t)answer->affected;
    if (!full)
        return job_end_part(job);
    sweep_set_key(&job->walk->at, sql_cell(read, read->rows - 1, 0)->bytes,
                  sql_cell(read, read->rows - 1, 1)->bytes);
    if (job->base.copy.out.sweep.removed >= job->base.copy.in.sweep.max)
        return 0;
    return sql_job_continue(job, &expireds[job->walk->table]);
}

/* A step for each table. */
#define STEPS(statement, changes, write, take, passes)                                             \
    {                                                                                              \
        {statement##_RECORD, changes, write, take, passes},                                        \
            {statement##_COUNTER, changes, write, take, passes},                                   \
            {statement##_TX, changes, write, take, passes},                                        \
    }
static const struct sql_step bounds[TABLES_N] =
    STEPS(SQL_BOUND, false, job_write_bound, job_take_bound, false);
static const struct sql_step sweeps[TABLES_N] =
    STEPS(SQL_SWEEP, true, job_write_sweep, job_take_sweep, false);
static const struct sql_step expireds[TABLES_N] =
    STEPS(SQL_EXPIRED, false, job_write_expired, job_take_expired, false);
static const struct sql_step removes[TABLES_N] =
    STEPS(SQL_REMOVE, true, job_write_remove, job_take_remove, true);

const struct sql_step *sql_sweep_begin(struct sql_job *job) {
    struct sql_store *store = job->store;

    job->walk = job->base.caller == &store->sweeper.op ? &store->sweeper.walk : &store->walk;
    return &bounds[job->walk->table];
}

/* The sweeper. */

unsigned sql_sweep_hurry = 1;

static void sweep_schedule(struct sql_store *store, int64_t ms) {
    ms /= sql_sweep_hurry;
    idem_timer_set(store->remote.base.loop, &store->sweeper.timer, ms / 2 + rand() % (ms / 2 + 1));
}

static void sweep_done(struct idem_op *op, int rc) {
    struct sql_store *store = op->data;

    if (rc != 0 || !op->out.sweep.more)
        sweep_schedule(store, WALK_PAUSE_MS);
    else
        sweep_schedule(store, op->out.sweep.removed >= op->in.sweep.max ? 1 : PART_PAUSE_MS);
}

static void sweep_submit(struct sql_store *store) {
    struct sql_sweeper *sweeper = &store->sweeper;

    sweeper->op = (struct idem_op){
        .kind = IDEM_OP_SWEEP, .in.sweep.max = BATCH, .complete = sweep_done, .data = store};
    if (remote_submit(&store->remote.base, &sweeper->op) != 0)
        sweep_schedule(store, WALK_PAUSE_MS);
}

static void sweep_take_saved(struct sql_connection *connection, void *data,
                             struct sql_answer *answer) {
    struct sql_store *store = data;

    (void)connection;
    store->sweeper.flying = false;
    if (answer == NULL || answer->trouble != SQL_FINE || answer->affected == 0) {
        store->sweeper.elected = false;
        sweep_schedule(store, CANDIDATE_MS);
        return;
    }
    store->sweeper.save_at = idem_loop_now() + SAVE_MS / sql_sweep_hurry;
    sweep_submit(store);
}

static bool sweep_save(struct sql_store *store) {
    struct sql_sweeper *sweeper = &store->sweeper;
    struct sql_value values[5], at[3];

    (void)sweep_put_position(&sweeper->walk.at, at);
    values[0] = sql_int(sweeper->walk.table);
    values[1] = at[0];
    values[2] = at[2];
    values[3] = sql_int(ELECTED_MS);
    values[4] = sql_bytes(sweeper->id, sizeof(sweeper->id));
    return sql_connection_send(&store->connections[0], SQL_SAVE, values, 5, sweep_take_saved,
                               store);
}

static void sweep_take_elected(struct sql_connection *connection, void *data,
                               struct sql_answer *answer) {
    struct sql_store *store = data;
    struct sql_walk *walk = &store->sweeper.walk;

    (void)connection;
    store->sweeper.flying = false;
    if (answer == NULL || answer->trouble != SQL_FINE || answer->rows == 0) {
        sweep_schedule(store, CANDIDATE_MS);
        return;
    }
    *walk = (struct sql_walk){0};
    if (sql_cell(answer, 0, 0)->type == SQL_INT && sql_cell(answer, 0, 0)->n >= 0 &&
        sql_cell(answer, 0, 0)->n < (int64_t)TABLES_N) {
        walk->table = (unsigned)sql_cell(answer, 0, 0)->n;
        sweep_set_key(&walk->at, sql_cell(answer, 0, 1)->bytes, sql_cell(answer, 0, 2)->bytes);
    }
    store->sweeper.elected = true;
    store->sweeper.save_at = idem_loop_now() + SAVE_MS / sql_sweep_hurry;
    sweep_submit(store);
}

static void sweep_take_vote(struct sql_connection *connection, void *data,
                            struct sql_answer *answer) {
    struct sql_store *store = data;
    struct sql_value id = sql_bytes(store->sweeper.id, sizeof(store->sweeper.id));

    if (answer == NULL || answer->trouble != SQL_FINE || answer->affected == 0 ||
        !sql_connection_send(connection, SQL_ELECTED, &id, 1, sweep_take_elected, store)) {
        store->sweeper.flying = false;
        sweep_schedule(store, CANDIDATE_MS);
    }
}

static bool sweep_stand(struct sql_store *store) {
    struct sql_value id = sql_bytes(store->sweeper.id, sizeof(store->sweeper.id));
    struct sql_value values[3] = {id, sql_int(ELECTED_MS), id};

    return sql_connection_send(&store->connections[0], SQL_ELECT, values, 3, sweep_take_vote,
                               store);
}

static void sweep_fire(struct idem_timer *timer) {
    struct sql_sweeper *sweeper = idem_container_of(timer, struct sql_sweeper, timer);
    struct sql_store *store = idem_container_of(sweeper, struct sql_store, sweeper);

    remote_enter(&store->remote);
    if (sweeper->elected && idem_loop_now() < sweeper->save_at) {
        sweep_submit(store);
    } else {
        sql_connection_open(&store->connections[0]);
        sweeper->flying = sweeper->elected ? sweep_save(store) : sweep_stand(store);
        if (!sweeper->flying)
            sweep_schedule(store, CANDIDATE_MS);
        idem_task_post(store->remote.base.loop, &store->connections[0].flush);
    }
    (void)remote_leave(&store->remote);
}

void sql_sweeper_init(struct sql_store *store) {
    store->sweeper.timer.fire = sweep_fire;
}

void sql_sweeper_arm(struct sql_store *store) {
    struct sql_sweeper *sweeper = &store->sweeper;

    if (!store->config.sweep || sweeper->named || idem_owner_make(sweeper->id) != 0)
        return;
    sweeper->named = true;
    sweep_schedule(store, FIRST_MS);
}

void sql_sweeper_stop(struct sql_store *store) {
    idem_timer_clear(store->remote.base.loop, &store->sweeper.timer);
}
