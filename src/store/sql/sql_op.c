/*
 * Operations under way: one statement at a time; each response decides on the next statement.
 *
 *     submitted ──> queue of its connection ──> sent ──response──> next step, or complete
 *                     ^                          │
 *                     │                          v
 *                   paused <── the server rolled it back, or the connection is lost or missing
 *
 * A paused operation is sent again when a connection is ready, or after a moment. The operation's
 * deadline, which sql_driver.c watches, ends it in any state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/sql/sql_store.h"

#define AGAIN_MS 20 /* the pause after the server rolled a statement back; half of it is random */

/* Unlinks the job from the list of all jobs, or from that of the dropped ones. */
static void job_unlink(struct sql_job *job) {
    *job->link = job->next;
    if (job->next != NULL)
        job->next->link = job->link;
    job->link = NULL;
}

/* Slots: of the operations that read and change the records of one slot, one at a time is under
   way. Without slots, the others on this connection would find the record changed, and start again
   and again. */

static unsigned char *job_slot(const struct sql_job *job) {
    const unsigned char *hash = job->copy.key.at + job->copy.key.prefix_len;

    return &job->lane->busy[(hash[0] << 4 | hash[1] >> 4) % SQL_SLOTS];
}

/* False: the job waits for the slot. */
static bool job_take_slot(struct sql_job *job) {
    struct sql_lane *lane = job->lane;

    if (job->holds || sql_job_looks(job) ||
        (job->step->statement != SQL_READ && job->step->statement != SQL_COUNTER_READ))
        return true;
    if (*job_slot(job) == 0) {
        *job_slot(job) = 1;
        job->holds = true;
        return true;
    }
    job->queued = true;
    job->turn_next = NULL;
    *lane->held_end = job;
    lane->held_end = &job->turn_next;
    return false;
}

/* Hands the slot to the first job that waits for it. */
static void job_release_slot(struct sql_job *job) {
    struct sql_lane *lane = job->lane;
    struct sql_job **at = &lane->held, *next;

    if (!job->holds)
        return;
    job->holds = false;
    *job_slot(job) = 0;
    while (*at != NULL && job_slot(*at) != job_slot(job))
        at = &(*at)->turn_next;
    next = *at;
    if (next == NULL)
        return;
    *at = next->turn_next;
    if (*at == NULL)
        lane->held_end = at;
    next->queued = false;
    next->holds = true; /* from now on: a job that was dropped meanwhile passes the slot on */
    *job_slot(next) = 1;
    sql_job_turn(next);
}

static void job_free(struct sql_job *job) {
    if (!job->store->closing)
        job_release_slot(job);
    if (job->link != NULL)
        job_unlink(job);
    if (job->read != NULL)
        job->store->engine->answer_free(job->read);
    free(job->entries);
    free(job);
}

/* A connection or a queue may still refer to the job: then it is freed later, or with the store. */
void sql_job_drop(struct sql_job *job) {
    struct sql_store *store = job->store;

    if (job->next == NULL)
        store->jobs_end = job->link;
    job_unlink(job);
    store->jobs_n--;
    store->jobs_bytes -= job->size;
    job->op = NULL;
    if (!job->wanted && !job->queued) {
        job_free(job);
        return;
    }
    job->next = store->dropped;
    job->link = &store->dropped;
    if (job->next != NULL)
        job->next->link = &job->next;
    store->dropped = job;
}

void sql_job_complete(struct sql_job *job, int rc) {
    struct sql_store *store = job->store;
    struct idem_op *op = job->op;
    bool wanted = job->wanted;

    job->op = NULL;
    job->wanted = true; /* by this function: keeps the job alive during the callback */
    if (!wanted)
        job_release_slot(job);
    sql_store_enter(store);
    if (op != NULL) {
        op->out = job->copy.out;
        if (rc != 0)
            op->error = job->copy.error;
        idem_op_complete(&store->base, op, rc);
    }
    if (sql_store_leave(store))
        return;
    job->wanted = wanted;
    sql_job_drop(job);
}

static bool op_is_keyed(const struct idem_op *op) {
    return op->kind != IDEM_OP_LIST && op->kind != IDEM_OP_SWEEP && op->kind != IDEM_OP_STATS &&
           op->kind != IDEM_OP_TIME;
}

struct sql_job *sql_job_new(struct sql_store *store, struct idem_op *op) {
    size_t size = sizeof(struct sql_job) + idem_op_strings_len(op);
    struct sql_job *job = malloc(size);

    if (job == NULL)
        return NULL;
    memset(job, 0, offsetof(struct sql_job, copy));
    job->store = store;
    job->op = op;
    job->size = size;
    idem_op_copy(op, &job->copy, (unsigned char *)(job + 1));
    job->lane = op_is_keyed(op) ? sql_lane_of(store, &job->copy.key) : &store->lanes[0];
    return job;
}

/* Sets the error to the last known trouble with the server. */
int sql_job_fail(struct sql_job *job, const char *otherwise) {
    struct sql_store *store = job->store;
    bool unknown = job->sent && !sql_job_looks(job);
    int code = unknown                               ? IDEM_E_UNKNOWN
               : store->trouble_code == IDEM_E_NOMEM ? IDEM_E_NOMEM
                                                     : IDEM_E_REFUSED;

    return idem_error_set(&job->copy.error, code, "%.250s%s",
                          store->trouble[0] != '\0' ? store->trouble : otherwise,
                          unknown ? "; it may have happened" : "");
}

/* Queues. */

void sql_job_turn(struct sql_job *job) {
    struct sql_lane *lane = job->lane;

    if (job->queued)
        return;
    job->queued = true;
    job->turn_next = NULL;
    *lane->turn_end = job;
    lane->turn_end = &job->turn_next;
    idem_task_post(job->store->base.loop, &lane->flush);
}

static void job_pause(struct sql_job *job) {
    struct sql_store *store = job->store;

    if (job->queued)
        return;
    job->queued = true;
    job->turn_next = NULL;
    *store->paused_end = job;
    store->paused_end = &job->turn_next;
    if (store->again.link == NULL)
        idem_timer_set(store->base.loop, &store->again, AGAIN_MS / 2 + rand() % AGAIN_MS);
}

void sql_jobs_resume(struct sql_store *store) {
    struct sql_job *job = store->paused, *next;

    store->paused = NULL;
    store->paused_end = &store->paused;
    for (; job != NULL; job = next) {
        next = job->turn_next;
        job->queued = false;
        if (job->op != NULL)
            sql_job_turn(job);
        else if (!job->wanted)
            job_free(job);
    }
}

void sql_again_fire(struct idem_timer *timer) {
    sql_jobs_resume(idem_container_of(timer, struct sql_store, again));
}

/* Responses. */

/* A refusal covers this try only: an earlier one, sent before a connection was lost, may have
   happened. */
static int job_result_code(struct sql_job *job, int rc) {
    char why[300];

    if (!job->lost || sql_job_looks(job) || (rc != IDEM_E_REFUSED && rc != IDEM_E_FULL))
        return rc;
    snprintf(why, sizeof(why), "%.299s", job->copy.error.text);
    return idem_error_set(
        &job->copy.error, IDEM_E_UNKNOWN,
        "%s; but it was sent before the connection was lost, and may have happened", why);
}

/* The connection was lost before the response arrived. */
static void job_lost(struct sql_job *job) {
    if (job->step->changes)
        job->lost = true;
    if (job->lost && !sql_job_repeats(job)) {
        sql_job_complete(job, sql_job_fail(job, "the connection was lost"));
        return;
    }
    job_release_slot(job);
    if (sql_job_begin(job) != 0) {
        sql_job_complete(job, job_result_code(job, job->copy.error.code));
        return;
    }
    job_pause(job);
}

static void op_take_response(struct sql_lane *lane, void *data, struct sql_answer *answer) {
    struct sql_job *job = data;
    enum sql_next next;
    int rc = 0;

    lane->operations_n--;
    job->wanted = false;
    if (job->op == NULL) {
        if (!job->queued)
            job_free(job);
        return;
    }
    if (answer == NULL) {
        job_lost(job);
        return;
    }
    job->sent = job->lost;
    if (answer->trouble == SQL_ELSEWHERE || (answer->trouble == SQL_AGAIN && !job->step->passes)) {
        job_pause(job);
        return;
    }
    if (answer->trouble > SQL_ELSEWHERE) {
        sql_job_complete(job, job_result_code(job, sql_job_trouble(job, answer)));
        return;
    }
    next = job->step->take(job, answer, &rc);
    if (next == SQL_NEXT_DONE)
        sql_job_complete(job, job_result_code(job, rc));
    else
        sql_job_turn(job);
}

/* Sending. */

static void job_send(struct sql_job *job) {
    struct sql_value values[SQL_VALUES_MAX];
    struct sql_lane *lane = job->lane;
    size_t n;

    if (sql_lane_is_down(lane)) {
        sql_job_complete(job, sql_job_fail(job, "the server cannot be reached"));
        return;
    }
    if (lane->state != SQL_LANE_READY) {
        job_pause(job); /* sql_jobs_resume() ends the pause */
        return;
    }
    if (!job_take_slot(job))
        return;
    n = job->step->write(job, values);
    job->wanted = true;
    if (!sql_lane_send(lane, job->step->statement, values, n, op_take_response, job)) {
        job->wanted = false;
        job_pause(job);
        return;
    }
    lane->operations_n++;
    if (job->step->changes)
        job->sent = true;
}

void sql_lane_flush_run(struct idem_task *task) {
    struct sql_lane *lane = idem_container_of(task, struct sql_lane, flush);
    struct sql_store *store = lane->store;
    struct sql_job *job;

    sql_store_enter(store);
    if (lane->turn != NULL)
        sql_lane_open(lane);
    while (!store->closing && (job = lane->turn) != NULL) {
        if (job->op != NULL && lane->state == SQL_LANE_READY && !sql_lane_has_room(lane))
            break;
        lane->turn = job->turn_next;
        if (lane->turn == NULL)
            lane->turn_end = &lane->turn;
        job->queued = false;
        if (job->op != NULL)
            job_send(job);
        else if (!job->wanted)
            job_free(job);
    }
    if (!store->closing)
        sql_lane_pump(lane);
    (void)sql_store_leave(store);
}

/* The end. */

static void job_list_free(struct sql_job *job) {
    for (struct sql_job *next; job != NULL; job = next) {
        next = job->next;
        if (job->op != NULL)
            job->op->driver = NULL;
        job_free(job);
    }
}

void sql_jobs_free(struct sql_store *store) {
    struct sql_job *dropped = store->dropped, *jobs = store->jobs;

    store->dropped = store->jobs = NULL;
    store->jobs_end = &store->jobs;
    job_list_free(dropped);
    job_list_free(jobs);
}
