/*
 * One server: the commands that begin a connection, and the checks of its replies.
 *
 * AUTH, SELECT, a client name, INFO, CONFIG GET and the scripts go out in one write. A wrong
 * password, an evicting policy and a server that is too old last until the operator corrects them.
 * A replica and a server that is loading may change in a moment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/redis_store.h"

#define VERSION_MIN 60200
#define TRIES_MAX 2 /* failures in a row until a server is down */
/* Operations do not wait for a server that is down: they are refused until it is back. */
static void node_set_down(struct redis_node *node, bool down) {
    node->down = down;
    if (down) {
        remote_resume(&node->store->remote);
        return;
    }
    node->failed = 0;
    node->busy_since = 0;
}

/* Ends the greeting; waiting operations are refused with this reason. */
static void node_refuse(struct redis_conn *conn, bool for_good, const char *why) {
    struct redis_node *node = conn->data;

    remote_trouble(&node->store->remote, IDEM_E_REFUSED, for_good, "%s: %s", conn->place, why);
    node_set_down(node, true);
    redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

/* AUTH, SELECT and the client name. */

bool redis_greet_full(struct redis_conn *conn, const struct redis_reply *reply) {
    if (reply->type != REDIS_REPLY_ERROR || strstr(reply->text, "max number of clients") == NULL)
        return false;
    redis_conn_fail(conn, IDEM_E_REFUSED,
                    "the server has as many clients as it takes (maxclients); it is tried again");
    return true;
}

/* Does not pass on the server's text: some servers repeat the credentials. */
static void node_take_auth(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)data;
    if (reply == NULL || reply->type != REDIS_REPLY_ERROR || redis_greet_full(conn, reply))
        return;
    if (redis_reply_is(reply, "WRONGPASS"))
        redis_conn_refuse(conn, "the server refuses the user or the password");
    else if (strstr(reply->text, "without any password") != NULL)
        redis_conn_refuse(conn, "a password is given, and the server has none");
    else
        redis_conn_refuse(conn, "the server does not take AUTH");
}

/* Without SELECT every command would go to another database. */
static void node_take_select(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)data;
    if (reply == NULL || reply->type != REDIS_REPLY_ERROR || redis_reply_is(reply, "NOAUTH") ||
        redis_greet_full(conn, reply))
        return; /* a later reply reports the missing password */
    redis_conn_refuse(conn, redis_reply_is(reply, "NOPERM")
                                ? "the user may not SELECT the database: give it +select"
                                : "the server has no such database");
}

/* The client name only helps operators: its failure is ignored. */
static void node_take_name(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)data;
    if (reply != NULL)
        (void)redis_greet_full(conn, reply);
}

void redis_greet(struct redis_conn *conn, redis_reply_fn *last, void *data) {
    const struct redis_config *config = conn->config;
    bool sentinel = conn->sentinel;
    const char *user = sentinel ? config->sentinel_user : config->user;
    const char *password = sentinel ? config->sentinel_password : config->password;
    struct idem_buffer out = {0};
    char db[12];

    if (password != NULL) {
        if (user != NULL)
            redis_put_command(&out, "AUTH", user, password, NULL);
        else
            redis_put_command(&out, "AUTH", password, NULL);
        (void)redis_conn_send(conn, out.at, out.len, node_take_auth, NULL);
        explicit_bzero(out.at, out.len);
        idem_buffer_release(&out);
    }
    if (config->db != 0 && !sentinel) {
        snprintf(db, sizeof(db), "%d", config->db);
        (void)redis_conn_command(conn, node_take_select, NULL, "SELECT", db, NULL);
    }
    (void)redis_conn_command(conn, last == NULL ? node_take_name : last, data, "CLIENT", "SETNAME",
                             config->name, NULL);
}

/* INFO. */

bool redis_info_get(const char *info, const char *name, char *buf, size_t size) {
    size_t len = strlen(name), n;
    const char *at = info;

    while (at != NULL && *at != '\0') {
        if (strncmp(at, name, len) == 0 && at[len] == ':') {
            at += len + 1;
            n = strcspn(at, "\r\n");
            snprintf(buf, size, "%.*s", (int)n, at);
            return true;
        }
        at = strchr(at, '\n');
        at = at == NULL ? NULL : at + 1;
    }
    return false;
}

/* 70015 for 7.0.15; 0 if the text is not a version. */
static unsigned node_parse_version(const char *text) {
    unsigned long version = 0, part;
    char *end = (char *)text;

    for (int i = 0; i < 3; i++) {
        part = strtoul(text, &end, 10);
        if (end == text && i < 2)
            return 0;
        version = version * 100 + (part < 100 ? part : 99);
        text = *end == '.' ? end + 1 : end;
    }
    return (unsigned)version;
}

/* A server that was suspended may still have commands of the previous connection to read. They
   must not run after commands sent from now on: a claim that was given up and released would
   come to life again. So this ends the previous connection, if the server is the same process:
   another process has other client IDs. */
static void node_fence(struct redis_conn *conn, struct redis_node *node, const char *info) {
    char run[sizeof(node->run_id)], id[24];

    if (!redis_info_get(info, "run_id", run, sizeof(run)))
        run[0] = '\0';
    if (node->client_id != 0 && run[0] != '\0' && strcmp(run, node->run_id) == 0) {
        snprintf(id, sizeof(id), "%lld", node->client_id);
        (void)redis_conn_command(conn, redis_take_nothing, NULL, "CLIENT", "KILL", "ID", id, NULL);
    }
    memcpy(node->run_id, run, sizeof(run));
}

void redis_fact(const struct redis_conn *conn, const char *name, const char *value) {
    const struct redis_node *node = conn->data;
    const struct idem_store *base = &node->store->remote.base;

    if (base->fact != NULL)
        base->fact(base->fact_data, conn->place, name, value);
}

static void node_report_facts(const struct redis_conn *conn, const char *info) {
    static const char *const names[] = {"redis_version",
                                        "redis_mode",
                                        "role",
                                        "maxmemory_policy",
                                        "maxmemory",
                                        "used_memory",
                                        "connected_slaves",
                                        "aof_last_write_status",
                                        "rdb_last_bgsave_status"};
    char value[64];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (redis_info_get(info, names[i], value, sizeof(value)))
            redis_fact(conn, names[i], value);
}

static void node_take_info(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_node *node = data;
    struct redis_store *store = node->store;
    char value[64];

    if (reply == NULL)
        return;
    if (redis_reply_is(reply, "NOAUTH")) {
        node_refuse(conn, true, "the server wants a password (password_file=, or USER:PASSWORD@)");
        return;
    }
    if (reply->type != REDIS_REPLY_STRING) {
        redis_store_notice(store, NOTICE_INFO,
                           "%s: INFO is not allowed here, so that version, role, persistence and "
                           "maxmemory-policy could not be looked at",
                           conn->place);
        return;
    }
    node_fence(conn, node, reply->text);
    node_report_facts(conn, reply->text);
    node->version = redis_info_get(reply->text, "redis_version", value, sizeof(value))
                        ? node_parse_version(value)
                        : 0;
    if (redis_info_get(reply->text, "redis_mode", value, sizeof(value)) &&
        strcmp(value, "sentinel") == 0) {
        node_refuse(conn, true, "it is a sentinel: use redis+sentinel://HOST,HOST/MASTER");
    } else if (node->version != 0 && node->version < VERSION_MIN) {
        node_refuse(conn, true, "the server is older than Redis 6.2");
    } else if (redis_info_get(reply->text, "loading", value, sizeof(value)) && value[0] == '1') {
        node_refuse(conn, false, "the server is loading its data");
    } else if (redis_info_get(reply->text, "role", value, sizeof(value)) &&
               strcmp(value, "master") != 0 && store->config.kind != REDIS_CLUSTER) {
        node_refuse(conn, false,
                    "the server is a replica, which takes no writes; name its master, or use "
                    "redis+sentinel:");
    } else if (redis_info_get(reply->text, "maxmemory_policy", value, sizeof(value)) &&
               strcmp(value, "noeviction") != 0) {
        if (!store->config.unsafe)
            node_refuse(conn, true,
                        "maxmemory-policy evicts, so that what was done may be forgotten and run "
                        "again; set it to noeviction, or add unsafe=yes");
        else
            redis_store_notice(store, NOTICE_EVICTION,
                               "%s: unsafe=yes, and maxmemory-policy is %s: what was done may be "
                               "forgotten and run again",
                               conn->place, value);
    }
}

/* CONFIG GET NAME returns [NAME, VALUE]. */
static void node_take_config(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_node *node = data;

    if (reply == NULL)
        return;
    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n < 2) {
        redis_store_notice(node->store, NOTICE_CONFIG,
                           "%s: CONFIG is not allowed here, so that its persistence could not be "
                           "looked at",
                           conn->place);
        return;
    }
    redis_fact(conn, reply->items[0]->text, reply->items[1]->text);
    if (strcmp(reply->items[0]->text, "save") == 0)
        node->saves = reply->items[1]->len != 0;
    else if (strcmp(reply->items[0]->text, "appendonly") == 0 &&
             strcmp(reply->items[1]->text, "no") == 0 && !node->saves)
        redis_store_notice(node->store, NOTICE_PERSISTENCE,
                           "%s: neither appendonly nor save is set: a restart forgets what was "
                           "done, and it may run again",
                           conn->place);
}

/* The scripts. */

static void node_take_script(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)data;
    if (reply == NULL || reply->type == REDIS_REPLY_STRING)
        return;
    if (redis_reply_is(reply, "NOPERM"))
        node_refuse(conn, true, "the user may not load scripts: give it SCRIPT LOAD and EVALSHA");
    else
        node_refuse(conn, false,
                    reply->type == REDIS_REPLY_ERROR ? reply->text : "no script was loaded");
}

static void node_take_last_script(struct redis_conn *conn, void *data,
                                  const struct redis_reply *reply) {
    struct redis_node *node = data;

    node_take_script(conn, data, reply);
    if (reply == NULL || reply->type != REDIS_REPLY_STRING)
        return;
    redis_conn_ready(conn);
    node_set_down(node, false);
    redis_fact(conn, "ready", "yes");
    idem_store_connected(&node->store->remote.base, &node->met);
    redis_store_ready(node->store);
}

static void node_take_id(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_node *node = data;

    (void)conn;
    if (reply != NULL)
        node->client_id = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
}

/* Requests the first two always; the others only for `idem doctor`, which sets a fact callback. */
static void node_request_settings(struct redis_conn *conn, struct redis_node *node) {
    static const char *const names[] = {"save", "appendonly", "appendfsync",
                                        "no-appendfsync-on-rewrite", "min-replicas-to-write"};
    size_t n = node->store->remote.base.fact == NULL ? 2 : sizeof(names) / sizeof(names[0]);

    for (size_t i = 0; i < n; i++)
        (void)redis_conn_command(conn, node_take_config, node, "CONFIG", "GET", names[i], NULL);
}

static bool reply_is_text(const struct redis_reply *reply, const char *text) {
    return reply->type == REDIS_REPLY_STRING && strcmp(reply->text, text) == 0;
}

/* [server, redis, ..., mode, cluster, ...]. Every user may send HELLO, but not INFO. A server in
   cluster mode does not replicate PUBLISH, so WAIT would be satisfied at once. */
static void node_take_hello(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    (void)data;
    for (size_t i = 0; reply != NULL && reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->items_n;
         i += 2)
        if (reply_is_text(reply->items[i], "mode") &&
            reply_is_text(reply->items[i + 1], "cluster")) {
            node_refuse(
                conn, true,
                "replicas= does not work with a server in cluster mode (cluster-enabled yes), "
                "which does not replicate PUBLISH: leave out replicas=, or set cluster-enabled "
                "no");
            return;
        }
}

static void node_greet(struct redis_conn *conn) {
    struct redis_node *node = conn->data;

    node->saves = false;
    redis_greet(conn, NULL, NULL);
    (void)redis_conn_command(conn, node_take_info, node, "INFO", NULL);
    if (conn->config->replicas > 0)
        (void)redis_conn_command(conn, node_take_hello, NULL, "HELLO", NULL);
    (void)redis_conn_command(conn, node_take_id, node, "CLIENT", "ID", NULL);
    node_request_settings(conn, node);
    for (int i = 0; i < REDIS_SCRIPT__COUNT; i++)
        (void)redis_conn_command(
            conn, i + 1 < REDIS_SCRIPT__COUNT ? node_take_script : node_take_last_script, node,
            "SCRIPT", "LOAD", node->store->scripts.text[i], NULL);
    redis_conn_flush(conn);
}

static void node_lost(struct redis_conn *conn) {
    struct redis_node *node = conn->data;
    struct redis_store *store = node->store;

    redis_fact(conn, "lost", conn->why);
    remote_trouble(&store->remote, conn->code, false, "%s: %s", conn->place, conn->why);
    node->failed += !conn->was_ready;
    if (conn->silent || node->failed >= TRIES_MAX)
        node_set_down(node, true);
    if (store->config.kind == REDIS_SENTINEL)
        redis_sentinel_ask(store);
    else if (store->config.kind == REDIS_CLUSTER)
        redis_cluster_refresh(store);
    /* The next connection may lead to another server, whose replicas must be asked through it.
       This call is last: it may free the store. */
    redis_replication_move(node, &conn->host);
}

static void node_refused(struct redis_conn *conn, const char *why) {
    node_refuse(conn, true, why);
}

static const struct redis_role node_role = {
    .greet = node_greet, .refused = node_refused, .lost = node_lost};

struct redis_node *redis_node_new(struct redis_store *store, const struct idem_host_name *host) {
    struct redis_node *node = calloc(1, sizeof(*node)), **last = &store->nodes;

    if (node == NULL)
        return NULL;
    node->store = store;
    redis_conn_init(&node->conn, store->remote.base.loop, &store->config, store->tls, host,
                    &node_role, node);
    redis_wake_conn_init(node, host);
    redis_replication_init(node, host);
    while (*last != NULL)
        last = &(*last)->next;
    *last = node;
    return node;
}

struct redis_node *redis_node_find(struct redis_store *store, const struct idem_host_name *host) {
    struct redis_node *node = store->nodes;

    while (node != NULL &&
           (node->conn.host.port != host->port || strcmp(node->conn.host.name, host->name) != 0))
        node = node->next;
    return node;
}

static void node_take_role(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct redis_node *node = data;

    if (reply != NULL && redis_reply_is(reply, "NOPERM"))
        redis_store_notice(node->store, NOTICE_ROLE,
                           "%s: ROLE is not allowed here, so that a master that became a replica "
                           "is noticed only when it refuses a write; give the user +role",
                           conn->place);
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->items_n > 0 &&
        reply->items[0]->type == REDIS_REPLY_STRING && strcmp(reply->items[0]->text, "master") != 0)
        redis_conn_fail(conn, IDEM_E_REFUSED, "it is not the master any more");
}

void redis_node_check_role(struct redis_node *node) {
    if (node->conn.state == REDIS_CONN_READY &&
        redis_conn_command(&node->conn, node_take_role, node, "ROLE", NULL))
        redis_conn_flush(&node->conn);
}

void redis_node_move(struct redis_node *node, const struct idem_host_name *host) {
    redis_conn_close(&node->conn);
    node_set_down(node, false);
    redis_conn_move(&node->conn, host);
    redis_conn_move(&node->wake, host);
    node->conn.tries = 0;
    redis_replication_move(node, host); /* last: it may free the node */
}

void redis_node_free(struct redis_node *node) {
    redis_replication_free(node);
    redis_wake_forget(node);
    redis_conn_close(&node->conn);
    redis_conn_close(&node->wake);
    free(node);
}
