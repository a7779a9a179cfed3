/*
 * Identifiers: UUIDs, and numbers in the manner of Snowflake.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/hash.h"
#include "core/handle.h"
#include "core/id.h"
#include "loop/loop.h"
#include "protocol/record_key.h"
#include "store/store.h"

/*
 * UUIDs (RFC 9562). Version 4 is random. Version 7 is the time in ms, a counter of 42 bits that
 * starts at a random value in its lower half each ms and is incremented, and 32 random bits:
 * ordered within a process, and random enough never to meet another process's.
 */

#define COUNTER_BITS 42

static struct {
    pthread_mutex_t lock;
    int64_t ms; /* never goes back */
    uint64_t counter;
    unsigned forks;
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void uuid_lock(void) {
    pthread_mutex_lock(&last.lock);
}

static void uuid_unlock(void) {
    pthread_mutex_unlock(&last.lock);
}

/* A child must not inherit the lock held by a thread that does not exist there. */
static void uuid_init_fork(void) {
    idem_fork_watch();
    (void)pthread_atfork(uuid_lock, uuid_unlock, uuid_unlock);
}

int64_t idem_wall_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Takes the next place in the order. If the clock went back, the counter continues until the
   clock catches up. A forked child begins a ms of its own, because its parent continues from
   the same place. */
static void uuid_take_place(int64_t now, uint64_t random, int64_t *ret_ms, uint64_t *ret_counter) {
    pthread_mutex_lock(&last.lock);
    if (last.forks != idem_fork_count()) {
        last.forks = idem_fork_count();
        last.counter = UINT64_MAX;
    }
    if (now > last.ms || last.counter >= ((uint64_t)1 << COUNTER_BITS) - 1) {
        last.ms = now > last.ms ? now : last.ms + 1;
        last.counter = random >> (64 - COUNTER_BITS + 1);
    } else {
        last.counter++;
    }
    *ret_ms = last.ms;
    *ret_counter = last.counter;
    pthread_mutex_unlock(&last.lock);
}

static void uuid_format(uint64_t high, uint64_t low, char out[IDEM_UUID_LEN + 1]) {
    snprintf(out, IDEM_UUID_LEN + 1, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff), (unsigned)(low >> 48),
             (unsigned long long)(low & 0xffffffffffff));
}

static const uint64_t variant = (uint64_t)1 << 63;

int idem_uuid7_at(int64_t now, char out[IDEM_UUID_LEN + 1], struct idem_error *err) {
    uint64_t random[2], counter;
    int64_t ms;

    if (idem_random(random, sizeof(random)) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "no random bits from the system");
    pthread_once(&once, uuid_init_fork);
    uuid_take_place(now, random[0], &ms, &counter);
    uuid_format((uint64_t)ms << 16 | 0x7000 | counter >> 30,
                variant | (counter & 0x3fffffff) << 32 | (random[1] & 0xffffffff), out);
    return 0;
}

int idem_uuid7(char out[IDEM_UUID_LEN + 1], struct idem_error *err) {
    return idem_need(out, err) != 0 ? IDEM_E_INVALID : idem_uuid7_at(idem_wall_ms(), out, err);
}

int idem_uuid4(char out[IDEM_UUID_LEN + 1], struct idem_error *err) {
    uint64_t random[2];

    if (idem_need(out, err) != 0)
        return IDEM_E_INVALID;
    if (idem_random(random, sizeof(random)) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "no random bits from the system");
    uuid_format((random[0] & ~(uint64_t)0xf000) | 0x4000, variant | random[1] >> 2, out);
    return 0;
}

/*
 * Snowflakes: numbers of 63 bits that grow with time. 41 bits of ms since 2020-01-01, 10 bits of
 * worker, 12 bits of sequence.
 *
 * A worker id is leased: it is a counter in the store that lives as long as the lease, and that
 * only its holder can raise by one. Before a number is issued, its ms is reserved in a second
 * counter of that worker, which only grows and is kept for ever. So no ms is issued twice: not if
 * clocks jump, not if a process is stopped or killed, and not if two processes believe they hold
 * the same worker.
 */

#define EPOCH_MS 1577836800000 /* 2020-01-01T00:00:00Z */
#define WORKERS 1024
#define SEQUENCES 4096
#define TIME_MAX (((int64_t)1 << 41) - 1)
#define LEASE_MS 60000
#define FOREVER_MS ((int64_t)100 * 365 * 24 * 3600 * 1000)
/* Number of ms reserved at once: 1 at first, doubled with each reservation up to this limit. */
#define WINDOW_MAX_MS 1000

struct idem_snowflake {
    pthread_mutex_t lock;
    struct idem *h;
    unsigned forks;
    char name[IDEM_PREFIX_MAX + 1];
    int worker;        /* -1: none */
    int64_t turn;      /* the value to which its counter was raised */
    int64_t lease_end; /* by our own clock, from before the request to the store */
    int64_t ms, end;   /* the ms in use, and the last reserved ms */
    int sequence;      /* the next number in that ms */
    int64_t window;    /* the number of ms to reserve next */
    int64_t shift_ms;  /* added to the clock, for tests */
};

static int snowflake_count(struct idem_snowflake *s, const char *what, int worker,
                           struct idem_count_in in, struct idem_op *op, struct idem_error *err) {
    char key[64];
    int len = snprintf(key, sizeof(key), "snowflake %s %d", what, worker);
    int rc;

    *op = (struct idem_op){.kind = IDEM_OP_COUNT, .in.count = in};
    rc = idem_record_key_make(
        &op->key, IDEM_NAME_COUNTER, (struct idem_bytes){(unsigned char *)s->name, strlen(s->name)},
        (struct idem_bytes){0}, (struct idem_bytes){(unsigned char *)key, len});
    if (rc != 0)
        return idem_error_set(err, rc, "no memory for a counter's name");
    return idem_handle_run(s->h, op, NULL, err);
}

/* Acquires or renews a worker: *ret_got is true if its counter could be raised by one. */
static int snowflake_raise_worker(struct idem_snowflake *s, int worker, int64_t turn,
                                  int64_t ttl_ms, bool *ret_got, struct idem_error *err) {
    int64_t asked = idem_loop_now();
    struct idem_op op;
    int rc = snowflake_count(
        s, "worker", worker,
        (struct idem_count_in){.how = IDEM_COUNT_NEXT, .value = turn, .ttl_ms = ttl_ms}, &op, err);

    if (rc != 0)
        return rc;
    *ret_got = op.out.count.changed;
    if (*ret_got) {
        s->worker = worker;
        s->turn = turn;
        s->lease_end = asked + ttl_ms;
    }
    return 0;
}

/* Starts at a random worker, so that many processes that start together do not all try the
   same. */
static int snowflake_acquire_worker(struct idem_snowflake *s, struct idem_error *err) {
    unsigned start;
    bool got = false;
    int rc = 0;

    s->worker = -1;
    s->ms = s->end = 0;
    s->window = 1;
    if (idem_random(&start, sizeof(start)) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "no random bits from the system");
    for (unsigned i = 0; i < WORKERS && rc == 0 && !got; i++)
        rc = snowflake_raise_worker(s, (int)((start + i) % WORKERS), 1, LEASE_MS, &got, err);
    if (rc == 0 && !got)
        rc = idem_error_set(err, IDEM_E_REFUSED,
                            "all %d worker ids of \"%s\" are in use; one that was not given back "
                            "is free again after %d s",
                            WORKERS, s->name, LEASE_MS / 1000);
    return rc;
}

/* Renews the worker after a third of its lease. A worker whose lease is over by our clock is
   not renewed: its counter may have our value again, but belong to another process. */
static int snowflake_renew_worker(struct idem_snowflake *s, struct idem_error *err) {
    int64_t left = s->lease_end - idem_loop_now();
    bool got = false;
    int rc;

    if (s->worker < 0 || left <= 0)
        return snowflake_acquire_worker(s, err);
    if (left > LEASE_MS * 2 / 3)
        return 0;
    rc = snowflake_raise_worker(s, s->worker, s->turn + 1, LEASE_MS, &got, err);
    return rc != 0 || got ? rc : snowflake_acquire_worker(s, err);
}

/* Raises the counter to the present, then adds the window: the ms that were added are ours. */
static int snowflake_reserve_window(struct idem_snowflake *s, int64_t now, struct idem_error *err) {
    struct idem_op op;
    int rc;

    rc = snowflake_renew_worker(s, err);
    if (rc == 0)
        rc = snowflake_count(s, "time", s->worker,
                             (struct idem_count_in){IDEM_COUNT_RAISE, now - 1, FOREVER_MS}, &op,
                             err);
    if (rc == 0)
        rc = snowflake_count(s, "time", s->worker,
                             (struct idem_count_in){IDEM_COUNT_ADD, s->window, FOREVER_MS}, &op,
                             err);
    if (rc != 0)
        return rc;
    s->end = op.out.count.value;
    s->ms = s->end - s->window + 1;
    s->sequence = 0;
    if (s->window < WINDOW_MAX_MS)
        s->window *= 2;
    return s->end <= TIME_MAX
               ? 0
               : idem_error_set(err, IDEM_E_CLOCK, "snowflakes have no room for a time after 2089");
}

/* Moves to the present within the window; false if the window is used up. */
static bool snowflake_advance(struct idem_snowflake *s, int64_t now) {
    if (s->sequence == SEQUENCES) {
        s->ms++;
        s->sequence = 0;
    }
    if (now > s->ms) {
        s->ms = now;
        s->sequence = 0;
    }
    return s->worker >= 0 && s->ms <= s->end;
}

int idem_snowflake_next(struct idem_snowflake *s, int64_t *ret, struct idem_error *err) {
    int64_t now;
    int rc = 0;

    if (idem_need(s, err) != 0 || idem_need(ret, err) != 0)
        return IDEM_E_INVALID;
    if (s->forks != idem_fork_count())
        return idem_error_set(err, IDEM_E_FORK,
                              "the snowflakes were opened before a fork; open them in the process "
                              "that uses them");
    now = idem_wall_ms() - EPOCH_MS + s->shift_ms;
    if (now < 1)
        return idem_error_set(err, IDEM_E_CLOCK, "the machine's clock stands before 2020");
    pthread_mutex_lock(&s->lock);
    if (!snowflake_advance(s, now))
        rc = snowflake_reserve_window(s, now, err);
    if (rc == 0)
        *ret = s->ms << 22 | (int64_t)s->worker << 12 | s->sequence++;
    else
        s->end = 0; /* a window that may have been reserved stays unused */
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int idem_snowflake_new(struct idem *h, const char *name, struct idem_snowflake **ret,
                       struct idem_error *err) {
    struct idem_snowflake *s;
    int rc;

    if ((rc = idem_need(h, err)) != 0 || (rc = idem_need(ret, err)) != 0 ||
        (rc = idem_handle_check_blocking(h, err)) != 0)
        return rc;
    if (name == NULL)
        name = "idem:";
    if (name[0] == '\0' || strlen(name) > IDEM_PREFIX_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "a snowflake's name has 1 to %d bytes",
                              IDEM_PREFIX_MAX);
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for snowflakes");
    pthread_mutex_init(&s->lock, NULL);
    s->h = h;
    s->forks = idem_fork_count();
    memcpy(s->name, name, strlen(name) + 1);
    rc = snowflake_acquire_worker(s, err);
    if (rc != 0) {
        idem_snowflake_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void idem_snowflake_shift(struct idem_snowflake *s, int64_t ms) {
    s->shift_ms = ms;
}

/* Gives the worker back: its counter expires after 1 ms. */
void idem_snowflake_free(struct idem_snowflake *s) {
    bool got;

    if (s == NULL)
        return;
    if (s->forks == idem_fork_count() && s->worker >= 0 && idem_loop_now() < s->lease_end)
        (void)snowflake_raise_worker(s, s->worker, s->turn + 1, 1, &got, NULL);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
