/*
 * Operations under way: written, sent, answered, sent again, or given up.
 *
 *     submitted ──> turn ──> sent ──answer──> complete
 *                   ^  │      │ NOSCRIPT, MOVED, ASK: once more at once
 *                   │  v      v
 *                  paused <── lost, the server is busy or not there
 *
 * Whatever pauses is sent again when a server is ready, or after a moment. The
 * operation's deadline, which driver.c watches, ends it from anywhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/spare.h"
#include "store/redis/store.h"

#define AGAIN_MS 50 /* before a server that is busy is asked again */
#define REDIRECTS_AT_ONCE 3
/* A job with this much room, for strings that are not long, is used again. */
#define JOB_ROOM (sizeof(struct redis_job) + 1024)
#define COMMAND_KEPT 4096
#define RELOADS_MAX 16 /* somebody who flushes all the time; or a server that keeps no script */

/* Out of the list of all, or of those that were dropped. */
static void job_unlink(struct redis_job *job) {
    *job->link = job->next;
    if (job->next != NULL)
        job->next->link = job->link;
    job->link = NULL;
}

static void job_free(struct redis_job *job) {
    if (job->link != NULL)
        job_unlink(job);
    redis_buffer_release(&job->command);
    redis_reply_free(job->first);
    redis_scan_free(job->scan);
    free(job);
}

/* Kept for the next one, with its buffer, if neither is large. */
static void job_end(struct redis_job *job) {
    struct redis_store *store = job->store;

    if (job->size > JOB_ROOM || job->command.size > COMMAND_KEPT || job->scan != NULL ||
        store->spare_n >= idem_spare_max || store->closing) {
        job_free(job);
        return;
    }
    if (job->link != NULL)
        job_unlink(job);
    redis_reply_free(job->first);
    job->first = NULL;
    job->next = store->spare;
    store->spare = job;
    store->spare_n++;
}

/* It may still be wanted by a connection, or stand in a turn: then it goes later, or with the
   store. */
void redis_job_drop(struct redis_job *job) {
    struct redis_store *store = job->store;

    if (job->next == NULL)
        store->jobs_end = job->link;
    job_unlink(job);
    store->jobs_n--;
    store->jobs_bytes -= job->size;
    job->op = NULL;
    if (job->wanted == 0 && !job->queued) {
        job_end(job);
        return;
    }
    job->next = store->dropped;
    job->link = &store->dropped;
    if (job->next != NULL)
        job->next->link = &job->next;
    store->dropped = job;
}

void redis_job_complete(struct redis_job *job, int rc) {
    struct redis_store *store = job->store;
    struct idem_op *op = job->op;

    job->op = NULL;
    job->wanted++; /* by us: inside the call-back an answer to it may come */
    redis_store_enter(store);
    if (op != NULL) {
        op->out = job->copy.out;
        if (rc != 0)
            op->error = job->copy.error;
        idem_op_complete(&store->base, op, rc);
    }
    if (redis_store_leave(store))
        return;
    job->wanted--;
    redis_job_drop(job);
}

/* All have as much time as each other, so that the last to be renewed is the last of them. */
void redis_job_renew(struct redis_job *job) {
    struct redis_store *store = job->store;

    if (job->link == NULL)
        return;
    job->deadline = idem_loop_now() + store->config.timeout_ms;
    if (job->next == NULL)
        return;
    *job->link = job->next;
    job->next->link = job->link;
    job->next = NULL;
    job->link = store->jobs_end;
    *store->jobs_end = job;
    store->jobs_end = &job->next;
}

static bool job_is_slotted(const struct redis_job *job) {
    return job->copy.kind != IDEM_OP_LIST && job->copy.kind != IDEM_OP_STATS &&
           job->copy.kind != IDEM_OP_TIME && job->copy.kind != IDEM_OP_SWEEP;
}

/* A spare one, or a new one; all but its copy is clear, and its command is empty. */
static struct redis_job *job_take(struct redis_store *store, size_t size) {
    struct redis_job *job = size <= JOB_ROOM ? store->spare : NULL;
    struct redis_buffer command = {0};

    if (job != NULL) {
        store->spare = job->next;
        store->spare_n--;
        command = job->command;
        command.len = 0;
        command.failed = false;
    } else {
        job = malloc(size <= JOB_ROOM ? JOB_ROOM : size);
    }
    if (job != NULL) {
        memset(job, 0, offsetof(struct redis_job, copy));
        job->command = command;
    }
    return job;
}

struct redis_job *redis_job_new(struct redis_store *store, struct idem_op *op) {
    size_t size = sizeof(struct redis_job) + idem_op_strings_len(op);
    struct redis_job *job = job_take(store, size);
    char name[REDIS_NAME_MAX];

    if (job == NULL)
        return NULL;
    job->store = store;
    job->op = op;
    job->size = size;
    idem_op_copy(op, &job->copy, (unsigned char *)(job + 1));
    if (job_is_slotted(job) && store->config.kind == REDIS_CLUSTER)
        job->slot = redis_slot(name, redis_name(&job->copy.key, name));
    return job;
}

/* What may be said twice: the answer to the second is the answer to the first. */
static bool is_repeatable(const struct redis_job *job) {
    switch (job->copy.kind) {
    case IDEM_OP_CLAIM:
    case IDEM_OP_FINISH:
    case IDEM_OP_ISSUE:
    case IDEM_OP_LOOKUP:
    case IDEM_OP_LIST:
    case IDEM_OP_STATS:
    case IDEM_OP_SWEEP:
    case IDEM_OP_TIME:
        return true;
    default:
        return false;
    }
}

static bool changes_nothing(const struct redis_job *job) {
    return job->copy.kind >= IDEM_OP_LOOKUP && job->copy.kind <= IDEM_OP_TIME &&
           job->copy.kind != IDEM_OP_SETTLE && job->copy.kind != IDEM_OP_FORGET;
}

/* Why it could not be done: by what is known of the servers. */
int redis_job_fail(struct redis_job *job, const char *otherwise) {
    struct redis_store *store = job->store;
    bool unknown = job->sent && !changes_nothing(job);
    int code = unknown                               ? IDEM_E_UNKNOWN
               : store->trouble_code == IDEM_E_NOMEM ? IDEM_E_NOMEM
                                                     : IDEM_E_REFUSED;

    return idem_error_set(&job->copy.error, code, "%s%s",
                          store->trouble[0] != '\0' ? store->trouble : otherwise,
                          unknown ? "; it may have happened" : "");
}

/* Turns. */

void redis_jobs_turn(struct redis_store *store, struct redis_job *job) {
    if (job->queued)
        return;
    job->queued = true;
    job->turn_next = NULL;
    *store->turn_end = job;
    store->turn_end = &job->turn_next;
    idem_task_post(store->base.loop, &store->flush);
}

static void job_pause(struct redis_store *store, struct redis_job *job) {
    if (job->queued)
        return;
    job->queued = true;
    job->turn_next = NULL;
    *store->paused_end = job;
    store->paused_end = &job->turn_next;
    if (store->again.link == NULL)
        idem_timer_set(store->base.loop, &store->again, AGAIN_MS);
}

/* Takes the whole list; who is put in meanwhile waits for the next. */
static struct redis_job *turn_take(struct redis_job **list, struct redis_job ***end) {
    struct redis_job *jobs = *list;

    *list = NULL;
    *end = list;
    return jobs;
}

static void paused_turn(struct redis_store *store) {
    struct redis_job *job = turn_take(&store->paused, &store->paused_end), *next;

    for (; job != NULL; job = next) {
        next = job->turn_next;
        job->queued = false;
        if (job->op == NULL && job->wanted == 0)
            job_end(job);
        else if (job->op != NULL)
            redis_jobs_turn(store, job);
    }
}

void redis_again_fire(struct idem_timer *timer) {
    paused_turn(idem_container_of(timer, struct redis_store, again));
}

void redis_take_nothing(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)conn;
    (void)data;
    (void)reply;
}

static void take_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply);

/* Hands the commands over; false: not now. */
static bool job_send(struct redis_job *job, struct redis_node *node) {
    static const char asking[] = "*1\r\n$6\r\nASKING\r\n";

    if (job->asking &&
        !redis_conn_send(&node->conn, asking, sizeof(asking) - 1, redis_take_nothing, NULL))
        return false;
    if (!redis_conn_send(&node->conn, job->command.at, job->command.len, take_reply, job))
        return false;
    job->wanted++;
    for (unsigned i = 1; i < job->replies; i++, job->wanted++)
        if (!redis_conn_send(&node->conn, "", 0, take_reply, job)) {
            redis_conn_fail(&node->conn, IDEM_E_NOMEM, "no memory for an answer");
            break;
        }
    job->sent = true;
    return true;
}

/* A claim is written when it is sent: until then the server's version may not be known. */
static bool job_ready(struct redis_job *job) {
    redis_reply_free(job->first);
    job->first = NULL;
    /* Two commands would want ASKING twice. */
    if (job->asking && job->copy.kind == IDEM_OP_CLAIM && !job->scripted) {
        job->scripted = true;
        job->command.len = 0;
    }
    if (job->command.len > 0 && !job->command.failed)
        return true;
    job->command.failed = false;
    if (redis_job_write(job))
        return true;
    idem_error_set(&job->copy.error, IDEM_E_NOMEM,
                   "no memory for an operation, or its cursor is of "
                   "another store");
    return false;
}

void redis_flush_run(struct idem_task *task) {
    struct redis_store *store = idem_container_of(task, struct redis_store, flush);
    struct redis_job *job = turn_take(&store->turn, &store->turn_end), *next;
    struct redis_node *node;

    redis_store_enter(store);
    for (; job != NULL && !store->closing; job = next) {
        next = job->turn_next;
        job->queued = false;
        if (job->op == NULL) {
            if (job->wanted == 0)
                job_end(job);
            continue;
        }
        if (!redis_is_mapped(store)) {
            job_pause(store, job);
            continue;
        }
        /* Which server a scan is at, it says itself. */
        if (!job_is_slotted(job) && !job_ready(job)) {
            redis_job_complete(job, job->copy.error.code);
            continue;
        }
        node = redis_route(store, job);
        if (node == NULL || node->conn.state != REDIS_CONN_READY) {
            job_pause(store, job); /* redis_store_ready() ends the pause */
            continue;
        }
        job->version = node->version;
        if (!job_ready(job)) {
            redis_job_complete(job, job->copy.error.code);
            continue;
        }
        if (!job_send(job, node))
            job_pause(store, job);
    }
    /* A write may find the connection lost, and who is told of that may close the store. */
    for (node = store->closing ? NULL : store->nodes; node != NULL;
         node = store->closing ? NULL : node->next) {
        node->loaded = false;
        redis_conn_flush(&node->conn);
    }
    (void)redis_store_leave(store);
}

void redis_store_ready(struct redis_store *store) {
    store->was_ready = true;
    store->trouble[0] = '\0';
    store->trouble_code = 0;
    redis_sentinel_settled(store);
    redis_cluster_begin(store);
    paused_turn(store);
    redis_wake_renew(store);
}

/* Replies. */

bool redis_is_passing(const struct redis_reply *reply) {
    static const char *const words[] = {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "BUSY"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (redis_reply_is(reply, words[i]))
            return true;
    return false;
}

/* Once in a turn, for all that miss them: those are sent behind them when it ends. */
static void scripts_load(struct redis_store *store, struct redis_conn *conn) {
    struct redis_node *node = conn->data;
    struct redis_buffer out = {0};

    if (node->loaded)
        return;
    node->loaded = true;
    for (int i = 0; i < REDIS_SCRIPT__COUNT; i++) {
        out.len = 0;
        redis_put_command(&out, "SCRIPT", "LOAD", store->scripts.text[i], NULL);
        (void)redis_conn_send(conn, out.at, out.len, redis_take_nothing, NULL);
    }
    redis_buffer_release(&out);
}

/* Before 7.0 a script tells of it somewhere in its own words. */
static bool is_readonly(const struct redis_reply *reply) {
    return redis_reply_is(reply, "READONLY") || strstr(reply->text, " -READONLY ") != NULL;
}

/* True if it is to be sent again, after this reply that is none. */
static bool job_again(struct redis_job *job, struct redis_conn *conn,
                      const struct redis_reply *reply) {
    struct redis_store *store = job->store;

    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    job->asking = false;
    /* The server says that it has not begun; what came before a lost connection is still unknown.
     */
    if (job->first == NULL || reply == job->first)
        job->sent = job->lost;
    if (redis_reply_is(reply, "NOSCRIPT")) {
        if (job->reloads++ >= RELOADS_MAX)
            return false;
        scripts_load(store, conn);
        redis_jobs_turn(store, job);
        return true;
    }
    if (redis_reply_is(reply, "MOVED") || redis_reply_is(reply, "ASK")) {
        job->at = job->scan != NULL ? job->at : NULL;
        if (!redis_redirect(job, reply))
            return false;
        /* Two servers that send it to each other do not agree yet: they are given time. */
        if (job->redirects > REDIRECTS_AT_ONCE)
            job_pause(store, job);
        else
            redis_jobs_turn(store, job);
        return true;
    }
    /* Behind the same name, or by the sentinels' word, there may be another master now. */
    if (is_readonly(reply)) {
        job_pause(store, job);
        if (store->config.kind == REDIS_CLUSTER)
            redis_cluster_refresh(store);
        else
            redis_conn_fail(conn, IDEM_E_REFUSED, "it is not the master any more");
        return true;
    }
    if (!redis_is_passing(reply))
        return false;
    if (redis_reply_is(reply, "CLUSTERDOWN"))
        redis_cluster_refresh(store);
    snprintf(store->trouble, sizeof(store->trouble), "the server says: %.150s", reply->text);
    job_pause(store, job);
    return true;
}

/* The connection was lost before the answer came. */
static void job_lost(struct redis_job *job) {
    if (job->wanted > 0) /* its other wants are told as well */
        return;
    job->asking = false;
    job->lost = true;
    if (job->scan != NULL) /* what is answered already is not asked again */
        job->command.len = 0;
    else
        job->at = NULL;
    if (is_repeatable(job)) {
        job_pause(job->store, job);
        return;
    }
    snprintf(job->store->trouble, sizeof(job->store->trouble), "the connection was lost");
    redis_job_complete(job, redis_job_fail(job, "the connection was lost"));
}

/* A refusal is of this time; what was sent before a connection was lost may have happened. */
static int job_judge(struct redis_job *job, int rc) {
    char why[400];

    if (!job->lost || changes_nothing(job) || (rc != IDEM_E_REFUSED && rc != IDEM_E_FULL))
        return rc;
    snprintf(why, sizeof(why), "%.399s", job->copy.error.text);
    return idem_error_set(
        &job->copy.error, IDEM_E_UNKNOWN,
        "%s; but it was sent before the connection was lost, and may have happened", why);
}

static void take_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_job *job = data;
    const struct redis_reply *told = reply;
    int rc = 0;

    job->wanted--;
    if (job->op == NULL) {
        if (job->wanted == 0 && !job->queued)
            job_end(job);
        return;
    }
    if (reply == NULL) {
        job_lost(job);
        return;
    }
    if (job->scan == NULL && job->replies == 2 && job->first == NULL) {
        job->first = redis_conn_keep(conn);
        return;
    }
    /* An error in the first of two is the one that counts. */
    if (job->first != NULL && job->first->type == REDIS_REPLY_ERROR)
        told = job->first;
    if (job->scan == NULL && job_again(job, conn, told))
        return;
    switch (redis_job_take(job, told, &rc)) {
    case REDIS_MORE:
        return;
    case REDIS_AGAIN:
        if (job->wanted == 0)
            redis_jobs_turn(job->store, job);
        return;
    case REDIS_STUCK:
        told = redis_scan_obstacle(job);
        if (!job_again(job, conn, told)) {
            rc = idem_error_set(&job->copy.error, IDEM_E_REFUSED, "the server says: %.150s",
                                told->text);
            redis_job_complete(job, rc);
        }
        return;
    case REDIS_DONE:
        redis_job_complete(job, job_judge(job, rc));
        return;
    }
}

/* The end. */

void redis_jobs_free(struct redis_store *store) {
    struct redis_job *job, *next;

    (void)turn_take(&store->turn, &store->turn_end);
    (void)turn_take(&store->paused, &store->paused_end);
    for (job = store->spare; job != NULL; job = next) {
        next = job->next;
        job_free(job);
    }
    store->spare = NULL;
    for (job = store->dropped; job != NULL; job = next) {
        next = job->next;
        job_free(job);
    }
    for (job = store->jobs; job != NULL; job = next) {
        next = job->next;
        if (job->op != NULL)
            job->op->driver = NULL;
        job_free(job);
    }
    store->jobs_end = &store->jobs;
}
