/*
 * UUIDs (RFC 9562). Version 4 is random. Version 7 is the time in ms, a counter
 * of 42 bits that begins anywhere in its lower half each ms and goes up by one,
 * and 32 random bits: in order within a process, and unguessable enough never to
 * meet another's.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "core/error.h"
#include "core/fork.h"
#include "core/hash.h"
#include "core/id.h"

#define COUNTER_BITS 42

static struct {
    pthread_mutex_t lock;
    int64_t ms; /* never goes back */
    uint64_t counter;
    unsigned forks;
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void last_take(void) {
    pthread_mutex_lock(&last.lock);
}

static void last_give(void) {
    pthread_mutex_unlock(&last.lock);
}

/* A fork must not find the lock held by a thread that the child does not have. */
static void fork_init(void) {
    idem_fork_watch();
    (void)pthread_atfork(last_take, last_give, last_give);
}

int64_t idem_wall_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The next place in the order. A clock that went back is waited out by counting on; a child
   begins a ms of its own, because its parent counts on from the same place. */
static void place_take(int64_t now, uint64_t random, int64_t *ret_ms, uint64_t *ret_counter) {
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

static void print(uint64_t high, uint64_t low, char out[IDEM_UUID_LEN + 1]) {
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
    pthread_once(&once, fork_init);
    place_take(now, random[0], &ms, &counter);
    print((uint64_t)ms << 16 | 0x7000 | counter >> 30,
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
    print((random[0] & ~(uint64_t)0xf000) | 0x4000, variant | random[1] >> 2, out);
    return 0;
}
