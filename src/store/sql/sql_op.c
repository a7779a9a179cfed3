/*
 * Operations under way: one statement at a time; each response decides on the next statement.
 *
 *     submitted ──> queue of its connection ──> sent ──response──> next step, or complete
 *                     ^                          │
 *                     │                          v
 *                   paused <── the server rolled it back, or the connection is lost or missing
 *
 * remote.c has their lists, pauses and deadlines.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/sql/sql_store.h"

/* Slots: of the operations that read and change the records of one slot, one at a time is under
   way. Without slots, the others on this connection would find the record changed, and start again
   and again. */

static unsigned char *job_slot(const struct sql_job *job) {
    const unsigned char *hash = job->base.copy.key.at + job->base.copy.key.prefix_len;

    return &job->lane->busy[(hash[0] << 4 | hash[1] >> 4) % SQL_SLOTS];
}

/* False: the job waits for the slot. */
static bool job_take_slot(struct sql_job *job) {
    struct sql_lane *lane = job->lane;

    if (job->holds || remote_op_looks(&job->base) ||
        (job->step->statement != SQL_READ && job->step->statement != SQL_COUNTER_READ))
        return true;
    if (*job_slot(job) == 0) {
        *job_slot(job) = 1;
        job->holds = true;
        return true;
    }
    remote_queue_put(&lane->held, &job->base);
    return false;
}

/* Hands the slot to the first job that waits for it. */
static void job_release_slot(struct sql_job *job) {
    struct sql_lane *lane = job->lane;
    struct remote_op **at = &lane->held.first, *next;

    if (!job->holds)
        return;
    job->holds = false;
    *job_slot(job) = 0;
    while (*at != NULL && job_slot(sql_job_of(*at)) != job_slot(job))
        at = &(*at)->queue_next;
    next = *at;
    if (next == NULL)
        return;
    *at = next->queue_next;
    if (*at == NULL)
        lane->held.end = at;
    next->queued = false;
    /* From now on: a job that was dropped meanwhile passes the slot on. */
    sql_job_of(next)->holds = true;
    *job_slot(job) = 1;
    sql_job_turn(next);
}

void sql_job_free(struct remote_op *op) {
    struct sql_job *job = sql_job_of(op);

    if (!op->remote->closing)
        job_release_slot(job);
    if (job->read != NULL)
        job->store->engine->answer_free(job->read);
    free(job->entries);
    free(job);
}

struct remote_op *sql_job_new(struct remote *r, size_t size) {
    struct sql_job *job = malloc(size);

    if (job == NULL)
        return NULL;
    memset(job, 0, offsetof(struct sql_job, base.copy));
    job->store = sql_store_of(r);
    return &job->base;
}

int sql_job_begin(struct remote_op *op) {
    struct sql_job *job = sql_job_of(op);

    if (job->lane == NULL)
        job->lane =
            remote_op_is_keyed(op) ? sql_lane_of(job->store, &op->copy.key) : &job->store->lanes[0];
    job_release_slot(job);
    return sql_job_restart(job);
}

void sql_job_turn(struct remote_op *op) {
    struct sql_lane *lane = sql_job_of(op)->lane;

    remote_op_turn(op, &lane->turn, &lane->flush);
}

static void op_take_response(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    struct sql_job *job = data;
    enum sql_next next;
    int rc = 0;

    lane->operations_n--;
    job->base.wanted--;
    if (remote_op_is_gone(&job->base))
        return;
    if (answer == NULL) {
        job->base.lost |= job->step->changes;
        remote_op_lost(&job->base);
        return;
    }
    job->base.sent = job->base.lost;
    if (answer->trouble == SQL_ELSEWHERE || (answer->trouble == SQL_AGAIN && !job->step->passes)) {
        remote_op_pause(&job->base);
        return;
    }
    if (answer->trouble > SQL_ELSEWHERE) {
        remote_op_complete(&job->base, remote_op_judge(&job->base, sql_job_trouble(job, answer)));
        return;
    }
    next = job->step->take(job, answer, &rc);
    if (next == SQL_NEXT_DONE)
        remote_op_complete(&job->base, remote_op_judge(&job->base, rc));
    else
        sql_job_turn(&job->base);
}

/* Sending. */

static void job_send(struct sql_job *job) {
    struct sql_value values[SQL_VALUES_MAX];
    struct sql_lane *lane = job->lane;
    size_t n;

    if (sql_lane_is_down(lane)) {
        remote_op_give_up(&job->base, "the server cannot be reached");
        return;
    }
    if (lane->state != SQL_LANE_READY) {
        remote_op_pause(&job->base); /* remote_resume() ends the pause */
        return;
    }
    if (!job_take_slot(job))
        return;
    n = job->step->write(job, values);
    job->base.wanted++;
    if (!sql_lane_send(lane, job->step->statement, values, n, op_take_response, job)) {
        job->base.wanted--;
        remote_op_pause(&job->base);
        return;
    }
    lane->operations_n++;
    if (job->step->changes)
        job->base.sent = true;
}

void sql_lane_flush_run(struct idem_task *task) {
    struct sql_lane *lane = idem_container_of(task, struct sql_lane, flush);
    struct sql_store *store = lane->store;
    struct remote_op *op;

    remote_enter(&store->remote);
    if (lane->turn.first != NULL)
        sql_lane_open(lane);
    while (!store->remote.closing && (op = lane->turn.first) != NULL) {
        if (op->caller != NULL && lane->state == SQL_LANE_READY && !sql_lane_has_room(lane) &&
            !sql_lane_is_down(lane))
            break;
        (void)remote_queue_pop(&lane->turn);
        if (!remote_op_is_gone(op))
            job_send(sql_job_of(op));
    }
    if (!store->remote.closing)
        sql_lane_pump(lane);
    (void)remote_leave(&store->remote);
}
