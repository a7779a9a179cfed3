/*
 * The Redis store: its servers, and the operations under way.
 */
#ifndef IDEM_STORE_REDIS_REDIS_STORE_H
#define IDEM_STORE_REDIS_REDIS_STORE_H

#include "store/redis/redis_connection.h"
#include "store/remote.h"

#define REDIS_SLOTS 16384

struct redis_store;

/* Notices to the operator; each is given once. */
enum {
    NOTICE_CONFIG = 1u << 0,
    NOTICE_PERSISTENCE = 1u << 1,
    NOTICE_EVICTION = 1u << 2,
    NOTICE_INFO = 1u << 3,
    NOTICE_SENTINEL = 1u << 4,
    NOTICE_REPLICATION = 1u << 5,
    NOTICE_ROLE = 1u << 6,
};

/* replicas=: which changes N replicas have (redis_replication.c). */
struct redis_replication {
    struct redis_conn conn;        /* carries PUBLISH and WAIT; off until the first change */
    struct remote_queue unsent;    /* jobs with a reply, until WAIT is sent for them */
    struct remote_queue in_flight; /* jobs with a reply, until the response to WAIT */
    bool wait_sent;                /* its response is due */
    bool published;                /* the server accepted the PUBLISH before it */
    bool lagging;            /* fewer than N replicas confirmed the last WAIT: claims are refused */
    char why[400];           /* the reason while lagging */
    struct idem_timer probe; /* sends the next WAIT while lagging */
    struct idem_task start;  /* sends WAIT for `unsent` */
};

/* One server. */
struct redis_node {
    struct redis_store *store;
    struct redis_node *next;
    struct redis_conn conn; /* commands */
    struct redis_conn wake; /* wake-ups; off until there is a waiter */
    bool known;          /* CLUSTER: the last map names it; other servers are removed when idle */
    unsigned version;    /* 70015 for 7.0.15; 0: unknown */
    long long client_id; /* the server's ID of this connection or the last one; 0: none */
    char run_id[64];     /* of the server that gave client_id */
    bool met;            /* was connected before */
    bool down;           /* unreachable, or did not respond in time */
    unsigned failed;     /* failed attempts in a row to reach it */
    int64_t busy_since;  /* all its replies since then were passing errors; 0: the last was not */
    struct redis_replication replication;
    bool saves;  /* CONFIG: `save` is not empty */
    bool loaded; /* scripts were loaded again in this turn */
};

/* One operation under way. */
struct redis_job {
    struct redis_store *store;
    struct idem_buffer command; /* one or more commands */
    unsigned replies;           /* to `command` */
    bool scripted;              /* a claim that uses the script */
    bool deleting;              /* a forget that uses DEL */
    bool urgent;                /* may exceed the server's maxmemory */
    unsigned version;           /* of the server it is sent to */
    bool asking;                /* CLUSTER: send ASKING before it */
    unsigned redirects, reloads;
    uint16_t slot;
    struct redis_node *target; /* CLUSTER: the node of a redirection or a scan; NULL: by slot */
    struct redis_reply *first; /* first of two replies */
    struct redis_reply *last;  /* the reply, while it waits for replicas */
    struct redis_scan *scan;
    struct remote_op base; /* last: its strings are stored behind it */
};

/* A record with watches; its channel has the record's name. */
struct redis_channel {
    struct remote_channel base;
    struct redis_node *node; /* the server it is subscribed at; NULL: at none */
    bool sharded;            /* subscribed by SSUBSCRIBE */
};

/* The names of a list's page that did not fit into the response. */
#define REDIS_PAGES_KEPT 32
struct redis_page {
    uint64_t id; /* 0: none */
    struct idem_record_key *names;
    size_t names_n;
};

struct redis_store {
    struct remote remote;
    struct redis_config config;
    struct redis_tls_config *tls;
    struct redis_scripts scripts;

    struct redis_node *nodes;
    struct redis_node **slots;           /* CLUSTER: by slot; NULL entries are unknown */
    struct redis_sentinel *sentinel;     /* SENTINEL */
    struct redis_cluster *cluster;       /* CLUSTER */
    struct redis_name_watch *name_watch; /* STANDALONE, if the URL contains a name */
    int64_t contended_until;             /* until then claims also ask for the remaining life */
    unsigned noticed;                    /* notices already given, one bit each */

    struct remote_op *freelist; /* a free list of jobs */
    unsigned freelist_n;
    struct remote_queue turn; /* to be sent */
    struct idem_task flush;
    bool tallied; /* the counts were sent while the store was closed */

    struct redis_page pages[REDIS_PAGES_KEPT];
    uint64_t pages_made;
};

/* redis_command.c */

/* Writes the job's commands. False without memory. */
bool redis_job_write(struct redis_job *job);
/* Takes a reply. Returns the operation's code, with the result or the error in job->base.copy; or
   one of these, if it goes on. */
enum {
    REDIS_MORE = 1, /* another reply is pending */
    REDIS_AGAIN,    /* commands were written again: send them */
    REDIS_STUCK,    /* a scan: redis_scan_obstacle() has the error; send again as it requires */
};
int redis_job_take(struct redis_job *job, const struct redis_reply *reply);
#define REDIS_EVENTS_NAME "idem:events" /* the counted events */

/* redis_scan.c */
bool redis_scan_write(struct redis_job *job);
int redis_scan_take(struct redis_job *job, const struct redis_reply *reply);
/* Returns the error that a scan met; borrowed until the scan is written again. */
const struct redis_reply *redis_scan_obstacle(struct redis_job *job);
void redis_scan_free(struct redis_scan *scan);
void redis_pages_free(struct redis_store *store);

/* redis_node.c */
struct redis_node *redis_node_new(struct redis_store *store, const struct idem_host_name *host);
struct redis_node *redis_node_find(struct redis_store *store, const struct idem_host_name *host);
void redis_node_free(struct redis_node *node);
/* Moves the node to another address; closes its connection. Callbacks may close the store. */
void redis_node_move(struct redis_node *node, const struct idem_host_name *host);
/* Copies the value of a line NAME:VALUE of INFO to buf; false if there is no such line. */
bool redis_info_get(const char *info, const char *name, char *buf, size_t size);
/* Drops the connection if the server is no longer a master. */
void redis_node_check_role(struct redis_node *node);
/* Reports a property of this server to idem doctor. Besides the server's own names: "ready"
   (usable), "lost" (why it is not), "cluster_master" (the map names it). */
void redis_fact(const struct redis_conn *conn, const char *name, const char *value);
/* Sends AUTH, SELECT and the client name, which begin every connection. A refusal goes to the
   role; `last` takes the last reply of any kind; NULL: it is ignored. */
void redis_greet(struct redis_conn *conn, redis_reply_fn *last, void *data);
/* The first reply may report that the server has too many clients: then the connection is lost,
   and the result is true. */
bool redis_greet_full(struct redis_conn *conn, const struct redis_reply *reply);

static inline struct redis_store *redis_store_of(struct remote *r) {
    return idem_container_of(r, struct redis_store, remote);
}
static inline struct redis_job *redis_job_of(struct remote_op *op) {
    return idem_container_of(op, struct redis_job, base);
}

/* redis_op.c */
struct remote_op *redis_job_new(struct remote *r, size_t room);
void redis_job_free(struct remote_op *op);
int redis_job_begin(struct remote_op *op);
void redis_job_turn(struct remote_op *op);
void redis_jobs_free(struct redis_store *store); /* the free list */
/* True for an error that means: nothing was done, and a retry may succeed soon. */
bool redis_is_passing(const struct redis_reply *reply);
/* The outcome of a job whose reply waits for replicas. */
enum redis_replicated {
    REDIS_REPLICATED, /* take its reply */
    REDIS_TOO_FEW,    /* fewer than N replicas have the change: its outcome is unknown */
    REDIS_ASK_AGAIN,  /* send its commands again, if that is safe */
};
/* `why` is used for REDIS_TOO_FEW only. */
void redis_job_replicated(struct redis_job *job, enum redis_replicated how, const char *why);
void redis_flush_run(struct idem_task *task);
/* Ignores a reply without content. */
void redis_take_nothing(struct redis_conn *conn, void *data, const struct redis_reply *reply);

/* redis_driver.c */
void redis_store_ready(struct redis_store *store); /* a server is ready: send waiting jobs */
void redis_store_notice(struct redis_store *store, unsigned bit, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* redis_wake.c */
void redis_watched(struct remote *r, struct remote_channel *channel);
void redis_unwatched(struct remote *r, struct remote_channel *channel);
void redis_wake_conn_init(struct redis_node *node, const struct idem_host_name *host);
/* The servers have changed: subscriptions move to the servers that have the keys now. */
void redis_wake_renew(struct redis_store *store);
/* This server has lost all subscriptions. */
void redis_wake_forget(struct redis_node *node);

/* redis_replication.c */
void redis_replication_init(struct redis_node *node, const struct idem_host_name *host);
/* Closes the connection, and has the waiting jobs sent again. Their callbacks may close the
   store. */
void redis_replication_move(struct redis_node *node, const struct idem_host_name *host);
void redis_replication_free(struct redis_node *node);
/* Adds a job that has its reply; the reply is taken when enough replicas have the change. */
void redis_replication_await(struct redis_node *node, struct redis_job *job);

/* redis_sentinel.c */
int redis_sentinel_new(struct redis_store *store, struct idem_error *err);
void redis_sentinel_free(struct redis_sentinel *sentinel);
void redis_sentinel_ask(struct redis_store *store); /* all sentinels, now */
/* True while a sentinel in the URL has neither responded nor failed yet. */
bool redis_sentinel_is_asked(const struct redis_store *store);
/* True while a failover is under way: a change that the master acknowledges may be lost. */
bool redis_sentinel_holds(const struct redis_store *store);
/* True if that lasts longer than sentinel_grace: operations should not wait for its end. */
bool redis_sentinel_holds_long(const struct redis_store *store);
/* True if no sentinel was heard for longer than sentinel_grace. */
bool redis_sentinel_is_silent(const struct redis_store *store);

/* redis_resolve.c */
int redis_name_watch_new(struct redis_store *store, struct idem_error *err);
void redis_name_watch_free(struct redis_name_watch *watch);

/* redis_cluster.c */
int redis_cluster_new(struct redis_store *store, struct idem_error *err);
void redis_cluster_free(struct redis_cluster *cluster);
void redis_cluster_refresh(struct redis_store *store);
void redis_cluster_begin(struct redis_store *store); /* a ready server may provide the first map */
uint16_t redis_cluster_slot(const char *name, size_t len);
/* True when a map of slots is known, or none is needed. */
bool redis_cluster_is_mapped(const struct redis_store *store);
/* Returns the job's server; NULL: unknown now. */
struct redis_node *redis_cluster_route(struct redis_store *store, struct redis_job *job);
/* Handles MOVED from the server `asked`: corrects the map, and requests a new one. */
bool redis_cluster_take_moved(struct redis_store *store, const struct redis_reply *reply,
                              const char *asked, unsigned *ret_slot);
/* Handles a redirection: true if the job is to be sent again (job->target and job->asking have
   the target). */
bool redis_cluster_redirect(struct redis_job *job, const struct redis_reply *reply);

#endif
