/*
 * Operations under way: a statement at a time, each decided by the answer before.
 *
 *     submitted ──> turn of its lane ──> sent ──answer──> next step, or complete
 *                     ^                   │
 *                     │                   v
 *                   paused <── the server undid it, the connection was lost or is not there
 *
 * Whatever pauses is sent again when a lane is ready, or after a moment. The operation's deadline,
 * which driver.c watches, ends it from anywhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "store/sql/store.h"

#define AGAIN_MS 20 /* before what the server undid is said again; half of it is random */

/* Out of the list of all, or of those that were dropped. */
static void job_unlink(struct sql_job *job) {
    *job->link = job->next;
    if (job->next != NULL)
        job->next->link = job->link;
    job->link = NULL;
}

/* Slots: of those that read a record and change it, one at a time does; the others on this lane
   would find it changed, and begin anew again and again. */

static unsigned char *slot_of(const struct sql_job *job) {
    const unsigned char *hash = job->copy.key.at + job->copy.key.prefix_len;

    return &job->lane->busy[(hash[0] << 4 | hash[1] >> 4) % SQL_SLOTS];
}

/* False: it waits for it. */
static bool slot_take(struct sql_job *job) {
    struct sql_lane *lane = job->lane;

    if (job->holds || sql_job_looks(job) ||
        (job->step->statement != SQL_READ && job->step->statement != SQL_COUNTER_READ))
        return true;
    if (*slot_of(job) == 0) {
        *slot_of(job) = 1;
        job->holds = true;
        return true;
    }
    job->queued = true;
    job->turn_next = NULL;
    *lane->held_end = job;
    lane->held_end = &job->turn_next;
    return false;
}

/* The first that waits for it is next. */
static void slot_give(struct sql_job *job) {
    struct sql_lane *lane = job->lane;
    struct sql_job **at = &lane->held, *next;

    if (!job->holds)
        return;
    job->holds = false;
    *slot_of(job) = 0;
    while (*at != NULL && slot_of(*at) != slot_of(job))
        at = &(*at)->turn_next;
    next = *at;
    if (next == NULL)
        return;
    *at = next->turn_next;
    if (*at == NULL)
        lane->held_end = at;
    next->queued = false;
    next->holds = true; /* from now on: if it was given up meanwhile, it hands it on */
    *slot_of(next) = 1;
    sql_job_turn(next);
}

static void job_free(struct sql_job *job) {
    if (!job->store->closing)
        slot_give(job);
    if (job->link != NULL)
        job_unlink(job);
    if (job->read != NULL)
        job->store->engine->answer_free(job->read);
    free(job->entries);
    free(job);
}

/* It may still be wanted by a lane, or stand in a turn: then it goes later, or with the store. */
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
    job->wanted = true; /* by us */
    if (!wanted)
        slot_give(job);
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

static bool is_keyed(const struct idem_op *op) {
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
    job->lane = is_keyed(op) ? sql_lane_of(store, &job->copy.key) : &store->lanes[0];
    return job;
}

/* Why it could not be done: by what is known of the server. */
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

/* Turns. */

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

/* Answers. */

/* A refusal is of this time; what was sent before a connection was lost may have happened. */
static int job_judge(struct sql_job *job, int rc) {
    char why[300];

    if (!job->lost || sql_job_looks(job) || (rc != IDEM_E_REFUSED && rc != IDEM_E_FULL))
        return rc;
    snprintf(why, sizeof(why), "%.299s", job->copy.error.text);
    return idem_error_set(
        &job->copy.error, IDEM_E_UNKNOWN,
        "%s; but it was sent before the connection was lost, and may have happened", why);
}

/* The connection was lost before the answer came. */
static void job_lost(struct sql_job *job) {
    if (job->step->changes)
        job->lost = true;
    if (job->lost && !sql_job_repeats(job)) {
        sql_job_complete(job, sql_job_fail(job, "the connection was lost"));
        return;
    }
    slot_give(job);
    if (sql_job_begin(job) != 0) {
        sql_job_complete(job, job_judge(job, job->copy.error.code));
        return;
    }
    job_pause(job);
}

static void take_answer(struct sql_lane *lane, void *data, struct sql_answer *answer) {
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
        sql_job_complete(job, job_judge(job, sql_job_trouble(job, answer)));
        return;
    }
    next = job->step->take(job, answer, &rc);
    if (next == SQL_NEXT_DONE)
        sql_job_complete(job, job_judge(job, rc));
    else
        sql_job_turn(job);
}

/* Sending. */

static void job_send(struct sql_job *job) {
    struct sql_value values[SQL_VALUES_MAX];
    struct sql_lane *lane = job->lane;
    size_t n;

    if (lane->state != SQL_LANE_READY) {
        job_pause(job); /* sql_store_ready() ends the pause */
        return;
    }
    if (!slot_take(job))
        return;
    n = job->step->write(job, values);
    job->wanted = true;
    if (!sql_lane_send(lane, job->step->statement, values, n, take_answer, job)) {
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

static void list_free(struct sql_job *job) {
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
    list_free(dropped);
    list_free(jobs);
}
