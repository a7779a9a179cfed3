/*
 * Snowflakes: numbers of 63 bits that grow with time. 41 bits of ms since
 * 2020-01-01, 10 bits of worker, 12 bits of sequence.
 *
 * A worker id is leased: a counter in the store that lives as long as the lease,
 * and that only its holder can raise by one. Before a number is given out, its
 * ms is reserved in a second counter of that worker, which only grows and is
 * kept for ever: so no ms is given to two, whatever clocks do, whoever was
 * stopped or killed, and even if two believed to hold the same worker.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/fork.h"
#include "core/handle.h"
#include "core/hash.h"
#include "core/id.h"
#include "loop/loop.h"
#include "store/store.h"

#define EPOCH_MS 1577836800000 /* 2020-01-01T00:00:00Z */
#define WORKERS 1024
#define SEQUENCES 4096
#define TIME_MAX (((int64_t)1 << 41) - 1)
#define LEASE_MS 60000
#define FOREVER_MS ((int64_t)100 * 365 * 24 * 3600 * 1000)
/* Of ms reserved at a time: few for who needs one number, more while they are used up. */
#define WINDOW_MAX_MS 1000

struct idem_snowflake {
    pthread_mutex_t lock;
    struct idem *h;
    unsigned forks;
    char name[IDEM_PREFIX_MAX + 1];
    int worker;        /* -1: none */
    int64_t turn;      /* what its counter was raised to */
    int64_t lease_end; /* by our own clock, from before the store was asked */
    int64_t ms, end;   /* the ms in use, and the last one that is ours */
    int sequence;      /* the next in that ms */
    int64_t window;    /* how many to reserve next */
    int64_t shift_ms;  /* of the clock, for tests */
};

static int count(struct idem_snowflake *s, const char *what, int worker, struct idem_count_in in,
                 struct idem_op *op, struct idem_error *err) {
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

/* Takes or keeps a worker: true if its counter could be raised by one. */
static int worker_raise(struct idem_snowflake *s, int worker, int64_t turn, int64_t ttl_ms,
                        bool *ret_got, struct idem_error *err) {
    int64_t asked = idem_loop_now();
    struct idem_op op;
    int rc = count(s, "worker", worker,
                   (struct idem_count_in){.how = IDEM_COUNT_NEXT, .value = turn, .ttl_ms = ttl_ms},
                   &op, err);

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

/* From a random place on, so that many who start together do not all ask for the same. */
static int worker_take(struct idem_snowflake *s, struct idem_error *err) {
    unsigned start;
    bool got = false;
    int rc = 0;

    s->worker = -1;
    s->ms = s->end = 0;
    s->window = 1;
    if (idem_random(&start, sizeof(start)) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "no random bits from the system");
    for (unsigned i = 0; i < WORKERS && rc == 0 && !got; i++)
        rc = worker_raise(s, (int)((start + i) % WORKERS), 1, LEASE_MS, &got, err);
    if (rc == 0 && !got)
        rc = idem_error_set(err, IDEM_E_REFUSED,
                            "all %d worker ids of \"%s\" are in use; one that was not given back "
                            "is free again after %d s",
                            WORKERS, s->name, LEASE_MS / 1000);
    return rc;
}

/* Kept from a third of the lease on. One that is over by our clock is not asked for again: its
   counter may stand where ours did, and be somebody else's. */
static int worker_keep(struct idem_snowflake *s, struct idem_error *err) {
    int64_t left = s->lease_end - idem_loop_now();
    bool got = false;
    int rc;

    if (s->worker < 0 || left <= 0)
        return worker_take(s, err);
    if (left > LEASE_MS * 2 / 3)
        return 0;
    rc = worker_raise(s, s->worker, s->turn + 1, LEASE_MS, &got, err);
    return rc != 0 || got ? rc : worker_take(s, err);
}

/* The counter is raised to the present, then by the window: what it was raised by is ours. */
static int window_reserve(struct idem_snowflake *s, int64_t now, struct idem_error *err) {
    struct idem_op op;
    int rc;

    rc = worker_keep(s, err);
    if (rc == 0)
        rc = count(s, "time", s->worker,
                   (struct idem_count_in){IDEM_COUNT_RAISE, now - 1, FOREVER_MS}, &op, err);
    if (rc == 0)
        rc = count(s, "time", s->worker,
                   (struct idem_count_in){IDEM_COUNT_ADD, s->window, FOREVER_MS}, &op, err);
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

/* Moves to the present within the window; false if that is used up. */
static bool window_move(struct idem_snowflake *s, int64_t now) {
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
    if (!window_move(s, now))
        rc = window_reserve(s, now, err);
    if (rc == 0)
        *ret = s->ms << 22 | (int64_t)s->worker << 12 | s->sequence++;
    else
        s->end = 0; /* what was reserved, if anything, is left unused */
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
    rc = worker_take(s, err);
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

/* The worker is given back: its counter lives for a moment more. */
void idem_snowflake_free(struct idem_snowflake *s) {
    bool got;

    if (s == NULL)
        return;
    if (s->forks == idem_fork_count() && s->worker >= 0 && idem_loop_now() < s->lease_end)
        (void)worker_raise(s, s->worker, s->turn + 1, 1, &got, NULL);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
