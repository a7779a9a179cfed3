/*
 * replicas=N: a change is acknowledged to its caller when N replicas have it. With fewer, its
 * outcome is unknown, and claims are refused.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/redis_store.h"

/*
 * WAIT blocks its connection and covers only commands written on that connection before. So it has
 * a connection of its own: first a PUBLISH, which is replicated after all earlier writes, then
 * WAIT. One WAIT is in flight at a time, for all replies that arrived before it was sent.
 *
 *                            PUBLISH, WAIT              N replicas
 *     reply of a change ──> unsent ──────> in_flight ──────────────> the reply is taken
 *                                              ├── fewer ──────────> unknown; lagging begins
 *                                              └── connection lost ─> the change is sent again
 *
 * While lagging, claims are refused at once, and a probe (PUBLISH, WAIT) is sent every PROBE_MS
 * until it finds N replicas. Lagging begins when fewer replicas confirm, when the server refuses
 * PUBLISH or WAIT, and when this connection cannot be made.
 *
 * WAIT at another server, or at the same one after a restart, would not cover the change. So the
 * run_id of both connections is compared.
 */

#define PROBE_MS 500
#define TRIES_MAX 2 /* connections lost in a row until lagging begins */
#define CHANNEL "idem:replicas"

static struct redis_node *replication_node(struct redis_replication *replication) {
    return idem_container_of(replication, struct redis_node, replication);
}

__attribute__((format(printf, 2, 3))) static void
replication_set_lagging(struct redis_replication *replication, const char *why, ...) {
    va_list args;

    replication->lagging = true;
    va_start(args, why);
    vsnprintf(replication->why, sizeof(replication->why), why, args);
    va_end(args);
}

/* Ends the wait of all jobs in flight. Their callbacks may close the store. */
static void node_end_in_flight(struct redis_node *node, enum redis_replicated how) {
    struct remote_op *op = remote_queue_take(&node->replication.in_flight), *next;
    struct redis_store *store = node->store;
    char why[sizeof(node->replication.why)];

    memcpy(why, node->replication.why, sizeof(why));
    remote_enter(&store->remote);
    for (; op != NULL && !store->remote.closing; op = next) {
        next = op->queue_next;
        op->queued = false;
        redis_job_replicated(redis_job_of(op), how, why);
    }
    (void)remote_leave(&store->remote);
}

static void node_end_all(struct redis_node *node, enum redis_replicated how) {
    remote_queue_append(&node->replication.in_flight, &node->replication.unsent);
    node_end_in_flight(node, how);
}

/* The server refuses a command: the operator must change that. */
static void node_notice_refusal(struct redis_node *node) {
    redis_store_notice(node->store, NOTICE_REPLICATION, "%s; until then claims are refused",
                       node->replication.why);
}

/* A refused PUBLISH is not replicated: the WAIT after it does not cover the changes, and may
   take long. */
static void replication_take_publish(struct redis_conn *conn, void *data,
                                     const struct redis_reply *reply) {
    struct redis_node *node = data;

    node->replication.published = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (reply == NULL || node->replication.published)
        return;
    replication_set_lagging(&node->replication,
                            "%s: the server refuses PUBLISH on the channel " CHANNEL
                            ", which replicas= needs "
                            "(%.80s): give the user +publish and &" CHANNEL,
                            conn->place, reply->text);
    node_notice_refusal(node);
    node_end_all(node, REDIS_TOO_FEW);
}

/* True if N replicas have every change written before PUBLISH. */
static bool replication_is_enough(struct redis_conn *conn, const struct redis_reply *reply) {
    struct redis_node *node = conn->data;
    int wanted = node->store->config.replicas;

    if (!node->replication.published)
        return false;
    if (reply->type == REDIS_REPLY_ERROR)
        replication_set_lagging(
            &node->replication,
            "%s: the server refuses WAIT, which replicas= needs (%.80s): give the user "
            "+wait",
            conn->place, reply->text);
    else if (reply->type != REDIS_REPLY_INTEGER || reply->integer < wanted)
        replication_set_lagging(
            &node->replication, "%s: %lld of %d replicas have what was written (replicas=)",
            conn->place, reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0, wanted);
    return reply->type == REDIS_REPLY_INTEGER && reply->integer >= wanted;
}

static void node_send_wait(struct redis_node *node);

static void replication_take_wait(struct redis_conn *conn, void *data,
                                  const struct redis_reply *reply) {
    struct redis_node *node = data;
    struct redis_replication *replication = &node->replication;
    struct redis_store *store = node->store;

    replication->wait_sent = false;
    if (reply == NULL) /* replication_lost() runs next */
        return;
    remote_enter(&store->remote);
    if (replication_is_enough(conn, reply)) {
        replication->lagging = false;
        node_end_in_flight(node, REDIS_REPLICATED);
    } else {
        if (replication->published && reply->type == REDIS_REPLY_ERROR)
            node_notice_refusal(node);
        node_end_all(node, REDIS_TOO_FEW);
    }
    if (remote_leave(&store->remote))
        return;
    if (replication->lagging)
        idem_timer_set(store->remote.base.loop, &replication->probe, PROBE_MS);
    else if (replication->unsent.first != NULL)
        node_send_wait(node);
}

/* WAIT gets half of an operation's timeout, because its command took some of it. A probe ends
   before the next one. */
static int64_t node_wait_limit(const struct redis_node *node) {
    int64_t half = (node->store->config.timeout_ms + 1) / 2;

    return node->replication.lagging && PROBE_MS < half ? PROBE_MS : half;
}

/* Call from the loop only: the connection may be lost at once, and a callback may close the
   store. */
static void node_send_wait(struct redis_node *node) {
    struct redis_replication *replication = &node->replication;
    struct redis_store *store = node->store;
    struct idem_buffer out = {0};

    remote_enter(&store->remote);
    redis_conn_open(&replication->conn);
    if (remote_leave(&store->remote))
        return;
    if (replication->wait_sent || replication->conn.state != REDIS_CONN_READY)
        return;
    remote_queue_append(&replication->in_flight, &replication->unsent);
    redis_put_command(&out, "PUBLISH", CHANNEL, "", NULL);
    replication->wait_sent =
        redis_conn_send(&replication->conn, out.at, out.len, replication_take_publish, node);
    out.len = 0;
    redis_put_head(&out, 3);
    redis_put_text(&out, "WAIT");
    redis_put_number(&out, store->config.replicas);
    redis_put_number(&out, node_wait_limit(node));
    replication->wait_sent =
        replication->wait_sent &&
        redis_conn_send(&replication->conn, out.at, out.len, replication_take_wait, node);
    idem_buffer_release(&out);
    if (replication->wait_sent)
        redis_conn_flush(&replication->conn);
    else
        redis_conn_fail(&replication->conn, IDEM_E_NOMEM, "no memory for a command");
}

static void replication_run_start(struct idem_task *task) {
    node_send_wait(replication_node(idem_container_of(task, struct redis_replication, start)));
}

static void replication_fire_probe(struct idem_timer *timer) {
    struct redis_replication *replication =
        idem_container_of(timer, struct redis_replication, probe);

    if (replication->lagging && !replication->wait_sent)
        node_send_wait(replication_node(replication));
}

void redis_replication_await(struct redis_node *node, struct redis_job *job) {
    remote_queue_put(&node->replication.unsent, &job->base);
    idem_task_post(node->store->remote.base.loop, &node->replication.start);
}

/* The connection. */

/* The name, or a proxy, may lead to another server now; or the server was restarted, and the
   command connection has not noticed yet. If INFO is not allowed, the addresses are compared. */
static bool node_is_same_server(const struct redis_node *node, const struct redis_reply *info) {
    const struct redis_conn *conn = &node->replication.conn, *written = &node->conn;
    char run_id[sizeof(node->run_id)];

    if (written->state != REDIS_CONN_READY) /* no change on that connection is waiting */
        return true;
    if (node->run_id[0] != '\0' && info->type == REDIS_REPLY_STRING &&
        redis_info_get(info->text, "run_id", run_id, sizeof(run_id)))
        return strcmp(run_id, node->run_id) == 0;
    return memcmp(&conn->addresses[conn->address_at], &written->addresses[written->address_at],
                  sizeof(conn->addresses[0])) == 0;
}

static void replication_take_info(struct redis_conn *conn, void *data,
                                  const struct redis_reply *reply) {
    struct redis_node *node = data;

    if (reply == NULL)
        return;
    if (!node_is_same_server(node, reply)) {
        redis_conn_fail(conn, IDEM_E_REFUSED,
                        "it is another server than the one that was written to, or was started "
                        "anew");
        return;
    }
    redis_conn_ready(conn);
    if (node->replication.unsent.first != NULL || node->replication.lagging)
        node_send_wait(node);
}

static void replication_greet(struct redis_conn *conn) {
    redis_greet(conn, NULL, NULL);
    (void)redis_conn_command(conn, replication_take_info, conn->data, "INFO", "server", NULL);
    redis_conn_flush(conn);
}

static void replication_lost(struct redis_conn *conn) {
    struct redis_node *node = conn->data;
    struct redis_replication *replication = &node->replication;

    replication->wait_sent = false;
    if (conn->silent || conn->tries >= TRIES_MAX)
        replication_set_lagging(replication, "%s: the connection for WAIT (replicas=): %s",
                                conn->place, conn->why);
    node_end_all(node, replication->lagging ? REDIS_TOO_FEW : REDIS_ASK_AGAIN);
}

static const struct redis_role replication_role = {.greet = replication_greet,
                                                   .lost = replication_lost};

void redis_replication_init(struct redis_node *node, const struct idem_host_name *host) {
    struct redis_replication *replication = &node->replication;

    redis_conn_init(&replication->conn, node->store->remote.base.loop, &node->store->config,
                    node->store->tls, host, &replication_role, node);
    remote_queue_init(&replication->unsent);
    remote_queue_init(&replication->in_flight);
    replication->probe.fire = replication_fire_probe;
    replication->start.run = replication_run_start;
}

void redis_replication_move(struct redis_node *node, const struct idem_host_name *host) {
    struct redis_replication *replication = &node->replication;

    idem_timer_clear(node->store->remote.base.loop, &replication->probe);
    redis_conn_close(&replication->conn);
    redis_conn_move(&replication->conn, host);
    replication->conn.tries = 0;
    replication->wait_sent = replication->lagging = false;
    node_end_all(node, REDIS_ASK_AGAIN);
}

void redis_replication_free(struct redis_node *node) {
    idem_task_drop(node->store->remote.base.loop, &node->replication.start);
    idem_timer_clear(node->store->remote.base.loop, &node->replication.probe);
    redis_conn_close(&node->replication.conn);
}
