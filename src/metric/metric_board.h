/*
 * The board: event counts in memory that processes share (nginx's workers), or that one process
 * has alone. Writers add to it without a lock; the reports read it (metric_report.c). It
 * never contains a key, a user or a body: a record is identified by its hash,
 * and by the label that its policy is set to show.
 *
 * The memory is one block of BOARD_SIZE bytes that starts as zeros, contains no pointers, and
 * outlives any of its processes. A process that dies during a write leaves a note that no reader
 * accepts; its gauges are ignored once it has exited.
 *
 *     routes     one for each route and policy: verdicts and other counts
 *     stores     one for each store: response times, errors, records
 *     processes  current activity of each process
 *     notes      the newest refusals, in a ring
 *     samples    sums taken every few seconds, in a ring: the last quarter of an hour
 */
#ifndef IDEM_METRIC_METRIC_BOARD_H
#define IDEM_METRIC_METRIC_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "idem.h"

#define BOARD_ROUTE_MAX 191
#define BOARD_STORE_MAX 127

#define BOARD_ROUTES 512
#define BOARD_STORES 17
#define BOARD_PROCESSES 256
#define BOARD_NOTES 64
#define BOARD_OLDEST 20

#define BOARD_SAMPLE_MS 5000
#define BOARD_SAMPLES 181

/* The verdict for a request or message; each has exactly one. */
enum board_verdict {
    BOARD_RUN,
    BOARD_OPEN, /* run unguarded: the store was unavailable */
    BOARD_REPLAY,
    BOARD_DUPLICATE,
    BOARD_BUSY,
    BOARD_MISMATCH,
    BOARD_UNCERTAIN,
    BOARD_DEAD,
    BOARD_NO_TOKEN,
    BOARD_MISSING,
    BOARD_MALFORMED,
    BOARD_SIGNED, /* signature verified, and no key was required */
    BOARD_SIGNATURE_INCOMPLETE,
    BOARD_SIGNATURE_STALE,
    BOARD_SIGNATURE_WRONG,
    BOARD_NONCE_REUSED,
    BOARD_STORE_ERROR,
    BOARD_VERDICTS
};

/* Further counts of a route. */
enum board_count {
    BOARD_TOKEN_ISSUED,
    BOARD_TOKEN_SPENT,
    BOARD_NOT_KEPT,  /* done, but the result was not stored: too long, a stream, not wanted, no room
                      */
    BOARD_LOST,      /* superseded while it ran */
    BOARD_CANCELLED, /* the run was cancelled: lease lost, or run_max exceeded */
    BOARD_UNKNOWN,   /* ended with an unknown outcome */
    BOARD_SHADOWED,  /* would have had another verdict if the policy were enforced */
    BOARD_DONE,      /* messages: handled */
    BOARD_RETRIED,   /* will be tried again */
    BOARD_BURIED,    /* moved to the dead letters */
    BOARD_UNBURIED,  /* a dead letter that the broker refused */
    BOARD_COUNTS
};

enum board_op { BOARD_OP_CLAIM, BOARD_OP_FINISH, BOARD_OP_OTHER, BOARD_OPS };

/* Upper bounds in microseconds; larger values have a bucket of their own. */
#define BOARD_BOUNDS 17
extern const int64_t board_bounds[BOARD_BOUNDS];

struct board_histogram {
    _Atomic uint64_t counts[BOARD_BOUNDS + 1]; /* of this bucket alone */
    _Atomic uint64_t sum_us;
};

/* The names of routes and stores never change once `used` is set. */
struct board_route {
    _Atomic uint32_t used;
    char door[8];                     /* http, queue */
    char name[BOARD_ROUTE_MAX + 1];   /* server and location; a queue's name */
    char policy[IDEM_PREFIX_MAX + 1]; /* the prefix */
    _Atomic uint64_t verdicts[BOARD_VERDICTS];
    _Atomic uint64_t counts[BOARD_COUNTS];
    struct board_histogram handler; /* messages: time spent in the handler */
    _Atomic uint32_t store;         /* the store of its records: 1 + its index; 0: unknown */
};

/* A record found by a survey. */
struct board_found {
    char hash[65];
    char prefix[IDEM_PREFIX_MAX + 1];
    char label[IDEM_LABEL_MAX + 1];
    char reason[IDEM_REASON_MAX + 1];
    uint32_t attempt;
    int64_t changed_ms; /* start of the run; by the store's clock */
};

struct board_survey {
    int64_t at_ms; /* 0: never */
    uint64_t running, uncertain;
    int64_t oldest_ms; /* start of the oldest uncertain run; 0: none */
    uint32_t oldest_n[2];
    struct board_found oldest[2][BOARD_OLDEST]; /* the oldest running, and uncertain, records */
};

struct board_store {
    _Atomic uint32_t used;
    _Atomic uint32_t turn;          /* the turn in which the store was last named */
    char name[BOARD_STORE_MAX + 1]; /* its URL without secrets */
    struct board_histogram ops[BOARD_OPS];
    _Atomic uint64_t events[IDEM_EVENT__COUNT];
    _Atomic uint64_t reconnects;
    _Atomic int64_t answered_ms, failed_ms; /* time of the last success and failure; 0: never */
    _Atomic uint32_t survey_seq;            /* odd during a write; only one process writes */
    struct board_survey survey;
};

struct board_process {
    _Atomic int32_t pid; /* 0: free */
    _Atomic int64_t parked, running;
    _Atomic int64_t in_hand, working; /* messages */
};

/* A refusal. */
struct board_note {
    char hash[65]; /* empty: no key */
    char label[IDEM_LABEL_MAX + 1];
    uint32_t route;
    uint32_t verdict;
    int64_t at_ms;
};

struct board_note_slot {
    _Atomic uint32_t seq; /* odd during a write */
    struct board_note note;
};

struct board_sample {
    int64_t at_ms;
    uint64_t verdicts[BOARD_VERDICTS];
    uint64_t ops[BOARD_BOUNDS + 1]; /* of all stores: claims and finishes */
};

struct board {
    _Atomic uint32_t made;
    uint32_t layout; /* BOARD_LAYOUT of the process that made it */
    int64_t started_ms;
    unsigned char secret[32]; /* for the admin page's tokens; zeros: not set yet. Never shown */
    struct board_route routes[BOARD_ROUTES]; /* the last is shared by routes without room */
    struct board_store stores[BOARD_STORES]; /* likewise */
    _Atomic uint32_t turn;                   /* number of calls of board_stores_next_turn() */
    struct board_process processes[BOARD_PROCESSES];
    _Atomic uint64_t notes_n;
    struct board_note_slot notes[BOARD_NOTES];
    _Atomic int64_t sampled_ms;
    _Atomic uint64_t samples_n;
    struct board_sample samples[BOARD_SAMPLES];
};

#define BOARD_SIZE sizeof(struct board)
/* Memory with another layout is not reused. */
#define BOARD_LAYOUT ((uint32_t)(sizeof(struct board) << 4 | 1))

/* Initializes zeroed memory as a board, or reuses an existing one; false: that has another
   layout. */
bool board_init(struct board *board);

/* Returns the route of these names, and makes it if it is new; never NULL: if the board is full it
   is the last one, "other". Only one process may call it at a time. */
struct board_route *board_route(struct board *board, const char *door, const char *name,
                                const char *policy);
struct board_store *board_store(struct board *board, const char *url);
/* Marks as unused all stores that were not named since the last call. */
void board_stores_next_turn(struct board *board);
/* Sets the store of a route's records. The getter returns NULL if it is not set, or is the shared
   last one. */
void board_route_set_store(struct board *board, struct board_route *route,
                           const struct board_store *store);
const struct board_store *board_route_store(const struct board *board,
                                            const struct board_route *route);

/* Returns a slot for this process, possibly that of a process that has exited; never NULL: if all
   are in use it is the last one, which is not shown. */
struct board_process *board_process(struct board *board, int32_t pid);
void board_process_leave(struct board_process *process);

static inline void board_add(_Atomic uint64_t *at, uint64_t n) {
    atomic_fetch_add_explicit(at, n, memory_order_relaxed);
}

static inline void board_change(_Atomic int64_t *at, int64_t by) {
    atomic_fetch_add_explicit(at, by, memory_order_relaxed);
}

/* Record that the store responded, or that an operation failed, now. */
void board_store_answered(struct board_store *store);
void board_store_failed(struct board_store *store);

static inline uint64_t board_get(const _Atomic uint64_t *at) {
    return atomic_load_explicit(at, memory_order_relaxed);
}

void board_observe(struct board_histogram *histogram, int64_t us);

/* The hash (64 digits) and the label may be NULL. */
void board_refused(struct board *board, const struct board_route *route, enum board_verdict verdict,
                   const char *hash, const char *label);
/* Returns the number of notes; the newest is first. */
size_t board_notes(const struct board *board, struct board_note *ret, size_t max);

void board_survey_set(struct board_store *store, const struct board_survey *survey);
/* at_ms is 0 if there is no survey, if the store is no longer in use, or if several stores share
   the last slot. */
void board_survey_get(const struct board *board, const struct board_store *store,
                      struct board_survey *ret);

/* Takes a sample if the last one is old enough. Any process may call it; one of them samples. */
void board_sample(struct board *board);
/* Returns the number of samples; the oldest is first. */
size_t board_samples(const struct board *board, struct board_sample *ret, size_t max);

/* Sums the gauges of the live processes. */
void board_processes(const struct board *board, struct board_process *ret);

/* The quantile of `per_mille`, in us, computed from counts by bucket; 0 without counts. Values
   within a bucket are assumed to be evenly spread. */
int64_t board_quantile(const uint64_t counts[BOARD_BOUNDS + 1], unsigned per_mille);

const char *board_verdict_name(enum board_verdict verdict);
enum board_verdict board_verdict_find(const char *name); /* BOARD_VERDICTS: unknown name */
const char *board_count_name(enum board_count count);

/* Milliseconds since 1970. */
int64_t board_now(void);

#endif
