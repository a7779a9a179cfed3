/*
 * The Redis store itself: its servers, and the operations under way.
 */
#ifndef IDEM_STORE_REDIS_STORE_H
#define IDEM_STORE_REDIS_STORE_H

#include "store/redis/redis.h"

#define REDIS_SLOTS 16384
#define REDIS_CHANNEL_BUCKETS 256 /* by the first byte of the hash */

struct redis_store;

/* One server. */
struct redis_node {
    struct redis_store *store;
    struct redis_node *next;
    struct redis_conn conn; /* commands */
    struct redis_conn wake; /* wake-ups; off until somebody waits */
    bool known;             /* CLUSTER: named by the last map; others go when they are idle */
    unsigned version;       /* 70015 for 7.0.15; 0: not known */
    long long client_id;    /* the server's number of this connection, or of the last; 0: none */
    char run_id[64];        /* of the server that gave it */
    bool met;               /* it was connected before */
    bool saves;             /* CONFIG: save is set */
    bool loaded;            /* the scripts, anew, in this turn */
};

/* One operation under way. */
struct redis_job {
    struct redis_store *store;
    struct idem_op *op;             /* NULL: nobody wants to know any more */
    struct redis_job *next, **link; /* all of them, by their deadline; or those that were dropped */
    struct redis_job *turn_next;    /* those that are to be sent, or pause */
    int64_t deadline;
    size_t size;
    struct redis_buffer command; /* one or more commands, and how many replies they have */
    unsigned replies, wanted;    /* wanted: of what was sent */
    bool queued;                 /* in a turn list */
    bool sent;                   /* it may have happened */
    bool lost;                   /* at least once, with its connection */
    bool scripted;               /* a claim that goes by the script */
    bool deleting;               /* a forget that goes by DEL */
    bool urgent;                 /* it may go beyond the server's maxmemory */
    unsigned version;            /* of the server it goes to */
    bool asking;                 /* CLUSTER: with ASKING before it */
    unsigned redirects, reloads;
    uint16_t slot;
    struct redis_node *at;     /* CLUSTER: where a redirection sent it; NULL: by its slot */
    struct redis_reply *first; /* of two */
    struct redis_scan *scan;
    struct idem_op copy; /* its strings lie behind the job */
};

/* The names of a page of a list that did not fit into the answer. */
#define REDIS_PAGES_KEPT 32
struct redis_page {
    uint64_t id; /* 0: none */
    struct idem_record_key *names;
    size_t names_n;
};

struct redis_store {
    struct idem_store base;
    struct redis_config config;
    struct redis_tls_config *tls;
    struct redis_scripts scripts;
    unsigned forks, depth;
    bool closing;

    struct redis_node *nodes;
    struct redis_node **slots;       /* CLUSTER: by slot; NULL entries: not known */
    struct redis_sentinel *sentinel; /* SENTINEL */
    struct redis_cluster *cluster;   /* CLUSTER */
    bool was_ready;                  /* once: since then a server that is away is waited for */
    int64_t contended_until;         /* claims ask for the time that is left, too */
    char trouble[300];               /* why nothing can be done now */
    int trouble_code;
    bool for_good;    /* it is, for those that were never sent */
    unsigned noticed; /* what was told already, a bit each */

    struct redis_job *jobs, **jobs_end;
    size_t jobs_n, jobs_bytes;
    struct redis_job *dropped; /* nobody asks for them, but a connection or a turn knows them */
    struct redis_job *spare;   /* those that are over, to be used again */
    unsigned spare_n;
    struct redis_job *turn, **turn_end;     /* to be sent */
    struct redis_job *paused, **paused_end; /* to be sent after a pause */
    struct idem_task flush, refuse;
    struct idem_timer deadline, again;

    struct redis_channel *channels[REDIS_CHANNEL_BUCKETS]; /* that somebody waits at */
    size_t watches_n;
    struct idem_watch *woken, *waking; /* waking: those whose call-backs are being run */
    struct idem_task wake_first;

    struct redis_page pages[REDIS_PAGES_KEPT];
    uint64_t pages_made;

    struct idem_op nobody; /* whose call-back does nothing: for what goes on while it is closed */

    uint64_t tally[IDEM_EVENT__COUNT], tally_sent[IDEM_EVENT__COUNT];
    unsigned tally_flying; /* answers that are due to what was sent */
    struct idem_timer tally_timer;
};

/* ops.c */

/* Writes the job's commands. False without memory. */
bool redis_job_write(struct redis_job *job);
/* Takes a reply; true when the job is done, with *ret_rc and what it says in job->copy. */
enum redis_taken {
    REDIS_MORE,  /* another reply is to come */
    REDIS_DONE,  /* answered */
    REDIS_AGAIN, /* its commands were written anew: send them */
    REDIS_STUCK, /* a scan: redis_scan_obstacle() stands in the way; send again as that says */
};
enum redis_taken redis_job_take(struct redis_job *job, const struct redis_reply *reply,
                                int *ret_rc);
/* The events that were counted, as commands; how many. */
#define REDIS_EVENTS_NAME "idem:events"
unsigned redis_tally_write(struct redis_store *store, struct redis_buffer *out);

/* scan.c, page.c */
bool redis_scan_write(struct redis_job *job);
enum redis_taken redis_scan_take(struct redis_job *job, const struct redis_reply *reply,
                                 int *ret_rc);
/* The error that a scan met; borrowed until it is written again. */
const struct redis_reply *redis_scan_obstacle(struct redis_job *job);
void redis_scan_free(struct redis_scan *scan);
void redis_pages_free(struct redis_store *store);

/* node.c */
struct redis_node *redis_node_new(struct redis_store *store, const struct idem_host_name *host);
struct redis_node *redis_node_find(struct redis_store *store, const struct idem_host_name *host);
void redis_node_free(struct redis_node *node);
/* Something that this server is, to who examines it; besides its own names: "ready" (it can be
   used), "lost" (why it cannot), "cluster_master" (the map names it). */
void redis_fact(const struct redis_conn *conn, const char *name, const char *value);
/* AUTH, SELECT and the name, which every connection begins with. What is refused goes to the role;
   `last` takes the last reply, whatever it is; NULL: nothing comes of it. */
void redis_greet(struct redis_conn *conn, redis_reply_fn *last, void *data);
/* The first reply may be that there is no room for us: then the connection is lost, and true. */
bool redis_greet_full(struct redis_conn *conn, const struct redis_reply *reply);

/* job.c */
struct redis_job *redis_job_new(struct redis_store *store, struct idem_op *op);
/* Nobody wants to know any more; it goes as soon as nothing points to it. */
void redis_job_drop(struct redis_job *job);
void redis_job_complete(struct redis_job *job, int rc);
/* It gets on: its time begins anew. */
void redis_job_renew(struct redis_job *job);
/* What says that nothing was done, and that it may be soon. */
bool redis_is_passing(const struct redis_reply *reply);
/* Fills in why it could not be done, by what is known of the servers; the code. */
int redis_job_fail(struct redis_job *job, const char *otherwise);
void redis_jobs_turn(struct redis_store *store, struct redis_job *job);
void redis_jobs_free(struct redis_store *store); /* the connections are gone by then */
void redis_flush_run(struct idem_task *task);
void redis_again_fire(struct idem_timer *timer);
/* For replies that say nothing. */
void redis_take_nothing(struct redis_conn *conn, void *data, const struct redis_reply *reply);

/* driver.c */
void redis_store_ready(struct redis_store *store); /* a server is ready: send what waits */
/* Nothing can be done now: what was never sent fails at once if it is for good, or if no server
   was ever there and none is left to be asked. */
void redis_store_trouble(struct redis_store *store, int code, bool for_good, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void redis_store_notice(struct redis_store *store, unsigned bit, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void redis_store_enter(struct redis_store *store);
bool redis_store_leave(struct redis_store *store); /* true: it is gone */

/* wake.c */
int redis_watch(struct idem_store *base, struct idem_watch *watch);
void redis_unwatch(struct idem_store *base, struct idem_watch *watch);
void redis_wake_first_run(struct idem_task *task);
void redis_wake_conn_init(struct redis_node *node, const struct idem_host_name *host);
/* The servers have changed: wishes go to where their keys are now. */
void redis_wake_renew(struct redis_store *store);
/* This one has forgotten all that was wished from it. */
void redis_wake_forget(struct redis_node *node);
void redis_channels_free(struct redis_store *store);

/* sentinel.c */
int redis_sentinel_new(struct redis_store *store, struct idem_error *err);
void redis_sentinel_free(struct redis_sentinel *sentinel);
void redis_sentinel_ask(struct redis_store *store); /* who is the master? */
void redis_sentinel_settled(struct redis_store *store);
bool redis_sentinel_is_asked(const struct redis_store *store); /* one of them, just now */

/* cluster.c */
int redis_cluster_new(struct redis_store *store, struct idem_error *err);
void redis_cluster_free(struct redis_cluster *cluster);
void redis_cluster_refresh(struct redis_store *store);
void redis_cluster_begin(
    struct redis_store *store); /* a server is ready that the first map may be of */
uint16_t redis_slot(const char *name, size_t len);
/* Whether it is known where anything is. */
bool redis_is_mapped(const struct redis_store *store);
/* Where a job goes; NULL: not known now. */
struct redis_node *redis_route(struct redis_store *store, struct redis_job *job);
/* What MOVED says, answered by the server called `asked`: the map is mended, and asked for anew. */
bool redis_moved(struct redis_store *store, const struct redis_reply *reply, const char *asked,
                 unsigned *ret_slot);
/* A redirection: true if the job is to be sent again (job->at, job->asking say where). */
bool redis_redirect(struct redis_job *job, const struct redis_reply *reply);

#endif
