/*
 * The common part of stores on servers: operations under way, waiting claims, counts.
 *
 *     submitted ──> queue to be sent ──> sent ──response──> complete, or the queue again
 *                     ^                   │
 *                     │                   v
 *                   paused <── the connection is lost or missing, or the server is busy
 *
 * A paused operation is sent again when a server is ready, or after a moment. Its deadline ends it
 * in any state. An operation whose connection was lost may have happened: if the same owner ID
 * makes a repetition safe, it is sent again; if not, its result is UNKNOWN. If waiting for a server
 * does not help, operations that were never sent are refused at once.
 *
 * An engine (store/redis, store/sql) has the connections, and what is sent on them: struct
 * remote_engine is its table. Its store begins with a struct remote, its operations end with a
 * struct remote_op, its channels begin with a struct remote_channel.
 */
#ifndef IDEM_STORE_REMOTE_H
#define IDEM_STORE_REMOTE_H

#include <poll.h>

#include "store/store.h"

#define REMOTE_CHANNEL_BUCKETS 256 /* by the first byte of the hash */
#define REMOTE_POLL_MAX 64         /* descriptors that a store waits for while it closes */

struct remote;

/* One operation under way. */
struct remote_op {
    struct remote *remote;
    struct idem_op *caller;         /* NULL: cancelled */
    struct remote_op *next, **link; /* all operations, by deadline; or the dropped ones */
    struct remote_op *queue_next;
    int64_t deadline;
    size_t room; /* of its own memory */
    size_t size; /* of its memory, with the shared bytes */
    unsigned responses_due;
    bool queued;         /* in a queue; in one at most */
    bool sent;           /* it may have happened */
    bool lost;           /* a connection was lost at least once after sending */
    struct idem_op copy; /* its strings are stored behind it, or are shared bytes */
};

struct remote_queue {
    struct remote_op *first, **end;
};

/* A record that has watches. */
struct remote_channel {
    struct remote_channel *next;
    struct idem_record_key key;
    bool in_force; /* a change of the record will be noticed */
    size_t n;      /* number of watches: those below, and those being woken */
    struct idem_watch *watches;
};

struct remote_engine {
    size_t op_size; /* of its operations, which end with a struct remote_op */
    /* Memory of `room` bytes for an operation and the strings behind it; everything but the copy is
       clear. NULL: no memory. op_free leaves the shared bytes of the copy to remote.c. */
    struct remote_op *(*op_new)(struct remote *r, size_t room);
    void (*op_free)(struct remote_op *op);
    /* Prepares the first sending, or the first after a lost connection. 0, or a code with
       op->copy.error. */
    int (*op_begin)(struct remote_op *op);
    void (*op_turn)(struct remote_op *op); /* calls remote_op_turn() */
    int again_ms;                          /* the pause before an operation is sent again */
    /* True if a server may become ready soon, though none ever was. NULL: never. */
    bool (*is_hopeful)(struct remote *r);
    void (*pump)(struct remote *r); /* reads the responses that have arrived */

    size_t channel_size;
    void (*watched)(struct remote *r, struct remote_channel *channel);   /* has one more watch */
    void (*unwatched)(struct remote *r, struct remote_channel *channel); /* has one less */

    void (*tally_send)(struct remote *r); /* sends the counts, if that is possible now */
    int tally_again_ms;                   /* the pause before it is called again, if it is not */

    /* Sends what is queued, and reads what has arrived, without blocking. Returns the number of
       descriptors to wait for; 0: nothing is under way. */
    nfds_t (*drain)(struct remote *r, struct pollfd fds[REMOTE_POLL_MAX]);
    void (*disconnect)(struct remote *r); /* ends every connection, timer and task of the engine */
    void (*free)(struct remote *r);       /* the memory of the store */
};

struct remote {
    struct idem_store base;
    const struct remote_engine *engine;
    int64_t timeout_ms;
    unsigned forks, depth;
    bool closing;
    bool was_ready;    /* at least once: operations then wait for an unavailable server */
    char trouble[300]; /* why no operation can be done now */
    int trouble_code;
    bool for_good;    /* the trouble lasts: operations never sent are refused */
    bool unreachable; /* every host was tried in vain; the engine uses and clears it */

    struct remote_op *ops, **ops_end;
    size_t ops_n, ops_bytes;
    struct remote_op *dropped;  /* cancelled, but a connection or a queue still refers to them */
    struct remote_queue paused; /* to be sent after a pause */
    struct idem_task refuse;
    struct idem_timer deadline, again;
    struct idem_op no_caller; /* its callback does nothing: for operations under way during close */

    struct remote_channel *channels[REMOTE_CHANNEL_BUCKETS];
    size_t watches_n;
    struct idem_watch *woken, *waking; /* waking: watches whose callbacks are being run */
    struct idem_task wake_first;

    uint64_t tally[IDEM_EVENT__COUNT], tally_sent[IDEM_EVENT__COUNT];
    unsigned tally_flying; /* responses to counts that are under way */
    struct idem_timer tally_timer;
};

/* The store. */

void remote_init(struct remote *r, const struct remote_engine *engine, struct idem_loop *loop,
                 int64_t timeout_ms);
static inline struct remote *remote_of(struct idem_store *base) {
    return idem_container_of(base, struct remote, base);
}
/* Surround code that may run callbacks, which may close the store. leave: true if it is closed. */
void remote_enter(struct remote *r);
bool remote_leave(struct remote *r);
/* Nothing can be done now. Operations that were never sent fail at once if the trouble lasts
   (for_good), or if no server was ever ready and none is hopeful. */
void remote_trouble(struct remote *r, int code, bool for_good, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A server is ready: the trouble is over, and paused operations are sent. */
void remote_ready(struct remote *r);
/* Reports a text, which may be a server's, to the operator. */
void remote_notice(struct remote *r, const char *text);

/* The slots of a driver. */
void remote_close(struct idem_store *base);
int remote_submit(struct idem_store *base, struct idem_op *caller);
void remote_cancel(struct idem_store *base, struct idem_op *caller);
int remote_watch(struct idem_store *base, struct idem_watch *watch);
void remote_unwatch(struct idem_store *base, struct idem_watch *watch);
void remote_tally(struct idem_store *base, enum idem_event event, uint64_t n);

#define REMOTE_DRIVER_SLOTS                                                                        \
    .submit = remote_submit, .cancel = remote_cancel, .watch = remote_watch,                       \
    .unwatch = remote_unwatch, .tally = remote_tally

/* Operations. */

bool remote_op_is_keyed(const struct remote_op *op);
bool remote_op_only_reads(const struct remote_op *op);    /* it changes nothing */
bool remote_op_is_repeatable(const struct remote_op *op); /* a repetition has the same result */
/* True for a cancelled operation, which is freed if nothing refers to it. */
bool remote_op_is_gone(struct remote_op *op);
void remote_op_complete(struct remote_op *op, int rc);
/* Completes it with the known trouble of the servers, or with `otherwise`. remote_op_fail() only
   sets the error, and returns the code. */
void remote_op_give_up(struct remote_op *op, const char *otherwise);
int remote_op_fail(struct remote_op *op, const char *otherwise);
/* A refusal covers the last try only; an earlier one, whose connection was lost, may have happened.
   Returns the code of the operation. */
int remote_op_judge(struct remote_op *op, int rc);
/* The code of a finish that has its ack. A finish that is sent again and finds another owner does
   not show whether the first one arrived. */
int remote_op_check_finish(struct remote_op *op);
/* The connection was lost before the response arrived: pauses the operation, or completes it. The
   engine has set op->lost if it may have happened. */
void remote_op_lost(struct remote_op *op);
/* Queues the operation to be sent, by a task; or pauses it. No effect if it is queued. */
void remote_op_turn(struct remote_op *op, struct remote_queue *turn, struct idem_task *flush);
void remote_op_pause(struct remote_op *op);
/* Renews the deadline of an operation that makes progress. */
void remote_op_renew(struct remote_op *op);
void remote_resume(struct remote *r); /* paused operations are sent now */

void remote_queue_init(struct remote_queue *queue);
void remote_queue_put(struct remote_queue *queue, struct remote_op *op);
struct remote_op *remote_queue_pop(struct remote_queue *queue); /* NULL: empty */
/* Takes all operations, linked by queue_next; those queued later are not among them. */
struct remote_op *remote_queue_take(struct remote_queue *queue);
void remote_queue_append(struct remote_queue *queue, struct remote_queue *from);

/* Channels. */

/* Returns the pointer to the channel of a key, or to the end of its bucket's list. */
struct remote_channel **remote_channel_find(struct remote *r, const struct idem_record_key *key);
void remote_channel_each(struct remote *r, void (*call)(struct remote_channel *channel, void *data),
                         void *data);
void remote_channel_free(struct remote *r, struct remote_channel *channel); /* and unlinks it */
void remote_channel_wake(struct remote *r, struct remote_channel *channel);

/* Counts. */

bool remote_has_tally(const struct remote *r); /* there are counts that were not sent */
void remote_tally_sent(struct remote *r, int event);
/* The response to the count &r->tally_sent[event]. A count that was not confirmed is sent again,
   though it may have been added: an event that is counted twice can be examined, a missing one
   cannot. */
void remote_tally_answered(struct remote *r, const uint64_t *sent, bool confirmed);

#endif
