/*
 * What every store can do: one table, from the beginning all that the front
 * doors need.
 *
 * An operation is a struct idem_op that the caller owns. It fills in `kind`,
 * `key` and the matching member of `in`, and submits it; the driver copies what
 * it needs before submit returns, fills in `out` and calls `complete` exactly
 * once, from the loop, never from inside submit, and never after cancel or
 * close. What `out` points to is borrowed until `complete` returns.
 *
 * complete(op, rc): rc is 0, or a code with its text in op->error.
 * IDEM_E_UNKNOWN means that it may have happened; every other code means that
 * nothing did.
 */
#ifndef IDEM_STORE_STORE_H
#define IDEM_STORE_STORE_H

#include "core/protocol.h"
#include "loop/loop.h"

enum idem_op_kind {
    IDEM_OP_CLAIM,
    IDEM_OP_FINISH, /* done, fail, release, unknown, renew */
    IDEM_OP_ISSUE,  /* a token */
    IDEM_OP_ONCE,   /* a nonce: first, or seen */
    IDEM_OP_COUNT,  /* a counter with a life time */
    IDEM_OP_LOOKUP,
    IDEM_OP_LIST,
    IDEM_OP_SETTLE,
    IDEM_OP_FORGET,
    IDEM_OP_SWEEP, /* remove some of what has expired */
    IDEM_OP_STATS,
    IDEM_OP_TIME,
    IDEM_OP_TX, /* of drivers with .transactions: what a guard in somebody's own transaction left */
};
#define IDEM_OP__COMMON 12 /* the first so many are every driver's */
#define IDEM_OP__COUNT 13

enum idem_count_how {
    IDEM_COUNT_ADD,   /* add `value` */
    IDEM_COUNT_RAISE, /* set to `value` if that is higher */
    IDEM_COUNT_NEXT,  /* set to `value` if that is one higher */
};

struct idem_count_in {
    enum idem_count_how how;
    int64_t value;
    int64_t ttl_ms; /* of the counter, from its last change */
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
            struct idem_record record; /* as it is now, but for its times, and its result with
                                          REPLAY and DEAD only; .state ABSENT: none */
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
            int64_t value; /* after it */
        } count;
        struct {
            struct idem_record record;
            bool live;
            int64_t left_ms;
        } lookup; /* IDEM_E_ABSENT if there is none */
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
            int64_t ms;   /* as expiry is judged: never goes back */
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
    int64_t since; /* when it was submitted, where somebody measures; us */
    void *data;    /* the caller's */
    void *driver;  /* the driver's, while it is under way; NULL otherwise */
};

/*
 * A wish to be woken. After watch(), `wake` is called once when the wish is in
 * force, and then at each finish of that key by anybody, in any process; also
 * now and then for nothing. Claim again to see what happened.
 */
struct idem_watch {
    struct idem_record_key key;
    void (*wake)(struct idem_watch *watch);
    struct idem_watch *next, **link; /* the driver's */
};

/*
 * Who measures what goes on: a front door that has metrics. Each is called on the store's loop, or
 * under the lock of a blocking handle, must be quick, and calls nothing of the store or the core.
 */
struct idem_meter {
    void *data;
    void (*op)(void *data, enum idem_op_kind kind, int rc, int64_t us); /* answered after so long */
    void (*event)(void *data, enum idem_event event, uint64_t n);
    void (*connected)(void *data, bool again);           /* to a server */
    void (*claims)(void *data, int parked, int running); /* so many more, or fewer */
};

struct idem_store {
    const struct idem_driver *driver;
    struct idem_loop *loop;
    /* What operators should know and is no error, in one line; from the loop. May be NULL. */
    void (*notice)(void *data, const char *text);
    void *notice_data;
    const struct idem_meter *meter; /* NULL: nobody */
    /* What a server says of itself while it is reached, each as a name and a value; from the loop.
       NULL, but for who examines a set-up. Only Redis tells: others can be asked by SQL. */
    void (*fact)(void *data, const char *place, const char *name, const char *value);
    void *fact_data;
};

struct idem_url {
    char *scheme, *rest; /* rest: what follows the colon, without the query */
    char *raw;           /* the same before %XX was decoded: its parts may hold what parts them */
    struct {
        char *name, *value;
    } * query;
    size_t query_n;
    char *text; /* all of it, for the strings above */
};

/* The clocks of a store that has none of its own; tests bring theirs. */
struct idem_clock {
    int64_t (*lease)(void *data); /* ms, never back */
    int64_t (*wall)(void *data);  /* ms since 1970 */
    void *data;
};

struct idem_driver {
    const char *name;
    const char *const *schemes; /* NULL-terminated */
    bool transactions;          /* its database may hold idem_tx, and it has IDEM_OP_TX */

    /* Whether it is a URL of this store, without touching anything. */
    int (*check)(const struct idem_url *url, struct idem_error *err);
    /* clock may be NULL. The store is the caller's, until close. */
    int (*open)(const struct idem_url *url, struct idem_loop *loop, const struct idem_clock *clock,
                struct idem_store **ret, struct idem_error *err);
    void (*close)(struct idem_store *store);

    /* 0, or a code with op->error, in which case complete is not called. */
    int (*submit)(struct idem_store *store, struct idem_op *op);
    void (*cancel)(struct idem_store *store, struct idem_op *op);

    int (*watch)(struct idem_store *store, struct idem_watch *watch);
    void (*unwatch)(struct idem_store *store, struct idem_watch *watch);

    /* Adds to the counts that outlive the process; cheap, never fails. */
    void (*tally)(struct idem_store *store, enum idem_event event, uint64_t n);
};

/* What all drivers do alike. */

/* The byte strings that an operation brings, whatever its kind; how many. */
#define IDEM_OP_STRINGS 2
size_t idem_op_strings(struct idem_op *op, struct idem_bytes *ret[IDEM_OP_STRINGS]);

/* How many bytes the strings have; and a copy without an answer, whose strings are put at `at`. */
size_t idem_op_strings_len(struct idem_op *op);
void idem_op_copy(const struct idem_op *op, struct idem_op *ret, unsigned char *at);

/* Whether a store that was opened at this count of forks may take it: 0, or a code with op->error.
   A list is cut to IDEM_LIST_MAX. */
#define IDEM_LIST_MAX 1000
int idem_op_admit(struct idem_op *op, unsigned forks);

/* Refuses IDEM_OP_TX, for a store that has no such table. */
int idem_op_refuse_tx(struct idem_op *op);

/* Fills op->error for a record that is not there, held or settled: IDEM_E_ABSENT, IDEM_E_LIVE,
   IDEM_E_SETTLED. Returns code. */
int idem_op_refuse(struct idem_op *op, int code);

/* Whether a list wants this record; or one that cannot be read, whose state is DAMAGED or NEWER. */
bool idem_list_wants(const struct idem_list_in *in, const struct idem_record *record, bool live);
bool idem_list_wants_bad(const struct idem_list_in *in, enum idem_state state);

/* Changes a counter's value, 0 where there is none; false: it is not to be changed, or overflows.
 */
bool idem_count_apply(const struct idem_count_in *in, int64_t *value);

/* A list of watches, linked both ways. */
static inline void idem_watch_put(struct idem_watch **list, struct idem_watch *watch) {
    watch->next = *list;
    watch->link = list;
    if (watch->next != NULL)
        watch->next->link = &watch->next;
    *list = watch;
}

static inline void idem_watch_take(struct idem_watch *watch) {
    *watch->link = watch->next;
    if (watch->next != NULL)
        watch->next->link = watch->link;
    watch->link = NULL;
}

/* Whether a URL can be opened, as far as its text tells. */
int idem_store_check(const char *url, struct idem_error *err);

/* Whether guards in somebody's own transaction can be in the database that the URL names. */
bool idem_store_has_transactions(const char *url);

/* Opens by URL; the error names the schemes that this build has. */
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

/* A driver has a connection that can be used; `met` is its place for whether it had it before. */
static inline void idem_store_connected(struct idem_store *store, bool *met) {
    if (store->meter != NULL)
        store->meter->connected(store->meter->data, *met);
    *met = true;
}

/* How a driver answers: everything of the answer is in `op`. It may be gone afterwards. */
static inline void idem_op_complete(struct idem_store *store, struct idem_op *op, int rc) {
    op->driver = NULL;
    if (store->meter != NULL)
        store->meter->op(store->meter->data, op->kind, rc, idem_loop_now_us() - op->since);
    op->complete(op, rc);
}

/* Takes an op that is not under way, too. */
static inline void idem_store_cancel(struct idem_store *store, struct idem_op *op) {
    if (op->driver != NULL)
        store->driver->cancel(store, op);
}

int idem_url_parse(const char *text, struct idem_url *ret, struct idem_error *err);
void idem_url_release(struct idem_url *url);
/* %XX, in place; false on a bad escape or an escaped NUL. */
bool idem_url_decode(char *text);
/* What of a URL may be shown: without a user, a password and options but db=, which tells stores of
   one server apart. Of one with an @ behind a ? only the scheme: the password may hold the ?.
   Returns buf. */
const char *idem_url_public(const char *text, char *buf, size_t size);
const char *idem_url_get(const struct idem_url *url, const char *name); /* NULL: not said */

#endif
