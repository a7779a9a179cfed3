/*
 * Operations under way: written, sent, completed, sent again, or given up. The operation's
 * deadline, which redis_driver.c watches, ends it in any state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/freelist.h"
#include "store/redis/redis_store.h"

/*
 *     submitted ──> turn ──> sent ──reply──> complete
 *                   ^  │      │ NOSCRIPT, MOVED, ASK: again at once
 *                   │  v      v
 *                  paused <── lost, or the server is busy or unavailable
 *
 * A paused job is sent again when a server is ready, or after AGAIN_MS.
 */

#define AGAIN_MS 50 /* before a job is sent again to a busy server */
#define REDIRECTS_AT_ONCE 3
/* Jobs of this size, with room for short strings, are reused. */
#define JOB_ROOM (sizeof(struct redis_job) + 1024)
#define COMMAND_KEPT 4096
#define RELOADS_MAX 16 /* a client may keep flushing scripts, or the server keep none */

/* Removes the job from the list of all jobs, or of dropped ones. */
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
    redis_reply_free(job->last);
    redis_scan_free(job->scan);
    free(job);
}

/* Puts the job on the free list, with its buffer, if neither is large. */
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
    redis_reply_free(job->last);
    job->first = job->last = NULL;
    job->next = store->spare;
    store->spare = job;
    store->spare_n++;
}

/* A connection or a queue may still refer to the job: then it is freed later, or with the store. */
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
    job->wanted++; /* keeps the job: a reply to it may arrive inside the callback */
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

/* All jobs have the same timeout, so the last one renewed is the last in the list. */
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

/* Takes a job from the free list, or a new one. All fields but its copy are clear, and its
   command is empty. */
static struct redis_job *store_allocate_job(struct redis_store *store, size_t size) {
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
    struct redis_job *job = store_allocate_job(store, size);
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

/* True if the operation may be sent twice: the second reply is the same as the first. */
static bool job_is_repeatable(const struct redis_job *job) {
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

static bool job_changes_nothing(const struct redis_job *job) {
    return job->copy.kind >= IDEM_OP_LOOKUP && job->copy.kind <= IDEM_OP_TIME &&
           job->copy.kind != IDEM_OP_SETTLE && job->copy.kind != IDEM_OP_FORGET;
}

/* Fails with the known trouble of the servers, which is the likely reason. */
int redis_job_fail(struct redis_job *job, const char *otherwise) {
    struct redis_store *store = job->store;
    bool unknown = job->sent && !job_changes_nothing(job);
    int code = unknown                               ? IDEM_E_UNKNOWN
               : store->trouble_code == IDEM_E_NOMEM ? IDEM_E_NOMEM
                                                     : IDEM_E_REFUSED;

    return idem_error_set(&job->copy.error, code, "%s%s",
                          store->trouble[0] != '\0' ? store->trouble : otherwise,
                          unknown ? "; it may have happened" : "");
}

/* Turns. */

void redis_queue_init(struct redis_queue *queue) {
    queue->first = NULL;
    queue->end = &queue->first;
}

void redis_queue_put(struct redis_queue *queue, struct redis_job *job) {
    job->queued = true;
    job->turn_next = NULL;
    *queue->end = job;
    queue->end = &job->turn_next;
}

struct redis_job *redis_queue_take(struct redis_queue *queue) {
    struct redis_job *jobs = queue->first;

    redis_queue_init(queue);
    return jobs;
}

void redis_queue_append(struct redis_queue *queue, struct redis_queue *from) {
    if (from->first == NULL)
        return;
    *queue->end = from->first;
    queue->end = from->end;
    redis_queue_init(from);
}

void redis_jobs_turn(struct redis_store *store, struct redis_job *job) {
    if (job->queued)
        return;
    redis_queue_put(&store->turn, job);
    idem_task_post(store->base.loop, &store->flush);
}

static void store_pause_job(struct redis_store *store, struct redis_job *job) {
    if (job->queued)
        return;
    redis_queue_put(&store->paused, job);
    if (store->again.link == NULL)
        idem_timer_set(store->base.loop, &store->again, AGAIN_MS);
}

void redis_jobs_resume(struct redis_store *store) {
    struct redis_job *job = redis_queue_take(&store->paused), *next;

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
    redis_jobs_resume(idem_container_of(timer, struct redis_store, again));
}

void redis_take_nothing(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)conn;
    (void)data;
    (void)reply;
}

static void op_take_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply);

/* Sends the commands; false: not possible now. */
static bool job_send(struct redis_job *job, struct redis_node *node) {
    static const char asking[] = "*1\r\n$6\r\nASKING\r\n";

    if (job->asking &&
        !redis_conn_send(&node->conn, asking, sizeof(asking) - 1, redis_take_nothing, NULL))
        return false;
    if (!redis_conn_send(&node->conn, job->command.at, job->command.len, op_take_reply, job))
        return false;
    job->wanted++;
    for (unsigned i = 1; i < job->replies; i++, job->wanted++)
        if (!redis_conn_send(&node->conn, "", 0, op_take_reply, job)) {
            redis_conn_fail(&node->conn, IDEM_E_NOMEM, "no memory for an answer");
            break;
        }
    job->sent = true;
    return true;
}

/* Writes the commands of a job that has none. A claim is written only when it is sent: before,
   the server's version may be unknown. */
static bool job_ready(struct redis_job *job) {
    redis_reply_free(job->first);
    job->first = NULL;
    /* Two commands would need ASKING twice. */
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

/* True for an operation that changes a record, while a failover is under way. */
static bool job_is_held(const struct redis_job *job) {
    return redis_sentinel_holds(job->store) && !job_changes_nothing(job);
}

static bool job_grants(const struct redis_job *job) {
    return job->copy.kind == IDEM_OP_CLAIM || job->copy.kind == IDEM_OP_ISSUE ||
           job->copy.kind == IDEM_OP_ONCE || job->copy.kind == IDEM_OP_COUNT;
}

/* Returns a code, and sets the error, if waiting does not help: the server is down, or nothing
   may be granted. Otherwise 0. */
static int job_refusal(struct redis_job *job, const struct redis_node *node) {
    int code = job->sent ? IDEM_E_UNKNOWN : IDEM_E_REFUSED;

    if (node != NULL && node->down && node->conn.state != REDIS_CONN_READY)
        return redis_job_fail(job, "the server cannot be reached");
    if (job_is_held(job) && redis_sentinel_holds_long(job->store))
        return idem_error_set(&job->copy.error, code,
                              "a failover of Sentinel is under way and does not end; see "
                              "failover-timeout of the sentinels");
    if (node != NULL && node->replication.lagging && job_grants(job))
        return idem_error_set(&job->copy.error, code, "%s", node->replication.why);
    if (!job_grants(job) || !redis_sentinel_is_silent(job->store))
        return 0;
    return idem_error_set(&job->copy.error, code,
                          "no sentinel has answered and sent its events for %lld ms: a failover "
                          "could go unseen; see sentinel_grace=",
                          (long long)job->store->config.sentinel_grace_ms);
}

/* True if no host of the URL leads to a master or to a map of the cluster. Before there is a node,
   nothing else shows that waiting does not help. */
static bool store_is_down(const struct redis_store *store) {
    return store->unreachable && (store->nodes == NULL || !redis_is_mapped(store));
}

void redis_flush_run(struct idem_task *task) {
    struct redis_store *store = idem_container_of(task, struct redis_store, flush);
    struct redis_job *job = redis_queue_take(&store->turn), *next;
    struct redis_node *node;
    int refusal;

    redis_store_enter(store);
    for (; job != NULL && !store->closing; job = next) {
        next = job->turn_next;
        job->queued = false;
        if (job->op == NULL) {
            if (job->wanted == 0)
                job_end(job);
            continue;
        }
        if (store_is_down(store)) {
            redis_job_complete(job, redis_job_fail(job, "the server cannot be reached"));
            continue;
        }
        if (!redis_is_mapped(store)) {
            store_pause_job(store, job);
            continue;
        }
        /* A scan selects its server itself. */
        if (!job_is_slotted(job) && !job_ready(job)) {
            redis_job_complete(job, job->copy.error.code);
            continue;
        }
        node = redis_route(store, job);
        refusal = job_refusal(job, node);
        if (refusal != 0) {
            redis_job_complete(job, refusal);
            continue;
        }
        if (node == NULL || node->conn.state != REDIS_CONN_READY || job_is_held(job)) {
            store_pause_job(store, job); /* redis_jobs_resume() ends the pause */
            continue;
        }
        job->version = node->version;
        if (!job_ready(job)) {
            redis_job_complete(job, job->copy.error.code);
            continue;
        }
        if (!job_send(job, node))
            store_pause_job(store, job);
    }
    /* A write may lose the connection, and a callback may close the store. */
    for (node = store->closing ? NULL : store->nodes; node != NULL;
         node = store->closing ? NULL : node->next) {
        node->loaded = false;
        redis_conn_flush(&node->conn);
    }
    (void)redis_store_leave(store);
}

void redis_store_ready(struct redis_store *store) {
    store->was_ready = true;
    store->unreachable &= !redis_is_mapped(store);
    store->trouble[0] = '\0';
    store->trouble_code = 0;
    redis_cluster_begin(store);
    redis_jobs_resume(store);
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

/* Loads the scripts once per turn. The jobs that need them are sent after them, when the turn
   ends. */
static void store_load_scripts(struct redis_store *store, struct redis_conn *conn) {
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

/* Before 7.0 a script's error contains the server's error in its text: " -READONLY ...". */
static bool reply_is_error(const struct redis_reply *reply, const char *word) {
    char inside[32];

    snprintf(inside, sizeof(inside), " -%s ", word);
    return redis_reply_is(reply, word) || strstr(reply->text, inside) != NULL;
}

/* Notes a passing error (CLUSTERDOWN, BUSY). False if the server has given nothing else for the
   timeout: the operations that waited for the end of it have paid, and later ones learn it from one
   reply. */
static bool node_wait_passing(struct redis_node *node) {
    int64_t now = idem_loop_now();

    if (node->busy_since == 0)
        node->busy_since = now;
    return now - node->busy_since < node->store->config.timeout_ms;
}

/* True if the job will be sent again, after an error instead of a result. */
static bool job_again(struct redis_job *job, struct redis_conn *conn,
                      const struct redis_reply *reply) {
    struct redis_store *store = job->store;
    struct redis_node *node = conn->data;

    if (!redis_is_passing(reply))
        node->busy_since = 0;
    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    job->asking = false;
    /* The server has not executed the command. After a lost connection the outcome is still
       unknown. */
    if (job->first == NULL || reply == job->first)
        job->sent = job->lost;
    if (redis_reply_is(reply, "NOSCRIPT")) {
        if (job->reloads++ >= RELOADS_MAX)
            return false;
        store_load_scripts(store, conn);
        redis_jobs_turn(store, job);
        return true;
    }
    if (redis_reply_is(reply, "MOVED") || redis_reply_is(reply, "ASK")) {
        job->at = job->scan != NULL ? job->at : NULL;
        if (!redis_redirect(job, reply))
            return false;
        /* Two servers that redirect to each other do not agree yet: give them time. */
        if (job->redirects > REDIRECTS_AT_ONCE)
            store_pause_job(store, job);
        else
            redis_jobs_turn(store, job);
        return true;
    }
    /* The same name, or the sentinels, may lead to another master now. */
    if (reply_is_error(reply, "READONLY")) {
        store_pause_job(store, job);
        if (store->config.kind == REDIS_CLUSTER)
            redis_cluster_refresh(store);
        else
            redis_conn_fail(conn, IDEM_E_REFUSED, "it is not the master any more");
        return true;
    }
    if (store->sentinel != NULL && reply_is_error(reply, "NOREPLICAS"))
        redis_sentinel_ask(store); /* the replicas may follow another master now */
    if (!redis_is_passing(reply))
        return false;
    if (redis_reply_is(reply, "CLUSTERDOWN"))
        redis_cluster_refresh(store);
    if (!node_wait_passing(node))
        return false;
    snprintf(store->trouble, sizeof(store->trouble), "the server says: %.150s", reply->text);
    store_pause_job(store, job);
    return true;
}

/* The connection was lost before the reply arrived. */
static void job_lost(struct redis_job *job) {
    if (job->wanted > 0) /* the other pending replies are notified as well */
        return;
    job->asking = false;
    job->lost = true;
    if (job->scan != NULL) /* names that have a result are not sent again */
        job->command.len = 0;
    else
        job->at = NULL;
    if (job_is_repeatable(job)) {
        store_pause_job(job->store, job);
        return;
    }
    snprintf(job->store->trouble, sizeof(job->store->trouble), "the connection was lost");
    redis_job_complete(job, redis_job_fail(job, "the connection was lost"));
}

/* A refusal concerns the last attempt; an earlier one, whose connection was lost, may have
   happened. */
static int job_judge(struct redis_job *job, int rc) {
    char why[400];

    if (!job->lost || job_changes_nothing(job) || (rc != IDEM_E_REFUSED && rc != IDEM_E_FULL))
        return rc;
    snprintf(why, sizeof(why), "%.399s", job->copy.error.text);
    return idem_error_set(
        &job->copy.error, IDEM_E_UNKNOWN,
        "%s; but it was sent before the connection was lost, and may have happened", why);
}

/* Takes the reply that determines the result. */
static void job_settle(struct redis_job *job, struct redis_conn *conn,
                       const struct redis_reply *reply) {
    int rc = 0;

    switch (redis_job_take(job, reply, &rc)) {
    case REDIS_MORE:
        return;
    case REDIS_AGAIN:
        if (job->wanted == 0)
            redis_jobs_turn(job->store, job);
        return;
    case REDIS_STUCK:
        reply = redis_scan_obstacle(job);
        if (!job_again(job, conn, reply)) {
            rc = idem_error_set(&job->copy.error, IDEM_E_REFUSED, "the server says: %.150s",
                                reply->text);
            redis_job_complete(job, rc);
        }
        return;
    case REDIS_DONE:
        redis_job_complete(job, job_judge(job, rc));
        return;
    }
}

void redis_job_replicated(struct redis_job *job, enum redis_replicated how, const char *why) {
    struct redis_reply *reply = job->last;

    job->last = NULL;
    /* Another replica may be promoted than those that have the change. */
    if (how == REDIS_REPLICATED && job_is_held(job))
        how = REDIS_ASK_AGAIN;
    if (job->op == NULL) {
        if (job->wanted == 0)
            job_end(job);
    } else if (how == REDIS_REPLICATED) {
        job_settle(job, NULL, reply);
    } else if (how == REDIS_TOO_FEW) {
        redis_job_complete(
            job, idem_error_set(&job->copy.error, IDEM_E_UNKNOWN, "%s; it may have happened", why));
    } else {
        job_lost(job);
    }
    redis_reply_free(reply);
}

static void op_take_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_job *job = data;
    const struct redis_reply *deciding = reply;

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
    /* The new master may never see a change that the old one acknowledged: send it again there. */
    if (job_is_held(job) && (job_is_repeatable(job) || reply->type != REDIS_REPLY_ERROR)) {
        job_lost(job);
        return;
    }
    /* Of two replies, an error in the first one counts. */
    if (job->first != NULL && job->first->type == REDIS_REPLY_ERROR)
        deciding = job->first;
    if (job->scan == NULL && job_again(job, conn, deciding))
        return;
    if (job->store->config.replicas > 0 && deciding->type != REDIS_REPLY_ERROR &&
        !job_changes_nothing(job)) {
        job->last = redis_conn_keep(conn);
        redis_replication_await(conn->data, job);
        return;
    }
    job_settle(job, conn, deciding);
}

/* Closing. */

void redis_jobs_free(struct redis_store *store) {
    struct redis_job *job, *next;

    redis_queue_init(&store->turn);
    redis_queue_init(&store->paused);
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
