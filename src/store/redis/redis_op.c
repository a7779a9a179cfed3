/*
 * Operations under way: written, sent, and what a reply means for them. remote.c has their lists,
 * queues and deadlines.
 *
 *     submitted ──> turn ──> sent ──reply──> complete
 *                   ^  │      │ NOSCRIPT, MOVED, ASK: again at once
 *                   │  v      v
 *                  paused <── lost, or the server is busy or unavailable
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/freelist.h"
#include "store/redis/redis_store.h"

#define REDIRECTS_AT_ONCE 3
/* Jobs of this size, with room for short strings, are reused. */
#define JOB_ROOM (sizeof(struct redis_job) + 1024)
#define COMMAND_KEPT 4096
#define RELOADS_MAX 16 /* a client may keep flushing scripts, or the server keep none */

static void job_release(struct redis_job *job) {
    idem_buffer_release(&job->command);
    redis_reply_free(job->first);
    redis_reply_free(job->last);
    redis_scan_free(job->scan);
    free(job);
}

/* Puts the job on the free list, with its buffer, if neither is large. */
void redis_job_free(struct remote_op *op) {
    struct redis_job *job = redis_job_of(op);
    struct redis_store *store = job->store;

    if (op->room > JOB_ROOM || job->command.size > COMMAND_KEPT || job->scan != NULL ||
        store->freelist_n >= idem_freelist_max || store->remote.closing) {
        job_release(job);
        return;
    }
    redis_reply_free(job->first);
    redis_reply_free(job->last);
    job->first = job->last = NULL;
    op->next = store->freelist;
    store->freelist = op;
    store->freelist_n++;
}

void redis_jobs_free(struct redis_store *store) {
    struct remote_op *op = store->freelist, *next;

    for (; op != NULL; op = next) {
        next = op->next;
        job_release(redis_job_of(op));
    }
    store->freelist = NULL;
}

struct remote_op *redis_job_new(struct remote *r, size_t room) {
    struct redis_store *store = redis_store_of(r);
    struct remote_op *freelist = room <= JOB_ROOM ? store->freelist : NULL;
    struct idem_buffer command = {0};
    struct redis_job *job;

    if (freelist != NULL) {
        store->freelist = freelist->next;
        store->freelist_n--;
        job = redis_job_of(freelist);
        command = job->command;
        command.len = 0;
        command.failed = false;
    } else {
        job = malloc(room <= JOB_ROOM ? JOB_ROOM : room);
        if (job == NULL)
            return NULL;
    }
    memset(job, 0, offsetof(struct redis_job, base.copy));
    job->store = store;
    job->command = command;
    return &job->base;
}

/* A scan does not send names again that have a result. */
int redis_job_begin(struct remote_op *op) {
    struct redis_job *job = redis_job_of(op);
    char name[REDIS_NAME_MAX];

    job->asking = false;
    if (job->scan != NULL)
        job->command.len = 0;
    else
        job->target = NULL;
    if (remote_op_is_keyed(op) && job->store->config.kind == REDIS_CLUSTER)
        job->slot = redis_cluster_slot(name, redis_name(&op->copy.key, name));
    return 0;
}

void redis_job_turn(struct remote_op *op) {
    struct redis_store *store = redis_job_of(op)->store;

    remote_op_turn(op, &store->turn, &store->flush);
}

/* The connection was lost before the reply arrived. */
static void job_lost(struct redis_job *job) {
    if (job->base.responses_due > 0) /* the other pending replies are notified as well */
        return;
    job->base.lost = true;
    remote_op_lost(&job->base);
}

void redis_take_nothing(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)conn;
    (void)data;
    (void)reply;
}

static void op_take_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply);

/* Sends the commands; false: not possible now. */
static bool job_send(struct redis_job *job, struct redis_node *node) {
    if (job->asking && !redis_conn_command(&node->conn, redis_take_nothing, NULL, "ASKING", NULL))
        return false;
    if (!redis_conn_send(&node->conn, job->command.at, job->command.len, op_take_reply, job))
        return false;
    job->base.responses_due++;
    for (unsigned i = 1; i < job->replies; i++, job->base.responses_due++)
        if (!redis_conn_send(&node->conn, "", 0, op_take_reply, job)) {
            redis_conn_fail(&node->conn, IDEM_E_NOMEM, "no memory for a response");
            break;
        }
    job->base.sent = true;
    return true;
}

/* Writes the commands of a job that has none. A claim is written only when it is sent: before,
   the server's version may be unknown. */
static bool job_ready(struct redis_job *job) {
    redis_reply_free(job->first);
    job->first = NULL;
    /* Two commands would need ASKING twice. */
    if (job->asking && job->base.copy.kind == IDEM_OP_CLAIM && !job->scripted) {
        job->scripted = true;
        job->command.len = 0;
    }
    if (job->command.len > 0 && !job->command.failed)
        return true;
    job->command.failed = false;
    if (redis_job_write(job))
        return true;
    idem_error_set(&job->base.copy.error, IDEM_E_NOMEM,
                   "no memory for an operation, or its cursor is of "
                   "another store");
    return false;
}

/* True for an operation that changes a record, while a failover is under way. */
static bool job_is_held(const struct redis_job *job) {
    return redis_sentinel_holds(job->store) && !remote_op_only_reads(&job->base);
}

static bool job_grants(const struct redis_job *job) {
    return job->base.copy.kind == IDEM_OP_CLAIM || job->base.copy.kind == IDEM_OP_ISSUE ||
           job->base.copy.kind == IDEM_OP_ONCE || job->base.copy.kind == IDEM_OP_COUNT;
}

/* Returns a code, and sets the error, if waiting does not help: the server is down, or nothing
   may be granted. Otherwise 0. */
static int job_refusal(struct redis_job *job, const struct redis_node *node) {
    int code = job->base.sent ? IDEM_E_UNKNOWN : IDEM_E_REFUSED;

    if (node != NULL && node->down && node->conn.state != REDIS_CONN_READY)
        return remote_op_fail(&job->base, "the server cannot be reached");
    if (job_is_held(job) && redis_sentinel_holds_long(job->store))
        return idem_error_set(&job->base.copy.error, code,
                              "a failover of Sentinel is under way and does not end; see "
                              "failover-timeout of the sentinels");
    if (node != NULL && node->replication.lagging && job_grants(job))
        return idem_error_set(&job->base.copy.error, code, "%s", node->replication.why);
    if (!job_grants(job) || !redis_sentinel_is_silent(job->store))
        return 0;
    return idem_error_set(&job->base.copy.error, code,
                          "no sentinel has answered and sent its events for %lld ms: a failover "
                          "could go unseen; see sentinel_grace=",
                          (long long)job->store->config.sentinel_grace_ms);
}

/* True if no host of the URL leads to a master or to a map of the cluster. Before there is a node,
   nothing else shows that waiting does not help. */
static bool store_is_down(const struct redis_store *store) {
    return store->remote.unreachable && (store->nodes == NULL || !redis_cluster_is_mapped(store));
}

void redis_flush_run(struct idem_task *task) {
    struct redis_store *store = idem_container_of(task, struct redis_store, flush);
    struct remote_op *op = remote_queue_take(&store->turn), *next;
    struct redis_node *node;
    struct redis_job *job;
    int refusal;

    remote_enter(&store->remote);
    for (; op != NULL && !store->remote.closing; op = next) {
        next = op->queue_next;
        op->queued = false;
        if (remote_op_is_gone(op))
            continue;
        job = redis_job_of(op);
        if (store_is_down(store)) {
            remote_op_give_up(op, "the server cannot be reached");
            continue;
        }
        if (!redis_cluster_is_mapped(store)) {
            remote_op_pause(&job->base);
            continue;
        }
        /* A scan selects its server itself. */
        if (!remote_op_is_keyed(&job->base) && !job_ready(job)) {
            remote_op_complete(&job->base, job->base.copy.error.code);
            continue;
        }
        node = redis_cluster_route(store, job);
        refusal = job_refusal(job, node);
        if (refusal != 0) {
            remote_op_complete(&job->base, refusal);
            continue;
        }
        if (node == NULL || node->conn.state != REDIS_CONN_READY || job_is_held(job)) {
            remote_op_pause(&job->base); /* remote_resume() ends the pause */
            continue;
        }
        job->version = node->version;
        if (!job_ready(job)) {
            remote_op_complete(&job->base, job->base.copy.error.code);
            continue;
        }
        if (!job_send(job, node))
            remote_op_pause(&job->base);
    }
    /* A write may lose the connection, and a callback may close the store. */
    for (node = store->remote.closing ? NULL : store->nodes; node != NULL;
         node = store->remote.closing ? NULL : node->next) {
        node->loaded = false;
        redis_conn_flush(&node->conn);
    }
    (void)remote_leave(&store->remote);
}

void redis_store_ready(struct redis_store *store) {
    store->remote.unreachable &= !redis_cluster_is_mapped(store);
    redis_cluster_begin(store);
    remote_ready(&store->remote);
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

    if (node->loaded)
        return;
    node->loaded = true;
    for (int i = 0; i < REDIS_SCRIPT__COUNT; i++)
        (void)redis_conn_command(conn, redis_take_nothing, NULL, "SCRIPT", "LOAD",
                                 store->scripts.text[i], NULL);
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
        job->base.sent = job->base.lost;
    if (redis_reply_is(reply, "NOSCRIPT")) {
        if (job->reloads++ >= RELOADS_MAX)
            return false;
        store_load_scripts(store, conn);
        redis_job_turn(&job->base);
        return true;
    }
    if (redis_reply_is(reply, "MOVED") || redis_reply_is(reply, "ASK")) {
        job->target = job->scan != NULL ? job->target : NULL;
        if (!redis_cluster_redirect(job, reply))
            return false;
        /* Two servers that redirect to each other do not agree yet: give them time. */
        if (job->redirects > REDIRECTS_AT_ONCE)
            remote_op_pause(&job->base);
        else
            redis_job_turn(&job->base);
        return true;
    }
    /* The same name, or the sentinels, may lead to another master now. */
    if (reply_is_error(reply, "READONLY")) {
        remote_op_pause(&job->base);
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
    snprintf(store->remote.trouble, sizeof(store->remote.trouble), "the server says: %.150s",
             reply->text);
    remote_op_pause(&job->base);
    return true;
}

/* Takes the reply that determines the result. */
static void job_settle(struct redis_job *job, struct redis_conn *conn,
                       const struct redis_reply *reply) {
    int rc = redis_job_take(job, reply);

    switch (rc) {
    case REDIS_MORE:
        return;
    case REDIS_AGAIN:
        if (job->base.responses_due == 0)
            redis_job_turn(&job->base);
        return;
    case REDIS_STUCK:
        reply = redis_scan_obstacle(job);
        if (!job_again(job, conn, reply)) {
            rc = idem_error_set(&job->base.copy.error, IDEM_E_REFUSED, "the server says: %.150s",
                                reply->text);
            remote_op_complete(&job->base, rc);
        }
        return;
    default:
        remote_op_complete(&job->base, remote_op_judge(&job->base, rc));
    }
}

void redis_job_replicated(struct redis_job *job, enum redis_replicated how, const char *why) {
    struct redis_reply *reply = job->last;

    job->last = NULL;
    /* Another replica may be promoted than those that have the change. */
    if (how == REDIS_REPLICATED && job_is_held(job))
        how = REDIS_ASK_AGAIN;
    if (remote_op_is_gone(&job->base)) {
        redis_reply_free(reply);
        return;
    }
    if (how == REDIS_REPLICATED) {
        job_settle(job, NULL, reply);
    } else if (how == REDIS_TOO_FEW) {
        remote_op_complete(&job->base, idem_error_set(&job->base.copy.error, IDEM_E_UNKNOWN,
                                                      "%s; it may have happened", why));
    } else {
        job_lost(job);
    }
    redis_reply_free(reply);
}

static void op_take_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_job *job = data;
    const struct redis_reply *deciding = reply;

    job->base.responses_due--;
    if (remote_op_is_gone(&job->base))
        return;
    if (reply == NULL) {
        job_lost(job);
        return;
    }
    if (job->scan == NULL && job->replies == 2 && job->first == NULL) {
        job->first = redis_conn_hold(conn);
        return;
    }
    /* The new master may never see a change that the old one acknowledged: send it again there. */
    if (job_is_held(job) &&
        (remote_op_is_repeatable(&job->base) || reply->type != REDIS_REPLY_ERROR)) {
        job_lost(job);
        return;
    }
    /* Of two replies, an error in the first one counts. */
    if (job->first != NULL && job->first->type == REDIS_REPLY_ERROR)
        deciding = job->first;
    if (job->scan == NULL && job_again(job, conn, deciding))
        return;
    if (job->store->config.replicas > 0 && deciding->type != REDIS_REPLY_ERROR &&
        !remote_op_only_reads(&job->base)) {
        job->last = redis_conn_hold(conn);
        redis_replication_await(conn->data, job);
        return;
    }
    job_settle(job, conn, deciding);
}
