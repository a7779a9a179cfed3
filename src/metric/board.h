/*
 * The board: what has happened, counted in memory that processes share (nginx's workers) or that
 * one has for itself. Whoever counts adds to it without a lock, and whoever is asked reads it
 * (text.c, json.c). No key, no user and no body is ever written here: a record is known by its
 * hash, and by the label that its policy was told to show.
 *
 * The memory is one piece of BOARD_SIZE bytes that begins as zeros, holds no pointers, and outlives
 * any of its processes. One that dies in the middle of a write leaves a note that nobody reads, and
 * its gauges are left out once it is gone.
 *
 *     rows       one for each route and policy: verdicts, and what is counted beside them
 *     stores     one for each store: how long it took to answer, its errors, its records
 *     processes  what goes on now in each
 *     notes      the newest refusals, in a ring
 *     samples    the sums of every few seconds, in a ring: the last quarter of an hour
 */
#ifndef IDEM_METRIC_BOARD_H
#define IDEM_METRIC_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "idem.h"

#define BOARD_ROUTE_MAX 191
#define BOARD_STORE_MAX 127

#define BOARD_ROWS 512
#define BOARD_STORES 17
#define BOARD_PROCESSES 256
#define BOARD_NOTES 64
#define BOARD_OLDEST 20

#define BOARD_SAMPLE_MS 5000
#define BOARD_SAMPLES 181

/* How a request or message was answered; each has exactly one. */
enum board_verdict {
    BOARD_RUN,
    BOARD_OPEN, /* run unguarded: the store was away */
    BOARD_REPLAY,
    BOARD_DUPLICATE,
    BOARD_BUSY,
    BOARD_MISMATCH,
    BOARD_UNCERTAIN,
    BOARD_DEAD,
    BOARD_NO_TOKEN,
    BOARD_MISSING,
    BOARD_MALFORMED,
    BOARD_SIGNED, /* and nothing else was asked */
    BOARD_SIGNATURE_INCOMPLETE,
    BOARD_SIGNATURE_STALE,
    BOARD_SIGNATURE_WRONG,
    BOARD_NONCE_REUSED,
    BOARD_STORE_ERROR,
    BOARD_VERDICTS
};

/* What is counted of a row beside them. */
enum board_count {
    BOARD_TOKEN_ISSUED,
    BOARD_TOKEN_SPENT,
    BOARD_NOT_KEPT,  /* done, and its result was not stored: too long, a stream, not wanted, no room
                      */
    BOARD_LOST,      /* superseded while it ran */
    BOARD_CANCELLED, /* its run was ended, since its lease was lost or run_max over */
    BOARD_UNKNOWN,   /* ended without anybody knowing what came of it */
    BOARD_SHADOWED,  /* would have been answered otherwise, if it were enforced */
    BOARD_DONE,      /* messages: handled */
    BOARD_RETRIED,   /* to be tried again */
    BOARD_BURIED,    /* put among the dead letters */
    BOARD_UNBURIED,  /* a dead letter that was not taken */
    BOARD_COUNTS
};

enum board_op { BOARD_OP_CLAIM, BOARD_OP_FINISH, BOARD_OP_OTHER, BOARD_OPS };

/* Upper bounds in microseconds; what is beyond the last has a place of its own. */
#define BOARD_BOUNDS 17
extern const int64_t board_bounds[BOARD_BOUNDS];

struct board_histogram {
    _Atomic uint64_t counts[BOARD_BOUNDS + 1]; /* of this bucket alone */
    _Atomic uint64_t sum_us;
};

/* The names of rows and stores never change once `used` is set. */
struct board_row {
    _Atomic uint32_t used;
    char door[8];                     /* http, queue */
    char route[BOARD_ROUTE_MAX + 1];  /* server and location; a queue's name */
    char policy[IDEM_PREFIX_MAX + 1]; /* the prefix */
    _Atomic uint64_t verdicts[BOARD_VERDICTS];
    _Atomic uint64_t counts[BOARD_COUNTS];
    struct board_histogram handler; /* messages: how long handling took */
    _Atomic uint32_t store;         /* where its records are: 1 + its place; 0: not said */
};

/* A record as a survey has found it. */
struct board_found {
    char hash[65];
    char prefix[IDEM_PREFIX_MAX + 1];
    char label[IDEM_LABEL_MAX + 1];
    char reason[IDEM_REASON_MAX + 1];
    uint32_t attempt;
    int64_t changed_ms; /* since when it runs; by the store's clock */
};

struct board_survey {
    int64_t at_ms; /* 0: never */
    uint64_t running, uncertain;
    int64_t oldest_ms; /* since when the oldest uncertain one runs; 0: there is none */
    uint32_t oldest_n[2];
    struct board_found oldest[2][BOARD_OLDEST]; /* the oldest running, and uncertain, ones */
};

struct board_store {
    _Atomic uint32_t used;
    _Atomic uint32_t turn;          /* in which it was last named */
    char name[BOARD_STORE_MAX + 1]; /* its URL without what may be secret */
    struct board_histogram ops[BOARD_OPS];
    _Atomic uint64_t events[IDEM_EVENT__COUNT];
    _Atomic uint64_t reconnects;
    _Atomic int64_t answered_ms, failed_ms; /* when it last did either; 0: never */
    _Atomic uint32_t survey_seq;            /* odd while it is written; one process writes */
    struct board_survey survey;
};

struct board_process {
    _Atomic int32_t pid; /* 0: free */
    _Atomic int64_t parked, running;
    _Atomic int64_t in_hand, working; /* messages */
};

/* A refusal. */
struct board_note {
    char hash[65]; /* empty: it had no key */
    char label[IDEM_LABEL_MAX + 1];
    uint32_t row;
    uint32_t verdict;
    int64_t at_ms;
};

struct board_note_slot {
    _Atomic uint32_t seq; /* odd while it is written */
    struct board_note note;
};

struct board_sample {
    int64_t at_ms;
    uint64_t verdicts[BOARD_VERDICTS];
    uint64_t ops[BOARD_BOUNDS + 1]; /* of all stores: claims and finishes */
};

struct board {
    _Atomic uint32_t made;
    uint32_t layout; /* BOARD_LAYOUT of who made it */
    int64_t started_ms;
    unsigned char secret[32]; /* of who makes tokens of it; zeros: nobody yet. Never shown */
    struct board_row rows[BOARD_ROWS];       /* the last is for what has no room of its own */
    struct board_store stores[BOARD_STORES]; /* likewise */
    _Atomic uint32_t turn;                   /* how often board_stores_keep() was said */
    struct board_process processes[BOARD_PROCESSES];
    _Atomic uint64_t notes_n;
    struct board_note_slot notes[BOARD_NOTES];
    _Atomic int64_t sampled_ms;
    _Atomic uint64_t samples_n;
    struct board_sample samples[BOARD_SAMPLES];
};

#define BOARD_SIZE sizeof(struct board)
/* Memory of another layout is not taken over. */
#define BOARD_LAYOUT ((uint32_t)(sizeof(struct board) << 4 | 1))

/* Makes a board of zeroed memory, or takes over one that was made before; false: that has another
   layout. */
bool board_init(struct board *board);

/* The row of these names, made if it is new; never NULL: without room it is the last, "other". By
   one process at a time. */
struct board_row *board_row(struct board *board, const char *door, const char *route,
                            const char *policy);
struct board_store *board_store(struct board *board, const char *url);
/* From here on only those stores are in use that were named since this was last said. */
void board_stores_keep(struct board *board);
/* Says where a row's records are; and tells it, NULL if it was not said or is one of several. */
void board_row_keep(struct board *board, struct board_row *row, const struct board_store *store);
const struct board_store *board_row_store(const struct board *board, const struct board_row *row);

/* A place for this process, or one that nobody else uses (a process that has ended); never NULL. */
struct board_process *board_process(struct board *board, int32_t pid);
void board_process_leave(struct board_process *process);

static inline void board_add(_Atomic uint64_t *at, uint64_t n) {
    atomic_fetch_add_explicit(at, n, memory_order_relaxed);
}

static inline void board_change(_Atomic int64_t *at, int64_t by) {
    atomic_fetch_add_explicit(at, by, memory_order_relaxed);
}

/* The store has answered, or it has not done what it was asked for; now. */
void board_store_answered(struct board_store *store);
void board_store_failed(struct board_store *store);

static inline uint64_t board_get(const _Atomic uint64_t *at) {
    return atomic_load_explicit(at, memory_order_relaxed);
}

void board_observe(struct board_histogram *histogram, int64_t us);

/* The hash (64 digits) and the label may be NULL. */
void board_refused(struct board *board, const struct board_row *row, enum board_verdict verdict,
                   const char *hash, const char *label);
/* The newest first; how many. */
size_t board_notes(const struct board *board, struct board_note *ret, size_t max);

void board_survey_set(struct board_store *store, const struct board_survey *survey);
/* at_ms is 0 where there is none: also of a store that is no more in use, and of several that share
   the last place. */
void board_survey_get(const struct board *board, const struct board_store *store,
                      struct board_survey *ret);

/* Takes a sample, if the last one is old enough; whoever comes first. */
void board_sample(struct board *board);
/* The oldest first; how many. */
size_t board_samples(const struct board *board, struct board_sample *ret, size_t max);

/* Of processes that are there. */
void board_processes(const struct board *board, struct board_process *ret);

/* The place below which so many in 1000 lie, in us, of counts by bucket; 0: there are none. Within
   a bucket it is taken as evenly spread. */
int64_t board_quantile(const uint64_t counts[BOARD_BOUNDS + 1], unsigned per_mille);

const char *board_verdict_name(enum board_verdict verdict);
enum board_verdict board_verdict_find(const char *name); /* BOARD_VERDICTS: there is none */
const char *board_count_name(enum board_count count);

/* Milliseconds since 1970. */
int64_t board_now(void);

#endif
