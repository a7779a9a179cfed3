/*
 * The interface of every store: one table that serves all front doors.
 *
 * An operation is a struct idem_op that the caller owns. The caller fills in `kind`, `key` and the
 * matching member of `in`, and submits it. The driver copies its input before submit returns, but
 * takes a reference to a result in shared bytes; it fills in `out` and calls `complete` exactly
 * once, from the loop, never from inside submit, and never after cancel or close. The pointers in
 * `out` are borrowed until `complete` returns.
 *
 * complete(op, rc): rc is 0, or a code with its text in op->error. IDEM_E_UNKNOWN means that the
 * operation may have happened; every other code means that it has not.
 */
#ifndef IDEM_STORE_STORE_H
#define IDEM_STORE_STORE_H

#include "base/url.h"
#include "loop/loop.h"
#include "protocol/protocol.h"

enum idem_op_kind {
    IDEM_OP_CLAIM,
    IDEM_OP_FINISH, /* done, fail, release, unknown, renew */
    IDEM_OP_ISSUE,  /* a token */
    IDEM_OP_ONCE,   /* a nonce: new, or seen before */
    IDEM_OP_COUNT,  /* a counter that expires */
    IDEM_OP_LOOKUP,
    IDEM_OP_LIST,
    IDEM_OP_SETTLE,
    IDEM_OP_FORGET,
    IDEM_OP_SWEEP, /* remove some expired records */
    IDEM_OP_STATS,
    IDEM_OP_TIME,
    IDEM_OP_TX, /* of drivers with .transactions: reads the row that a guard left in the user's own
                   transaction */
};
#define IDEM_OP__COMMON 12 /* every driver has the first 12 */
#define IDEM_OP__COUNT 13

enum idem_count_how {
    IDEM_COUNT_ADD,   /* add `value` */
    IDEM_COUNT_RAISE, /* set to `value` if that is higher */
    IDEM_COUNT_NEXT,  /* set to `value` if that is one higher */
};

struct idem_count_in {
    enum idem_count_how how;
    int64_t value;
    int64_t ttl_ms; /* the counter expires so long after its last change */
};

struct idem_list_in {
    struct idem_bytes prefix;
    enum idem_state state; /* IDEM_ABSENT: any */
    bool uncertain;
    int64_t since_ms;
    struct idem_cursor cursor;
    size_t max;
};

struct idem_op {
    enum idem_op_kind kind;
    struct idem_record_key key; /* not for list, sweep, stats, time */
    union {
        struct idem_claim_in claim;
        struct idem_finish_in finish;
        struct idem_issue_in issue;
        struct {
            int64_t ttl_ms;
        } once;
        struct idem_count_in count;
        struct idem_list_in list;
        struct idem_settle_in settle;
        struct {
            bool force;
        } forget;
        struct {
            size_t max;
        } sweep;
    } in;
    union {
        struct {
            enum idem_verdict verdict;
            int64_t left_ms;
            struct idem_record record; /* the present record without its times; its result with
                                          REPLAY and DEAD only; .state ABSENT: no record */
            struct idem_shared_bytes *shared; /* has the bytes of the result: a receiver that needs
                                                 them for longer takes a reference; NULL: none
                                                 has, and it copies them */
        } claim;
        struct {
            enum idem_ack ack;
        } finish;
        struct {
            bool issued; /* false: the name is taken */
        } issue;
        struct {
            bool first;
        } once;
        struct {
            bool changed;
            int64_t value; /* after the change */
        } count;
        struct {
            struct idem_record record;
            bool live;
            int64_t left_ms;
        } lookup; /* IDEM_E_ABSENT if there is no record */
        struct {
            const struct idem_entry *entries;
            size_t n;
            struct idem_cursor cursor;
        } list;
        struct {
            size_t removed;
            bool more;
        } sweep;
        struct idem_stats stats;
        struct {
            int64_t ms;   /* the clock that decides on expiry: never goes back */
            int64_t date; /* the clock as it is set now */
        } time;
        struct {
            bool there; /* committed, and not expired */
            int32_t status;
            struct idem_bytes result;
        } tx;
    } out;
    struct idem_error error;
    void (*complete)(struct idem_op *op, int rc);
    int64_t since; /* the time of submission in us, if there is a meter */
    void *data;    /* the caller's */
    void *driver;  /* the driver's, while the operation is under way; NULL otherwise */
};

/*
 * A request to be woken. After watch(), `wake` is called once when the watch is in force, and then
 * at each finish of that key, in any process. It may also be called without a reason. Claim again
 * to see the present state.
 */
struct idem_watch {
    struct idem_record_key key;
    void (*wake)(struct idem_watch *watch);
    struct idem_watch *next, **link; /* the driver's */
};

/*
 * The callbacks of a front door that has metrics. Each is called on the store's loop, or under the
 * lock of a blocking handle. It must be quick and must not call the store or the core.
 */
struct idem_meter {
    void *data;
    void (*op)(void *data, enum idem_op_kind kind, int rc, int64_t us); /* completed after `us` */
    void (*event)(void *data, enum idem_event event, uint64_t n);
    void (*connected)(void *data, bool again);           /* to a server */
    void (*claims)(void *data, int parked, int running); /* the changes of the two numbers */
};

struct idem_store {
    const struct idem_driver *driver;
    struct idem_loop *loop;
    int64_t timeout_ms; /* of an operation, from the URL; 0: the store has no such limit */
    /* Reports one line that operators should know and that is no error; from the loop. May be
       NULL. */
    void (*notice)(void *data, const char *text);
    void *notice_data;
    const struct idem_meter *meter; /* NULL: no meter */
    /* Reports facts that a connected server states about itself, each as a name and a value; from
       the loop. NULL, except for the doctor. Only Redis reports them: the doctor queries the others
       by SQL. */
    void (*fact)(void *data, const char *place, const char *name, const char *value);
    void *fact_data;
};

/* The clocks of a store that has none of its own; tests supply theirs. */
struct idem_clock {
    int64_t (*lease)(void *data); /* ms, never goes back */
    int64_t (*wall)(void *data);  /* ms since 1970 */
    void *data;
};

struct idem_driver {
    const char *name;
    const char *const *schemes; /* NULL-terminated */
    bool transactions;          /* its database may hold idem_tx, and it has IDEM_OP_TX */
    const void *engine;         /* of drivers that share the functions below; NULL otherwise */

    /* Checks that a URL is one of this store, without contacting it. */
    int (*check)(const struct idem_driver *driver, const struct idem_url *url,
                 struct idem_error *err);
    /* Optional, for stores in files: see idem_store_may_open(). */
    bool (*may_open)(const struct idem_url *url);
    /* clock may be NULL. The store belongs to the caller until close. */
    int (*open)(const struct idem_driver *driver, const struct idem_url *url,
                struct idem_loop *loop, const struct idem_clock *clock, struct idem_store **ret,
                struct idem_error *err);
    void (*close)(struct idem_store *store);

    /* Returns 0, or a code with op->error; after an error complete is not called. */
    int (*submit)(struct idem_store *store, struct idem_op *op);
    void (*cancel)(struct idem_store *store, struct idem_op *op);

    int (*watch)(struct idem_store *store, struct idem_watch *watch);
    void (*unwatch)(struct idem_store *store, struct idem_watch *watch);

    /* Adds to the counts that are kept in the store; cheap, never fails. */
    void (*tally)(struct idem_store *store, enum idem_event event, uint64_t n);
};

/* Helpers that all drivers share. */

/* Collects the byte strings of an operation of any kind; returns their number. */
#define IDEM_OP_STRINGS 2
size_t idem_op_strings(struct idem_op *op, struct idem_bytes *ret[IDEM_OP_STRINGS]);

/* The total length of the strings, which limits what a store has under way; and the length of those
   that a copy stores at `at`: a result in shared bytes is not among them. */
size_t idem_op_strings_len(struct idem_op *op);
size_t idem_op_copy_len(struct idem_op *op);
/* Makes a copy of an operation without its output. idem_op_copy_release() gives up its reference to
   shared bytes, after the driver's last use of the result. */
void idem_op_copy(const struct idem_op *op, struct idem_op *ret, unsigned char *at);
void idem_op_copy_release(struct idem_op *copy);

/* Checks that a store that was opened at this count of forks may take the operation: 0, or a code
   with op->error. Limits a list to IDEM_LIST_MAX. */
#define IDEM_LIST_MAX 1000
int idem_op_admit(struct idem_op *op, unsigned forks);

/* Refuses IDEM_OP_TX, for a store without such a table. */
int idem_op_refuse_tx(struct idem_op *op);

/* Fills op->error for a record that does not exist, is held, is settled or cannot be read:
   IDEM_E_ABSENT, IDEM_E_LIVE, IDEM_E_SETTLED, IDEM_E_CORRUPT, IDEM_E_VERSION. Returns code. */
int idem_op_refuse(struct idem_op *op, int code);

/* Fills in the result of a lookup. */
void idem_op_fill_lookup(struct idem_op *op, const struct idem_record *record,
                         struct idem_time now);

/* True if a list includes this record, with its entry in *ret. `code` is the outcome of reading
   the record: one that cannot be read is listed as DAMAGED or NEWER. */
bool idem_list_take(const struct idem_list_in *in, const struct idem_record_key *key, int code,
                    const struct idem_record *record, struct idem_time now, struct idem_entry *ret);

/* Changes a counter's value, which is 0 if there is no counter; false: the counter stays as it is,
   or would overflow. */
bool idem_count_apply(const struct idem_count_in *in, int64_t *value);

/* Checks the text of a URL; contacts nothing. */
int idem_store_check(const char *url, struct idem_error *err);

/* True if the permissions of this process suffice to open the store's files, or to make them; also
   for a store without files. Else errno is set. */
bool idem_store_may_open(const char *url);

/* True if the database that the URL names can contain guards of the user's own transactions. */
bool idem_store_has_transactions(const char *url);

/* For a program that starts no command and needs root for nothing after a store is open: if root
   opens an embedded store in another user's directory, the process becomes that user for good. Call
   it before; files that only root may open must be open by then. */
void idem_store_become_owner(void);
bool idem_store_becomes_owner(void); /* true if it was called */

/* Opens a store by URL; the error lists the schemes of this build. */
int idem_store_open(const char *url, struct idem_loop *loop, const struct idem_clock *clock,
                    struct idem_store **ret, struct idem_error *err);

static inline void idem_store_close(struct idem_store *store) {
    if (store != NULL)
        store->driver->close(store);
}

static inline int idem_store_submit(struct idem_store *store, struct idem_op *op) {
    if (op->kind == IDEM_OP_TX && !store->driver->transactions)
        return idem_op_refuse_tx(op);
    if (store->meter != NULL)
        op->since = idem_loop_now_us();
    return store->driver->submit(store, op);
}

/* A driver calls this when a connection becomes usable; `met` is the driver's flag that it was
   connected before. */
static inline void idem_store_connected(struct idem_store *store, bool *met) {
    if (store->meter != NULL)
        store->meter->connected(store->meter->data, *met);
    *met = true;
}

/* A driver completes an operation with this; `out` or `error` is filled in. The caller may free the
   operation inside. */
static inline void idem_op_complete(struct idem_store *store, struct idem_op *op, int rc) {
    op->driver = NULL;
    if (store->meter != NULL)
        store->meter->op(store->meter->data, op->kind, rc, idem_loop_now_us() - op->since);
    op->complete(op, rc);
}

/* Accepts an operation that is not under way, too. */
static inline void idem_store_cancel(struct idem_store *store, struct idem_op *op) {
    if (op->driver != NULL)
        store->driver->cancel(store, op);
}

#endif
