/*
 * UUIDs (RFC 9562). Version 4 is random. Version 7 is the time in ms, a counter of 42 bits that
 * starts at a random value in its lower half each ms and is incremented, and 32 random bits:
 * ordered within a process, and random enough never to meet another process's.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/hash.h"
#include "core/id.h"

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
