/*
 * Writes and reads the counts. There are no locks: numbers are added atomically, names are written
 * once before they become visible, and longer data is written between two steps of a sequence
 * number (a seqlock), so that a reader sees all of it or none.
 */
#include "metric/metric_board.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "store/store.h"

const int64_t board_bounds[BOARD_BOUNDS] = {
    50,    100,    250,    500,    1000,    2500,    5000,    10000,    25000,
    50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000,
};

int64_t board_now(void) {
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool board_init(struct board *board) {
    if (atomic_load(&board->made) != 0)
        return board->layout == BOARD_LAYOUT;
    board->layout = BOARD_LAYOUT;
    board->started_ms = board_now();
    atomic_store(&board->made, 1);
    return true;
}

/* Names. */

/* Copies as much of the name as fits, up to the end of a character, and replaces control
   characters. */
static void board_name_set(char *to, size_t size, const char *from) {
    size_t n = strlen(from);

    if (n >= size) {
        n = size - 1;
        while (n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80)
            n--;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = (char)((unsigned char)from[i] < 0x20 || from[i] == 0x7f ? '?' : from[i]);
    to[n] = '\0';
}

static void board_route_set_name(struct board_route *route, const char *door, const char *name,
                                 const char *policy) {
    board_name_set(route->door, sizeof(route->door), door);
    board_name_set(route->name, sizeof(route->name), name);
    board_name_set(route->policy, sizeof(route->policy), policy);
}

static bool board_route_is(const struct board_route *a, const struct board_route *b) {
    return strcmp(a->door, b->door) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->policy, b->policy) == 0;
}

struct board_route *board_route(struct board *board, const char *door, const char *name,
                                const char *policy) {
    struct board_route *route = NULL, wanted;

    board_route_set_name(&wanted, door, name, policy);
    for (size_t i = 0; i < BOARD_ROUTES; i++) {
        route = &board->routes[i];
        if (atomic_load(&route->used) == 0)
            break;
        if (board_route_is(route, &wanted) || i == BOARD_ROUTES - 1)
            return route;
    }
    if (route == &board->routes[BOARD_ROUTES - 1])
        board_route_set_name(route, door, "other", "other");
    else
        board_route_set_name(route, door, name, policy);
    atomic_store(&route->used, 1);
    return route;
}

static bool board_store_is_shared(const struct board *board, const struct board_store *store) {
    return store == &board->stores[BOARD_STORES - 1];
}

struct board_store *board_store(struct board *board, const char *url) {
    struct board_store *store = NULL;
    char text[512], name[BOARD_STORE_MAX + 1];

    board_name_set(name, sizeof(name), idem_url_public(url, text, sizeof(text)));
    for (size_t i = 0; i < BOARD_STORES; i++) {
        store = &board->stores[i];
        if (atomic_load(&store->used) == 0)
            break;
        if (strcmp(store->name, name) == 0 || i == BOARD_STORES - 1)
            break;
    }
    atomic_store(&store->turn, atomic_load(&board->turn) + 1);
    if (atomic_load(&store->used) != 0)
        return store;
    board_name_set(store->name, sizeof(store->name),
                   board_store_is_shared(board, store) ? "other" : name);
    atomic_store(&store->used, 1);
    return store;
}

void board_stores_next_turn(struct board *board) {
    atomic_fetch_add(&board->turn, 1);
}

void board_route_set_store(struct board *board, struct board_route *route,
                           const struct board_store *store) {
    atomic_store(&route->store, (uint32_t)(store - board->stores) + 1);
}

const struct board_store *board_route_store(const struct board *board,
                                            const struct board_route *route) {
    uint32_t at = atomic_load(&route->store);

    return at == 0 || at >= BOARD_STORES ? NULL : &board->stores[at - 1];
}

void board_store_answered(struct board_store *store) {
    atomic_store_explicit(&store->answered_ms, board_now(), memory_order_relaxed);
}

void board_store_failed(struct board_store *store) {
    atomic_store_explicit(&store->failed_ms, board_now(), memory_order_relaxed);
}

/* Processes. */

static bool board_process_is_alive(int32_t pid) {
    return pid != 0 && (kill(pid, 0) == 0 || errno != ESRCH);
}

static void board_process_clear(struct board_process *process) {
    atomic_store(&process->parked, 0);
    atomic_store(&process->running, 0);
    atomic_store(&process->in_hand, 0);
    atomic_store(&process->working, 0);
}

struct board_process *board_process(struct board *board, int32_t pid) {
    for (size_t i = 0; i + 1 < BOARD_PROCESSES; i++) {
        struct board_process *process = &board->processes[i];
        int32_t before = atomic_load(&process->pid);

        if (before != pid && board_process_is_alive(before))
            continue;
        if (atomic_compare_exchange_strong(&process->pid, &before, pid)) {
            board_process_clear(process);
            return process;
        }
    }
    return &board->processes[BOARD_PROCESSES -
                             1]; /* shared by the processes without a slot, and not shown */
}

void board_process_leave(struct board_process *process) {
    board_process_clear(process);
    atomic_store(&process->pid, 0);
}

void board_processes(const struct board *board, struct board_process *ret) {
    *ret = (struct board_process){0};
    for (size_t i = 0; i + 1 < BOARD_PROCESSES; i++) {
        const struct board_process *process = &board->processes[i];

        if (!board_process_is_alive(atomic_load(&process->pid)))
            continue;
        ret->parked += atomic_load(&process->parked);
        ret->running += atomic_load(&process->running);
        ret->in_hand += atomic_load(&process->in_hand);
        ret->working += atomic_load(&process->working);
    }
}

/* Times. */

void board_observe(struct board_histogram *histogram, int64_t us) {
    size_t i = 0;

    while (i < BOARD_BOUNDS && us > board_bounds[i])
        i++;
    board_add(&histogram->counts[i], 1);
    if (us > 0)
        board_add(&histogram->sum_us, (uint64_t)us);
}

int64_t board_quantile(const uint64_t counts[BOARD_BOUNDS + 1], unsigned per_mille) {
    uint64_t total = 0, below = 0;
    double rank;

    for (size_t i = 0; i <= BOARD_BOUNDS; i++)
        total += counts[i];
    if (total == 0)
        return 0;
    rank = (double)total * per_mille / 1000;
    for (size_t i = 0; i < BOARD_BOUNDS; i++) {
        int64_t low = i == 0 ? 0 : board_bounds[i - 1];

        if ((double)(below + counts[i]) >= rank && counts[i] > 0)
            return low + (int64_t)((double)(board_bounds[i] - low) * (rank - (double)below) /
                                   (double)counts[i]);
        below += counts[i];
    }
    return board_bounds[BOARD_BOUNDS - 1];
}

/* Seqlocks, for data longer than a number. Each word is stored with release order after the
   sequence number becomes odd: a reader that sees a new word also sees that the sequence number
   has changed. */

static void board_seq_write(_Atomic uint32_t *seq, uint64_t *to, const uint64_t *from,
                            size_t size) {
    uint32_t at = atomic_load_explicit(seq, memory_order_relaxed);

    at |= 1; /* it may be odd already, if a writer has died */
    atomic_store_explicit(seq, at, memory_order_relaxed);
    for (size_t i = 0; i < size / sizeof(*to); i++)
        __atomic_store_n(&to[i], from[i], __ATOMIC_RELEASE);
    atomic_store_explicit(seq, at + 1, memory_order_release);
}

/* False: a write is in progress, or its writer has died. */
static bool board_seq_read(const _Atomic uint32_t *seq, uint64_t *to, const uint64_t *from,
                           size_t size) {
    for (int tries = 0; tries < 100; tries++) {
        uint32_t at = atomic_load_explicit(seq, memory_order_acquire);

        for (size_t i = 0; i < size / sizeof(*to); i++)
            to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
        if ((at & 1) == 0 && atomic_load_explicit(seq, memory_order_relaxed) == at)
            return true;
    }
    return false;
}

/* Both structs have a 64-bit member, so their size is a multiple of a word. */
#define SEQ_WRITE(seq, to, from)                                                                   \
    board_seq_write(seq, (uint64_t *)(void *)(to), (const uint64_t *)(const void *)(from),         \
                    sizeof(*(to)))
#define SEQ_READ(seq, to, from)                                                                    \
    board_seq_read(seq, (uint64_t *)(void *)(to), (const uint64_t *)(const void *)(from),          \
                   sizeof(*(to)))

void board_refused(struct board *board, const struct board_route *route, enum board_verdict verdict,
                   const char *hash, const char *label) {
    struct board_note note = {.route = (uint32_t)(route - board->routes),
                              .verdict = (uint32_t)verdict,
                              .at_ms = board_now()};
    uint64_t n = atomic_fetch_add(&board->notes_n, 1);
    struct board_note_slot *slot = &board->notes[n % BOARD_NOTES];

    if (hash != NULL)
        snprintf(note.hash, sizeof(note.hash), "%s", hash);
    if (label != NULL)
        board_name_set(note.label, sizeof(note.label), label);
    SEQ_WRITE(&slot->seq, &slot->note, &note);
}

size_t board_notes(const struct board *board, struct board_note *ret, size_t max) {
    uint64_t end = atomic_load(&board->notes_n), n = end < BOARD_NOTES ? end : BOARD_NOTES;
    size_t found = 0;

    for (uint64_t i = 0; i < n && found < max; i++) {
        const struct board_note_slot *slot = &board->notes[(end - 1 - i) % BOARD_NOTES];
        struct board_note *note = &ret[found];

        if (SEQ_READ(&slot->seq, note, &slot->note) && note->at_ms != 0 &&
            note->route < BOARD_ROUTES && note->verdict < BOARD_VERDICTS)
            found++;
    }
    return found;
}

void board_survey_set(struct board_store *store, const struct board_survey *survey) {
    SEQ_WRITE(&store->survey_seq, &store->survey, survey);
}

void board_survey_get(const struct board *board, const struct board_store *store,
                      struct board_survey *ret) {
    if (atomic_load(&store->turn) < atomic_load(&board->turn) ||
        board_store_is_shared(board, store) || !SEQ_READ(&store->survey_seq, ret, &store->survey))
        *ret = (struct board_survey){0};
}

/* Samples. */

static void board_sample_fill(const struct board *board, struct board_sample *sample) {
    for (size_t i = 0; i < BOARD_ROUTES && atomic_load(&board->routes[i].used) != 0; i++)
        for (size_t v = 0; v < BOARD_VERDICTS; v++)
            sample->verdicts[v] += board_get(&board->routes[i].verdicts[v]);
    for (size_t i = 0; i < BOARD_STORES && atomic_load(&board->stores[i].used) != 0; i++)
        for (size_t b = 0; b <= BOARD_BOUNDS; b++)
            sample->ops[b] += board_get(&board->stores[i].ops[BOARD_OP_CLAIM].counts[b]) +
                              board_get(&board->stores[i].ops[BOARD_OP_FINISH].counts[b]);
}

void board_sample(struct board *board) {
    int64_t now = board_now(), last = atomic_load(&board->sampled_ms);
    struct board_sample sample = {.at_ms = now};
    uint64_t n;

    /* If the clock was set back, the next sample must not wait until it catches up. */
    if (now >= last && now - last < BOARD_SAMPLE_MS)
        return;
    if (!atomic_compare_exchange_strong(&board->sampled_ms, &last, now))
        return;
    board_sample_fill(board, &sample);
    n = atomic_load(&board->samples_n);
    board->samples[n % BOARD_SAMPLES] = sample;
    atomic_store(&board->samples_n, n + 1);
}

size_t board_samples(const struct board *board, struct board_sample *ret, size_t max) {
    uint64_t end = atomic_load(&board->samples_n);
    uint64_t n =
        end < BOARD_SAMPLES - 1 ? end : BOARD_SAMPLES - 1; /* the next slot is being written */

    if (n > max)
        n = max;
    for (uint64_t i = 0; i < n; i++)
        ret[i] = board->samples[(end - n + i) % BOARD_SAMPLES];
    return (size_t)n;
}

const char *board_verdict_name(enum board_verdict verdict) {
    static const char *const names[BOARD_VERDICTS] = {
        [BOARD_RUN] = "run",
        [BOARD_OPEN] = "open",
        [BOARD_REPLAY] = "replay",
        [BOARD_DUPLICATE] = "duplicate",
        [BOARD_BUSY] = "busy",
        [BOARD_MISMATCH] = "mismatch",
        [BOARD_UNCERTAIN] = "uncertain",
        [BOARD_DEAD] = "dead",
        [BOARD_NO_TOKEN] = "no_token",
        [BOARD_MISSING] = "missing",
        [BOARD_MALFORMED] = "malformed",
        [BOARD_SIGNED] = "signed",
        [BOARD_SIGNATURE_INCOMPLETE] = "signature_incomplete",
        [BOARD_SIGNATURE_STALE] = "signature_stale",
        [BOARD_SIGNATURE_WRONG] = "signature_wrong",
        [BOARD_NONCE_REUSED] = "nonce_reused",
        [BOARD_STORE_ERROR] = "store_error",
    };

    return names[verdict];
}

enum board_verdict board_verdict_find(const char *name) {
    int verdict = 0;

    while (verdict < BOARD_VERDICTS &&
           strcmp(name, board_verdict_name((enum board_verdict)verdict)) != 0)
        verdict++;
    return (enum board_verdict)verdict;
}

const char *board_count_name(enum board_count count) {
    static const char *const names[BOARD_COUNTS] = {
        [BOARD_TOKEN_ISSUED] = "tokens_issued", [BOARD_TOKEN_SPENT] = "tokens_spent",
        [BOARD_NOT_KEPT] = "results_not_kept",  [BOARD_LOST] = "lost",
        [BOARD_CANCELLED] = "cancelled",        [BOARD_UNKNOWN] = "unknown",
        [BOARD_SHADOWED] = "shadowed",          [BOARD_DONE] = "messages_done",
        [BOARD_RETRIED] = "messages_retried",   [BOARD_BURIED] = "messages_buried",
        [BOARD_UNBURIED] = "messages_unburied",
    };

    return names[count];
}
